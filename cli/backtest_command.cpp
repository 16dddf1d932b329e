// SPDX-License-Identifier: Apache-2.0
// `draftboard backtest PUBLISHED.csv`: predictions against published measurements.

#include <filesystem>
#include <memory>

#include "calibration/backtest.h"
#include "calibration/backtest_fit.h"
#include "cli/command.h"

namespace draftboard::cli {

namespace {

struct Options {
    std::string table;
    std::string output;
    std::string engines = "engines-rtx-pro-6000";
    std::size_t worst = 0;
    bool fit = false;
    int sweeps = 4;
};

/// Fits the engines' shared terms and writes them as a calibration.
void run_fit(const Options& options, const std::vector<calibration::PublishedRow>& rows,
             CommandContext& context) {
    const auto prepared = calibration::Backtest::prepare(rows, context.data_directory);
    if (!prepared) return context.report(prepared.error());
    const auto fit = calibration::fit_backtest(*prepared, prepared->shipped_terms(), options.sweeps,
                                               [&context](const std::string& text) { context.note(text); });
    if (!fit) return context.report(fit.error());
    auto shipped = calibration::find_calibration(options.engines, context.data_directory);
    if (!shipped) return context.report(shipped.error());
    const auto fitted = calibration::fitted_calibration(
        std::move(*shipped), *fit, std::filesystem::path(options.table).filename().string());
    const std::string text = calibration::to_text(fitted);
    if (options.output.empty()) return context.print(text);
    if (auto written = write_file(options.output, text); !written) return context.report(written.error());
    for (const std::string& line : fitted.provenance) context.print(line);
}

void run(const Options& options, CommandContext& context) {
    auto text = read_input(options.table);
    if (!text) return context.report(text.error());
    auto rows = calibration::parse_published_grid(*text, options.table);
    if (!rows) return context.report(rows.error());
    if (options.fit) return run_fit(options, *rows, context);
    auto report = calibration::backtest(*rows, context.data_directory);
    if (!report) return context.report(report.error());
    if (!options.output.empty()) {
        if (auto written = write_file(options.output, calibration::backtest_csv(*report)); !written) {
            return context.report(written.error());
        }
        context.note("cells written to " + options.output);
    }
    if (context.json) {
        context.print(calibration::backtest_json(*report));
    } else {
        context.print(calibration::backtest_text(*report, options.worst));
    }
}

}  // namespace

void add_backtest_command(CLI::App& app, CommandContext& context) {
    auto options = std::make_shared<Options>();
    CLI::App* command = app.add_subcommand("backtest", "Predict published measurements; errors by group");
    command->add_option("published", options->table, "A CSV table of published cells; - for standard input")
        ->required();
    command->add_option("-o,--output", options->output, "Write a CSV of all cells, their errors and terms to FILE");
    command->add_option("--worst", options->worst, "List the N cells that are farthest off");
    command->add_flag("--fit", options->fit,
                      "Fit the engines' shared terms on the even lines instead; -o takes the calibration");
    command->add_option("--sweeps", options->sweeps, "Sweeps of the fit over its terms")
        ->check(CLI::Range(1, 50));
    command->add_option("--engines", options->engines, "The calibration that the fit starts from and replaces");
    command->callback([options, &context] { run(*options, context); });
}

}  // namespace draftboard::cli
