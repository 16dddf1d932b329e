// SPDX-License-Identifier: Apache-2.0
#include "cli/calibrate_import.h"

#include "model/machine_json.h"

namespace draftboard::cli {

void add_import_log_options(CLI::App& command, ImportLogOptions& options) {
    const std::string group = "Logs";
    command
        .add_option("--base", options.import.base,
                    "Calibration that says what no log tells (default: the scenario's or machine's)")
        ->group(group);
    command
        .add_option("--machine", options.import.machine,
                    "Machine that was measured, a file or a shipped name (default: the scenario's)")
        ->group(group);
    auto* scenario =
        command
            .add_option("--scenario", options.import.scenario, "What the server of serving logs ran, a file or a shipped name")
            ->group(group);
    command.add_option("--set", options.import.edits, "Change a field of the scenario: path=value (repeatable)")
        ->take_all()
        ->allow_extra_args(false)
        ->needs(scenario)
        ->group(group);
    command
        .add_option("--machine-output", options.machine_output, "Write the machine with its links as pairs of GPUs measured them")
        ->group(group);
    command
        .add_flag("!--no-leave-out", options.import.leave_out,
                  "Do not leave out each message size once: faster, no held-out errors")
        ->group(group);
}

void import_logs(const ImportLogOptions& options, CommandContext& context) {
    calibration::LogImportOptions asked = options.import;
    asked.data_directory = context.data_directory;
    const auto result = calibration::import_logs(asked);
    if (!result) return context.report(result.error());
    if (!options.output.empty()) {
        if (auto written = write_file(options.output, calibration::to_text(result->calibration)); !written)
            return context.report(written.error());
        context.note("calibration written to " + options.output + "; `draftboard predict SCENARIO --calibration " +
                     options.output + "` uses it");
    }
    if (!options.machine_output.empty()) {
        if (!result->machine) {
            return context.report(
                {model::ErrorCode::invalid_input, "the logs measure no pair of GPUs: there is no machine to write",
                 options.machine_output,
                 "import nvbandwidth's or p2pBandwidthLatencyTest's output too, or leave out --machine-output"});
        }
        if (auto written = write_file(options.machine_output, model::machine_to_json(*result->machine).dump(2) + "\n");
            !written) {
            return context.report(written.error());
        }
        context.note("machine written to " + options.machine_output);
    } else if (result->machine) {
        context.note("measured links are in no file; --machine-output writes them");
    }
    if (context.json) {
        context.print(calibration::to_json(*result));
    } else {
        context.print(calibration::to_text(*result));
    }
}

}  // namespace draftboard::cli
