// SPDX-License-Identifier: Apache-2.0
#include "gui/views/knob_panel.h"

#include <QApplication>
#include <QCheckBox>
#include <QClipboard>
#include <QComboBox>
#include <QContextMenuEvent>
#include <QDoubleSpinBox>
#include <QHBoxLayout>
#include <QLabel>
#include <QLineEdit>
#include <QMenu>
#include <QScrollArea>
#include <QSlider>
#include <QTimer>
#include <QToolButton>
#include <QVBoxLayout>
#include <QWheelEvent>
#include <cmath>

#include "gui/core/sweep.h"
#include "gui/models/text.h"
#include "gui/views/acceptance_bars.h"
#include "gui/views/theme.h"

namespace draftboard::gui {

namespace {

constexpr int kSliderSteps = 1000;

/// The wheel scrolls the panel and turns no knob in passing.
class WheelGuard : public QObject {
 public:
    using QObject::QObject;
    bool eventFilter(QObject* watched, QEvent* event) override {
        if (event->type() != QEvent::Wheel || qobject_cast<QWidget*>(watched)->hasFocus())
            return QObject::eventFilter(watched, event);
        event->ignore();
        return true;
    }
};

QString choice_text(const std::string& choice) { return choice.empty() ? "(default)" : qs(choice); }

}  // namespace

KnobRow::KnobRow(const Knob& knob, Session& session, QWidget* parent) : QWidget(parent), knob_(knob), session_(session) {
    setObjectName("knob." + qs(knob.path));
    auto* column = new QVBoxLayout(this);
    column->setContentsMargins(2, 2, 2, 4);
    column->setSpacing(1);
    auto* head = new QHBoxLayout;
    head->setSpacing(6);
    title_ = new QLabel(qs(knob.label), this);
    title_->setToolTip(qs(knob.meaning) + "\n--set " + qs(knob.path) + "=...");
    source_ = new QLabel(this);
    QFont small = source_->font();
    small.setPointSizeF(small.pointSizeF() * 0.85);
    source_->setFont(small);
    source_->setAlignment(Qt::AlignRight | Qt::AlignVCenter);
    source_->setSizePolicy(QSizePolicy::Ignored, QSizePolicy::Preferred);
    source_->setMinimumWidth(10);
    head->addWidget(title_);
    head->addWidget(source_, 1);
    column->addLayout(head);
    auto* line = new QWidget(this);
    auto* row = new QHBoxLayout(line);
    row->setContentsMargins(0, 0, 0, 0);
    row->setSpacing(6);
    if (knob.kind == KnobKind::choice) {
        choice_ = new QComboBox(line);
        choice_->setSizeAdjustPolicy(QComboBox::AdjustToMinimumContentsLengthWithIcon);
        choice_->setMinimumContentsLength(8);
        for (const std::string& choice : knob.choices) choice_->addItem(choice_text(choice), qs(choice));
        connect(choice_, &QComboBox::activated, this, [this] { send(choice_->currentData().toString().toStdString(), {}); });
        row->addWidget(choice_, 1);
    } else if (knob.kind == KnobKind::toggle) {
        toggle_ = new QCheckBox("on", line);
        connect(toggle_, &QCheckBox::clicked, this, [this](bool on) { send(on, {}); });
        row->addWidget(toggle_, 1);
    } else {
        build_numeric(line);
    }
    reset_ = new QToolButton(line);
    reset_->setText(QString::fromUtf8("\u21ba"));
    reset_->setAutoRaise(true);
    reset_->setToolTip("Back to the scenario's value");
    reset_->setAccessibleName("Reset " + qs(knob.label));
    reset_->setObjectName("reset." + qs(knob.path));
    connect(reset_, &QToolButton::clicked, this, [this] { reset(); });
    row->addWidget(reset_);
    column->addWidget(line);
    for (QWidget* editor : {static_cast<QWidget*>(slider_), static_cast<QWidget*>(number_), static_cast<QWidget*>(choice_),
                            static_cast<QWidget*>(toggle_)}) {
        if (editor == nullptr) continue;
        editor->setAccessibleName(qs(knob.label));
        editor->setToolTip(title_->toolTip());
        editor->setFocusPolicy(Qt::StrongFocus);
        editor->installEventFilter(new WheelGuard(editor));
    }
    if (choice_ != nullptr) choice_->setObjectName("choice." + qs(knob.path));
    if (toggle_ != nullptr) toggle_->setObjectName("toggle." + qs(knob.path));
}

void KnobRow::build_numeric(QWidget* line) {
    slider_ = new QSlider(Qt::Horizontal, line);
    slider_->setObjectName("slider." + qs(knob_.path));
    slider_->setRange(0, kSliderSteps);
    slider_->setMinimumWidth(60);
    number_ = new QDoubleSpinBox(line);
    number_->setObjectName("number." + qs(knob_.path));
    number_->setKeyboardTracking(false);
    const bool whole = knob_.whole();
    number_->setDecimals(whole ? 0 : knob_.high >= 100 ? 1 : 3);
    number_->setRange(std::min(0.0, knob_.low), whole ? 1e7 : std::max(1e4, knob_.high));
    if (whole) number_->setMinimum(knob_.low);
    number_->setSingleStep(whole ? 1 : (knob_.high - knob_.low) / 100);
    if (knob_.kind == KnobKind::acceptance_length) number_->setSingleStep(0.05);
    if (!knob_.unit.empty()) number_->setSuffix(" " + qs(knob_.unit));
    number_->setFixedWidth(number_->fontMetrics().horizontalAdvance("131072 branches") + 12);
    number_->setLocale(QLocale::c());
    number_->setGroupSeparatorShown(false);
    auto* row = qobject_cast<QHBoxLayout*>(line->layout());
    row->addWidget(slider_, 1);
    row->addWidget(number_);
    connect(slider_, &QSlider::sliderPressed, this, [this] { ++gesture_; });
    connect(slider_, &QSlider::valueChanged, this, [this](int position) {
        if (filling_) return;
        const double value = knob_.value_at(static_cast<double>(position) / kSliderSteps);
        filling_ = true;
        number_->setValue(value);
        filling_ = false;
        send(knob_.whole() ? model::Json(static_cast<std::int64_t>(std::llround(value))) : model::Json(value),
             qs(knob_.path) + " slider " + QString::number(gesture_));
    });
    connect(number_, &QDoubleSpinBox::valueChanged, this, [this](double value) {
        if (filling_) return;
        send(knob_.whole() ? model::Json(static_cast<std::int64_t>(std::llround(value))) : model::Json(value),
             qs(knob_.path) + " number");
    });
}

void KnobRow::send(const model::Json& value, const QString& gesture) {
    if (filling_) return;
    shown_.reset();
    reset_->setEnabled(true);
    session_.set_knob(knob_, value, gesture);
}

void KnobRow::resizeEvent(QResizeEvent* event) {
    QWidget::resizeEvent(event);
    shown_.reset();  // the source is cut to the width
}

void KnobRow::changeEvent(QEvent* event) {
    QWidget::changeEvent(event);
    if (event->type() == QEvent::PaletteChange) shown_.reset();
}

void KnobRow::reset() { session_.reset("Reset " + qs(knob_.label), reset_path(knob_)); }

void KnobRow::refresh(const Answer& answer) {
    // Fifty rows, of which one answer changes a few: the others keep what they show.
    const KnobState state = knob_state(knob_, answer);
    if (shown_ == state) return;
    shown_ = state;
    filling_ = true;
    const double value = state.value.is_number() ? state.value.get<double>() : knob_.low;
    if (slider_ != nullptr && !slider_->isSliderDown())
        slider_->setValue(static_cast<int>(std::lround(knob_.position_of(value) * kSliderSteps)));
    if (number_ != nullptr && !(slider_->isSliderDown())) number_->setValue(value);
    if (toggle_ != nullptr) toggle_->setChecked(state.value.is_boolean() && state.value.get<bool>());
    if (choice_ != nullptr) {
        const QString text = state.value.is_string() ? qs(state.value.get<std::string>()) : QString();
        int at = choice_->findData(text);
        if (at < 0) {
            choice_->addItem(text, text);
            at = choice_->count() - 1;
        }
        choice_->setCurrentIndex(at);
    }
    filling_ = false;
    reset_->setEnabled(state.edited);
    QFont font = title_->font();
    font.setBold(state.edited);
    title_->setFont(font);
    setEnabled(state.applies);
    const QString source = state.applies ? qs(state.source) : "no effect here";
    source_->setToolTip(qs(state.source));
    source_->setText(
        source_->fontMetrics().elidedText(source, Qt::ElideRight, std::max(60, width() - title_->sizeHint().width() - 20)));
    QPalette palette = source_->palette();
    palette.setColor(QPalette::WindowText, state.edited ? theme().accent : theme().muted);
    source_->setPalette(palette);
}

bool KnobRow::matches(const QString& text) const {
    return text.isEmpty() || qs(knob_.label).contains(text, Qt::CaseInsensitive) ||
           qs(knob_.path).contains(text, Qt::CaseInsensitive) || qs(knob_.group).contains(text, Qt::CaseInsensitive);
}

void KnobRow::focus_editor() {
    for (QWidget* editor : {static_cast<QWidget*>(number_), static_cast<QWidget*>(choice_), static_cast<QWidget*>(toggle_)}) {
        if (editor != nullptr) editor->setFocus(Qt::ShortcutFocusReason);
    }
}

void KnobRow::contextMenuEvent(QContextMenuEvent* event) { show_menu(event->globalPos()); }

void KnobRow::show_menu(const QPoint& at) {
    QMenu menu(this);
    menu.addAction("Sweep this", this, [this] { emit sweep_wanted(qs(knob_.path)); });
    QAction* back = menu.addAction("Reset to the scenario's value", this, [this] { reset(); });
    back->setEnabled(reset_->isEnabled());
    menu.addAction("Copy as --set", this, [this] {
        const AnswerPointer answer = session_.answer();
        if (!answer) return;
        const auto edits = knob_edits(knob_, knob_state(knob_, *answer).value, *answer);
        if (!edits) return;
        std::string text;
        for (const Edit& edit : *edits) text += (text.empty() ? "--set " : " --set ") + shell_quoted(edit.to_text());
        QApplication::clipboard()->setText(qs(text));
    });
    menu.exec(at);
}

KnobPanel::KnobPanel(Session& session, QWidget* parent) : QWidget(parent), session_(session) {
    setObjectName("knobs");
    setMinimumWidth(fontMetrics().horizontalAdvance('x') * 41);
    auto* all = new QVBoxLayout(this);
    all->setContentsMargins(6, 6, 0, 0);
    search_ = new QLineEdit(this);
    search_->setObjectName("knobs.search");
    search_->setPlaceholderText("Find a knob");
    search_->setClearButtonEnabled(true);
    search_->setAccessibleName("Find a knob");
    all->addWidget(search_);
    auto* scroll = new QScrollArea(this);
    scroll->setWidgetResizable(true);
    scroll->setFrameShape(QFrame::NoFrame);
    scroll->setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
    content_ = new QWidget;
    auto* column = new QVBoxLayout(content_);
    column->setContentsMargins(0, 0, 6, 0);
    column->setSpacing(2);
    for (const Knob& knob : session_.knobs()) {
        if (groups_.empty() || groups_.back().name != qs(knob.group)) add_group(qs(knob.group), content_);
        auto* row = new KnobRow(knob, session_, groups_.back().body);
        groups_.back().body->layout()->addWidget(row);
        connect(row, &KnobRow::sweep_wanted, this, &KnobPanel::sweep_wanted);
        rows_.push_back(row);
        if (knob.kind == KnobKind::acceptance_length) {
            auto* title = new QLabel("Acceptance by position", groups_.back().body);
            groups_.back().body->layout()->addWidget(title);
            bars_ = new AcceptanceBars(session_, groups_.back().body);
            groups_.back().body->layout()->addWidget(bars_);
        }
    }
    column->addStretch(1);
    scroll->setWidget(content_);
    all->addWidget(scroll, 1);
    for (std::size_t i = 0; i < groups_.size(); ++i) {
        const QString& name = groups_[i].name;
        groups_[i].head->setChecked(name == "Drafter" || name == "Load" || name == "Launch" || name == "Collectives");
    }
    connect(search_, &QLineEdit::textChanged, this, [this](const QString& text) { filter(text); });
    connect(&session_, &Session::answered, this, [this] { refresh(); });
    refresh();
}

void KnobPanel::resizeEvent(QResizeEvent* event) {
    QWidget::resizeEvent(event);
    refresh();
}

void KnobPanel::changeEvent(QEvent* event) {
    QWidget::changeEvent(event);
    if (event->type() == QEvent::PaletteChange) QTimer::singleShot(0, this, [this] { refresh(); });
}

void KnobPanel::add_group(const QString& name, QWidget* parent) {
    Group group;
    group.name = name;
    group.head = new QToolButton(parent);
    group.head->setText(name);
    group.head->setObjectName("group." + name);
    group.head->setCheckable(true);
    group.head->setAutoRaise(true);
    group.head->setToolButtonStyle(Qt::ToolButtonTextBesideIcon);
    group.head->setArrowType(Qt::RightArrow);
    group.head->setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
    QFont bold = group.head->font();
    bold.setBold(true);
    group.head->setFont(bold);
    group.body = new QWidget(parent);
    auto* column = new QVBoxLayout(group.body);
    column->setContentsMargins(6, 0, 0, 6);
    column->setSpacing(0);
    group.body->hide();
    QToolButton* head = group.head;
    QWidget* body = group.body;
    connect(head, &QToolButton::toggled, this, [head, body](bool open) {
        body->setVisible(open);
        head->setArrowType(open ? Qt::DownArrow : Qt::RightArrow);
    });
    parent->layout()->addWidget(head);
    parent->layout()->addWidget(body);
    groups_.push_back(group);
}

void KnobPanel::refresh() {
    const AnswerPointer answer = session_.answer();
    if (!answer || session_.error()) return;  // after an error the knobs stay as they were turned
    for (KnobRow* row : rows_) row->refresh(*answer);
}

void KnobPanel::filter(const QString& text) {
    for (const Group& group : groups_) {
        bool any = false;
        for (KnobRow* row : rows_) {
            if (row->parentWidget() != group.body) continue;
            row->setVisible(row->matches(text));
            any = any || row->matches(text);
        }
        group.head->setVisible(any);
        group.body->setVisible(any && (!text.isEmpty() || group.head->isChecked()));
    }
}

void KnobPanel::reveal(const QString& path) {
    for (KnobRow* row : rows_) {
        if (qs(row->knob().path) != path) continue;
        search_->clear();
        for (const Group& group : groups_) {
            if (group.body == row->parentWidget()) group.head->setChecked(true);
        }
        row->focus_editor();
        for (QWidget* up = parentWidget(); up != nullptr; up = up->parentWidget()) up->show();
        if (auto* scroll = findChild<QScrollArea*>()) scroll->ensureWidgetVisible(row);
    }
}

void KnobPanel::focus_search() { search_->setFocus(Qt::ShortcutFocusReason); }

}  // namespace draftboard::gui
