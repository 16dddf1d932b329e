// SPDX-License-Identifier: Apache-2.0
#pragma once
// What one visit of a configuration measures, as plain data: configuration_run.h measures it, validation_progress.h keeps it.

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "model/plan.h"

namespace draftboard::calibration {

/// What verification accepted of one text, by depth.
struct TextAcceptance {
    double cycles = 0;
    double hits = 0;
    std::vector<double> reached;  ///< [i]: cycles that accepted i + 1 drafts or more
};

struct RoundSample {
    double cycle_us = 0;  ///< mean over counted cycles; 0: none counted
    double cycles = 0;
    double disturbed = 0;  ///< share of cycles during which a core was taken away; left out
    std::vector<TextAcceptance> texts;
};

/// Medians of a profiled run, by pass: "target"/"drafter", pass, sequences, tokens.
struct ProfiledPass {
    std::vector<double> us;
    std::vector<double> wait_us;
};
using ProfiledPasses = std::map<std::tuple<std::string, model::Pass, int, int>, ProfiledPass>;

}  // namespace draftboard::calibration
