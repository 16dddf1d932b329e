// SPDX-License-Identifier: Apache-2.0
#pragma once
// The box as a tree: sockets, root ports, switches, GPUs, links as thick as they are wide and coloured by what the simulation
// sends over them, at the time chosen on the timeline or as the peak of the cycle. Links and GPUs can be edited, and a whole box
// comes from what tools print: pasted, opened, or dropped.

#include <optional>

#include "gui/core/box_layout.h"
#include "gui/views/page.h"

class QLabel;
class QPushButton;
class QSlider;
class QCheckBox;

namespace draftboard::gui {

class BoxWidget : public QWidget {
    Q_OBJECT
 public:
    enum class Kind { nothing, node, link };
    struct Choice {
        Kind kind = Kind::nothing;
        int index = -1;
        bool operator==(const Choice&) const = default;
    };

    explicit BoxWidget(QWidget* parent = nullptr);
    void show_box(const model::Machine& machine, std::vector<double> load);
    void set_stale(bool stale);
    [[nodiscard]] Choice chosen() const { return chosen_; }
    void choose(Choice choice);
    [[nodiscard]] QRectF node_rect(int node) const;
    [[nodiscard]] QPointF link_middle(int link) const;
    [[nodiscard]] QSize minimumSizeHint() const override { return {360, 240}; }

 signals:
    void chosen_changed();
    void moved(int gpu, int parent);  ///< a GPU dropped on a port or switch

 protected:
    void paintEvent(QPaintEvent* event) override;
    void mousePressEvent(QMouseEvent* event) override;
    void mouseMoveEvent(QMouseEvent* event) override;
    void mouseReleaseEvent(QMouseEvent* event) override;
    void keyPressEvent(QKeyEvent* event) override;
    bool event(QEvent* event) override;

 private:
    [[nodiscard]] Choice at(QPointF point) const;
    [[nodiscard]] QPointF centre(int node) const;

    model::Machine machine_;
    BoxLayout layout_;
    std::vector<double> load_;  ///< by link, share of capacity of the busier direction
    Choice chosen_;
    bool stale_ = false;
    int dragged_ = -1;
    QPointF drag_at_;
};

class BoxPage : public Page {
    Q_OBJECT
 public:
    explicit BoxPage(Session& session, QWidget* parent = nullptr);
    [[nodiscard]] QWidget* picture() override { return widget_; }
    [[nodiscard]] std::vector<Table> tables() const override;
    [[nodiscard]] BoxWidget& widget() { return *widget_; }
    /// Text of `nvidia-smi topo -m`, an NCCL XML or lstopo's. Empty: taken; else why not.
    QString import_text(const QString& text, const QString& name);
    void set_time(qint64 picoseconds);
    void paste();
    void open_file();

 protected:
    void refresh() override;
    void mark_stale(bool stale) override;

 private:
    void show_load();
    void apply(const QString& what, const model::Expected<model::Machine>& machine);
    void edit_chosen();
    void add_switch();
    void show_choice();

    BoxWidget* widget_ = nullptr;
    QLabel* text_ = nullptr;
    QLabel* message_ = nullptr;
    QPushButton* edit_ = nullptr;
    QPushButton* switch_ = nullptr;
    QCheckBox* peak_ = nullptr;
    QSlider* time_ = nullptr;
    QLabel* time_text_ = nullptr;
};

}  // namespace draftboard::gui
