// SPDX-License-Identifier: Apache-2.0
// `draftboard explain SCENARIO`: the terms down to operations: formula, inputs, source of each number. With --measured: what
// explains the difference between a measurement and the prediction.

#include "calibration/diagnosis_report.h"
#include "cli/question.h"
#include "sim/explanation.h"

namespace draftboard::cli {

namespace {

struct Options {
    Question question;
    std::string pass;
    std::string measured;
};

void diagnose(const Options& options, const Answer& answered, CommandContext& context) {
    const auto measured = calibration::read_measured(options.measured);
    if (!measured) return context.report(measured.error());
    const auto diagnosis = calibration::diagnose(answered.scenario, answered.predictor.constants(), *measured);
    if (!diagnosis) return context.report(diagnosis.error());
    if (context.json) {
        context.print(calibration::diagnosis_json(*diagnosis));
    } else {
        context.print(calibration::diagnosis_text(*diagnosis));
    }
}

void run(const Options& options, CommandContext& context) {
    const auto answered = answer(options.question, context.data_directory);
    if (!answered) return context.report(answered.error());
    if (!options.measured.empty()) return diagnose(options, *answered, context);
    const auto explanation =
        sim::explain(answered->scenario, answered->prediction, answered->predictor, options.pass);
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
    add_question(*command, options->question);
    command->add_option("--pass", options->pass,
                        "Only this pass: plain, verify, draft_extend, draft (default: all)");
    command->add_option("--measured", options->measured,
                        "Which cause explains this measurement: a file (draftboard.measured, draftboard.profile) or a text "
                        "such as \"verify 30 ms, 41 tok/s\"");
    command->callback([options, &context] { run(*options, context); });
}

}  // namespace draftboard::cli
