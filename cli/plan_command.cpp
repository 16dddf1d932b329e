// SPDX-License-Identifier: Apache-2.0
// `draftboard plan SCENARIO -o plan.md`: levers by predicted gain, with feasibility, risk and how to turn each on.

#include <memory>

#include "cli/document_output.h"
#include "planning/plan.h"

namespace draftboard::cli {

namespace {

struct Options {
    std::string scenario;
    model::Edits edits;
    planning::PlanOptions plan;
    DocumentOutput output;
};

void run(const Options& options, CommandContext& context) {
    const auto plan = planning::plan_levers(options.scenario, options.edits, options.plan, context.data_directory);
    if (!plan) return context.report(plan.error());
    print_document(planning::plan_document(*plan), planning::plan_json(*plan), options.output, context);
    if (!plan->base.memory.fits) context.exit_code = kFinding;
}

}  // namespace

void add_plan_command(CLI::App& app, CommandContext& context) {
    auto options = std::make_shared<Options>();
    CLI::App* command = app.add_subcommand("plan", "Levers by predicted gain: feasibility, risk, how to turn each on, what was ruled out");
    command->add_option("scenario", options->scenario, "A scenario file, or the name of a shipped one")->required();
    command->add_option("--set", options->edits, "Change a field: path=value (repeatable)")->take_all()->allow_extra_args(false);
    command->add_option("--engine-version", options->plan.engine_version, "Version of the scenario's engine; facts of other versions are left out");
    command->add_flag("--any-effort", options->plan.any_effort, "The combination may ask for unproven kernels, other weights, boxes and training too");
    command->add_option("-o,--output", options->output.markdown, "Write the plan as Markdown to FILE");
    add_document_output(*command, options->output);
    command->callback([options, &context] { run(*options, context); });
}

}  // namespace draftboard::cli
