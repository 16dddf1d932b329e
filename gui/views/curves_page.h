// SPDX-License-Identifier: Apache-2.0
#pragma once
// Curves and maps: tokens per second, speed-up or cycle over any knob with bands and break-even lines, over any two as a map with
// contours, and per-user against total rates as a Pareto front. Points of measured runs can be laid over a curve.

#include <QTimer>
#include <optional>

#include "gui/core/sweep.h"
#include "gui/models/table_model.h"
#include "gui/views/page.h"

class QComboBox;
class QCustomPlot;
class QLabel;
class QProgressBar;
class QDoubleSpinBox;
class QSpinBox;
class QToolButton;

namespace draftboard::gui {

class CurvesPage : public Page {
    Q_OBJECT
 public:
    explicit CurvesPage(Session& session, QWidget* parent = nullptr);
    /// Sweeps the knob of this path ("pareto": total against per-user rates), with `y` both; false: no such knob.
    bool choose(const QString& x, const QString& y);
    [[nodiscard]] QWidget* picture() override;
    [[nodiscard]] std::vector<Table> tables() const override;
    [[nodiscard]] bool busy() const override { return task_.running() || soon_.isActive() || !sweep_; }
    [[nodiscard]] const std::optional<Sweep>& result() const { return sweep_; }
    [[nodiscard]] QString remark() const;

 protected:
    void refresh() override;

 private:
    enum class Quantity { rate, speedup, cycle, per_user };
    void start();
    void draw();
    void draw_curve();
    void draw_categories();
    void draw_map();
    void draw_pareto();
    void add_target(QString& text);
    void add_measured();
    void open_measured();
    [[nodiscard]] Quantity quantity() const;
    [[nodiscard]] model::Interval value_of(const SweepPoint& point) const;

    QTimer soon_;  ///< a sweep begins when the knobs rest
    BackgroundTask task_;
    std::optional<Sweep> sweep_;
    Variant swept_;  ///< what the sweep is of
    QString swept_axes_;
    TableModel model_;
    QComboBox* x_ = nullptr;
    QComboBox* y_ = nullptr;
    QComboBox* quantity_ = nullptr;
    QSpinBox* points_ = nullptr;
    QDoubleSpinBox* target_ = nullptr;
    std::vector<std::pair<double, double>> measured_;  ///< x and quantity, laid over the curve
    QCustomPlot* plot_ = nullptr;
    QTableView* table_ = nullptr;
    QLabel* remark_ = nullptr;
    QProgressBar* progress_ = nullptr;
    QToolButton* cancel_ = nullptr;
};

}  // namespace draftboard::gui
