// SPDX-License-Identifier: Apache-2.0
// How the curves page draws what it has swept: a curve with bands and break-even lines, bars over choices, a map with contours, a
// Pareto front. What is swept, and when, is curves_page.cpp.

#include <qcustomplot.h>

#include <QComboBox>
#include <QDoubleSpinBox>
#include <QLabel>
#include <algorithm>
#include <cmath>
#include <limits>

#include "gui/core/contour.h"
#include "gui/models/text.h"
#include "gui/views/curves_page.h"
#include "gui/views/theme.h"

namespace draftboard::gui {

namespace {

constexpr const char* kPareto = "pareto";

/// A place between two values of a knob: whole numbers as far as they are large, else two digits behind the point.
QString number_text(const Knob& knob, double value) {
    if (value == std::round(value) || value >= 1000) return QString::number(std::llround(value));
    return knob.high < 2 ? QString::number(value, 'f', 3) : QString::number(value, 'f', 2);
}

double number_of(const model::Json& value, double fallback) { return value.is_number() ? value.get<double>() : fallback; }

}  // namespace

void CurvesPage::draw() {
    if (!sweep_) return;
    plot_->clearPlottables();
    plot_->clearItems();
    plot_->clearGraphs();
    while (plot_->plotLayout()->elementCount() > 1) {
        plot_->plotLayout()->removeAt(plot_->plotLayout()->elementCount() - 1);
        plot_->plotLayout()->simplify();
    }
    plot_->xAxis->setScaleType(QCPAxis::stLinear);
    plot_->xAxis->setTicker(QSharedPointer<QCPAxisTicker>(new QCPAxisTicker));
    plot_->yAxis->setScaleType(QCPAxis::stLinear);
    plot_->yAxis->setTicker(QSharedPointer<QCPAxisTicker>(new QCPAxisTicker));
    plot_->xAxis->setTickLabelRotation(0);
    plot_->legend->setVisible(false);
    style_plot(*plot_);
    plot_->setFont(font());
    for (QCPAxis* axis : {plot_->xAxis, plot_->yAxis}) {
        axis->setTickLabelFont(font());
        axis->setLabelFont(font());
    }
    plot_->legend->setFont(font());
    const bool pareto = swept_axes_.startsWith(kPareto);
    if (pareto)
        draw_pareto();
    else if (sweep_->axes.size() == 2)
        draw_map();
    else if (sweep_->axes[0].knob.numeric())
        draw_curve();
    else
        draw_categories();
    plot_->replot();
}

void CurvesPage::draw_curve() {
    const Theme& t = theme();
    const SweepAxis& axis = sweep_->axes[0];
    QVector<double> xs, ys, lows, highs, plain_x, plain_y, plain_low, plain_high, unfit_x, unfit_y;
    for (const SweepPoint& point : sweep_->points) {
        if (!point.error.empty()) continue;
        const double x = number_of(point.values[0], 0);
        const model::Interval value = value_of(point);
        if (!point.fits) {
            unfit_x << x;
            unfit_y << value.value;
        }
        xs << x;
        ys << value.value;
        lows << value.low;
        highs << value.high;
        const double users = point.per_user.value > 0 ? point.tokens_per_second.value / point.per_user.value : 1;
        const model::Interval plain =
            quantity() == Quantity::rate ? point.plain
            : quantity() == Quantity::per_user
                ? model::Interval{point.plain.value / users, point.plain.low / users, point.plain.high / users}
                : model::Interval{1, 1, 1};
        plain_x << x;
        plain_y << plain.value;
        plain_low << plain.low;
        plain_high << plain.high;
    }
    const auto band = [&](const QVector<double>& low, const QVector<double>& high, QColor colour, const QString& name) {
        QCPGraph* lower = plot_->addGraph();
        lower->setData(xs, low, true);
        lower->setPen(Qt::NoPen);
        lower->removeFromLegend();
        QCPGraph* upper = plot_->addGraph();
        upper->setData(xs, high, true);
        upper->setPen(Qt::NoPen);
        colour.setAlpha(48);
        upper->setBrush(colour);
        upper->setChannelFillGraph(lower);
        upper->setName(name);
    };
    const bool speculates = session_.answer() && session_.answer()->scenario.speculation.method != model::SpeculationMethod::none;
    if (quantity() != Quantity::cycle) band(lows, highs, t.series(0), "90 % interval");
    const bool plain_line = speculates && quantity() != Quantity::cycle;
    if (plain_line && quantity() != Quantity::speedup) band(plain_low, plain_high, t.muted, "plain: 90 % interval");
    QCPGraph* line = plot_->addGraph();
    line->setData(xs, ys, true);
    line->setPen(QPen(t.series(0), 2.2));
    line->setScatterStyle(QCPScatterStyle(QCPScatterStyle::ssDisc, 5));
    line->setName(quantity_->currentText());
    if (plain_line) {
        QCPGraph* plain = plot_->addGraph();
        plain->setData(plain_x, plain_y, true);
        plain->setPen(QPen(t.muted, 2, Qt::DashLine));
        plain->setName(quantity() == Quantity::speedup ? "break-even" : "plain decoding");
    }
    if (!unfit_x.isEmpty()) {
        QCPGraph* unfit = plot_->addGraph();
        unfit->setData(unfit_x, unfit_y, true);
        unfit->setLineStyle(QCPGraph::lsNone);
        unfit->setScatterStyle(QCPScatterStyle(QCPScatterStyle::ssCross, QPen(t.bad, 2), Qt::NoBrush, 9));
        unfit->setName("does not fit in memory");
    }
    plot_->xAxis->setLabel(qs(axis.knob.label) + (axis.knob.unit.empty() ? "" : " [" + qs(axis.knob.unit) + "]"));
    plot_->yAxis->setLabel(quantity_->currentText());
    if (axis.knob.logarithmic) {
        plot_->xAxis->setScaleType(QCPAxis::stLogarithmic);
        QSharedPointer<QCPAxisTickerText> ticker(new QCPAxisTickerText);
        const double step = axis.knob.high / axis.knob.low > 300 ? 4 : 2;
        for (double x = axis.knob.low; x < axis.knob.high * 1.01; x *= step) ticker->addTick(x, QString::number(x, 'g', 6));
        plot_->xAxis->setTicker(ticker);
    } else if (axis.knob.whole()) {
        QSharedPointer<QCPAxisTickerFixed> ticker(new QCPAxisTickerFixed);
        ticker->setTickStep(std::max(1.0, std::ceil((axis.knob.high - axis.knob.low) / 14)));
        plot_->xAxis->setTicker(ticker);
    }
    plot_->rescaleAxes();
    const double top = highs.isEmpty() ? 1
                                       : std::max(*std::max_element(highs.begin(), highs.end()),
                                                  plain_line ? *std::max_element(plain_high.begin(), plain_high.end()) : 0);
    plot_->yAxis->setRange(0, top * 1.12);
    if (xs.size() > 1) {
        if (axis.knob.logarithmic)
            plot_->xAxis->setRange(xs.front() / 1.08, xs.back() * 1.08);
        else
            plot_->xAxis->setRange(xs.front() - (xs.back() - xs.front()) * 0.02, xs.back() + (xs.back() - xs.front()) * 0.02);
    }
    const auto vertical = [&](double x, const QColor& colour, const QString& text, double height) {
        auto* rule = new QCPItemStraightLine(plot_);
        rule->point1->setCoords(x, 0);
        rule->point2->setCoords(x, 1);
        rule->setPen(QPen(colour, 1.4, Qt::DashLine));
        auto* label = new QCPItemText(plot_);
        label->position->setTypeX(QCPItemPosition::ptPlotCoords);
        label->position->setTypeY(QCPItemPosition::ptAxisRectRatio);
        const bool right = plot_->xAxis->coordToPixel(x) > plot_->xAxis->axisRect()->center().x();
        label->position->setCoords(x, height);
        label->setPositionAlignment((right ? Qt::AlignRight : Qt::AlignLeft) | Qt::AlignBottom);
        label->setText(" " + text + " ");
        label->setColor(colour);
        label->setFont(font());
        label->setBrush(QBrush(t.base));
    };
    plot_->replot(QCustomPlot::rpImmediateRefresh);  // so that pixels are known
    QString text;
    for (const double x : break_even_points(*sweep_)) {
        vertical(x, t.good, "break-even " + number_text(axis.knob, x), 0.055);
        text += "Break-even at " + number_text(axis.knob, x) + (axis.knob.unit.empty() ? "" : " " + qs(axis.knob.unit)) + ".  ";
    }
    if (const AnswerPointer answer = session_.answer()) {
        const KnobState state = knob_state(axis.knob, *answer);
        if (state.value.is_number())
            vertical(state.value.get<double>(), t.accent, "now " + number_text(axis.knob, state.value.get<double>()), 0.13);
    }
    if (const auto best = best_point(*sweep_)) {
        const SweepPoint& point = sweep_->points[*best];
        text += "Best: " + qs(value_text(point.values[0])) + " with " + fixed(point.tokens_per_second.value, 1) + " tok/s.";
    }
    add_target(text);
    add_measured();
    remark_->setText(text);
    remark_->setToolTip(text);
    plot_->legend->setVisible(true);
    plot_->axisRect()->insetLayout()->setInsetAlignment(0, Qt::AlignBottom | Qt::AlignRight);
}

void CurvesPage::add_target(QString& text) {
    const double target = target_->value();
    if (target <= 0) return;
    auto* rule = new QCPItemStraightLine(plot_);
    rule->point1->setCoords(plot_->xAxis->range().lower, target);
    rule->point2->setCoords(plot_->xAxis->range().upper, target);
    rule->setPen(QPen(theme().warn, 1.6, Qt::DotLine));
    plot_->yAxis->setRangeUpper(std::max(plot_->yAxis->range().upper, target * 1.05));
    std::vector<double> values;
    for (const SweepPoint& point : sweep_->points)
        values.push_back(point.error.empty() && point.fits ? value_of(point).value : std::nan(""));
    const auto crossings = crossings_of(*sweep_, values, target);
    text += "  Target " + QString::number(target, 'g', 6) + (crossings.empty() ? " is not reached here." : " at ");
    for (std::size_t i = 0; i < crossings.size(); ++i)
        text += (i > 0 ? ", " : "") + number_text(sweep_->axes[0].knob, crossings[i]);
    if (!crossings.empty()) text += ".";
}

void CurvesPage::add_measured() {
    if (measured_.empty()) return;
    auto* points = plot_->addGraph();
    QVector<double> xs, ys;
    for (const auto& [x, y] : measured_) {
        xs << x;
        ys << y;
    }
    points->setData(xs, ys);
    points->setLineStyle(QCPGraph::lsNone);
    points->setScatterStyle(QCPScatterStyle(QCPScatterStyle::ssDiamond, QPen(theme().series(1), 1.8), QBrush(Qt::NoBrush), 10));
    points->setName("measured");
}

void CurvesPage::draw_categories() {
    const Theme& t = theme();
    const SweepAxis& axis = sweep_->axes[0];
    auto* bars = new QCPBars(plot_->xAxis, plot_->yAxis);
    QSharedPointer<QCPAxisTickerText> ticker(new QCPAxisTickerText);
    QVector<double> xs, ys, up, down;
    double top = 0;
    QString best_name;
    double best = 0;
    for (std::size_t i = 0; i < sweep_->points.size(); ++i) {
        const SweepPoint& point = sweep_->points[i];
        ticker->addTick(static_cast<double>(i), qs(value_text(axis.values[i])));
        const model::Interval value = point.error.empty() ? value_of(point) : model::Interval{};
        xs << static_cast<double>(i);
        ys << value.value;
        up << value.high - value.value;
        down << value.value - value.low;
        top = std::max(top, value.high);
        if (point.error.empty() && point.fits && point.tokens_per_second.value > best) {
            best = point.tokens_per_second.value;
            best_name = qs(value_text(axis.values[i]));
        }
    }
    bars->setData(xs, ys, true);
    QColor fill = t.series(0);
    bars->setPen(QPen(fill));
    fill.setAlpha(150);
    bars->setBrush(fill);
    bars->setWidth(0.6);
    auto* error = new QCPErrorBars(plot_->xAxis, plot_->yAxis);
    error->setDataPlottable(bars);
    error->setData(down, up);
    error->setPen(QPen(t.text, 1.4));
    error->setSymbolGap(0);
    for (std::size_t i = 0; i < sweep_->points.size(); ++i) {
        if (sweep_->points[i].error.empty()) continue;
        auto* label = new QCPItemText(plot_);
        label->position->setCoords(static_cast<double>(i), 0);
        label->setPositionAlignment(Qt::AlignHCenter | Qt::AlignBottom);
        label->setText("no answer");
        label->setColor(t.muted);
        label->setFont(font());
    }
    plot_->xAxis->setTicker(ticker);
    plot_->xAxis->setTickLabelRotation(xs.size() > 7 ? 30 : 0);
    plot_->xAxis->setLabel(qs(axis.knob.label));
    plot_->yAxis->setLabel(quantity_->currentText());
    plot_->xAxis->setRange(-0.6, static_cast<double>(xs.size()) - 0.4);
    plot_->yAxis->setRange(0, top > 0 ? top * 1.1 : 1);
    remark_->setText(best_name.isEmpty() ? "Nothing here can be answered."
                                         : "Best: " + best_name + " with " + fixed(best, 1) + " tok/s.");
}

void CurvesPage::draw_map() {
    const Theme& t = theme();
    const SweepAxis& x = sweep_->axes[0];
    const SweepAxis& y = sweep_->axes[1];
    const auto columns = static_cast<int>(x.values.size());
    const auto rows = static_cast<int>(y.values.size());
    auto* map = new QCPColorMap(plot_->xAxis, plot_->yAxis);
    map->data()->setSize(columns, rows);
    map->data()->setRange(QCPRange(0, columns - 1), QCPRange(0, rows - 1));
    std::vector<double> speedups;
    double least = std::numeric_limits<double>::infinity();
    double most = 0;
    for (int j = 0; j < rows; ++j) {
        for (int i = 0; i < columns; ++i) {
            const SweepPoint& point = sweep_->at(static_cast<std::size_t>(i), static_cast<std::size_t>(j));
            const double value = point.error.empty() && point.fits ? value_of(point).value : std::nan("");
            speedups.push_back(point.error.empty() && point.fits ? point.speedup.value : std::nan(""));
            map->data()->setCell(i, j, value);
            if (std::isfinite(value)) {
                least = std::min(least, value);
                most = std::max(most, value);
            }
        }
    }
    QCPColorGradient gradient;
    gradient.clearColorStops();
    // Cividis: even steps of lightness, the same to those who see fewer colours.
    const QRgb stops[] = {0xff00224e, 0xff123570, 0xff3b496c, 0xff575d6d, 0xff707173,
                          0xff8a8678, 0xffa59c74, 0xffc3b369, 0xffe1cc55, 0xfffee838};
    for (int i = 0; i < 10; ++i) gradient.setColorStopAt(i / 9.0, QColor(stops[i]));
    gradient.setNanHandling(QCPColorGradient::nhTransparent);
    map->setGradient(gradient);
    map->setInterpolate(false);
    auto* scale = new QCPColorScale(plot_);
    plot_->plotLayout()->addElement(0, 1, scale);
    scale->setType(QCPAxis::atRight);
    map->setColorScale(scale);
    scale->axis()->setLabel(quantity_->currentText());
    scale->axis()->setLabelColor(t.text);
    scale->axis()->setTickLabelColor(t.muted);
    scale->axis()->setLabelFont(font());
    scale->axis()->setTickLabelFont(font());
    scale->setGradient(gradient);
    scale->setDataRange(QCPRange(least, std::max(most, least * 1.0001)));
    auto* margins = new QCPMarginGroup(plot_);
    plot_->axisRect()->setMarginGroup(QCP::msTop | QCP::msBottom, margins);
    scale->setMarginGroup(QCP::msTop | QCP::msBottom, margins);
    const auto lines = [&](double level, const QPen& pen) {
        auto* curve = new QCPCurve(plot_->xAxis, plot_->yAxis);
        QVector<QCPCurveData> pieces;
        double n = 0;
        for (const ContourPiece& piece : contour(speedups, static_cast<std::size_t>(columns), level)) {
            pieces << QCPCurveData(n, piece.x0, piece.y0) << QCPCurveData(n + 1, piece.x1, piece.y1)
                   << QCPCurveData(n + 2, std::nan(""), std::nan(""));
            n += 3;
        }
        curve->data()->set(pieces, true);
        curve->setPen(pen);
        curve->setName("speed-up " + QString::number(level, 'g', 3));
    };
    for (const double level : {0.5, 0.75, 1.25, 1.5, 2.0, 2.5, 3.0}) lines(level, QPen(QColor(255, 255, 255, 120), 1));
    lines(1.0, QPen(QColor(0xff, 0x5d, 0x2b), 2.6));
    const auto ticks = [&](QCPAxis* axis, const SweepAxis& of) {
        QSharedPointer<QCPAxisTickerText> ticker(new QCPAxisTickerText);
        const std::size_t step = std::max<std::size_t>(1, of.values.size() / 8);
        for (std::size_t i = 0; i < of.values.size(); i += step)
            ticker->addTick(static_cast<double>(i), qs(value_text(of.values[i])));
        axis->setTicker(ticker);
        axis->setLabel(qs(of.knob.label));
        axis->setRange(-0.5, static_cast<double>(of.values.size()) - 0.5);
    };
    ticks(plot_->xAxis, x);
    ticks(plot_->yAxis, y);
    QString text = "Thick line: speed-up 1.";
    if (const auto best = best_point(*sweep_)) {
        const SweepPoint& point = sweep_->points[*best];
        text += "  Best: " + qs(value_text(point.values[0])) + ", " + qs(value_text(point.values[1])) + " with " +
                fixed(point.tokens_per_second.value, 1) + " tok/s.";
    }
    remark_->setText(text);
    remark_->setToolTip(text);
}

void CurvesPage::draw_pareto() {
    const Theme& t = theme();
    const SweepAxis& depth = sweep_->axes[1];
    const std::size_t batches = sweep_->axes[0].values.size();
    const bool speculates = session_.answer() && session_.answer()->scenario.speculation.method != model::SpeculationMethod::none;
    double widest = 0;
    double highest = 0;
    const auto front = [&](const QString& name, int series, auto value) {
        QVector<double> xs, ys;
        for (std::size_t i = 0; i < batches; ++i) {
            const auto [user, total] = value(i);
            if (!(user > 0)) continue;
            xs << user;
            ys << total;
            widest = std::max(widest, user);
            highest = std::max(highest, total);
        }
        auto* curve = new QCPCurve(plot_->xAxis, plot_->yAxis);
        QVector<double> order;
        for (int i = 0; i < xs.size(); ++i) order << i;
        curve->setData(order, xs, ys, true);
        curve->setPen(QPen(t.series(series), 2.2, series == 7 ? Qt::DashLine : Qt::SolidLine));
        curve->setScatterStyle(QCPScatterStyle(QCPScatterStyle::ssDisc, 6));
        curve->setName(name);
    };
    if (speculates) {
        for (std::size_t j = 0; j < depth.values.size(); ++j) {
            front("depth " + qs(value_text(depth.values[j])), static_cast<int>(j), [&](std::size_t i) {
                const SweepPoint& point = sweep_->at(i, j);
                return point.error.empty() && point.fits ? std::pair(point.per_user.value, point.tokens_per_second.value)
                                                         : std::pair(0.0, 0.0);
            });
        }
    }
    front("plain decoding", 7, [&](std::size_t i) {
        const SweepPoint& point = sweep_->at(i, 0);
        const double users = point.per_user.value > 0 ? point.tokens_per_second.value / point.per_user.value : 1;
        return point.error.empty() && point.fits ? std::pair(point.plain.value / users, point.plain.value) : std::pair(0.0, 0.0);
    });
    plot_->xAxis->setLabel("tokens per second and user");
    plot_->yAxis->setLabel("tokens per second, all users");
    plot_->xAxis->setRange(0, widest * 1.08);
    plot_->yAxis->setRange(0, highest * 1.08);
    plot_->legend->setVisible(true);
    plot_->axisRect()->insetLayout()->setInsetAlignment(0, Qt::AlignTop | Qt::AlignRight);
    remark_->setText("Each point a number of users: 1, 2, 4 ... 128, from the right.");
}

}  // namespace draftboard::gui
