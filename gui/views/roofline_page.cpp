// SPDX-License-Identifier: Apache-2.0
#include "gui/views/roofline_page.h"

#include <qcustomplot.h>

#include <QVBoxLayout>
#include <algorithm>
#include <cmath>

#include "gui/models/tables.h"
#include "gui/models/text.h"
#include "gui/views/theme.h"

namespace draftboard::gui {

namespace {

struct PointLabel {
    double x = 0;
    double y = 0;
    double size = 0;
    double weight = 0;
    QString text;
};

/// Names as far as they do not cover each other, the costliest first.
void place_labels(QCustomPlot& plot, std::vector<PointLabel> labels, const QFont& font) {
    std::stable_sort(labels.begin(), labels.end(), [](const PointLabel& a, const PointLabel& b) { return a.weight > b.weight; });
    const QFontMetricsF metrics(font);
    std::vector<QRectF> taken;
    for (const PointLabel& label : labels) {
        const double reach = label.size / 2 - 1;
        taken.emplace_back(plot.xAxis->coordToPixel(label.x) - reach, plot.yAxis->coordToPixel(label.y) - reach, 2 * reach,
                           2 * reach);
    }
    for (const PointLabel& label : labels) {
        const QPointF at(plot.xAxis->coordToPixel(label.x), plot.yAxis->coordToPixel(label.y));
        const double wide = metrics.horizontalAdvance(label.text) + 6;
        for (const bool left : {false, true}) {
            const double off = label.size / 2 + 4;
            const QRectF box(left ? at.x() - off - wide : at.x() + off, at.y() - metrics.height() / 2, wide, metrics.height());
            if (std::any_of(taken.begin(), taken.end(), [&](const QRectF& other) { return other.intersects(box); })) continue;
            taken.push_back(box);
            auto* text = new QCPItemText(&plot);
            text->position->setType(QCPItemPosition::ptAbsolute);
            text->position->setPixelPosition(left ? box.topRight() : box.topLeft());
            text->setPositionAlignment((left ? Qt::AlignRight : Qt::AlignLeft) | Qt::AlignTop);
            text->setText(label.text);
            text->setColor(theme().text);
            text->setFont(font);
            break;
        }
    }
}

}  // namespace

RooflinePage::RooflinePage(Session& session, QWidget* parent) : Page(session, "roofline", "Roofline", parent) {
    auto* all = new QVBoxLayout(this);
    all->setContentsMargins(0, 6, 0, 0);
    plot_ = new QCustomPlot(this);
    plot_->setObjectName("roofline.plot");
    plot_->setAccessibleName("Roofline");
    all->addWidget(plot_);
}

QWidget* RooflinePage::picture() { return plot_; }

std::vector<Table> RooflinePage::tables() const {
    const auto details = session_.details();
    if (!details) return {};
    return {operations_table(*details, "", "")};
}

void RooflinePage::refresh() {
    const AnswerPointer answer = session_.answer();
    const auto details = session_.details();
    if (!answer || !details || session_.stale()) return;
    const Theme& t = theme();
    plot_->clearPlottables();
    plot_->clearItems();
    style_plot(*plot_);
    const model::GpuSpec& gpu = answer->scenario.machine.gpu;
    plot_->xAxis->setLabel("flops a byte");
    plot_->yAxis->setLabel("TFLOP/s of one GPU");
    for (QCPAxis* axis : {plot_->xAxis, plot_->yAxis}) {
        axis->setTickLabelFont(font());
        axis->setLabelFont(font());
    }
    plot_->legend->setFont(font());
    std::vector<PointLabel> labels;
    double low = 1e300;
    double high = 0;
    double least = 1e300;
    double largest = 0;
    for (const sim::ExplainedPass& pass : details->explanation.passes) {
        for (const sim::ExplainedOperation& operation : pass.operations) largest = std::max(largest, operation.total_ms);
    }
    const bool speculates = answer->scenario.speculation.method != model::SpeculationMethod::none;
    const std::string wanted = speculates ? "verify" : "plain";
    // One graph a term; a point's size is its share of the pass.
    std::map<std::string, QCPGraph*> graphs;
    for (const sim::ExplainedPass& pass : details->explanation.passes) {
        if (pass.name != wanted) continue;
        for (const sim::ExplainedOperation& operation : pass.operations) {
            if (!(operation.flops > 0) || !(operation.bytes > 0) || !(operation.us > 0)) continue;
            const double x = operation.flops / operation.bytes;
            const double y = operation.flops / operation.us * 1e-6;
            low = std::min(low, x);
            high = std::max(high, x);
            least = std::min(least, y);
            const auto term = details->terms.find(operation.key);
            const std::string name = term == details->terms.end() ? "other_kernels" : term->second;
            QCPGraph* point = plot_->addGraph();
            sim::TermKind kind = sim::TermKind::other;
            for (int i = 0; i < sim::kTermKinds; ++i) {
                if (name == sim::to_name(static_cast<sim::TermKind>(i))) kind = static_cast<sim::TermKind>(i);
            }
            const double size = 6 + 13 * std::sqrt(operation.total_ms / largest);
            QColor fill = t.of(kind);
            fill.setAlpha(150);
            point->setData({x}, {y});
            point->setLineStyle(QCPGraph::lsNone);
            point->setScatterStyle(QCPScatterStyle(QCPScatterStyle::ssDisc, QPen(t.of(kind)), fill, size));
            point->setName(qs(name));
            if (graphs.contains(name))
                point->removeFromLegend();
            else
                graphs[name] = point;
            labels.push_back({x, y, size, operation.total_ms, qs(operation.role)});
        }
    }
    if (!(high > 0)) return plot_->replot();
    low /= 4;
    high = std::max(high * 4, 1e3);
    double top = 1;
    const std::pair<const char*, double> peaks[] = {
        {"bf16 peak", gpu.bf16_tflops}, {"fp8 peak", gpu.fp8_tflops}, {"fp4 peak", gpu.fp4_tflops}};
    int series = 0;
    for (const auto& [name, peak] : peaks) {
        if (!(peak > 0) || !(gpu.memory_gb_s > 0)) continue;
        const double knee = peak * 1e3 / gpu.memory_gb_s;  // flops a byte
        QCPGraph* roof = plot_->addGraph();
        roof->setData({low, knee, std::max(high, knee * 2)}, {low * gpu.memory_gb_s * 1e-3, peak, peak}, true);
        roof->setPen(QPen(t.muted, 1.8, series == 0 ? Qt::SolidLine : series == 1 ? Qt::DashLine : Qt::DotLine));
        roof->setName(QString(name) + ", " + fixed(peak, 0) + " TFLOP/s; memory " + fixed(gpu.memory_gb_s, 0) + " GB/s");
        top = std::max(top, peak);
        ++series;
    }
    set_log_axis(*plot_->xAxis, low, high);
    set_log_axis(*plot_->yAxis, std::min(least, low * gpu.memory_gb_s * 1e-3) / 2, top * 2);
    plot_->legend->setVisible(true);
    plot_->axisRect()->insetLayout()->setInsetAlignment(0, Qt::AlignBottom | Qt::AlignRight);
    plot_->replot(QCustomPlot::rpImmediateRefresh);  // so that pixels are known
    place_labels(*plot_, std::move(labels), font());
    plot_->replot();
}

void RooflinePage::resizeEvent(QResizeEvent* event) {
    Page::resizeEvent(event);
    request_refresh();  // names keep their places in pixels
}

}  // namespace draftboard::gui
