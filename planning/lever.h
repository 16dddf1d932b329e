// SPDX-License-Identifier: Apache-2.0
#pragma once
// The levers: changes of a scenario that an engineer can make, each with its choices, what it costs to pull it, what can go
// wrong, and how it is turned on. lever_table() holds them all; a new lever is a new row in levers.cpp and entries in
// data/feasibility.json. What they bring is predicted in plan.h, never stated here.

#include <functional>
#include <string>
#include <vector>

#include "model/scenario.h"
#include "sim/prediction.h"

namespace draftboard::planning {

/// What pulling a lever asks for, easiest first.
enum class Effort {
    setting,   ///< a flag, a variable or a driver key
    drafter,   ///< another drafter
    engine,    ///< a patched engine or kernel
    weights,   ///< other weights or a coarser format: check the quality
    hardware,  ///< work on the box
    training,  ///< a model trained for it
};
[[nodiscard]] std::string_view to_name(Effort effort);

/// One way to pull a lever.
struct Choice {
    std::string label;  ///< "up to 56 KiB, reading"; may be empty
    model::Edits edits;
    std::function<void(model::Scenario&)> change;  ///< what edits can't say; may be empty
    std::function<void(sim::Prediction&)> scale;   ///< what the simulator has no field for; may be empty
    std::string feasibility;                       ///< entry in the table, where it is not the lever's own
};

struct Lever {
    std::string name;  ///< as in data/feasibility.json
    std::string title;
    std::string group;  ///< of one group only one is pulled
    Effort effort = Effort::setting;
    std::string risk;
    std::string sglang;  ///< how to turn it on; empty: there is no way
    std::string vllm;
    std::string environment;      ///< NCCL variables, driver settings; whatever the engine
    std::string measure;          ///< what to measure first
    std::string assumption;       ///< what the prediction rests on beyond the simulator's own terms; may be empty
    std::vector<Choice> choices;  ///< empty: nothing to predict
    std::string unpredicted;      ///< then: why
};

/// The levers that apply to this scenario (document: its own form). `data_directory`: where shipped models and boxes lie.
[[nodiscard]] std::vector<Lever> lever_table(const model::Scenario& scenario, const model::Json& document,
                                             const sim::CostConstants& constants, const std::string& data_directory);

/// Multiplies the terms of one kind ("collectives.transport") and everything that follows from them.
void scale_kind(sim::Prediction& prediction, std::string_view kind, double factor);

}  // namespace draftboard::planning
