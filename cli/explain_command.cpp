// SPDX-License-Identifier: Apache-2.0
// `draftboard explain SCENARIO`: the terms down to operations: formula, inputs, source of each number.

#include "calibration/cost_constants.h"
#include "cli/command.h"
#include "model/scenario.h"
#include "sim/explanation.h"

namespace draftboard::cli {

namespace {

struct Options {
    std::string scenario;
    model::Edits edits;
    std::string pass;
};

void run(const Options& options, CommandContext& context) {
    auto scenario = model::load_scenario(options.scenario, context.data_directory, options.edits);
    if (!scenario) return context.report(scenario.error());
    auto constants = calibration::load_cost_constants(*scenario, context.data_directory);
    if (!constants) return context.report(constants.error());
    sim::Predictor predictor(std::move(*constants));
    auto prediction = predictor.predict(*scenario);
    if (!prediction) return context.report(prediction.error());
    auto explanation = sim::explain(*scenario, *prediction, predictor, options.pass);
    if (!explanation) return context.report(explanation.error());
    if (context.json) {
        context.print(sim::explanation_json(*explanation));
    } else {
        context.print(sim::explanation_text(*explanation));
    }
}

}  // namespace

void add_explain_command(CLI::App& app, CommandContext& context) {
    auto options = std::make_shared<Options>();
    CLI::App* command =
        app.add_subcommand("explain", "Each number of a prediction: formula, inputs, source");
    command->add_option("scenario", options->scenario, "A scenario file, or the name of a shipped one")
        ->required();
    command->add_option("--set", options->edits, "Change a field: path=value (repeatable)")
        ->take_all()
        ->allow_extra_args(false);
    command->add_option("--pass", options->pass,
                        "Only this pass: plain, verify, draft_extend, draft (default: all)");
    command->callback([options, &context] { run(*options, context); });
}

}  // namespace draftboard::cli
