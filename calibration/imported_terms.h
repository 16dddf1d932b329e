// SPDX-License-Identifier: Apache-2.0
#pragma once
// What logs of other tools say about a box, in a calibration file: host constants, those of serving engines, and the collectives
// of one machine. log_import.h makes them; cost_constants.h prices with them, after what else the file holds.
//
// In the calibration file (calibration.h), below "imported":
//   "host": {"host.kernel_gap_us": ..., ...}                     names of sim/host_constants.h
//   "engines": {"SGLang": {"host.cycle_us": ..., ...}, ...}      by EngineSettings::name
//   "collectives": {...}                                         a document of sim/collective_constants.h; it counts for the
//                                                                machines that it names

#include <map>
#include <optional>
#include <string>

#include "calibration/calibration.h"
#include "sim/prediction.h"

namespace draftboard::calibration {

struct ImportedTerms {
    std::map<std::string, double> host;
    std::map<std::string, std::map<std::string, double>> engines;
    std::optional<sim::CollectiveConstants> collectives;
};

/// The section, checked; absent: empty. Errors: unknown names, values out of range, an unsound collective document.
[[nodiscard]] model::Expected<ImportedTerms> imported_terms(const Calibration& calibration);
/// Writes the section into the calibration.
void set_imported_terms(Calibration& calibration, const ImportedTerms& terms);

/// Host and engine constants; they replace single constants, an engine's others stay. Collectives are the caller's to choose.
[[nodiscard]] model::Expected<void> apply(const ImportedTerms& terms, sim::CostConstants& constants);

}  // namespace draftboard::calibration
