// SPDX-License-Identifier: Apache-2.0
// `draftboard backtest PUBLISHED.csv`: predictions against published measurements.

#include <memory>

#include "calibration/backtest.h"
#include "cli/command.h"

namespace draftboard::cli {

namespace {

struct Options {
    std::string table;
    std::string output;
    std::size_t worst = 0;
};

void run(const Options& options, CommandContext& context) {
    auto text = read_input(options.table);
    if (!text) return context.report(text.error());
    auto rows = calibration::parse_published_grid(*text, options.table);
    if (!rows) return context.report(rows.error());
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
    command->callback([options, &context] { run(*options, context); });
}

}  // namespace draftboard::cli
