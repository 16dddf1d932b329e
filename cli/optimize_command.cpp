// SPDX-License-Identifier: Apache-2.0
// `draftboard optimize SCENARIO`: the best drafter, depth, tree, layout, all-reduce and launch modes under constraints.

#include <memory>

#include "cli/document_output.h"
#include "planning/optimum.h"

namespace draftboard::cli {

namespace {

struct Options {
    std::string scenario;
    model::Edits edits;
    planning::OptimizeOptions optimize;
    bool proven = false;
    DocumentOutput output;
};

void run(const Options& options, CommandContext& context) {
    planning::OptimizeOptions asked = options.optimize;
    asked.unproven = !options.proven;
    const auto optimum = planning::optimize(options.scenario, options.edits, asked, context.data_directory);
    if (!optimum) return context.report(optimum.error());
    print_document(planning::optimum_document(*optimum), planning::optimum_json(*optimum), options.output, context);
    if (optimum->best.empty()) context.exit_code = kFinding;
}

}  // namespace

void add_optimize_command(CLI::App& app, CommandContext& context) {
    auto options = std::make_shared<Options>();
    CLI::App* command =
        app.add_subcommand("optimize", "Best drafter, depth, tree, layout, all-reduce and launch modes under constraints");
    command->add_option("scenario", options->scenario, "A scenario file, or the name of a shipped one")->required();
    command->add_option("--set", options->edits, "Change a field: path=value (repeatable)")->take_all()->allow_extra_args(false);
    command
        ->add_option("--max-ms-per-token", options->optimize.max_ms_per_token,
                     "Latency that each user accepts, milliseconds a token")
        ->check(CLI::Range(1e-3, 1e6));
    command->add_flag("--proven", options->proven, "Only what is known to work on this GPU and engine");
    command->add_flag("--keep-layout", options->optimize.keep_layout, "Do not change the layout");
    command->add_option("--engine-version", options->optimize.engine_version,
                        "Version of the scenario's engine; facts of other versions are left out");
    command->add_option("--batches", options->optimize.batches, "Batch sizes of the depth schedule, rising")
        ->delimiter(',')
        ->check(CLI::Range(1, 1 << 20));
    command->add_option("--threads", options->optimize.threads, "Default: all cores")->check(CLI::Range(1, 4096));
    add_document_output(*command, options->output);
    command->callback([options, &context] { run(*options, context); });
}

}  // namespace draftboard::cli
