// SPDX-License-Identifier: Apache-2.0
#include "gui/views/measurement_pages.h"

#include <qcustomplot.h>

#include <QComboBox>
#include <QFileDialog>
#include <QHBoxLayout>
#include <QLabel>
#include <QProgressBar>
#include <QPushButton>
#include <QSortFilterProxyModel>
#include <QSplitter>
#include <QTableView>
#include <QVBoxLayout>
#include <algorithm>
#include <cmath>

#include "gui/core/measure_here.h"
#include "gui/models/text.h"
#include "gui/views/export.h"
#include "gui/views/theme.h"
#include "model/data_library.h"

namespace draftboard::gui {

namespace {

Cell number(double value, int digits) { return {fixed(value, digits), value, {}, false, 0}; }
Cell percent(double share) { return {fixed(100 * share, 1) + " %", share, {}, false, 0}; }
Cell text_cell(std::string_view text) { return {qs(text), {}, {}, false, 0}; }

void prepare(QCustomPlot& plot, const QFont& font) {
    plot.clearPlottables();
    plot.clearItems();
    style_plot(plot);
    for (QCPAxis* axis : {plot.xAxis, plot.yAxis}) {
        axis->setTickLabelFont(font);
        axis->setLabelFont(font);
    }
    plot.legend->setFont(font);
}

}  // namespace

TaskBar::TaskBar(BackgroundTask& task, const QString& name, const QString& start, const QString& tip, QWidget* parent)
    : QWidget(parent) {
    auto* row = new QHBoxLayout(this);
    row->setContentsMargins(0, 0, 0, 0);
    start_ = new QPushButton(start, this);
    start_->setObjectName(name + ".start");
    start_->setToolTip(tip);
    cancel_ = new QPushButton("Cancel", this);
    cancel_->setObjectName(name + ".cancel");
    progress_ = new QProgressBar(this);
    progress_->setObjectName(name + ".progress");
    progress_->setMaximumWidth(160);
    what_ = new QLabel(this);
    for (QWidget* widget : {static_cast<QWidget*>(start_), static_cast<QWidget*>(progress_), static_cast<QWidget*>(cancel_)})
        row->addWidget(widget);
    row->addWidget(what_, 1);
    what_->setSizePolicy(QSizePolicy::Ignored, QSizePolicy::Preferred);
    cancel_->hide();
    progress_->hide();
    connect(start_, &QPushButton::clicked, this, [this] {
        start_->setEnabled(false);
        cancel_->show();
        progress_->setValue(0);
        progress_->show();
        emit started();
    });
    connect(cancel_, &QPushButton::clicked, &task, &BackgroundTask::cancel);
    connect(&task, &BackgroundTask::progressed, this, [this](double share, const QString& what) {
        progress_->setValue(static_cast<int>(100 * share));
        what_->setText(what);
    });
    connect(&task, &BackgroundTask::finished, this, [this](bool complete) {
        start_->setEnabled(true);
        cancel_->hide();
        progress_->hide();
        what_->setText(complete ? QString() : "Cancelled");
    });
}

CalibrationPage::CalibrationPage(Session& session, QWidget* parent) : Page(session, "calibration", "Calibration", parent) {
    auto* all = new QVBoxLayout(this);
    all->setContentsMargins(8, 6, 8, 0);
    auto* row = new QHBoxLayout;
    auto* open_button = new QPushButton("Open a calibration...", this);
    auto* bar = new TaskBar(task_, "calibration", "Calibrate this CPU",
                            "Measures the CPU engine here, some 25 seconds, and shows what came of it", this);
    row->addWidget(open_button);
    row->addWidget(bar, 1);
    all->addLayout(row);
    title_ = new QLabel(this);
    title_->setObjectName("calibration.title");
    title_->setWordWrap(true);
    all->addWidget(title_);
    auto* split = new QSplitter(Qt::Vertical, this);
    view_ = make_table_view(model_, "calibration.table", split);
    view_->setSelectionMode(QAbstractItemView::SingleSelection);
    split->addWidget(view_);
    auto* low = new QWidget(split);
    auto* column = new QVBoxLayout(low);
    column->setContentsMargins(0, 0, 0, 0);
    plot_ = new QCustomPlot(low);
    plot_->setObjectName("calibration.plot");
    plot_->setAccessibleName("Fitted against measured");
    plot_->setMinimumSize(240, 140);
    text_ = new QLabel(low);
    text_->setWordWrap(true);
    column->addWidget(plot_, 1);
    column->addWidget(text_);
    split->addWidget(low);
    split->setStretchFactor(0, 1);
    split->setStretchFactor(1, 1);
    all->addWidget(split, 1);
    connect(open_button, &QPushButton::clicked, this, [this] {
        const QString path = QFileDialog::getOpenFileName(this, "Open a calibration", {}, "Calibrations (*.json)");
        if (path.isEmpty()) return;
        if (const QString failed = open(path); !failed.isEmpty()) title_->setText(failed);
    });
    connect(bar, &TaskBar::started, this, [this] { measure(); });
    connect(view_->selectionModel(), &QItemSelectionModel::currentRowChanged, this, [this](const QModelIndex& index) {
        if (index.isValid()) show_entry(qobject_cast<QSortFilterProxyModel*>(view_->model())->mapToSource(index).row());
    });
}

QWidget* CalibrationPage::picture() { return plot_; }

QString CalibrationPage::open(const QString& name) {
    auto found = calibration::find_calibration(name.toStdString(), session_.data_directory());
    if (!found) return qs(found.error().to_text());
    calibration_ = std::move(*found);
    opened_ = name;
    shown_.clear();
    request_refresh();
    return {};
}

void CalibrationPage::refresh() {
    const AnswerPointer answer = session_.answer();
    if (opened_.isEmpty() && answer) {
        const QString wanted = qs(answer->kernels);
        if (wanted == shown_) {
            if (const auto* proxy = qobject_cast<QSortFilterProxyModel*>(view_->model()); view_->currentIndex().isValid())
                show_entry(proxy->mapToSource(view_->currentIndex()).row());
            return;
        }
        auto found = calibration::find_calibration(answer->kernels, session_.data_directory(), answer->scenario.directory);
        if (!found) {
            title_->setText("Kernels are priced by the datasheet: this scenario has no calibration.");
            model_.set({});
            shown_ = wanted;
            draw(nullptr, nullptr);
            return;
        }
        calibration_ = std::move(*found);
    }
    if (!calibration_) return;
    shown_ = qs(calibration_->name);
    QString sources;
    for (const std::string& line : calibration_->provenance) sources += (sources.isEmpty() ? "" : "\n") + qs(line);
    title_->setText(qs(calibration_->name) + ": " + qs(calibration_->description));
    title_->setToolTip(sources);
    Table table;
    table.name = "calibration";
    table.columns = {{"kernel", "kind / format / implementation", false},
                     {"error", "Standard deviation of predicted / measured", true},
                     {"median", "Median error of rows that the fit did not see", true},
                     {"p90", "Nine of ten rows are below", true},
                     {"bias", "Median of predicted / measured - 1", true},
                     {"points", "Measured rows", true},
                     {"m", "Rows that were measured", false},
                     {"floor us", "", true},
                     {"GB/s", "Cold bandwidth", true},
                     {"TFLOP/s", "", true},
                     {"coverage", "", false},
                     {"source", "", false}};
    for (const auto& [key, constants] : calibration_->kernels.entries) {
        const calibration::TableFit* fit = nullptr;
        for (const calibration::TableFit& of : calibration_->fits) {
            if (of.key == key && (fit == nullptr || of.rows > fit->rows)) fit = &of;
        }
        std::vector<Cell> row{text_cell(key), percent(constants.relative_error)};
        for (const double value : {fit ? fit->all_errors.median : -1, fit ? fit->all_errors.p90 : -1})
            row.push_back(value < 0 ? Cell{"", -1.0, {}, true, 0} : percent(value));
        row.push_back(fit ? percent(fit->all_errors.bias) : Cell{"", 0.0, {}, true, 0});
        row.push_back(number(constants.points, 0));
        row.push_back({constants.points > 0 ? fixed(constants.m_low, 0) + " .. " + fixed(constants.m_high, 0) : QString(),
                       constants.m_high,
                       {},
                       false,
                       0});
        row.push_back(number(constants.floor_us, 2));
        row.push_back(number(constants.bandwidth_gb_s, 0));
        row.push_back(number(constants.rate_tflops, 1));
        row.push_back(text_cell(to_name(constants.coverage)));
        row.push_back(text_cell(constants.source));
        table.rows.push_back(std::move(row));
    }
    std::stable_sort(table.rows.begin(), table.rows.end(), [](const auto& a, const auto& b) {
        const bool fitted_a = a[2].sort.toDouble() >= 0;
        const bool fitted_b = b[2].sort.toDouble() >= 0;
        return fitted_a != fitted_b ? fitted_a
               : fitted_a           ? a[2].sort.toDouble() > b[2].sort.toDouble()
                                    : a[1].sort.toDouble() > b[1].sort.toDouble();
    });
    model_.set(std::move(table));
    view_->selectRow(0);
    show_entry(0);
}

void CalibrationPage::show_entry(int row) {
    if (!calibration_ || row < 0 || row >= model_.rowCount()) return;
    const QString key = model_.table().rows[static_cast<std::size_t>(row)][0].text;
    for (const auto& [name, constants] : calibration_->kernels.entries) {
        if (qs(name) != key) continue;
        const calibration::TableFit* fit = nullptr;
        for (const calibration::TableFit& of : calibration_->fits) {
            if (of.key == name && (fit == nullptr || of.rows > fit->rows)) fit = &of;
        }
        text_->setText(key + ": " + qs(constants.source) +
                       (fit != nullptr && !fit->worst_row.empty() ? "; worst row: " + qs(fit->worst_row) : ""));
        draw(fit, &constants);
        return;
    }
}

void CalibrationPage::draw(const calibration::TableFit* fit, const sim::KernelConstants* constants) {
    const Theme& t = theme();
    prepare(*plot_, font());
    plot_->xAxis->setLabel("rows m");
    plot_->yAxis->setLabel("error of rows not seen [%]");
    QVector<double> xs, bias, reach, factors_x, factors;
    if (fit != nullptr) {
        for (const calibration::BucketError& bucket : fit->cold_by_m) {
            xs << std::log2(std::max(1.0, bucket.m));
            bias << 100 * bucket.errors.bias;
            reach << 100 * bucket.errors.p90;
        }
    }
    double most = 5;
    for (int i = 0; i < xs.size(); ++i) most = std::max(most, std::abs(bias[i]) + reach[i]);
    auto* points = plot_->addGraph();
    points->setData(xs, bias);
    points->setLineStyle(QCPGraph::lsNone);
    points->setScatterStyle(QCPScatterStyle(QCPScatterStyle::ssDisc, t.series(0), t.series(0), 8));
    points->setName("bias, whiskers: nine of ten rows");
    auto* whiskers = new QCPErrorBars(plot_->xAxis, plot_->yAxis);
    whiskers->setDataPlottable(points);
    whiskers->setData(reach);
    whiskers->setPen(QPen(t.series(0), 1.6));
    whiskers->removeFromLegend();
    if (constants != nullptr && !constants->residuals.empty()) {
        for (const auto& residual : constants->residuals) {
            factors_x << residual.log2_m;
            factors << 100 * (residual.factor - 1);
            most = std::max(most, std::abs(factors.back()));
        }
        auto* line = plot_->addGraph();
        line->setData(factors_x, factors);
        line->setPen(QPen(t.series(1), 2, Qt::DashLine));
        line->setName("correction by m that the fit carries");
    }
    if (xs.isEmpty() && factors_x.isEmpty() && fit != nullptr) return draw_summary(*fit);
    if (xs.isEmpty() && factors_x.isEmpty()) {
        auto* none = new QCPItemText(plot_);
        none->position->setType(QCPItemPosition::ptAxisRectRatio);
        none->position->setCoords(0.5, 0.5);
        none->setText("Not fitted to measurements");
        none->setColor(t.muted);
        none->setFont(font());
    }
    QSharedPointer<QCPAxisTickerText> ticker(new QCPAxisTickerText);
    for (int power = 0; power <= 16; ++power) ticker->addTick(power, QString::number(1 << power));
    plot_->xAxis->setTicker(ticker);
    double right = 8;
    for (const double x : xs + factors_x) right = std::max(right, x);
    plot_->xAxis->setRange(-0.4, right + 0.5);
    plot_->yAxis->setRange(-most * 1.15, most * 1.15);
    plot_->legend->setVisible(!xs.isEmpty() || !factors_x.isEmpty());
    plot_->replot();
}

// A fit without corrections by m: its errors over all rows, and over those that found the caches cold and warm.
void CalibrationPage::draw_summary(const calibration::TableFit& fit) {
    const Theme& t = theme();
    prepare(*plot_, font());
    const std::pair<const char*, const calibration::ErrorSummary*> groups[] = {
        {"all rows", &fit.all_errors}, {"cold caches", &fit.cold_errors}, {"warm caches", &fit.warm_errors}};
    QSharedPointer<QCPAxisTickerText> ticker(new QCPAxisTickerText);
    QVector<double> xs, medians, reach;
    for (const auto& [name, errors] : groups) {
        if (errors->rows == 0) continue;
        ticker->addTick(static_cast<double>(xs.size()), QString(name) + " (" + QString::number(errors->rows) + ")");
        xs << static_cast<double>(xs.size());
        medians << 100 * errors->median;
        reach << 100 * (errors->p90 - errors->median);
    }
    auto* bars = new QCPBars(plot_->xAxis, plot_->yAxis);
    bars->setData(xs, medians, true);
    bars->setWidth(0.4);
    bars->setPen(QPen(t.series(0)));
    QColor fill = t.series(0);
    fill.setAlpha(150);
    bars->setBrush(fill);
    bars->setName("median, whiskers to nine of ten rows");
    auto* whiskers = new QCPErrorBars(plot_->xAxis, plot_->yAxis);
    whiskers->setDataPlottable(bars);
    whiskers->setData(QVector<double>(xs.size(), 0.0), reach);
    whiskers->setPen(QPen(t.text, 1.4));
    whiskers->setSymbolGap(0);
    whiskers->removeFromLegend();
    plot_->xAxis->setLabel({});
    plot_->xAxis->setTicker(ticker);
    plot_->xAxis->setRange(-0.7, std::max(1.0, static_cast<double>(xs.size())) - 0.3);
    double most = 1;
    for (int i = 0; i < xs.size(); ++i) most = std::max(most, medians[i] + reach[i]);
    plot_->yAxis->setLabel("|error| of rows not seen [%]");
    plot_->yAxis->setRange(0, most * 1.15);
    plot_->legend->setVisible(true);
    plot_->replot();
}

void CalibrationPage::measure() {
    task_.start([this, data = session_.data_directory()](const std::stop_token& stop,
                                                         const BackgroundTask::Progress& progress) -> std::function<void()> {
        auto result = calibrate_here(data, stop, [&](double share, const std::string& what) { progress(share, qs(what)); });
        return [this, result = std::move(result)] {
            if (!result) return title_->setText(qs(result.error().to_text()));
            if (!*result) return;
            auto parsed = calibration::parse_calibration(**result, "this CPU");
            if (!parsed) return title_->setText(qs(parsed.error().to_text()));
            calibration_ = std::move(*parsed);
            opened_ = "this CPU";
            request_refresh();
            const QString path =
                QFileDialog::getSaveFileName(this, "Save the calibration of this CPU", "here.json", "Calibrations (*.json)");
            if (path.isEmpty()) return;
            if (const QString failed = write_text(path, qs(**result)); !failed.isEmpty()) title_->setText(failed);
        };
    });
}

ValidationPage::ValidationPage(Session& session, QWidget* parent) : Page(session, "validation", "Validation", parent) {
    auto* all = new QVBoxLayout(this);
    all->setContentsMargins(8, 6, 8, 0);
    auto* row = new QHBoxLayout;
    auto* open_button = new QPushButton("Open a validation...", this);
    open_button->setObjectName("validation.open");
    open_button->setToolTip("What `draftboard validate SUITE --json` printed");
    suite_ = new QComboBox(this);
    suite_->setObjectName("validation.suite");
    suite_->setAccessibleName("Suite");
    for (const std::string& name : model::shipped_names("suites", session_.data_directory())) suite_->addItem(qs(name));
    suite_->setCurrentText("cpu-quick");
    auto* bar = new TaskBar(task_, "validation", "Validate this CPU...",
                            "Runs the suite here and holds predictions against it; asks for a calibration of this CPU", this);
    row->addWidget(open_button);
    row->addWidget(suite_);
    row->addWidget(bar, 1);
    all->addLayout(row);
    text_ = new QLabel(this);
    text_->setObjectName("validation.text");
    text_->setWordWrap(true);
    all->addWidget(text_);
    auto* split = new QSplitter(Qt::Horizontal, this);
    plot_ = new QCustomPlot(split);
    plot_->setObjectName("validation.plot");
    plot_->setAccessibleName("Predicted against measured");
    plot_->setMinimumSize(240, 200);
    split->addWidget(plot_);
    auto* tables = new QSplitter(Qt::Vertical, split);
    tables->addWidget(make_table_view(configurations_, "validation.configurations", tables));
    tables->addWidget(make_table_view(operations_, "validation.operations", tables));
    split->addWidget(tables);
    split->setSizes({480, 460});
    all->addWidget(split, 1);
    connect(open_button, &QPushButton::clicked, this, [this] {
        const QString path = QFileDialog::getOpenFileName(this, "Open a validation", {}, "Validations (*.json)");
        if (!path.isEmpty()) open(path);
    });
    connect(bar, &TaskBar::started, this, [this] { measure(); });
}

QWidget* ValidationPage::picture() { return plot_; }

QString ValidationPage::open(const QString& path) {
    const auto text = model::read_file(path.toStdString());
    const QString failed = text ? show_text(*text, path) : qs(text.error().to_text());
    if (!failed.isEmpty()) text_->setText(failed);
    return failed;
}

QString ValidationPage::show_text(const std::string& text, const QString& source) {
    auto file = parse_validation_file(text, source.toStdString());
    if (!file) return qs(file.error().to_text());
    file_ = std::move(*file);
    Table rows;
    rows.name = "configurations";
    rows.columns = {{"configuration", "Worst first", false},
                    {"error", "predicted / measured - 1, of tok/s", true},
                    {"measured", "tok/s", true},
                    {"predicted", "tok/s", true},
                    {"90 % interval", "", false},
                    {"unseen", "Its passes were not in the calibration", false}};
    for (const ValidatedConfiguration& one : file_->configurations) {
        rows.rows.push_back({text_cell(one.name),
                             percent(one.error()),
                             number(one.measured, 1),
                             number(one.predicted.value, 1),
                             {range_text(one.predicted, 1), one.predicted.low, {}, false, 0},
                             text_cell(one.unseen ? "yes" : "")});
    }
    configurations_.set(std::move(rows));
    Table operations;
    operations.name = "operations";
    operations.columns = {{"operation", "Worst first, weighted by time", false},
                          {"error", "Median of |predicted / measured - 1|", true},
                          {"bias", "", true},
                          {"share", "Of all measured time", true},
                          {"measured us", "", true},
                          {"predicted us", "", true},
                          {"count", "", true}};
    for (const ValidatedOperation& one : file_->operations) {
        operations.rows.push_back({text_cell(one.key), percent(one.median_error), percent(one.bias), percent(one.share),
                                   number(one.measured_us, 2), number(one.predicted_us, 2), number(one.count, 0)});
    }
    operations_.set(std::move(operations));
    text_->setText(qs(file_->suite) + " with " + qs(file_->calibration) + ": median error of tok/s " +
                   fixed(100 * file_->median_error, 1) + " %, " + (file_->within_bound ? "within" : "outside") +
                   " the bound of " + fixed(100 * file_->bound, 0) + " %; " + fixed(100 * file_->coverage_90, 0) +
                   " % within their 90 % intervals.");
    draw();
    return {};
}

void ValidationPage::refresh() {
    if (!file_) {
        // The shipped example, so that the first look is at something real.
        const std::string example = session_.data_directory() + "/validations/cpu-quick-xeon.json";
        const auto text = model::read_file(example);
        const QString failed = text ? show_text(*text, qs(example)) : qs(text.error().to_text());
        if (failed.isEmpty())
            text_->setText("Shipped example (" + qs(file_->description) + "). " + text_->text());
        else
            text_->setText(
                "Open what `draftboard validate SUITE --calibration here.json --json > validation.json` wrote, or validate this "
                "CPU.");
    }
    draw();
}

void ValidationPage::draw() {
    const Theme& t = theme();
    prepare(*plot_, font());
    plot_->xAxis->setLabel("measured tokens per second");
    plot_->yAxis->setLabel("predicted tokens per second");
    double low = 1e300;
    double high = 0;
    if (file_) {
        for (const ValidatedConfiguration& one : file_->configurations) {
            low = std::min({low, one.measured, one.predicted.low > 0 ? one.predicted.low : one.measured});
            high = std::max({high, one.measured, one.predicted.high});
        }
    }
    if (!(high > 0)) {
        low = 1;
        high = 1000;
    }
    low /= 1.25;
    high *= 1.25;
    const double bound = file_ ? file_->bound : 0.08;
    auto* below = plot_->addGraph();
    below->setData({low, high}, {low * (1 - bound), high * (1 - bound)});
    below->setPen(Qt::NoPen);
    below->removeFromLegend();
    auto* above = plot_->addGraph();
    above->setData({low, high}, {low * (1 + bound), high * (1 + bound)});
    above->setPen(Qt::NoPen);
    QColor band = t.good;
    band.setAlpha(45);
    above->setBrush(band);
    above->setChannelFillGraph(below);
    above->setName("bound of " + fixed(100 * bound, 0) + " %");
    auto* even = plot_->addGraph();
    even->setData({low, high}, {low, high});
    even->setPen(QPen(t.muted, 1.4, Qt::DashLine));
    even->removeFromLegend();
    // Graphs keep their points by x, and whiskers go with points by their place: so by x from the start.
    auto by_measured = file_ ? file_->configurations : std::vector<ValidatedConfiguration>();
    std::sort(by_measured.begin(), by_measured.end(), [](const auto& a, const auto& b) { return a.measured < b.measured; });
    for (const bool unseen : {false, true}) {
        QVector<double> xs, ys, up, down;
        for (const ValidatedConfiguration& one : by_measured) {
            if (one.unseen != unseen) continue;
            xs << one.measured;
            ys << one.predicted.value;
            up << std::max(0.0, one.predicted.high - one.predicted.value);
            down << std::max(0.0, one.predicted.value - one.predicted.low);
        }
        if (xs.isEmpty()) continue;
        auto* points = plot_->addGraph();
        points->setData(xs, ys);
        points->setLineStyle(QCPGraph::lsNone);
        const QColor colour = t.series(unseen ? 1 : 0);
        points->setScatterStyle(QCPScatterStyle(unseen ? QCPScatterStyle::ssSquare : QCPScatterStyle::ssCircle, QPen(colour, 1.6),
                                                unseen ? QBrush(colour) : QBrush(Qt::NoBrush), 7));
        points->setName(unseen ? "not seen by the calibration" : "seen by the calibration");
        auto* whiskers = new QCPErrorBars(plot_->xAxis, plot_->yAxis);
        whiskers->setDataPlottable(points);
        whiskers->setData(down, up);
        QColor faint = colour;
        faint.setAlpha(110);
        whiskers->setPen(QPen(faint, 1));
        whiskers->removeFromLegend();
    }
    for (QCPAxis* axis : {plot_->xAxis, plot_->yAxis}) set_log_axis(*axis, low, high);
    plot_->legend->setVisible(file_.has_value());
    plot_->axisRect()->insetLayout()->setInsetAlignment(0, Qt::AlignTop | Qt::AlignLeft);
    plot_->replot();
}

void ValidationPage::measure() {
    const QString path = QFileDialog::getOpenFileName(this, "A calibration of this CPU", {}, "Calibrations (*.json)");
    if (path.isEmpty()) {
        task_.start([](const std::stop_token&, const BackgroundTask::Progress&) { return std::function<void()>(); });
        return;
    }
    const std::string suite = suite_->currentText().toStdString();
    task_.start([this, path, suite, data = session_.data_directory()](
                    const std::stop_token& stop, const BackgroundTask::Progress& progress) -> std::function<void()> {
        auto result = validate_here(suite, path.toStdString(), data, stop,
                                    [&](double share, const std::string& what) { progress(share, qs(what)); });
        return [this, result = std::move(result)] {
            if (!result) return text_->setText(qs(result.error().to_text()));
            if (!*result) return;
            if (const QString failed = show_text(**result, "this CPU"); !failed.isEmpty()) text_->setText(failed);
        };
    });
}

}  // namespace draftboard::gui
