// SPDX-License-Identifier: Apache-2.0
// `draftboard validate SUITE --device cpu`: runs a suite's configurations and holds predictions against them.
#include <filesystem>
#include <memory>

#include "calibration/validation.h"
#include "calibration/validation_report.h"
#include "cli/command.h"
#include "cli/progress_bar.h"

namespace draftboard::cli {

namespace {

struct Options {
    std::string suite;
    std::string device = "cpu";
    std::string output;
    calibration::ValidationOptions validation;
};

void run(Options& options, CommandContext& context) {
    options.validation.data_directory = context.data_directory;
    auto suite = calibration::find_suite(options.suite, context.data_directory);
    if (!suite) return context.report(suite.error());
    ProgressBar bar(context.quiet || context.json);
    const auto validation = calibration::validate_cpu(*suite, options.validation,
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
    command->add_option("suite", options->suite, "A suite file, or the name of a shipped one")->required();
    command->add_option("--device", options->device, "Where it runs")->check(CLI::IsMember({"cpu"}));
    command->add_option("--calibration", options->validation.calibration, "The calibration of this machine: `calibrate --device cpu -o FILE`")
        ->required();
    command->add_option("-o,--output", options->output, "Write the report, a self-contained HTML page");
    command->add_option("--bound", options->validation.bound, "Largest median |error| of tok/s, as a share; beyond it the exit status is 1")
        ->check(CLI::Range(0.0, 10.0));
    command->callback([options, &context] { run(*options, context); });
}

}  // namespace draftboard::cli
