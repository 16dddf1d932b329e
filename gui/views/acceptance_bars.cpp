// SPDX-License-Identifier: Apache-2.0
#include "gui/views/acceptance_bars.h"

#include <QKeyEvent>
#include <QMouseEvent>
#include <QPainter>
#include <algorithm>

#include "gui/models/text.h"
#include "gui/views/theme.h"

namespace draftboard::gui {

AcceptanceBars::AcceptanceBars(Session& session, QWidget* parent) : QWidget(parent), session_(session) {
    setObjectName("acceptance_bars");
    setAccessibleName("Acceptance by position");
    setToolTip("Probability that the first i draft tokens are all accepted. Drag a bar; arrow keys work too.");
    setFocusPolicy(Qt::StrongFocus);
    setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
    connect(&session_, &Session::answered, this, [this] { refresh(); });
    refresh();
}

QSize AcceptanceBars::sizeHint() const { return {200, fontMetrics().height() * 7}; }

QRectF AcceptanceBars::area() const {
    const int line = fontMetrics().height();
    return QRectF(rect()).adjusted(4, line + 4, -4, -(line + 2));
}

QPoint AcceptanceBars::point_of(std::size_t bar, double rate) const {
    const QRectF at = area();
    const double step = at.width() / std::max<double>(1, static_cast<double>(rates_.size()));
    return QPointF(at.left() + (static_cast<double>(bar) + 0.5) * step, at.bottom() - rate * at.height()).toPoint();
}

void AcceptanceBars::refresh() {
    const AnswerPointer answer = session_.answer();
    if (!answer || dragged_ >= 0) return;
    const model::Speculation& speculation = answer->scenario.speculation;
    rates_ = speculation.method == model::SpeculationMethod::none ? std::vector<double>()
                                                                  : speculation.acceptance.positions(speculation.steps);
    chosen_ = std::clamp(chosen_, 0, std::max(0, static_cast<int>(rates_.size()) - 1));
    setEnabled(!rates_.empty());
    update();
}

void AcceptanceBars::set_rate(std::size_t bar, double rate, const QString& gesture) {
    const AnswerPointer answer = session_.answer();
    if (!answer || bar >= rates_.size()) return;
    rates_[bar] = rate;
    const Edit edit = acceptance_edit(rates_, bar, *answer);
    rates_ = edit.value["per_position"].get<std::vector<double>>();
    update();
    session_.edit("Acceptance of position " + QString::number(bar + 1) + ": " + fixed(rates_[bar], 3), {edit}, gesture);
}

void AcceptanceBars::mousePressEvent(QMouseEvent* event) {
    if (rates_.empty()) return;
    const QRectF at = area();
    const double share = (event->position().x() - at.left()) / at.width();
    dragged_ = std::clamp(static_cast<int>(share * static_cast<double>(rates_.size())), 0, static_cast<int>(rates_.size()) - 1);
    chosen_ = dragged_;
    ++gesture_;
    mouseMoveEvent(event);
}

void AcceptanceBars::mouseMoveEvent(QMouseEvent* event) {
    if (dragged_ < 0) return;
    const QRectF at = area();
    const double rate = std::clamp((at.bottom() - event->position().y()) / at.height(), 0.0, 1.0);
    set_rate(static_cast<std::size_t>(dragged_), std::round(rate * 1000) / 1000, "acceptance " + QString::number(gesture_));
}

void AcceptanceBars::mouseReleaseEvent(QMouseEvent*) {
    dragged_ = -1;
    refresh();
}

void AcceptanceBars::focusInEvent(QFocusEvent* event) {
    ++gesture_;
    QWidget::focusInEvent(event);
    update();
}

void AcceptanceBars::keyPressEvent(QKeyEvent* event) {
    if (rates_.empty()) return QWidget::keyPressEvent(event);
    const auto bar = static_cast<std::size_t>(chosen_);
    const double step = event->modifiers() & Qt::ShiftModifier ? 0.1 : 0.01;
    const auto move = [&](double by) {
        set_rate(bar, std::clamp(std::round((rates_[bar] + by) * 1000) / 1000, 0.0, 1.0),
                 "acceptance keys " + QString::number(gesture_));
    };
    switch (event->key()) {
        case Qt::Key_Left:
            chosen_ = std::max(0, chosen_ - 1);
            ++gesture_;
            update();
            break;
        case Qt::Key_Right:
            chosen_ = std::min(static_cast<int>(rates_.size()) - 1, chosen_ + 1);
            ++gesture_;
            update();
            break;
        case Qt::Key_Up: move(step); break;
        case Qt::Key_Down: move(-step); break;
        default: QWidget::keyPressEvent(event);
    }
}

void AcceptanceBars::paintEvent(QPaintEvent*) {
    QPainter painter(this);
    painter.setRenderHint(QPainter::Antialiasing);
    const Theme& t = theme();
    const QRectF at = area();
    painter.setPen(t.muted);
    if (rates_.empty()) {
        painter.drawText(rect(), Qt::AlignCenter, "Nothing is drafted");
        return;
    }
    painter.setPen(QPen(t.grid));
    for (const double level : {0.0, 0.5, 1.0}) {
        const double y = at.bottom() - level * at.height();
        painter.drawLine(QPointF(at.left(), y), QPointF(at.right(), y));
    }
    const double step = at.width() / static_cast<double>(rates_.size());
    for (std::size_t i = 0; i < rates_.size(); ++i) {
        const QRectF bar(at.left() + static_cast<double>(i) * step + step * 0.14, at.bottom() - rates_[i] * at.height(),
                         step * 0.72, rates_[i] * at.height());
        QColor fill = isEnabled() ? t.accent : t.muted;
        if (static_cast<int>(i) != chosen_ || !hasFocus()) fill.setAlpha(190);
        painter.fillRect(bar, fill);
        painter.setPen(t.text);
        const QRectF above(bar.left() - step * 0.14, bar.top() - fontMetrics().height() - 1, step, fontMetrics().height());
        painter.drawText(above, Qt::AlignCenter, step > 34 ? fixed(rates_[i], 3) : fixed(rates_[i], 2).mid(1));
        painter.setPen(t.muted);
        painter.drawText(QRectF(above.left(), at.bottom() + 1, step, fontMetrics().height()), Qt::AlignCenter,
                         QString::number(i + 1));
    }
    if (hasFocus()) {
        painter.setPen(QPen(t.accent, 1, Qt::DotLine));
        painter.drawRect(QRectF(rect()).adjusted(1, 1, -1, -1));
    }
}

}  // namespace draftboard::gui
