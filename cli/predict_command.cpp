// SPDX-License-Identifier: Apache-2.0
// `draftboard predict SCENARIO`: tokens per second, with what carries the number.

#include "cli/question.h"
#include "sim/prediction_report.h"
#include "sim/trace.h"

namespace draftboard::cli {

namespace {

struct Options {
    Question question;
    std::string trace;
};

void run(const Options& options, CommandContext& context) {
    const auto answered = answer(options.question, context.data_directory);
    if (!answered) return context.report(answered.error());
    const auto& [scenario, predictor, prediction] = *answered;
    if (!options.trace.empty()) {
        const std::string trace = sim::chrome_trace(scenario, predictor);
        if (auto written = write_file(options.trace, trace); !written) {
            return context.report(written.error());
        }
        context.note("trace written to " + options.trace + "; open it in ui.perfetto.dev");
    }
    if (context.json) {
        context.print(sim::prediction_json(scenario, prediction, predictor.constants()));
    } else {
        context.print(sim::prediction_text(scenario, prediction, predictor.constants()));
    }
    if (!prediction.memory.fits) context.exit_code = kFinding;
}

}  // namespace

void add_predict_command(CLI::App& app, CommandContext& context) {
    auto options = std::make_shared<Options>();
    CLI::App* command = app.add_subcommand("predict", "Tokens per second of a scenario, and why");
    add_question(*command, options->question);
    command->add_option("--trace", options->trace, "Write a Chrome/Perfetto trace of the cycle to FILE");
    command->callback([options, &context] { run(*options, context); });
}

}  // namespace draftboard::cli
