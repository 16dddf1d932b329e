// SPDX-License-Identifier: Apache-2.0
#pragma once
// One or two knobs varied, everything else as it is: the curves and maps of the desktop. Each point is a prediction of its
// own, the same as `predict` would give with those edits. Points are dealt over threads and come back in order, so the result
// does not depend on how many there are. A stop token ends it between two points.

#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "gui/core/answer.h"
#include "gui/core/knob.h"

namespace draftboard::gui {

inline constexpr std::size_t kMaxSweepPoints = 10000;

struct SweepAxis {
    Knob knob;
    std::vector<model::Json> values;
};
/// Values over the knob's range (or all choices), the present one among them; `points` at most.
[[nodiscard]] SweepAxis sweep_axis(const Knob& knob, int points, const Answer& answer);

struct SweepPoint {
    std::vector<model::Json> values;  ///< one for each axis
    std::string error;                ///< why there is no answer; empty: there is one
    model::Interval tokens_per_second;
    model::Interval per_user;
    model::Interval plain;
    model::Interval speedup;
    double acceptance_length = 1;
    double break_even = 1;
    double cycle_ms = 0;
    bool fits = true;
};

struct Sweep {
    std::vector<SweepAxis> axes;
    std::vector<SweepPoint> points;  ///< first axis fastest
    bool complete = false;

    [[nodiscard]] const SweepPoint& at(std::size_t x, std::size_t y = 0) const { return points[y * axes[0].values.size() + x]; }
};

/// done, of how many; called from the thread that called run_sweep().
using SweepProgress = std::function<void(std::size_t done, std::size_t all)>;

/// Errors: no axis or more than two, too many points. Points that can't be answered carry their error.
[[nodiscard]] model::Expected<Sweep> run_sweep(const Answer& base, std::vector<SweepAxis> axes, const std::string& data_directory,
                                               int threads, const std::stop_token& stop, const SweepProgress& progress = {});

/// Where values, one a point, cross `level` along a one-axis sweep of numbers, by linear interpolation; NaN: no value there.
[[nodiscard]] std::vector<double> crossings_of(const Sweep& sweep, const std::vector<double>& values, double level);
/// Where speed-up crosses 1 along a one-axis sweep of numbers, by linear interpolation, rising or falling; in order.
[[nodiscard]] std::vector<double> break_even_points(const Sweep& sweep);
/// Index of the point with most tokens per second that fits, or nullopt.
[[nodiscard]] std::optional<std::size_t> best_point(const Sweep& sweep);

/// A value as axis labels and tables show it.
[[nodiscard]] std::string value_text(const model::Json& value);
[[nodiscard]] std::string sweep_csv(const Sweep& sweep);

}  // namespace draftboard::gui
