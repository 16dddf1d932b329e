// SPDX-License-Identifier: Apache-2.0
#include "cli/calibrate_cuda.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "calibration/cuda_calibration.h"
#include "cli/inference_options.h"
#include "cli/interrupt.h"
#include "cli/progress_bar.h"

namespace draftboard::cli {

namespace {

namespace fs = std::filesystem;
using calibration::MeasuredModel;

constexpr std::size_t kShownRows = 24;

model::Expected<int> nth(const std::vector<int>& values, std::size_t index, std::size_t count, const char* option) {
    if (values.empty()) return 0;
    if (values.size() == 1) return values.front();
    if (values.size() == count) return values[index];
    return model::fail(model::ErrorCode::invalid_input, fmt::format("{} values for {} architectures", values.size(), count), option,
                       "give one value for all, or one for each --architecture");
}

model::Expected<std::vector<MeasuredModel>> models_of(const CudaCalibrateOptions& options, const std::string& data_directory) {
    if (options.models.empty() && options.architectures.empty()) return calibration::default_gpu_models(data_directory);
    std::vector<MeasuredModel> models;
    const std::size_t count = options.architectures.size();
    for (std::size_t i = 0; i < count; ++i) {
        const auto layers = nth(options.layers, i, count, "--layers");
        if (!layers) return tl::unexpected(layers.error());
        const auto ranks = nth(options.tensor_rank_of, i, count, "--tp-rank-of");
        if (!ranks) return tl::unexpected(ranks.error());
        auto model = calibration::random_model(options.architectures[i], *layers, *ranks, data_directory);
        if (!model) return tl::unexpected(model.error());
        models.push_back(std::move(*model));
    }
    for (const std::string& name : options.models) {
        const auto folder = find_model(name, data_directory);
        if (!folder) return tl::unexpected(folder.error());
        auto model = calibration::checkpoint_model(*folder);
        if (!model) return tl::unexpected(model.error());
        models.push_back(std::move(*model));
    }
    return models;
}

/// What an earlier call left: unfinished, or all of it.
model::Expected<calibration::EngineProgress> earlier(const CudaCalibrateOptions& options, const std::string& partial,
                                                     const std::string& complete, const std::string& settings, CommandContext& context) {
    if (!options.resume) return calibration::EngineProgress{};
    std::error_code ec;
    const std::string& file = fs::exists(partial, ec) ? partial : complete;
    if (!fs::exists(file, ec)) return calibration::EngineProgress{};
    const auto text = read_input(file);
    if (!text) return tl::unexpected(text.error());
    auto progress = calibration::parse_engine_progress(*text, file);
    if (!progress) return progress;
    if (progress->settings != settings) {
        return model::fail(model::ErrorCode::invalid_input, "holds a run with other settings: " + progress->settings, file,
                           "give the same models and preset, or leave out --resume");
    }
    context.note(fmt::format("going on after {} steps of {}", progress->done.size(), file));
    for (const std::string& failed : progress->failed) context.note("failed earlier, not tried again: " + failed);
    return progress;
}

struct Line {
    double error = 0;
    std::string text;
};

std::string worst_first(std::vector<Line> lines, const std::string& title) {
    if (lines.empty()) return {};
    std::stable_sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) { return std::abs(a.error) > std::abs(b.error); });
    std::vector<double> errors;
    for (const Line& line : lines) errors.push_back(std::abs(line.error));
    std::string text = fmt::format("\n{}: {} in all, median |error| {:.1f} %, worst {:.1f} %\n", title, lines.size(),
                                   100 * errors[errors.size() / 2], 100 * errors.front());
    for (std::size_t i = 0; i < std::min(lines.size(), kShownRows); ++i) text += lines[i].text;
    if (lines.size() > kShownRows) text += fmt::format("  ... {} more\n", lines.size() - kShownRows);
    return text;
}

std::vector<Line> time_lines(const model::Json& list) {
    std::vector<Line> lines;
    for (const auto& entry : list) {
        if (!entry.is_object()) continue;
        const double measured = entry.value("measured_us", 0.0);
        const double fitted = entry.value("fitted_us", 0.0);
        if (!(measured > 0)) continue;
        const double error = fitted / measured - 1;
        lines.push_back({error, fmt::format("  {:<64} measured {:>9.1f} us, fitted {:>9.1f} ({:>+6.1f} %), operations alone {:>9.1f}\n",
                                            entry.value("name", std::string()), measured, fitted, 100 * error,
                                            entry.value("operations_us", 0.0))});
    }
    return lines;
}

std::vector<Line> role_lines(const model::Json& list) {
    std::vector<Line> lines;
    for (const auto& entry : list) {
        if (!entry.is_object()) continue;
        const double measured = entry.value("measured_us", 0.0);
        const double fitted = entry.value("fitted_us", 0.0);
        const int count = std::max(1, entry.value("count", 1));
        if (!(measured / count > 0.5)) continue;
        const double error = fitted / measured - 1;
        lines.push_back({error, fmt::format("  {:<58} {:<26} x{:<3} measured {:>8.2f} us, fitted {:>8.2f} ({:>+6.1f} %)\n",
                                            entry.value("pass", std::string()), entry.value("role", std::string()), count,
                                            measured / count, fitted / count, 100 * error)});
    }
    return lines;
}

model::Json summary_json(const calibration::CudaCalibrationResult& result) {
    const model::Json& cuda = result.calibration.unknown["cuda"];
    return {{"name", result.calibration.name},
            {"entries", result.calibration.kernels.entries.size()},
            {"host", cuda["host"]},
            {"engines", cuda["engines"]},
            {"device_costs", cuda["device_costs"]},
            {"passes", cuda["passes"]},
            {"cycles", cuda["cycles"]},
            {"notes", result.fit.notes}};
}

}  // namespace

std::string cuda_calibration_text(const calibration::Calibration& calibration) {
    if (!calibration.unknown.contains("cuda") || !calibration.unknown["cuda"].is_object()) return {};
    const model::Json& cuda = calibration.unknown["cuda"];
    const auto part = [&](const char* name) { return cuda.contains(name) ? cuda[name] : model::Json::array(); };
    std::string text;
    for (const auto& fit : calibration.fits) {
        if (!fit.worst_row.empty()) {
            text += fmt::format("{:<52} {:>4} rows, left out: median {:>5.1f} %, p90 {:>5.1f} %; worst {}\n", fit.key, fit.rows,
                                100 * fit.all_errors.median, 100 * fit.all_errors.p90, fit.worst_row);
        }
    }
    const auto constants = [&](const std::string& title, const model::Json& values) {
        if (!values.is_object()) return;
        text += title + ":";
        for (const auto& item : values.items()) {
            if (item.value().is_number()) text += fmt::format(" {} {:.4g}", item.key().substr(item.key().find('.') + 1), item.value().get<double>());
        }
        text += "\n";
    };
    constants("device", part("device_costs"));
    constants("launching", part("host"));
    if (const auto engines = part("engines"); engines.is_object()) {
        for (const auto& item : engines.items()) constants("host of " + item.key(), item.value());
    }
    text += worst_first(time_lines(part("passes")), "passes");
    text += worst_first(time_lines(part("cycles")), "cycles");
    return text + worst_first(role_lines(part("roles")), "operations of a role in a pass, times of one");
}

void calibrate_cuda(const CudaCalibrateOptions& options, CommandContext& context) {
    calibration::CudaCalibrationOptions of_run;
    calibration::apply_preset(of_run, options.quick ? "quick" : "");
    of_run.device = calibration::measured_gpu(options.gpus);
    of_run.data_directory = context.data_directory;
    auto models = models_of(options, context.data_directory);
    if (!models) return context.report(models.error());
    of_run.models = std::move(*models);

    const std::string partial = options.output.empty() ? std::string() : options.output + ".partial";
    const std::string measured = options.output.empty() ? std::string() : options.output + ".measured";
    auto progress = earlier(options, partial, measured, calibration::settings_of(of_run), context);
    if (!progress) return context.report(progress.error());
    ProgressBar bar(context.quiet || context.json);
    const Interrupt interrupt;
    std::optional<model::Error> unwritten;
    const auto save = [&](const calibration::EngineProgress& so_far) {
        if (partial.empty()) return true;
        auto written = write_file(partial, to_json(so_far).dump() + "\n");
        if (!written) unwritten = written.error();
        return written.has_value();
    };
    bool complete = false;
    const auto done = calibration::measure_cuda(
        of_run, *progress,
        [&](const auto& so_far, double share, const std::string& step, double seconds) {
            bar.clear();
            context.note(fmt::format("{:>3.0f} % {}: {:.1f} s", 100 * share, step, seconds));
            bar.show(share, step);
            return save(so_far) && !interrupt.flag();
        },
        complete);
    bar.clear();
    if (unwritten) return context.report(*unwritten);
    if (!done) {
        context.report(done.error());
        if (!progress->failed.empty() && save(*progress) && !partial.empty()) {
            context.note(partial + " holds what is done; --resume goes on without the step that failed");
        }
        return;
    }
    if (!complete) {
        context.note(partial.empty() ? "stopped" : "stopped; " + partial + " holds what is done, --resume goes on from it");
        context.exit_code = kInterrupted;
        return;
    }
    const auto result = calibration::fit_measurements(of_run, *progress);
    if (!result) return context.report(result.error());
    if (!options.output.empty()) {
        if (auto written = write_file(options.output, calibration::to_text(result->calibration)); !written) {
            return context.report(written.error());
        }
        if (auto written = write_file(measured, to_json(*progress).dump() + "\n"); !written) return context.report(written.error());
        std::error_code ec;
        fs::remove(partial, ec);
        context.note(fmt::format("calibration written to {}, what was measured to {}", options.output, measured));
    }
    if (context.json) return context.print(summary_json(*result));
    std::string text;
    for (const std::string& note : result->fit.notes) text += "note: " + note + "\n";
    context.print(text + cuda_calibration_text(result->calibration));
}

}  // namespace draftboard::cli
