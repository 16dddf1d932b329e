// SPDX-License-Identifier: Apache-2.0
// `draftboard plan SCENARIO -o plan.md`: levers by predicted gain, with feasibility, risk and how to turn each on.
// `draftboard plan --against-published LEVERS.csv`: the same predictions held against before/after pairs that others measured.

#include <filesystem>
#include <memory>

#include "cli/document_output.h"
#include "planning/plan.h"
#include "planning/published_levers.h"

namespace draftboard::cli {

namespace {

struct Options {
    std::string scenario;
    model::Edits edits;
    planning::PlanOptions plan;
    std::string published;
    std::string grid;
    DocumentOutput output;
};

void run_published(const Options& options, CommandContext& context) {
    const auto text = read_input(options.published);
    if (!text) return context.report(text.error());
    const auto pairs = planning::parse_published_pairs(*text, options.published);
    if (!pairs) return context.report(pairs.error());
    std::vector<calibration::PublishedRow> grid;
    if (!options.grid.empty()) {
        auto rows = calibration::load_published_grid(options.grid);
        if (!rows) return context.report(rows.error());
        grid = std::move(*rows);
    }
    const auto report = planning::hold_against_published(*pairs, grid, context.data_directory);
    if (!report) return context.report(report.error());
    const std::string name = std::filesystem::path(options.published).filename().string();
    print_document(planning::pair_document(*report, name), planning::pair_json(*report), options.output, context);
}

void run(const Options& options, CommandContext& context) {
    if (!options.published.empty()) return run_published(options, context);
    if (options.scenario.empty()) {
        return context.report({model::ErrorCode::invalid_input, "a scenario is required", "plan", "or --against-published FILE"});
    }
    const auto plan = planning::plan_levers(options.scenario, options.edits, options.plan, context.data_directory);
    if (!plan) return context.report(plan.error());
    print_document(planning::plan_document(*plan), planning::plan_json(*plan), options.output, context);
    if (!plan->base.memory.fits) context.exit_code = kFinding;
}

}  // namespace

void add_plan_command(CLI::App& app, CommandContext& context) {
    auto options = std::make_shared<Options>();
    CLI::App* command =
        app.add_subcommand("plan", "Levers by predicted gain: feasibility, risk, how to turn each on, what was ruled out");
    command->add_option("scenario", options->scenario, "A scenario file, or the name of a shipped one");
    command->add_option("--set", options->edits, "Change a field: path=value (repeatable)")->take_all()->allow_extra_args(false);
    command->add_option("--engine-version", options->plan.engine_version,
                        "Version of the scenario's engine; facts of other versions are left out");
    command->add_flag("--any-effort", options->plan.any_effort,
                      "The combination may ask for unproven kernels, other weights, boxes and training too");
    command->add_option("-o,--output", options->output.markdown, "Write the plan as Markdown to FILE");
    command->add_option("--against-published", options->published,
                        "Predict before/after pairs of a CSV table instead, and report the errors");
    command->add_option("--grid", options->grid, "A table of published cells that the pairs' notes refer to");
    add_document_output(*command, options->output);
    command->callback([options, &context] { run(*options, context); });
}

}  // namespace draftboard::cli
