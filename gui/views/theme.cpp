// SPDX-License-Identifier: Apache-2.0
#include "gui/views/theme.h"

#include <qcustomplot.h>

#include <QApplication>
#include <QPainter>
#include <QPixmap>
#include <QStyleFactory>
#include <cmath>

namespace draftboard::gui {

namespace {

Theme make(bool dark) {
    Theme t;
    t.dark = dark;
    t.window = dark ? QColor(0x17191d) : QColor(0xf3f4f6);
    t.base = dark ? QColor(0x1e2126) : QColor(0xffffff);
    t.raised = dark ? QColor(0x272b31) : QColor(0xe9ebee);
    t.border = dark ? QColor(0x3a3f47) : QColor(0xcdd1d6);
    t.text = dark ? QColor(0xe6e8eb) : QColor(0x1b1e22);
    t.muted = dark ? QColor(0x9ba1aa) : QColor(0x5d636c);
    t.accent = dark ? QColor(0x56b4e9) : QColor(0x0072b2);
    t.good = dark ? QColor(0x2fc39a) : QColor(0x00805c);
    t.bad = dark ? QColor(0xff8a5c) : QColor(0xc24a00);
    t.warn = dark ? QColor(0xe9b949) : QColor(0x8a6100);
    t.grid = dark ? QColor(0x2c3037) : QColor(0xe4e6ea);
    return t;
}

}  // namespace

QColor Theme::of(sim::TermKind kind) const {
    switch (kind) {
        case sim::TermKind::experts: return dark ? QColor(0x3d9be0) : QColor(0x0072b2);
        case sim::TermKind::dense: return dark ? QColor(0x8fd0f5) : QColor(0x56b4e9);
        case sim::TermKind::attention: return dark ? QColor(0x1fbf92) : QColor(0x009e73);
        case sim::TermKind::delta_net: return dark ? QColor(0x7fd6bd) : QColor(0x5cbfa3);
        case sim::TermKind::lm_head: return dark ? QColor(0xe09ac0) : QColor(0xcc79a7);
        case sim::TermKind::other: return dark ? QColor(0x8c939d) : QColor(0x9aa0a8);
        case sim::TermKind::launch: return dark ? QColor(0xe8dc4a) : QColor(0xcfc000);
        case sim::TermKind::latency: return dark ? QColor(0xf5c04d) : QColor(0xe69f00);
        case sim::TermKind::transport: return dark ? QColor(0xff7f3f) : QColor(0xd55e00);
        case sim::TermKind::wait: return dark ? QColor(0xff9d6e) : QColor(0xd55e00);
        case sim::TermKind::contention: return dark ? QColor(0xb08ae0) : QColor(0x7a4fb5);
    }
    return muted;
}

QColor Theme::of(SliceKind kind, sim::TermKind term) const {
    switch (kind) {
        case SliceKind::kernel: return of(term);
        case SliceKind::transport: return of(sim::TermKind::transport);
        case SliceKind::wait: return of(sim::TermKind::wait);
        case SliceKind::contention: return of(sim::TermKind::contention);
    }
    return muted;
}

QColor Theme::of(sim::Coverage coverage) const {
    switch (coverage) {
        case sim::Coverage::measured:
        case sim::Coverage::published: return good;
        case sim::Coverage::interpolated: return accent;
        case sim::Coverage::extrapolated: return warn;
        case sim::Coverage::datasheet: return bad;
    }
    return muted;
}

QColor Theme::series(int n) const {
    const QColor light[] = {0x0072b2, 0xd55e00, 0x009e73, 0xcc79a7, 0xe69f00, 0x56b4e9, 0x7a4fb5, 0x5d636c};
    const QColor on_dark[] = {0x56b4e9, 0xff7f3f, 0x1fbf92, 0xe09ac0, 0xf5c04d, 0x3d9be0, 0xb08ae0, 0x9ba1aa};
    return (dark ? on_dark : light)[static_cast<unsigned>(n) % 8];
}

QBrush Theme::hatch(const QColor& colour) const {
    QPixmap tile(6, 6);
    tile.fill(Qt::transparent);
    QPainter painter(&tile);
    QColor soft = colour;
    soft.setAlpha(70);
    painter.fillRect(tile.rect(), soft);
    painter.setPen(QPen(colour, 1.3));
    painter.setRenderHint(QPainter::Antialiasing);
    painter.drawLine(QPointF(-1, 7), QPointF(7, -1));
    painter.drawLine(QPointF(-1, 1), QPointF(1, -1));
    painter.drawLine(QPointF(5, 7), QPointF(7, 5));
    return QBrush(tile);
}

const Theme& theme() {
    static const Theme light = make(false);
    static const Theme dark = make(true);
    const QPalette palette = QApplication::palette();
    return palette.color(QPalette::Window).lightness() < palette.color(QPalette::WindowText).lightness() ? dark : light;
}

void apply_theme(QApplication& application, ThemeChoice choice) {
    const bool dark = choice == ThemeChoice::dark || (choice == ThemeChoice::system && theme().dark);
    const Theme t = make(dark);
    QPalette p;
    p.setColor(QPalette::Window, t.window);
    p.setColor(QPalette::WindowText, t.text);
    p.setColor(QPalette::Base, t.base);
    p.setColor(QPalette::AlternateBase, dark ? QColor(0x22252b) : QColor(0xf8f9fa));
    p.setColor(QPalette::Text, t.text);
    p.setColor(QPalette::Button, t.raised);
    p.setColor(QPalette::ButtonText, t.text);
    p.setColor(QPalette::BrightText, t.bad);
    p.setColor(QPalette::Highlight, t.accent);
    p.setColor(QPalette::HighlightedText, dark ? QColor(0x101215) : QColor(0xffffff));
    p.setColor(QPalette::ToolTipBase, t.base);
    p.setColor(QPalette::ToolTipText, t.text);
    p.setColor(QPalette::PlaceholderText, t.muted);
    p.setColor(QPalette::Link, t.accent);
    p.setColor(QPalette::Light, dark ? QColor(0x32373f) : QColor(0xffffff));
    p.setColor(QPalette::Midlight, dark ? QColor(0x2b3037) : QColor(0xf0f1f3));
    p.setColor(QPalette::Mid, t.border);
    p.setColor(QPalette::Dark, dark ? QColor(0x0f1114) : QColor(0xb3b8bf));
    p.setColor(QPalette::Shadow, dark ? QColor(0x08090a) : QColor(0x8a9099));
    for (const auto role : {QPalette::WindowText, QPalette::Text, QPalette::ButtonText})
        p.setColor(QPalette::Disabled, role, t.muted);
    application.setStyle(QStyleFactory::create("Fusion"));
    application.setPalette(p);
    application.setStyleSheet(
        QString("QToolTip { color: %1; background: %2; border: 1px solid %3; padding: 3px; }"
                "QDockWidget::title { padding: 5px 8px; background: %4; }"
                "QTabBar::tab { padding: 5px 11px; }"
                "QHeaderView::section { background: %4; border: 0; border-bottom: 1px solid %3; padding: 4px 6px; }"
                "QTableView { gridline-color: %5; border: 1px solid %3; }")
            .arg(t.text.name(), t.base.name(), t.border.name(), t.raised.name(), t.grid.name()));
}

void style_plot(QCustomPlot& plot) {
    const Theme& t = theme();
    plot.setBackground(t.base);
    for (QCPAxisRect* rect : plot.axisRects()) {
        for (QCPAxis* axis : rect->axes()) {
            axis->setBasePen(QPen(t.border));
            axis->setTickPen(QPen(t.border));
            axis->setSubTickPen(QPen(t.border));
            axis->setTickLabelColor(t.muted);
            axis->setLabelColor(t.text);
            axis->grid()->setPen(QPen(t.grid));
            axis->grid()->setSubGridPen(QPen(t.grid, 0.5, Qt::DotLine));
            axis->grid()->setZeroLinePen(QPen(t.grid));
        }
    }
    if (plot.legend != nullptr) {
        QColor back = t.base;
        back.setAlpha(225);
        plot.legend->setBrush(back);
        plot.legend->setBorderPen(QPen(t.border));
        plot.legend->setTextColor(t.text);
    }
}

void set_log_axis(QCPAxis& axis, double low, double high) {
    axis.setScaleType(QCPAxis::stLogarithmic);
    QSharedPointer<QCPAxisTickerText> ticker(new QCPAxisTickerText);
    const bool wide = high / low > 100;
    for (double power = std::pow(10.0, std::floor(std::log10(low))); power <= high; power *= 10) {
        for (const double factor : {1.0, 2.0, 5.0}) {
            const double at = power * factor;
            if (at < low || at > high || (wide && factor != 1)) continue;
            ticker->addTick(at, QString::number(at, 'g', 6));
        }
    }
    axis.setTicker(ticker);
    axis.setRange(low, high);
}

}  // namespace draftboard::gui
