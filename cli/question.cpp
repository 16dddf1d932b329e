// SPDX-License-Identifier: Apache-2.0
#include "cli/question.h"

#include "calibration/cost_constants.h"

namespace draftboard::cli {

void add_question(CLI::App& command, Question& question) {
    command
        .add_option("scenario", question.scenario, "A scenario file, or the name of a shipped one")
        ->required();
    command.add_option("--set", question.edits, "Change a field: path=value (repeatable)")
        ->take_all()
        ->allow_extra_args(false);
    command.add_option("--calibration", question.calibration,
                       "Price with this calibration, a file or a shipped name, in place of the scenario's");
}

model::Expected<Answer> answer(const Question& question, const std::string& data_directory) {
    model::Edits edits = question.edits;
    if (!question.calibration.empty()) edits.push_back("calibration=" + model::Json(question.calibration).dump());
    auto scenario = model::load_scenario(question.scenario, data_directory, edits);
    if (!scenario) return tl::unexpected(scenario.error());
    auto constants = calibration::load_cost_constants(*scenario, data_directory);
    if (!constants) return tl::unexpected(constants.error());
    sim::Predictor predictor(std::move(*constants));
    auto prediction = predictor.predict(*scenario);
    if (!prediction) return tl::unexpected(prediction.error());
    return Answer{std::move(*scenario), std::move(predictor), std::move(*prediction)};
}

}  // namespace draftboard::cli
