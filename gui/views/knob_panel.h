// SPDX-License-Identifier: Apache-2.0
#pragma once
// All knobs in groups that fold: slider, number with unit, reset, and where the value comes from; choices and switches likewise;
// acceptance by position as bars to drag. Every movement goes to the session as an edit; one drag is one step of the history.
// A knob's menu sweeps it, resets it, or copies it as `--set`.

#include <QWidget>
#include <optional>
#include <vector>

#include "gui/models/session.h"

class QCheckBox;
class QComboBox;
class QDoubleSpinBox;
class QLabel;
class QLineEdit;
class QSlider;
class QToolButton;

namespace draftboard::gui {

class AcceptanceBars;

class KnobRow : public QWidget {
    Q_OBJECT
 public:
    KnobRow(const Knob& knob, Session& session, QWidget* parent = nullptr);
    void refresh(const Answer& answer);
    [[nodiscard]] const Knob& knob() const { return knob_; }
    [[nodiscard]] bool matches(const QString& text) const;
    void focus_editor();

 signals:
    void sweep_wanted(const QString& path);

 protected:
    void contextMenuEvent(QContextMenuEvent* event) override;
    void resizeEvent(QResizeEvent* event) override;
    void changeEvent(QEvent* event) override;

 private:
    void build_numeric(QWidget* line);
    void send(const model::Json& value, const QString& gesture);
    void reset();
    void show_menu(const QPoint& at);

    const Knob& knob_;
    Session& session_;
    bool filling_ = false;
    std::optional<KnobState> shown_;  ///< what the widgets show; nullopt: they have to be filled again
    QLabel* title_ = nullptr;
    QLabel* source_ = nullptr;
    QToolButton* reset_ = nullptr;
    QSlider* slider_ = nullptr;
    QDoubleSpinBox* number_ = nullptr;
    QComboBox* choice_ = nullptr;
    QCheckBox* toggle_ = nullptr;
    int gesture_ = 0;
};

class KnobPanel : public QWidget {
    Q_OBJECT
 public:
    explicit KnobPanel(Session& session, QWidget* parent = nullptr);
    /// Unfolds the group, scrolls there and gives it the keyboard.
    void reveal(const QString& path);
    void focus_search();

 signals:
    void sweep_wanted(const QString& path);

 protected:
    void resizeEvent(QResizeEvent* event) override;
    void changeEvent(QEvent* event) override;

 private:
    struct Group {
        QString name;
        QToolButton* head = nullptr;
        QWidget* body = nullptr;
    };
    void add_group(const QString& name, QWidget* parent);
    void refresh();
    void filter(const QString& text);

    Session& session_;
    QLineEdit* search_ = nullptr;
    QWidget* content_ = nullptr;
    std::vector<Group> groups_;
    std::vector<KnobRow*> rows_;
    AcceptanceBars* bars_ = nullptr;
};

}  // namespace draftboard::gui
