// SPDX-License-Identifier: Apache-2.0
#pragma once
// A scenario with edits, asked and answered: what `predict` and `explain` share.

#include <string>

#include "cli/command.h"
#include "model/scenario.h"
#include "sim/prediction.h"

namespace draftboard::cli {

struct Question {
    std::string scenario;
    model::Edits edits;
    std::string calibration;  ///< empty: the scenario's
};

struct Answer {
    model::Scenario scenario;
    sim::Predictor predictor;
    sim::Prediction prediction;
};

/// The positional SCENARIO the repeatable --set, and --calibration.
void add_question(CLI::App& command, Question& question);

[[nodiscard]] model::Expected<Answer> answer(const Question& question,
                                             const std::string& data_directory);

}  // namespace draftboard::cli
