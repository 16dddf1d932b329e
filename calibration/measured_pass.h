// SPDX-License-Identifier: Apache-2.0
#pragma once
// A measured pass as a fit reads it: the plan at the measured context and experts, and the median of each operation's samples.
// engine_measurements.h has the samples, cpu_fit.h and cuda_fit.h make constants of them.

#include <vector>

#include "calibration/engine_measurements.h"

namespace draftboard::calibration {

/// One pass with its plan: operations as the engine's planner has them, at the measured context and experts.
struct EngineMeasuredPass {
    EnginePassKey key;
    model::Plan plan;
    std::vector<double> us;       ///< by operation, waiting left out
    std::vector<double> wait_us;
    std::vector<double> noise;    ///< by operation: |log(median of later / earlier samples)| / sqrt 2
    double total_us = 0;          ///< median of passes that measured nothing inside
    double early_us = 0;          ///< medians of the first and second half of the rounds
    double late_us = 0;
};

/// The medians of the samples; `plan` is that of the pass at the samples' mean context. Experts that were counted replace
/// the plan's expectation.
[[nodiscard]] EngineMeasuredPass measured_pass(const EnginePassKey& key, const EnginePassSamples& samples, model::Plan plan);

/// sd of log(median of later / median of earlier samples) of whole passes / sqrt 2: what one median differs from the next.
[[nodiscard]] double run_sigma_of(const std::vector<EngineMeasuredPass>& passes);

}  // namespace draftboard::calibration
