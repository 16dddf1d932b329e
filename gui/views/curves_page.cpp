// SPDX-License-Identifier: Apache-2.0
#include "gui/views/curves_page.h"

#include <qcustomplot.h>

#include <QComboBox>
#include <QDoubleSpinBox>
#include <QFileDialog>
#include <QHBoxLayout>
#include <QLabel>
#include <QProgressBar>
#include <QPushButton>
#include <QSpinBox>
#include <QSplitter>
#include <QTableView>
#include <QToolButton>
#include <QVBoxLayout>
#include <algorithm>

#include "gui/core/measured_points.h"
#include "gui/models/tables.h"
#include "gui/models/text.h"
#include "gui/views/theme.h"

namespace draftboard::gui {

namespace {

constexpr const char* kPareto = "pareto";
constexpr int kSweepThreads = 2;
constexpr int kRestMs = 150;  // a hand that still turns starts no sweep

}  // namespace

CurvesPage::CurvesPage(Session& session, QWidget* parent) : Page(session, "curves", "Curves", parent) {
    auto* all = new QVBoxLayout(this);
    all->setContentsMargins(0, 6, 0, 0);
    all->setSpacing(4);
    auto* row = new QHBoxLayout;
    row->setContentsMargins(8, 0, 8, 0);
    quantity_ = new QComboBox(this);
    quantity_->setObjectName("curves.quantity");
    quantity_->setAccessibleName("Quantity");
    for (const char* name : {"tokens per second", "speed-up", "cycle ms", "tokens per second and user"}) quantity_->addItem(name);
    x_ = new QComboBox(this);
    x_->setObjectName("curves.x");
    x_->setAccessibleName("Over");
    y_ = new QComboBox(this);
    y_->setObjectName("curves.y");
    y_->setAccessibleName("And over");
    y_->addItem("nothing else", "");
    for (const Knob& knob : session_.knobs()) {
        x_->addItem(qs(knob.label), qs(knob.path));
        if (knob.numeric()) y_->addItem(qs(knob.label), qs(knob.path));
    }
    x_->insertItem(0, "total against per user (Pareto)", kPareto);
    x_->setCurrentIndex(x_->findData("speculation.acceptance.acceptance_length"));
    for (QComboBox* box : {quantity_, x_, y_}) {
        box->setSizeAdjustPolicy(QComboBox::AdjustToMinimumContentsLengthWithIcon);
        box->setMinimumContentsLength(11);
    }
    points_ = new QSpinBox(this);
    points_->setRange(3, 99);
    points_->setValue(25);
    points_->setSuffix(" points");
    points_->setAccessibleName("Points of an axis");
    progress_ = new QProgressBar(this);
    progress_->setObjectName("curves.progress");
    progress_->setMaximumWidth(120);
    progress_->setTextVisible(false);
    progress_->hide();
    cancel_ = new QToolButton(this);
    cancel_->setText("Cancel");
    cancel_->hide();
    remark_ = new QLabel(this);
    remark_->setObjectName("curves.remark");
    remark_->setSizePolicy(QSizePolicy::Ignored, QSizePolicy::Preferred);
    row->addWidget(quantity_);
    row->addWidget(new QLabel("over", this));
    row->addWidget(x_);
    row->addWidget(new QLabel("and", this));
    row->addWidget(y_);
    row->addWidget(points_);
    target_ = new QDoubleSpinBox(this);
    target_->setObjectName("curves.target");
    target_->setAccessibleName("Target");
    target_->setToolTip("A rate to reach: the curve says which value of the knob reaches it");
    target_->setRange(0, 1e6);
    target_->setDecimals(1);
    target_->setSpecialValueText("no target");
    target_->setPrefix("target ");
    target_->setKeyboardTracking(false);
    row->addWidget(target_);
    auto* measured = new QToolButton(this);
    measured->setText("Measured...");
    measured->setToolTip("Lays measured points over the curve: a CSV of x and value, a row each");
    row->addWidget(measured);
    connect(measured, &QToolButton::clicked, this, [this] { open_measured(); });
    connect(target_, &QDoubleSpinBox::valueChanged, this, [this] { draw(); });
    row->addStretch(1);
    all->addLayout(row);
    auto* second = new QHBoxLayout;
    second->setContentsMargins(8, 0, 8, 0);
    second->addWidget(remark_, 1);
    second->addWidget(progress_);
    second->addWidget(cancel_);
    all->addLayout(second);
    auto* split = new QSplitter(Qt::Horizontal, this);
    plot_ = new QCustomPlot(split);
    plot_->setObjectName("curves.plot");
    plot_->setAccessibleName("Curve");
    plot_->setInteractions(QCP::iRangeDrag | QCP::iRangeZoom);
    plot_->setMinimumSize(240, 160);
    table_ = make_table_view(model_, "curves.table", split);
    split->addWidget(plot_);
    split->addWidget(table_);
    split->setStretchFactor(0, 3);
    split->setStretchFactor(1, 1);
    split->setSizes({620, 320});
    all->addWidget(split, 1);
    for (QComboBox* box : {x_, y_}) connect(box, &QComboBox::currentIndexChanged, this, [this] { start(); });
    connect(quantity_, &QComboBox::currentIndexChanged, this, [this] { draw(); });
    connect(points_, &QSpinBox::valueChanged, this, [this] { start(); });
    connect(cancel_, &QToolButton::clicked, &task_, &BackgroundTask::cancel);
    connect(&task_, &BackgroundTask::progressed, this,
            [this](double share, const QString&) { progress_->setValue(static_cast<int>(100 * share)); });
    soon_.setSingleShot(true);
    soon_.setInterval(kRestMs);
    connect(&soon_, &QTimer::timeout, this, [this] { start(); });
    connect(&task_, &BackgroundTask::finished, this, [this] {
        progress_->hide();
        cancel_->hide();
    });
}

QWidget* CurvesPage::picture() { return plot_; }
QString CurvesPage::remark() const { return remark_->text(); }
std::vector<Table> CurvesPage::tables() const { return {model_.table()}; }

bool CurvesPage::choose(const QString& x, const QString& y) {
    const int at_x = x_->findData(x);
    const int at_y = y_->findData(y);
    if (at_x < 0 || at_y < 0 || (x == y && !x.isEmpty())) return false;
    {
        const QSignalBlocker a(x_);
        const QSignalBlocker b(y_);
        y_->setCurrentIndex(at_y);
        x_->setCurrentIndex(at_x);
    }
    sweep_.reset();
    start();
    return true;
}

CurvesPage::Quantity CurvesPage::quantity() const { return static_cast<Quantity>(quantity_->currentIndex()); }

model::Interval CurvesPage::value_of(const SweepPoint& point) const {
    switch (quantity()) {
        case Quantity::rate: return point.tokens_per_second;
        case Quantity::speedup: return point.speedup;
        case Quantity::cycle: return {point.cycle_ms, point.cycle_ms, point.cycle_ms};
        case Quantity::per_user: return point.per_user;
    }
    return {};
}

void CurvesPage::refresh() {
    const QString axes =
        x_->currentData().toString() + "|" + y_->currentData().toString() + "|" + QString::number(points_->value());
    const bool same = sweep_ && swept_axes_ == axes && swept_.edits == session_.project().shown().edits &&
                      swept_.base == session_.project().shown().base;
    if (same)
        draw();
    else
        soon_.start();
}

void CurvesPage::start() {
    const AnswerPointer answer = session_.answer();
    if (!answer || session_.stale() || session_.error() || !isVisible()) return;
    const QString wanted = x_->currentData().toString();
    const Knob* x = find_knob(session_.knobs(), wanted == kPareto ? "workload.concurrency" : wanted.toStdString());
    const Knob* y = wanted == kPareto ? find_knob(session_.knobs(), "speculation.steps")
                                      : find_knob(session_.knobs(), y_->currentData().toString().toStdString());
    if (x == nullptr || x == y) return;
    const bool two = y != nullptr;
    std::vector<SweepAxis> axes{sweep_axis(*x, points_->value(), *answer)};
    if (wanted == kPareto) {
        // Plain decoding has a curve of its own: `plain` of each point.
        axes[0].values = {1, 2, 4, 8, 16, 32, 64, 128};
        axes.push_back({*y, {1, 2, 3, 5}});
    } else if (two) {
        axes.push_back(sweep_axis(*y, points_->value(), *answer));
    }
    swept_ = answer->variant;
    swept_axes_ = wanted + "|" + y_->currentData().toString() + "|" + QString::number(points_->value());
    progress_->setValue(0);
    progress_->show();
    cancel_->show();
    task_.start([this, answer, axes, data = session_.data_directory()](
                    const std::stop_token& stop, const BackgroundTask::Progress& progress) -> std::function<void()> {
        auto result = run_sweep(*answer, axes, data, kSweepThreads, stop, [&](std::size_t done, std::size_t all) {
            progress(static_cast<double>(done) / static_cast<double>(all), {});
        });
        return [this, result = std::move(result)] {
            if (!result) {
                remark_->setText(qs(result.error().to_text()));
                return;
            }
            if (!result->complete) return;
            sweep_ = *result;
            model_.set(sweep_table(*sweep_));
            draw();
        };
    });
}

void CurvesPage::open_measured() {
    const QString path = QFileDialog::getOpenFileName(this, "Measured points", {}, "Tables (*.csv)");
    if (path.isEmpty()) return;
    auto points = read_points_file(path.toStdString());
    if (!points) return remark_->setText(qs(points.error().to_text()));
    measured_ = std::move(*points);
    draw();
}

}  // namespace draftboard::gui
