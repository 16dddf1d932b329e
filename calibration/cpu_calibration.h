// SPDX-License-Identifier: Apache-2.0
#pragma once
// `draftboard calibrate --device cpu`: measures the CPU engine's operations at this machine and fits what prices them. The work
// is a list of short steps (a round of passes of one model on one number of ranks, the collectives of one number of
// ranks, ...), dealt so that rounds of all models alternate: what disturbs the machine for a second disturbs a few samples
// of everything and not one thing wholly. After each step the caller may keep the progress and may stop.
//
// Which pass shapes are measured is written into the calibration ("measured"), so that a validation can tell which of its
// configurations were never seen here.

#include <functional>
#include <string>
#include <vector>

#include "calibration/calibration.h"
#include "calibration/cpu_fit.h"
#include "calibration/engine_measurements.h"

namespace draftboard::calibration {

struct CpuCalibrationOptions {
    std::vector<std::string> models;     ///< folders
    std::vector<int> ranks;
    std::vector<int> contexts = {64, 300, 1000};
    std::vector<int> sequences = {1, 4};
    std::vector<int> tokens = {2, 4, 6, 8, 12};
    std::vector<int> branches = {1, 4};
    int rounds = 24;
    int collective_rounds = 60;
    int host_prompts = 6;
    int host_tokens = 32;
    bool eviction = false;
    std::string data_directory;
    std::vector<std::string> prompt_sets = {"code", "prose", "structured"};
    /// Seconds after which no further round is begun (three at least are run); 0: none.
    double budget_s = 150;
};
/// "quick": some 25 s; "full": twice the rounds and a wider grid.
void apply_preset(CpuCalibrationOptions& options, const std::string& preset);
/// One line that names all that measurements depend on.
[[nodiscard]] std::string settings_of(const CpuCalibrationOptions& options);

/// Called after each step with what is done; false: stop now.
using ProgressCallback = std::function<bool(const EngineProgress& progress, double share, const std::string& step)>;

struct CpuCalibrationResult {
    bool complete = false;  ///< false: stopped
    Calibration calibration;
    CpuFit fit;
};

/// Goes on from `progress` (empty: from the start), which holds everything measured when this returns.
[[nodiscard]] model::Expected<CpuCalibrationResult> calibrate_cpu(const CpuCalibrationOptions& options, EngineProgress& progress,
                                                                  const ProgressCallback& callback);

/// How near a model's decoding comes to the ceilings.
struct CpuAchieved {
    std::string model;
    std::string pass;        ///< "decode, 1 sequence"
    int ranks = 1;
    double total_us = 0;
    double gb_s = 0;         ///< weights and cache, all ranks together
    double gflop_s = 0;
    double kernel_share = 0; ///< of the pass that operations take: the rest is launch, waiting and clock
};
[[nodiscard]] std::vector<CpuAchieved> achieved_rates(const std::vector<EngineMeasuredPass>& passes);

/// What a calibration file of a CPU says of its machine and its rates, for people; empty: no CPU calibration.
[[nodiscard]] std::string cpu_calibration_text(const Calibration& calibration);

/// A pass shape that was measured: what "measured" lists.
struct CpuMeasuredShape {
    std::string model;
    int ranks = 1;
    std::string pass;
    int sequences = 1;
    int tokens = 1;
    auto operator<=>(const CpuMeasuredShape&) const = default;
};
[[nodiscard]] std::vector<CpuMeasuredShape> measured_shapes(const Calibration& calibration);

}  // namespace draftboard::calibration
