// SPDX-License-Identifier: Apache-2.0
#pragma once
// What is measured beside passes: the machine's ceilings and its clock, collectives by size, and what cycles of real decoding take
// beyond their passes. Each adds to the measurements and is one step of cpu_calibration.h.

#include <string>
#include <vector>

#include "calibration/cpu_calibration.h"
#include "calibration/engine_measurements.h"

namespace draftboard::calibration {

/// Ceilings of one core and of as many as the most ranks, the cost of a look at the clock, the start of a team's empty job.
void measure_machine(const CpuCalibrationOptions& options, EngineMeasurements& m);

/// All-reduce (one-shot, ring) and all-gather of 256 B to 1 MiB: all sizes in turn, round after round; the median of each.
void measure_collectives(const CpuCalibrationOptions& options, int ranks, EngineMeasurements& m);

/// Cycle time less pass time of short runs: plain, n-gram and with the model's own drafter, alone and as a batch. Models without a
/// byte tokenizer are passed over.
[[nodiscard]] model::Expected<void> measure_host(const CpuCalibrationOptions& options, const std::string& folder, int ranks,
                                                 const std::vector<std::vector<std::string>>& prompts, EngineMeasurements& m);

}  // namespace draftboard::calibration
