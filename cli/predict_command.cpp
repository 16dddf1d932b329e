// SPDX-License-Identifier: Apache-2.0
// `draftboard predict SCENARIO`: tokens per second, with what carries the number.

#include "calibration/cost_constants.h"
#include "cli/command.h"
#include "model/scenario.h"
#include "sim/prediction_report.h"
#include "sim/trace.h"

namespace draftboard::cli {

namespace {

struct Options {
    std::string scenario;
    model::Edits edits;
    std::string trace;
};

void run(const Options& options, CommandContext& context) {
    auto scenario = model::load_scenario(options.scenario, context.data_directory, options.edits);
    if (!scenario) return context.report(scenario.error());
    auto constants = calibration::load_cost_constants(*scenario, context.data_directory);
    if (!constants) return context.report(constants.error());
    sim::Predictor predictor(std::move(*constants));
    auto prediction = predictor.predict(*scenario);
    if (!prediction) return context.report(prediction.error());
    if (!options.trace.empty()) {
        const std::string trace = sim::chrome_trace(*scenario, predictor);
        if (auto written = write_file(options.trace, trace); !written) {
            return context.report(written.error());
        }
        context.note("trace written to " + options.trace + "; open it in ui.perfetto.dev");
    }
    if (context.json) {
        context.print(sim::prediction_json(*scenario, *prediction, predictor.constants()));
    } else {
        context.print(sim::prediction_text(*scenario, *prediction, predictor.constants()));
    }
    if (!prediction->memory.fits) context.exit_code = kFinding;
}

}  // namespace

void add_predict_command(CLI::App& app, CommandContext& context) {
    auto options = std::make_shared<Options>();
    CLI::App* command = app.add_subcommand("predict", "Tokens per second of a scenario, and why");
    command->add_option("scenario", options->scenario, "A scenario file, or the name of a shipped one")
        ->required();
    command->add_option("--set", options->edits, "Change a field: path=value (repeatable)")
        ->take_all()
        ->allow_extra_args(false);
    command->add_option("--trace", options->trace, "Write a Chrome/Perfetto trace of the cycle to FILE");
    command->callback([options, &context] { run(*options, context); });
}

}  // namespace draftboard::cli
