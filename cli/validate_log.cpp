// SPDX-License-Identifier: Apache-2.0
#include "cli/validate_log.h"

#include "calibration/logs/serving_validation.h"

namespace draftboard::cli {

void add_log_options(CLI::App& command, LogOptions& options) {
    auto* log = command.add_option("--log", options.log, "A server log of SGLang or vLLM, in place of a suite");
    auto* scenario =
        command.add_option("--scenario", options.question.scenario, "With --log: what the server ran, a file or a shipped name");
    log->needs(scenario);
    scenario->needs(log);
    command.add_option("--set", options.question.edits, "With --log: change a field of the scenario: path=value (repeatable)")
        ->take_all()
        ->allow_extra_args(false)
        ->needs(log);
}

void validate_log(const LogOptions& options, std::optional<double> bound, CommandContext& context) {
    auto log = calibration::load_serving_log(options.log);
    if (!log) return context.report(log.error());
    calibration::ServingValidationOptions asked;
    asked.scenario = options.question.scenario;
    asked.edits = options.question.edits;
    asked.data_directory = context.data_directory;
    if (bound) asked.bound = *bound;
    const auto validation = calibration::validate_serving_log(std::move(*log), asked);
    if (!validation) return context.report(validation.error());
    if (context.json) {
        context.print(calibration::serving_validation_json(*validation));
    } else {
        context.print(calibration::serving_validation_text(*validation));
    }
    if (!validation->within_bound()) context.exit_code = kFinding;
}

}  // namespace draftboard::cli
