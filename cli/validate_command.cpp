// SPDX-License-Identifier: Apache-2.0
// `draftboard validate SUITE --device cpu`: runs a suite's configurations and holds predictions against them. With --log a
// serving engine's log takes the suite's place: validate_log.h.
#include <filesystem>
#include <memory>
#include <optional>

#include "calibration/validation.h"
#include "calibration/validation_report.h"
#include "cli/command.h"
#include "cli/progress_bar.h"
#include "cli/validate_log.h"

namespace draftboard::cli {

namespace {

struct Options {
    std::string suite;
    std::string device = "cpu";
    std::string output;
    calibration::ValidationOptions validation;
    std::optional<double> bound;
    LogOptions log;
};

void run(Options& options, CommandContext& context) {
    if (!options.log.log.empty()) return validate_log(options.log, options.bound, context);
    if (options.suite.empty()) throw CLI::RequiredError("suite");
    if (options.validation.calibration.empty()) throw CLI::RequiredError("--calibration");
    if (options.bound) options.validation.bound = *options.bound;
    options.validation.data_directory = context.data_directory;
    auto suite = calibration::find_suite(options.suite, context.data_directory);
    if (!suite) return context.report(suite.error());
    if (suite->device != options.device) {
        return context.report({model::ErrorCode::invalid_input, "the suite is for --device " + suite->device, options.suite,
                               "name that device, or a suite for this one"});
    }
    if (options.device == "cuda") options.validation.device = calibration::measured_gpu(1);
    ProgressBar bar(context.quiet || context.json);
    const auto validation = calibration::validate_suite(*suite, options.validation,
                                                      [&](double share, const std::string& what) { bar.show(share, what); });
    bar.clear();
    if (!validation) return context.report(validation.error());
    if (!options.output.empty()) {
        if (auto written = write_file(options.output, calibration::validation_html(*validation)); !written) {
            return context.report(written.error());
        }
        context.note("report written to " + options.output);
    }
    if (context.json) {
        context.print(calibration::validation_json(*validation));
    } else {
        context.print(calibration::validation_text(*validation));
    }
    if (!validation->within_bound()) context.exit_code = kFinding;
}

}  // namespace

void add_validate_command(CLI::App& app, CommandContext& context) {
    auto options = std::make_shared<Options>();
    CLI::App* command = app.add_subcommand("validate", "Run configurations for real and hold predictions against them");
    auto* suite = command->add_option("suite", options->suite, "A suite file, or the name of a shipped one");
    command->add_option("--device", options->device, "Where it runs")->check(CLI::IsMember({"cpu", "cuda"}));
    auto* calibration = command->add_option("--calibration", options->validation.calibration,
                                            "The calibration of this machine: `calibrate --device cpu -o FILE`");
    auto* output = command->add_option("-o,--output", options->output, "Write the report, a self-contained HTML page");
    add_log_options(*command, options->log);
    command->get_option("--log")->excludes(suite)->excludes(calibration)->excludes(output);
    command->add_option("--bound", options->bound,
                        "Largest median |error| of tok/s, as a share (0.08, with --log 0.15); beyond it the exit status is 1")
        ->check(CLI::Range(0.0, 10.0));
    command->callback([options, &context] { run(*options, context); });
}

}  // namespace draftboard::cli
