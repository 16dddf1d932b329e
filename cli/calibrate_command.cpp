// SPDX-License-Identifier: Apache-2.0
// `draftboard calibrate import`: a calibration file from measured kernel tables, with a fit report; without --gpu from logs of other
// tools (calibrate_import.h). Measuring here is calibrate_cpu.h, reading logs without a fit calibrate_read.h.

#include <memory>

#include "calibration/calibration.h"
#include "calibration/fit_report.h"
#include "cli/calibrate_cpu.h"
#include "cli/calibrate_import.h"
#include "cli/calibrate_read.h"
#include "cli/command.h"

namespace draftboard::cli {

namespace {

struct CalibrateImportOptions {
    calibration::ImportOptions import;
    std::string scale_from;
    std::string output;
    ImportLogOptions logs;
};

model::Json fits_json(const calibration::ImportResult& result) {
    model::Json list = model::Json::array();
    for (const auto& fit : result.report.tables) {
        const auto errors = [](const calibration::ErrorSummary& summary) {
            return model::Json{{"rows", summary.rows}, {"median", summary.median}, {"p90", summary.p90},
                               {"worst", summary.worst}, {"bias", summary.bias}};
        };
        list.push_back({{"table", fit.table}, {"key", fit.key}, {"pooled", fit.pooled}, {"rows", fit.rows},
                        {"cold", fit.cold}, {"between", fit.between}, {"warm", fit.warm},
                        {"all_errors", errors(fit.all_errors)}, {"cold_errors", errors(fit.cold_errors)}, {"warm_errors", errors(fit.warm_errors)}});
    }
    return model::Json{{"name", result.calibration.name},
                       {"entries", result.calibration.kernels.entries.size()},
                       {"tables", std::move(list)}, {"notes", result.report.notes}};
}

void run_import(CalibrateImportOptions& options, CommandContext& context) {
    if (options.import.gpu.empty()) {
        ImportLogOptions logs = options.logs;
        logs.import.logs = options.import.files;
        logs.import.name = options.import.name;
        logs.import.source = options.import.source;
        logs.output = options.output;
        return import_logs(logs, context);
    }
    calibration::Calibration base;
    if (!options.scale_from.empty()) {
        auto found = calibration::find_calibration(options.scale_from, context.data_directory);
        if (!found) return context.report(found.error());
        base = *std::move(found);
        options.import.scale_from = &base;
    }
    const auto result = calibration::import_calibration(options.import);
    if (!result) return context.report(result.error());
    if (!options.output.empty()) {
        const auto written = write_file(options.output, calibration::to_text(result->calibration));
        if (!written) return context.report(written.error());
        context.note("calibration written to " + options.output);
    }
    if (context.json) {
        context.print(fits_json(*result));
    } else {
        context.print(calibration::to_text(result->report));
    }
}

}  // namespace

void add_calibrate_command(CLI::App& app, CommandContext& context) {
    CLI::App* calibrate = app.add_subcommand("calibrate", "Calibrations: constants fitted to measurements");
    add_calibrate_cpu(*calibrate, context);
    add_calibrate_read(*calibrate, context);

    auto options = std::make_shared<CalibrateImportOptions>();
    CLI::App* import = calibrate->add_subcommand("import", "Fit logs of other tools, or kernel tables (CSV, with --gpu), into a calibration file");
    import->add_option("files", options->import.files,
                       "Logs of nccl-tests, nvbandwidth, p2pBandwidthLatencyTest, SGLang, vLLM, exports of Nsight Systems (docs/validation.md); "
                       "with --gpu measured tables (docs/kernels.md)");
    import->add_option("--gpu", options->import.gpu, "Kernel tables: the GPU that they were measured on");
    import->add_option("--name", options->import.name, "Name of the calibration (default: the GPU's)");
    import->add_option("--source", options->import.source, "Who measured, and under which terms");
    import->add_option("--scale-from", options->scale_from,
                       "Move what is not measured from this calibration, by datasheet ratios");
    import->add_option("-o,--output", options->output, "Write the calibration file");
    add_import_log_options(*import, options->logs);
    import->callback([options, &context] { run_import(*options, context); });
}

}  // namespace draftboard::cli
