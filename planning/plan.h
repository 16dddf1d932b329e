// SPDX-License-Identifier: Apache-2.0
#pragma once
// The plan: what each lever would bring to a scenario, alone and together with the others, whether it works here, and what was
// ruled out. Levers are levers.cpp's, facts data/feasibility.json's, predictions the simulator's; a gain is a contest
// (contest.h) of the changed scenario against the unchanged.
//
//   alone         the best of a lever's choices that can be run here; ranked by predicted gain
//   combination   levers that need no other weights, box or training and are not ruled out, patched engines only where they are
//                 known to work: pull the one that brings most, again
//                 and again, then try for each lever every choice and none, until nothing brings kLeastGain any more. A local
//                 optimum: exchanging two levers at once is not tried
//   together      of a lever in the combination: what is lost without it; of the others: what they would add to it
//
// Gains are not additive: a lever that saves waiting leaves less of it for the next.

#include <optional>
#include <string>
#include <vector>

#include "planning/contest.h"
#include "planning/document.h"
#include "planning/feasibility.h"
#include "planning/lever.h"
#include "planning/scenario_variants.h"

namespace draftboard::planning {

inline constexpr double kLeastGain = 0.003;

struct PlannedLever {
    Lever lever;
    Feasibility feasibility;
    std::size_t choice = 0;  ///< the best, index into lever.choices
    std::optional<sim::Prediction> prediction;
    std::optional<Contest> alone;  ///< none: nothing is predicted
    bool fits = true;
    std::string refusal;  ///< no choice can be run: the reason
    bool in_combination = false;
    std::size_t combination_choice = 0;
    std::optional<Contest> together;
    [[nodiscard]] bool ruled_out() const { return planning::ruled_out(feasibility.state); }
};

struct LeverPlan {
    model::Scenario scenario;
    sim::Prediction base;
    std::vector<PlannedLever> ranked;  ///< feasible or unknown, by gain
    std::vector<PlannedLever> ruled_out;
    std::vector<PlannedLever> unpredicted;  ///< nothing to predict, and not ruled out
    sim::Prediction combination;
    Contest combination_gain;
    std::vector<std::string> combination_edits;
    FeasibilityPlace place;
    std::string kernels;  ///< calibration's name
    std::string collectives;
    std::size_t predictions = 0;
};

struct PlanOptions {
    std::string engine_version;  ///< empty: not told
    bool any_effort = false;     ///< the combination may ask for unproven kernels, other weights, boxes and training too
};

/// Errors: a scenario that can't be predicted, a feasibility file that can't be read.
[[nodiscard]] model::Expected<LeverPlan> plan_levers(const std::string& scenario, const model::Edits& edits,
                                                     const PlanOptions& options, const std::string& data_directory);

[[nodiscard]] Document plan_document(const LeverPlan& plan);
[[nodiscard]] model::Json plan_json(const LeverPlan& plan);

}  // namespace draftboard::planning
