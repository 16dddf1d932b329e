// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a validation has measured so far, so that one that was stopped goes on where it was: rounds, profiles and acceptance.
// Predictions are not kept: they take no time, and another calibration may be held against the same runs.
//
// {"format": "draftboard.validation_progress", "version": 1, "settings": TEXT, "box": {...}, "failed": ["GROUP: why", ...],
//  "acceptance": {KEY: [[cycles, hits, [reached...]], ...]},
//  "configurations": {"3: NAME": {"rounds": [{"cycle_us", "cycles", "disturbed", "texts": [...]}, ...], "repeated": [...],
//                                 "profiles": [[{"engine", "pass", "sequences", "tokens", "us": [...], "wait_us": [...]}, ...],
//                                 ...]}}}

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "calibration/round_sample.h"
#include "model/error.h"
#include "model/json_reader.h"

namespace draftboard::calibration {

struct ConfigurationProgress {
    std::vector<RoundSample> rounds;
    std::vector<RoundSample> repeated;
    std::vector<ProfiledPasses> profiles;  ///< one for each round that was profiled
};

struct ValidationProgress {
    std::string settings;             ///< what was asked for; another request can't go on from it
    model::Json box;                  ///< the machine as it described itself; another one can't go on either
    std::vector<std::string> failed;  ///< "GROUP: why": engines that are not tried again
    std::map<std::string, std::vector<TextAcceptance>> acceptance;
    std::map<std::string, ConfigurationProgress> configurations;
    [[nodiscard]] bool has_failed(const std::string& group) const;
    [[nodiscard]] int measured_rounds() const;  ///< of all configurations
};

[[nodiscard]] model::Json to_json(const ValidationProgress& progress);
[[nodiscard]] model::Expected<ValidationProgress> parse_validation_progress(std::string_view text, const std::string& name);

/// Times of a pass from several profiled rounds: the median over rounds of each operation.
[[nodiscard]] ProfiledPasses joined(const std::vector<ProfiledPasses>& profiles);

}  // namespace draftboard::calibration
