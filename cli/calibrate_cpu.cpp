// SPDX-License-Identifier: Apache-2.0
#include "cli/calibrate_cpu.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "calibration/cpu_calibration.h"
#include "cli/calibrate_cuda.h"
#include "cli/inference_options.h"
#include "cli/interrupt.h"
#include "cli/progress_bar.h"

namespace draftboard::cli {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr double kSaveSeconds = 3;

struct Options {
    std::string device;
    std::string output;
    std::vector<std::string> models;
    std::vector<int> ranks;
    bool quick = false;
    bool full = false;
    bool resume = false;
    bool cold = false;
    std::string show;
    CudaCalibrateOptions cuda;
};

model::Expected<std::vector<std::string>> model_folders(const std::vector<std::string>& names, const std::string& data_directory) {
    std::vector<std::string> folders;
    for (const std::string& name : names) {
        auto folder = find_model(name, data_directory);
        if (!folder) return tl::unexpected(folder.error());
        folders.push_back(std::move(*folder));
    }
    if (!folders.empty()) return folders;
    std::error_code ec;
    for (const auto& entry : fs::directory_iterator(fs::path(data_directory) / "models", ec)) {
        const bool head = entry.path().filename().string().ends_with("-eagle3");
        if (!head && fs::exists(entry.path() / "config.json", ec)) folders.push_back(entry.path().string());
    }
    std::sort(folders.begin(), folders.end());
    if (folders.empty()) {
        return model::fail(model::ErrorCode::not_found, "there is no shipped model", data_directory, "name one with --model");
    }
    return folders;
}

model::Json summary_json(const calibration::CpuCalibrationResult& result) {
    model::Json tables = model::Json::array();
    for (const auto& fit : result.fit.tables) {
        tables.push_back({{"key", fit.key}, {"rows", fit.rows}, {"median", fit.all_errors.median}, {"p90", fit.all_errors.p90},
                          {"bias", fit.all_errors.bias}});
    }
    const model::Json& cpu = result.calibration.unknown["cpu"];
    return {{"name", result.calibration.name},       {"entries", result.calibration.kernels.entries.size()},
            {"ceilings", cpu["ceilings"]},           {"achieved", cpu["achieved"]},
            {"host", result.calibration.unknown["host"]}, {"collectives", result.calibration.unknown["collectives"]},
            {"tables", std::move(tables)},           {"notes", result.fit.notes}};
}

/// Leave-out errors, worst first.
std::string tables_text(const calibration::CpuFit& fit) {
    auto tables = fit.tables;
    std::stable_sort(tables.begin(), tables.end(), [](const auto& a, const auto& b) { return a.all_errors.median > b.all_errors.median; });
    std::string text = fmt::format("{:<44} {:>5} {:>8} {:>8} {:>8}  {}\n", "kernel", "rows", "median", "p90", "bias", "worst row");
    for (const auto& table : tables) {
        text += fmt::format("{:<44} {:>5} {:>6.1f} % {:>6.1f} % {:>+6.1f} %  {}\n", table.key, table.rows, 100 * table.all_errors.median,
                            100 * table.all_errors.p90, 100 * table.all_errors.bias, table.worst_row);
    }
    for (const std::string& note : fit.notes) text += "note: " + note + "\n";
    return text;
}

std::string terms_text(const calibration::Calibration& calibration) {
    const auto terms = calibration::cpu_terms(calibration);
    if (!terms) return terms.error().to_text() + "\n";
    std::string text;
    for (const auto& host : terms->host) {
        text += fmt::format("host, {} rank(s):", host.ranks);
        for (const auto& [name, value] : host.values) {
            if (value > 0) text += fmt::format(" {} {:.3g}", name.substr(name.find('.') + 1), value);
        }
        text += "\n";
    }
    for (const auto& c : terms->collectives) {
        text += fmt::format(
            "collectives, {:g} ranks: call {:.2f} us, barrier {:.2f} us, one-shot {:.1f}, ring {:.1f}, gather {:.1f} GB/s, "
            "skew {:.2f} us + {:.1f} %, error {:.0f} %\n",
            c.ranks, c.call_us, c.barrier_us, c.one_shot_gb_s, c.ring_gb_s, c.gather_gb_s, c.skew_us, 100 * c.skew_share,
            100 * c.relative_error);
    }
    return text;
}

/// Empty: nothing to go on from.
model::Expected<calibration::EngineProgress> progress_of(const Options& options, const std::string& partial, const std::string& settings,
                                                      const CommandContext& context) {
    std::error_code ec;
    if (partial.empty() || !fs::exists(partial, ec)) return calibration::EngineProgress{};
    if (!options.resume) {
        context.note(partial + " holds a run that was stopped; --resume would go on from it, this run starts again");
        return calibration::EngineProgress{};
    }
    const auto text = read_input(partial);
    if (!text) return tl::unexpected(text.error());
    auto progress = calibration::parse_engine_progress(*text, partial);
    if (!progress) return progress;
    if (progress->settings != settings) {
        return model::fail(model::ErrorCode::invalid_input, "holds a run with other settings: " + progress->settings, partial,
                           "give the same models, ranks and preset, or leave out --resume");
    }
    context.note(fmt::format("going on after {} steps", progress->done.size()));
    return progress;
}

void run(const Options& options, CommandContext& context) {
    if (options.device.empty()) {
        return context.report({model::ErrorCode::invalid_input, "a device or a subcommand is required", "calibrate",
                               "--device cpu or cuda measures this machine; `import` and `show` read files"});
    }
    if (options.device == "cuda") {
        CudaCalibrateOptions cuda = options.cuda;
        cuda.output = options.output;
        cuda.models = options.models;
        cuda.quick = options.quick;
        cuda.resume = options.resume;
        return calibrate_cuda(cuda, context);
    }
    if (!options.cuda.architectures.empty()) {
        return context.report({model::ErrorCode::unsupported, "random weights are measured on a GPU", "--architecture", "add --device cuda"});
    }
    calibration::CpuCalibrationOptions of_run;
    calibration::apply_preset(of_run, options.quick ? "quick" : options.full ? "full" : "");
    auto folders = model_folders(options.models, context.data_directory);
    if (!folders) return context.report(folders.error());
    of_run.models = std::move(*folders);
    of_run.ranks = options.ranks;
    of_run.eviction = options.cold;
    of_run.data_directory = context.data_directory;
    if (of_run.ranks.empty()) {
        const auto facts = calibration::probe_cpu();
        if (!facts) return context.report(facts.error());
        for (int ranks = 1; ranks <= std::min(facts->cores, 4); ranks *= 2) of_run.ranks.push_back(ranks);
    }
    std::sort(of_run.ranks.begin(), of_run.ranks.end());
    of_run.ranks.erase(std::unique(of_run.ranks.begin(), of_run.ranks.end()), of_run.ranks.end());

    const std::string partial = options.output.empty() ? std::string() : options.output + ".partial";
    auto progress = progress_of(options, partial, calibration::settings_of(of_run), context);
    if (!progress) return context.report(progress.error());
    ProgressBar bar(context.quiet || context.json);
    auto saved = Clock::now();
    std::optional<model::Error> failed;
    const Interrupt interrupt;
    const auto result = calibration::calibrate_cpu(of_run, *progress, [&](const auto& so_far, double share, const std::string& step) {
        bar.show(share, step);
        const bool stop = interrupt.flag();
        const bool due = stop || std::chrono::duration<double>(Clock::now() - saved).count() >= kSaveSeconds;
        if (partial.empty() || !due) return !stop;
        if (auto written = write_file(partial, to_json(so_far).dump() + "\n"); !written) {
            failed = written.error();
            return false;
        }
        saved = Clock::now();
        return !stop;
    });
    bar.clear();
    if (failed) return context.report(*failed);
    if (!result) return context.report(result.error());
    if (!result->complete) {
        context.note(partial.empty() ? "stopped" : "stopped; " + partial + " holds what is done, --resume goes on from it");
        context.exit_code = kInterrupted;
        return;
    }
    if (!options.output.empty()) {
        if (auto written = write_file(options.output, calibration::to_text(result->calibration)); !written) {
            return context.report(written.error());
        }
        std::error_code ec;
        fs::remove(partial, ec);
        context.note("calibration written to " + options.output);
    }
    if (context.json) return context.print(summary_json(*result));
    context.print(tables_text(result->fit) + "\n" + terms_text(result->calibration) + "\n" +
                  calibration::cpu_calibration_text(result->calibration));
}

void run_show(const Options& options, CommandContext& context) {
    const auto found = calibration::find_calibration(options.show, context.data_directory);
    if (!found) return context.report(found.error());
    if (context.json) return context.print(calibration::to_json(*found));
    std::string text = found->name + ": " + found->description + "\n";
    for (const std::string& line : found->provenance) text += "  " + line + "\n";
    for (const auto& [key, kernel] : found->kernels.entries) {
        text += fmt::format("{:<42} fixed {:>7.2f} us  {:>7.1f} GB/s  {:>8.4f} TFLOP/s  error {:>4.0f} %  {} points, {}\n", key,
                            kernel.fixed_us, kernel.bandwidth_gb_s, kernel.rate_tflops, 100 * kernel.relative_error, kernel.points,
                            sim::to_name(kernel.coverage));
    }
    context.print(text + terms_text(*found) + calibration::cpu_calibration_text(*found) + cuda_calibration_text(*found));
}

}  // namespace

void add_calibrate_cpu(CLI::App& calibrate, CommandContext& context) {
    auto options = std::make_shared<Options>();
    calibrate.require_subcommand(0, 1);
    calibrate.add_option("--device", options->device, "Measure this device: cpu or cuda")->check(CLI::IsMember({"cpu", "cuda"}));
    calibrate.add_option("-o,--output", options->output, "Write the calibration file; FILE.partial holds what is done meanwhile");
    calibrate.add_option("--model", options->models, "A model to measure with (repeatable; default: all that are shipped)");
    calibrate.add_option("--ranks", options->ranks, "Numbers of ranks, as 1,2 (default: 1, 2, 4 up to the cores)")
        ->delimiter(',')
        ->check(CLI::Range(1, 64));
    CLI::Option* quick = calibrate.add_flag("--quick", options->quick, "Fewer shapes and rounds, some 25 s");
    calibrate.add_flag("--full", options->full, "More shapes and rounds, without a limit of time")->excludes(quick);
    calibrate.add_flag("--resume", options->resume, "Go on from FILE.partial");
    const std::string group = "On GPUs (--device cuda)";
    calibrate.add_option("--gpus", options->cuda.gpus, "Ranks, one a GPU")->check(CLI::Range(1, 64))->group(group);
    calibrate.add_option("--architecture", options->cuda.architectures,
                         "Random weights at the true shapes of an architecture (repeatable; default: Qwen3-30B, shares of Kimi-K2.5 and "
                         "Qwen3.5-397B, and the shipped models)")
        ->group(group);
    calibrate.add_option("--layers", options->cuda.layers, "Its first layers alone; one number for all architectures or one for each")
        ->delimiter(',')->check(CLI::Range(0, 1024))->group(group);
    calibrate.add_option("--tp-rank-of", options->cuda.tensor_rank_of, "One rank's share of a layout of so many, alone; the same")
        ->delimiter(',')->check(CLI::Range(0, 256))->group(group);
    calibrate.add_flag("--cold", options->cold, "Empty the caches before each pass");
    calibrate.callback([&calibrate, options, &context] {
        if (calibrate.get_subcommands().empty()) run(*options, context);
    });
    CLI::App* show = calibrate.add_subcommand("show", "What a calibration file holds; of a CPU also its rates against its ceilings");
    show->add_option("file", options->show, "A calibration file, or the name of a shipped one")->required();
    show->callback([options, &context] { run_show(*options, context); });
}

}  // namespace draftboard::cli
