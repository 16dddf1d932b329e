// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which constants price a scenario: the kernel calibration it names (else its machine's, else the
// datasheet), and the collective calibration it names (else the shipped one that lists its machine, else
// published constants). The engines' terms that are shipped with a kernel calibration come along
// (engine_terms.h), and what `calibrate import` read from logs (imported_terms.h) comes last. What was taken is written into the result, so that reports can say so.

#include <string>

#include "calibration/calibration.h"
#include "model/machine.h"
#include "model/scenario.h"
#include "sim/prediction.h"

namespace draftboard::calibration {

[[nodiscard]] model::Expected<sim::CostConstants> load_cost_constants(
    const model::Scenario& scenario, const std::string& data_directory);

/// The same with a calibration at hand in place of the one that the scenario names.
[[nodiscard]] model::Expected<sim::CostConstants> cost_constants_of(
    const Calibration& calibration, const model::Scenario& scenario, const std::string& data_directory);

/// `name_or_path` empty: the shipped calibration that lists the machine, else the defaults.
[[nodiscard]] model::Expected<sim::CollectiveConstants> load_collective_constants(
    const model::Machine& machine, const std::string& name_or_path,
    const std::string& data_directory, const std::string& relative_to = {});

}  // namespace draftboard::calibration
