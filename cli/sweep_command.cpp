// SPDX-License-Identifier: Apache-2.0
// `draftboard sweep SCENARIO --vary path=values ... -o FILE`: a grid of predictions, in parallel, resumable.

#include <memory>

#include <fmt/format.h>

#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/progress_bar.h"
#include "planning/sweep.h"
#include "planning/sweep_row.h"

namespace draftboard::cli {

namespace {

struct Options {
    std::string scenario;
    model::Edits edits;
    std::vector<std::string> vary;
    std::string sample;
    std::uint64_t seed = 1;
    planning::SweepOptions sweep;
};

model::Expected<planning::Grid> grid_of(const Options& options) {
    std::vector<planning::Axis> axes;
    for (const std::string& text : options.vary) {
        auto axis = planning::parse_axis(text);
        if (!axis) return tl::unexpected(axis.error());
        axes.push_back(std::move(*axis));
    }
    if (options.sample.empty()) return planning::Grid::of(std::move(axes));
    const auto request = planning::parse_sample(options.sample);
    if (!request) return tl::unexpected(request.error());
    return planning::Grid::sample(std::move(axes), request->sampling, request->rows, options.seed);
}

std::string time_text(double seconds) {
    if (seconds < 100) return fmt::format("{:.1f} s", seconds);
    if (seconds < 6000) return fmt::format("{:.0f} min", seconds / 60);
    return fmt::format("{:.1f} h", seconds / 3600);
}

/// The best row's columns by name.
model::Json best_json(const planning::SweepResult& result) {
    const auto fields = planning::split_line(result.summary.best);
    if (!fields || fields->size() != result.columns.size()) return nullptr;
    model::Json json;
    for (std::size_t i = 0; i < fields->size(); ++i) {
        const auto parsed = model::parse_json((*fields)[i], "field");
        json[result.columns[i]] = parsed ? *parsed : model::Json((*fields)[i]);
    }
    return json;
}

void print_result(const Options& options, const planning::SweepResult& result, std::size_t axes, CommandContext& context) {
    const planning::ResultSummary& summary = result.summary;
    if (context.json) {
        model::Json json{
            {"format", "draftboard.sweep_summary"}, {"version", 1}, {"file", options.sweep.output}, {"rows", result.rows}};
        if (!result.was_there) {
            json["ok"] = summary.ok;
            json["does_not_fit"] = summary.does_not_fit;
            json["refused"] = summary.refused;
            json["best"] = best_json(result);
        }
        context.print(json);
        return;
    }
    if (result.was_there)
        return context.print(fmt::format("{}: complete, {} rows; nothing to do", options.sweep.output, result.rows));
    std::string text = fmt::format("{}: {} rows, {} ok, {} do not fit in memory, {} refused\n", options.sweep.output, result.rows,
                                   summary.ok, summary.does_not_fit, summary.refused);
    if (const auto fields = planning::split_line(summary.best); fields && fields->size() == result.columns.size()) {
        text += fmt::format("most tok/s: {:.1f} with", summary.best_rate);
        for (std::size_t i = 1; i <= axes; ++i) text += fmt::format(" {}={}", result.columns[i], (*fields)[i]);
        text += '\n';
    }
    context.print(text);
}

void run(const Options& options, CommandContext& context) {
    const auto gang = planning::join_gang();
    if (!gang) return context.report(gang.error());
    const bool first = (*gang)->rank() == 0;
    const auto grid = grid_of(options);
    if (!grid) {
        if (first) return context.report(grid.error());
        context.exit_code = kBadInput;
        return;
    }
    const Interrupt interrupt;
    ProgressBar bar(context.quiet || !first);
    planning::SweepOptions sweep = options.sweep;
    sweep.stop = &interrupt.flag();
    sweep.progress = [&bar](const planning::SweepProgress& progress) {
        bar.show(static_cast<double>(progress.done) / static_cast<double>(progress.rows),
                 fmt::format("{} of {} rows, {:.0f} a second, {} left", progress.done, progress.rows, progress.rows_per_second,
                             time_text(progress.seconds_left)));
    };
    const auto result = planning::run_sweep({options.scenario, options.edits, *grid}, sweep, context.data_directory, **gang);
    bar.clear();
    if (!result) {
        if (first) return context.report(result.error());
        context.exit_code = kBadInput;
        return;
    }
    if (!result->first) return;
    if (result->acceptance_pinned) {
        context.note(
            "the acceptance length is taken as measured at the scenario's own depth; other depths follow from its positions");
    }
    if (result->found > 0) context.note(fmt::format("went on from {} rows that were there", result->found));
    if (!result->was_there) {
        context.note(fmt::format("{} rows in {:.2f} s, {:.0f} a second, {} threads in {} processes", result->computed,
                                 result->seconds, static_cast<double>(result->computed) / std::max(1e-9, result->seconds),
                                 result->threads * (*gang)->size(), (*gang)->size()));
    }
    if (!result->complete) {
        context.note(fmt::format("stopped with {} of {} rows in {}.part; the same command goes on",
                                 result->found + result->computed, result->rows, options.sweep.output));
        context.exit_code = kInterrupted;
        return;
    }
    print_result(options, *result, grid->axes().size(), context);
    if (!result->was_there && result->summary.ok == 0) context.exit_code = kFinding;
}

}  // namespace

void add_sweep_command(CLI::App& app, CommandContext& context) {
    auto options = std::make_shared<Options>();
    CLI::App* command = app.add_subcommand("sweep", "Predictions over a grid of scenario fields, on all cores; resumable");
    command->add_option("scenario", options->scenario, "A scenario file, or the name of a shipped one")->required();
    command->add_option("--vary", options->vary, "path=a,b,c or path=a..b[:step] or path=a..b:*ratio (repeatable)")
        ->required()
        ->take_all()
        ->allow_extra_args(false);
    command->add_option("--set", options->edits, "Change a field for all rows: path=value (repeatable)")
        ->take_all()
        ->allow_extra_args(false);
    command->add_option("--sample", options->sample, "sobol:N or random:N rows of the axes' space instead of all combinations");
    command->add_option("--seed", options->seed, "Of random samples");
    command->add_option("-o,--output", options->sweep.output, "The result: NAME.csv or NAME.sqlite")->required();
    command->add_option("--threads", options->sweep.threads, "Threads of each process; default: all cores")
        ->check(CLI::Range(1, 4096));
    command->add_flag("--restart", options->sweep.restart, "Forget an earlier result and rows of that name");
    command->callback([options, &context] { run(*options, context); });
}

}  // namespace draftboard::cli
