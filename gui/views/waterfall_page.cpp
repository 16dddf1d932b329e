// SPDX-License-Identifier: Apache-2.0
#include "gui/views/waterfall_page.h"

#include <QHelpEvent>
#include <QKeyEvent>
#include <QMouseEvent>
#include <QPainter>
#include <QScrollArea>
#include <QToolTip>
#include <QVBoxLayout>
#include <algorithm>

#include "gui/models/tables.h"
#include "gui/models/text.h"
#include "gui/views/theme.h"

namespace draftboard::gui {

namespace {
constexpr int kTop = 30;  // axis
constexpr int kMargin = 10;
}  // namespace

WaterfallWidget::WaterfallWidget(QWidget* parent) : QWidget(parent) {
    setObjectName("waterfall");
    setAccessibleName("Waterfall of the cycle");
    setFocusPolicy(Qt::StrongFocus);
    setMouseTracking(true);
}

void WaterfallWidget::show_waterfall(Waterfall waterfall, bool stale) {
    waterfall_ = std::move(waterfall);
    stale_ = stale;
    chosen_ = std::min(chosen_, static_cast<int>(waterfall_.bars.size()) - 1);
    updateGeometry();
    update();
}

QSize WaterfallWidget::minimumSizeHint() const {
    return {420, kTop + kMargin + static_cast<int>(waterfall_.bars.size()) * (fontMetrics().height() + 2)};
}

double WaterfallWidget::row_height() const {
    if (waterfall_.bars.empty()) return 1;
    const double free = (height() - kTop - kMargin) / static_cast<double>(waterfall_.bars.size());
    return std::min(free, fontMetrics().height() * 3.0);
}

QPoint WaterfallWidget::centre_of(std::size_t bar) const {
    return {width() / 2, static_cast<int>(kTop + (static_cast<double>(bar) + 0.5) * row_height())};
}

int WaterfallWidget::bar_at(QPoint point) const {
    if (point.y() < kTop) return -1;
    const int bar = static_cast<int>((point.y() - kTop) / row_height());
    return bar < static_cast<int>(waterfall_.bars.size()) ? bar : -1;
}

void WaterfallWidget::choose(int bar) {
    if (bar < 0 || bar >= static_cast<int>(waterfall_.bars.size())) return;
    chosen_ = bar;
    update();
    const WaterfallBar& of = waterfall_.bars[static_cast<std::size_t>(bar)];
    emit chosen(qs(of.pass), of.host ? QString() : qs(of.name));
}

void WaterfallWidget::mousePressEvent(QMouseEvent* event) { choose(bar_at(event->pos())); }

void WaterfallWidget::keyPressEvent(QKeyEvent* event) {
    if (event->key() == Qt::Key_Down)
        choose(std::min(chosen_ + 1, static_cast<int>(waterfall_.bars.size()) - 1));
    else if (event->key() == Qt::Key_Up)
        choose(std::max(chosen_ - 1, 0));
    else
        QWidget::keyPressEvent(event);
}

bool WaterfallWidget::event(QEvent* event) {
    if (event->type() == QEvent::ToolTip) {
        const auto* help = static_cast<QHelpEvent*>(event);
        const int at = bar_at(help->pos());
        if (at >= 0) {
            const WaterfallBar& bar = waterfall_.bars[static_cast<std::size_t>(at)];
            QString text = qs(bar.pass) + (bar.host ? "" : "." + qs(bar.name)) + "\n" + fixed(bar.to_ms - bar.from_ms, 3) +
                           " ms +/- " + fixed(bar.sigma_ms, 3) + ", " + fixed(100 * bar.share, 1) + " % of the cycle\n" +
                           qs(to_name(bar.coverage));
            if (waterfall_.baseline_ms > 0) text += "\npinned: " + fixed(bar.baseline_ms, 3) + " ms";
            QToolTip::showText(help->globalPos(), text, this);
        }
        return true;
    }
    return QWidget::event(event);
}

void WaterfallWidget::paintEvent(QPaintEvent*) {
    QPainter painter(this);
    painter.setRenderHint(QPainter::Antialiasing);
    const Theme& t = theme();
    painter.fillRect(rect(), t.base);
    if (waterfall_.bars.empty()) {
        painter.setPen(t.muted);
        painter.drawText(rect(), Qt::AlignCenter, "No answer yet");
        return;
    }
    const QFontMetrics metrics = fontMetrics();
    int label_width = 0;
    for (const WaterfallBar& bar : waterfall_.bars) label_width = std::max(label_width, metrics.horizontalAdvance(qs(bar.name)));
    const int pass_width = metrics.horizontalAdvance("draft_extend") + 14;
    const double left = kMargin + pass_width + label_width + 14;
    const double value_width = metrics.horizontalAdvance("00.000 ms  100.0 %  ") + 4;
    const double coverage_width = metrics.horizontalAdvance("extrapolated") + 14;
    const double right = width() - kMargin - value_width - coverage_width;
    const double most = std::max({waterfall_.cycle_ms, waterfall_.budget_ms, waterfall_.baseline_ms}) * 1.02;
    const auto x_of = [&](double ms) { return left + ms / most * (right - left); };
    const double row = row_height();
    const double bottom = kTop + row * static_cast<double>(waterfall_.bars.size());
    const double thick = std::min(row * 0.62, 24.0);

    // Axis in round milliseconds.
    double step = 0.1;
    for (int i = 0; most / step > std::max(3.0, (right - left) / 70); ++i) step *= i % 3 == 1 ? 2.5 : 2;
    painter.setPen(QPen(t.grid));
    for (double ms = 0; ms <= most; ms += step) {
        painter.setPen(QPen(t.grid));
        painter.drawLine(QPointF(x_of(ms), kTop - 4), QPointF(x_of(ms), bottom));
        painter.setPen(t.muted);
        painter.drawText(QRectF(x_of(ms) - 40, 2, 80, kTop - 8), Qt::AlignHCenter | Qt::AlignBottom,
                         QString::number(ms, 'g', 4) + (ms == 0 ? " ms" : ""));
    }

    std::string pass;
    for (std::size_t i = 0; i < waterfall_.bars.size(); ++i) {
        const WaterfallBar& bar = waterfall_.bars[i];
        const double y = kTop + row * static_cast<double>(i);
        const QRectF line(0, y, width(), row);
        if (static_cast<int>(i) == chosen_) {
            QColor mark = t.accent;
            mark.setAlpha(38);
            painter.fillRect(line, mark);
        }
        if (bar.pass != pass) {
            painter.setPen(QPen(t.border));
            painter.drawLine(QPointF(kMargin, y), QPointF(width() - kMargin, y));
            painter.setPen(t.text);
            QFont bold = font();
            bold.setBold(true);
            painter.setFont(bold);
            painter.drawText(QRectF(kMargin, y, pass_width, row), Qt::AlignVCenter | Qt::AlignLeft, qs(bar.pass));
            painter.setFont(font());
            pass = bar.pass;
        }
        painter.setPen(stale_ ? t.muted : t.text);
        painter.drawText(QRectF(kMargin + pass_width, y, label_width + 6, row), Qt::AlignVCenter | Qt::AlignLeft,
                         bar.host ? "" : qs(bar.name));
        QColor colour = bar.host ? t.muted : t.of(bar.kind);
        if (stale_) colour.setAlpha(90);
        const QRectF box(QPointF(x_of(bar.from_ms), y + (row - thick) / 2),
                         QPointF(std::max(x_of(bar.to_ms), x_of(bar.from_ms) + 1), y + (row + thick) / 2));
        painter.fillRect(box, bar.kind == sim::TermKind::wait && !bar.host ? t.hatch(colour) : QBrush(colour));
        if (waterfall_.baseline_ms > 0) {
            painter.setPen(QPen(t.text, 1.2, Qt::DotLine));
            painter.setBrush(Qt::NoBrush);
            painter.drawRect(QRectF(QPointF(x_of(bar.from_ms), box.top() - 2),
                                    QPointF(x_of(bar.from_ms + bar.baseline_ms), box.bottom() + 2)));
        }
        const double ms = bar.to_ms - bar.from_ms;
        const double sigma = std::min(bar.sigma_ms, ms);
        painter.setPen(QPen(t.text, 1));
        if (x_of(bar.to_ms + sigma) - x_of(bar.to_ms - sigma) > 3) {
            const double middle = box.center().y();
            painter.drawLine(QPointF(x_of(bar.to_ms - sigma), middle), QPointF(x_of(bar.to_ms + sigma), middle));
        }
        painter.setPen(stale_ ? t.muted : t.text);
        painter.drawText(QRectF(right + 4, y, value_width - 4, row), Qt::AlignVCenter | Qt::AlignRight,
                         fixed(ms, 3) + " ms  " + fixed(100 * bar.share, 1).rightJustified(5) + " %");
        painter.setPen(t.of(bar.coverage));
        painter.drawText(QRectF(right + value_width + 8, y, coverage_width, row), Qt::AlignVCenter | Qt::AlignLeft,
                         qs(to_name(bar.coverage)));
    }
    if (waterfall_.budget_ms > 0) {
        const double x = x_of(waterfall_.budget_ms);
        painter.setPen(QPen(t.good, 1.6, Qt::DashLine));
        painter.drawLine(QPointF(x, kTop - 6), QPointF(x, bottom));
        const QString text = "pays below " + fixed(waterfall_.budget_ms, 2) + " ms";
        const double wide = metrics.horizontalAdvance(text) + 8;
        const bool to_left = x + wide > right;
        const QRectF at(to_left ? x - wide - 2 : x + 3, bottom - metrics.height() - 3, wide, metrics.height() + 2);
        QColor back = t.base;
        back.setAlpha(220);
        painter.fillRect(at, back);
        painter.setPen(t.good);
        painter.drawText(at, Qt::AlignCenter, text);
    }
}

WaterfallPage::WaterfallPage(Session& session, QWidget* parent) : Page(session, "waterfall", "Where the time goes", parent) {
    auto* layout = new QVBoxLayout(this);
    layout->setContentsMargins(0, 0, 0, 0);
    auto* scroll = new QScrollArea(this);
    scroll->setWidgetResizable(true);
    scroll->setFrameShape(QFrame::NoFrame);
    widget_ = new WaterfallWidget;
    scroll->setWidget(widget_);
    layout->addWidget(scroll);
    connect(widget_, &WaterfallWidget::chosen, this, &WaterfallPage::chosen);
}

void WaterfallPage::refresh() {
    const AnswerPointer answer = session_.answer();
    if (!answer) return;
    const AnswerPointer baseline = session_.project().baseline == session_.project().current ? nullptr : session_.baseline();
    widget_->show_waterfall(build_waterfall(answer->prediction, baseline ? &baseline->prediction : nullptr), session_.stale());
}

void WaterfallPage::mark_stale(bool stale) {
    if (isVisible()) widget_->show_waterfall(widget_->waterfall(), stale);
}

std::vector<Table> WaterfallPage::tables() const {
    const AnswerPointer answer = session_.answer();
    if (!answer) return {};
    const AnswerPointer baseline = session_.baseline();
    return {terms_table(*answer, baseline.get())};
}

}  // namespace draftboard::gui
