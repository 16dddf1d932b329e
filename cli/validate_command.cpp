// SPDX-License-Identifier: Apache-2.0
// `draftboard validate SUITE --device cpu`: runs a suite's configurations and holds predictions against them. With --log a
// serving engine's log takes the suite's place: validate_log.h.
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>

#include "calibration/validation.h"
#include "calibration/validation_report.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/progress_bar.h"
#include "cli/validate_log.h"

namespace draftboard::cli {

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSaveSeconds = 1;

struct Options {
    std::string suite;
    std::string device = "cpu";
    std::string output;
    calibration::ValidationOptions validation;
    std::optional<double> bound;
    bool resume = false;
    LogOptions log;
};

/// What an earlier run has kept; nothing: start at the beginning.
model::Expected<calibration::ValidationProgress> progress_of(const Options& options, const std::string& partial, const CommandContext& context) {
    std::error_code ec;
    if (partial.empty() || !std::filesystem::exists(partial, ec)) return calibration::ValidationProgress{};
    if (!options.resume) {
        context.note(partial + " holds a run that was stopped; --resume would go on from it, this run starts again");
        return calibration::ValidationProgress{};
    }
    const auto text = read_input(partial);
    if (!text) return tl::unexpected(text.error());
    auto progress = calibration::parse_validation_progress(*text, partial);
    if (!progress) return progress;
    for (const std::string& failed : progress->failed) context.note("failed earlier, not tried again: " + failed);
    context.note("going on after " + std::to_string(progress->measured_rounds()) + " rounds of configurations");
    return progress;
}

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
    const std::string partial = options.output.empty() ? std::string() : options.output + ".partial";
    auto progress = progress_of(options, partial, context);
    if (!progress) return context.report(progress.error());
    options.validation.progress = std::move(*progress);
    ProgressBar bar(context.quiet || context.json);
    auto saved = Clock::now();
    std::optional<model::Error> failed;
    const Interrupt interrupt;
    std::size_t failures = options.validation.progress.failed.size();
    options.validation.keep = [&](const calibration::ValidationProgress& so_far) {
        const bool stop = interrupt.flag();
        const bool due = stop || so_far.failed.size() != failures || std::chrono::duration<double>(Clock::now() - saved).count() >= kSaveSeconds;
        if (partial.empty() || !due) return !stop;
        if (auto written = write_file(partial, to_json(so_far).dump() + "\n"); !written) {
            failed = written.error();
            return false;
        }
        failures = so_far.failed.size();
        saved = Clock::now();
        return !stop;
    };
    const auto validation = calibration::validate_suite(*suite, options.validation,
                                                      [&](double share, const std::string& what) { bar.show(share, what); });
    bar.clear();
    if (failed) return context.report(*failed);
    if (!validation) return context.report(validation.error());
    if (!validation->complete) {
        for (const std::string& note : validation->notes) context.note(note);
        context.note(partial.empty() ? "stopped; with -o REPORT what was measured is kept" : "stopped; " + partial + " holds what is done, --resume goes on from it");
        context.exit_code = interrupt.flag() ? kInterrupted : kUnavailable;
        return;
    }
    if (!options.output.empty()) {
        if (auto written = write_file(options.output, calibration::validation_html(*validation)); !written) {
            return context.report(written.error());
        }
        std::error_code ec;
        if (options.validation.progress.failed.empty() && failures == 0) std::filesystem::remove(partial, ec);
        else context.note(partial + " is kept: some engines failed");
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
    auto* resume = command->add_flag("--resume", options->resume, "Go on from REPORT.partial, which holds what is done meanwhile")->needs(output);
    add_log_options(*command, options->log);
    command->get_option("--log")->excludes(suite)->excludes(calibration)->excludes(output)->excludes(resume);
    command->add_option("--bound", options->bound,
                        "Largest median |error| of tok/s, as a share (0.08, with --log 0.15); beyond it the exit status is 1")
        ->check(CLI::Range(0.0, 10.0));
    command->callback([options, &context] { run(*options, context); });
}

}  // namespace draftboard::cli
