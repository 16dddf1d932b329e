// SPDX-License-Identifier: Apache-2.0
#pragma once
// The timeline: a row for each rank and stream, zoomed with the wheel or W/S, moved with A/D or the scroll bar, a stretch
// measured by dragging, searched by key. Below it, under the same time axis, the links of the box. What a click chooses is
// explained by the panel below; the time under the cursor goes to the box view.

#include <optional>

#include "gui/core/timeline_view.h"
#include "gui/views/page.h"

class QCheckBox;
class QLabel;
class QLineEdit;
class QScrollBar;

namespace draftboard::gui {

class TimelineWidget : public QWidget {
    Q_OBJECT
 public:
    explicit TimelineWidget(QWidget* parent = nullptr);
    void show_timeline(std::shared_ptr<const Details> details, const model::Machine* machine);
    void set_stale(bool stale);
    void set_search(const QString& text);
    void set_critical_only(bool on);
    /// The next hit of the search, from the chosen slice on.
    void next_hit(int step);
    [[nodiscard]] TimelineView& view() { return view_; }
    [[nodiscard]] const std::vector<SliceRef>& hits() const { return hits_; }
    [[nodiscard]] std::optional<SliceRef> chosen() const { return chosen_; }
    [[nodiscard]] QString ruler_text() const;
    [[nodiscard]] QRect row_rect(std::size_t row) const;
    [[nodiscard]] QSize minimumSizeHint() const override;
    [[nodiscard]] double label_width() const;

 signals:
    void chosen_operation(const QString& key);
    void time_changed(qint64 picoseconds);
    void view_changed();

 protected:
    void paintEvent(QPaintEvent* event) override;
    void resizeEvent(QResizeEvent* event) override;
    void wheelEvent(QWheelEvent* event) override;
    void mousePressEvent(QMouseEvent* event) override;
    void mouseMoveEvent(QMouseEvent* event) override;
    void mouseReleaseEvent(QMouseEvent* event) override;
    void mouseDoubleClickEvent(QMouseEvent* event) override;
    void keyPressEvent(QKeyEvent* event) override;
    bool event(QEvent* event) override;

 private:
    [[nodiscard]] std::optional<SliceRef> slice_at(QPoint point) const;
    [[nodiscard]] double row_height() const;
    void choose(SliceRef slice);
    void paint_links(QPainter& painter, double top);
    [[nodiscard]] int link_rows() const;
    [[nodiscard]] QString describe(SliceRef slice) const;
    void changed();

    std::shared_ptr<const Details> details_;
    std::vector<QString> link_names_;
    std::vector<double> link_capacity_;
    std::vector<std::size_t> busiest_;  ///< tracks that are drawn
    TimelineView view_;
    bool stale_ = false;
    bool critical_only_ = false;
    std::vector<SliceRef> hits_;
    QString search_;
    std::optional<SliceRef> chosen_;
    std::optional<SliceRef> hovered_;
    double press_x_ = -1;
    double ruler_from_ = -1;  ///< pixels at press; the ruler itself is in time
    sim::Time ruler_start_ = 0;
    sim::Time ruler_end_ = 0;
};

class TimelinePage : public Page {
    Q_OBJECT
 public:
    explicit TimelinePage(Session& session, QWidget* parent = nullptr);
    [[nodiscard]] QWidget* picture() override { return widget_; }
    [[nodiscard]] std::vector<Table> tables() const override;
    [[nodiscard]] bool explains() const override { return true; }
    [[nodiscard]] TimelineWidget& widget() { return *widget_; }
    [[nodiscard]] bool busy() const override { return session_.details() == nullptr; }

 signals:
    void chosen_operation(const QString& key);
    void time_changed(qint64 picoseconds);

 protected:
    void refresh() override;
    void mark_stale(bool stale) override;

 private:
    void show_range();

    TimelineWidget* widget_ = nullptr;
    QLineEdit* search_ = nullptr;
    QLabel* hits_ = nullptr;
    QLabel* ruler_ = nullptr;
    QScrollBar* bar_ = nullptr;
    AnswerPointer shown_;  ///< keeps the machine alive that the widget refers to
};

}  // namespace draftboard::gui
