// SPDX-License-Identifier: Apache-2.0
#include "calibration/cuda_calibration.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "calibration/cpu_texts.h"
#include "calibration/engine_cycles.h"
#include "calibration/gpu_datasheet.h"
#include "model/random.h"

namespace draftboard::calibration {

using backend::cuda::LaunchMode;
using model::Expected;
using model::Json;

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRandomTexts = 16;

/// Which engines a step needs; one set is in memory at a time.
struct SessionChoice {
    std::size_t model = 0;
    bool eager = false;
    bool long_contexts = false;
    bool operator==(const SessionChoice&) const = default;
    [[nodiscard]] std::string launch() const { return eager ? "eager" : "full"; }
};

struct Step {
    std::string name;
    SessionChoice session;
    std::function<Expected<void>(EngineSession&, EngineMeasurements&)> run;
};

Expected<std::vector<std::vector<int>>> texts_for(const CudaCalibrationOptions& options, const MeasuredModel& model, int length) {
    if (model.architecture) {
        model::Random random(1);
        std::vector<std::vector<int>> texts(kRandomTexts);
        const auto tokens = static_cast<std::uint32_t>(std::min<std::int64_t>(model.architecture->vocabulary, 1 << 14));
        for (auto& text : texts) {
            for (int i = 0; i < length; ++i) text.push_back(static_cast<int>(random.below(tokens)));
        }
        return texts;
    }
    const auto tokenizer = backend::ByteTokenizer::parse(R"({"format": "draftboard.byte_tokenizer", "version": 1})", "bytes");
    if (!tokenizer) return tl::unexpected(tokenizer.error());
    const auto prompts = read_prompt_sets(options.prompt_sets, PromptHalf::calibration, options.data_directory);
    if (!prompts) return tl::unexpected(prompts.error());
    return texts_of_length(*prompts, length, *tokenizer);
}

Expected<std::unique_ptr<EngineSession>> open_session(const CudaCalibrationOptions& options, const SessionChoice& choice) {
    const MeasuredModel& model = options.models[choice.model];
    EngineSessionOptions of_session;
    of_session.model = model;
    of_session.device = options.device.with_launch(choice.eager ? LaunchMode::eager : LaunchMode::full);
    of_session.launch = choice.launch();
    of_session.contexts = choice.long_contexts ? options.long_contexts : options.contexts;
    if (choice.eager) of_session.contexts.resize(1);
    of_session.sequences = choice.long_contexts ? std::vector<int>{1} : options.sequences;
    of_session.tokens = options.tokens;
    of_session.branches = options.branches;
    of_session.most_rows = options.most_rows;
    of_session.profiles = !choice.eager;
    of_session.warm_cycles = options.warm_cycles;
    of_session.steady_cycles = options.steady_cycles;
    auto texts = texts_for(options, model, of_session.contexts.front() + 64);
    if (!texts) return tl::unexpected(texts.error());
    auto opened = EngineSession::open(std::move(of_session), std::move(*texts));
    if (!opened) return tl::unexpected(opened.error());
    return std::make_unique<EngineSession>(std::move(*opened));
}

std::vector<Step> steps_of(const CudaCalibrationOptions& options) {
    std::vector<Step> steps;
    steps.push_back({"device", {}, [](EngineSession& session, EngineMeasurements& m) -> Expected<void> {
                         auto costs = session.inference().device_costs();
                         if (!costs) return tl::unexpected(costs.error());
                         if (!costs->is_object()) return {};  // a device with nothing to say
                         m.device_costs = std::move(*costs);
                         m.clock_us = m.device_costs.value("event_us", 0.0);
                         return {};
                     }});
    const auto visits = [&](const SessionChoice& choice, const std::vector<int>& contexts, const std::vector<int>& sequences) {
        const std::string& model = options.models[choice.model].name;
        for (std::size_t c = 0; c < contexts.size(); ++c) {
            for (const int count : sequences) {
                steps.push_back({fmt::format("{}, {}, {} sequence(s) at {}", model, choice.launch(), count, contexts[c]), choice,
                                 [c, count](EngineSession& session, EngineMeasurements& m) { return session.visit(c, count, m); }});
            }
        }
    };
    for (std::size_t model = 0; model < options.models.size(); ++model) {
        for (const bool eager : {false, true}) {
            const SessionChoice choice{model, eager, false};
            visits(choice, eager ? std::vector<int>{options.contexts.front()} : options.contexts, options.sequences);
            for (const bool fused : eager ? std::vector<bool>{false} : std::vector<bool>{true, false}) {
                CycleOptions cycles{fused, options.cycle_steps, options.cycle_sequences, options.contexts.front(), options.cycles};
                steps.push_back({fmt::format("{}, cycles, {}", options.models[model].name, fused ? "fused" : choice.launch()), choice,
                                 [cycles](EngineSession& session, EngineMeasurements& m) { return measure_cycles(session, cycles, m); }});
            }
        }
        if (!options.long_contexts.empty()) visits({model, false, true}, options.long_contexts, {1});
    }
    return steps;
}

/// Facts of now; those of the progress where it has them. Differences are an error: two boxes make no calibration.
Expected<void> check_box(EngineProgress& progress) {
    const auto now = probe_gpus();
    if (!now) return {};  // without NVML the box can't be told from another
    EngineMeasurements& m = progress.measurements;
    if (!m.gpu.is_object()) {
        m.gpu = to_json(*now);
        return {};
    }
    std::vector<model::Problem> problems;
    const GpuFacts then = gpu_facts_from_json(model::JsonReader(m.gpu, problems));
    const auto changed = differences(then, *now);
    if (changed.empty()) return {};
    return model::fail(model::ErrorCode::invalid_input, fmt::format("this is not the box that was measured: {}", fmt::join(changed, "; ")),
                       "calibrate", "start again without --resume");
}

}  // namespace

void apply_preset(CudaCalibrationOptions& options, const std::string& preset) {
    if (preset != "quick") return;
    options.contexts = {160, 2200};
    options.long_contexts = {};
    options.tokens = {2, 4, 8};
    options.branches = {1};
    options.cycle_steps = {1, 3};
    options.most_rows = 64;
    options.steady_cycles = 4;
    options.cycles = 24;
}

std::string settings_of(const CudaCalibrationOptions& options) {
    std::vector<std::string> names;
    for (const MeasuredModel& model : options.models) names.push_back(model.name);
    return fmt::format("cuda, gpus {}, models {}, contexts {}, long {}, sequences {}, tokens {}, branches {}, rows {}, cycles of {} steps",
                       options.device.ranks, fmt::join(names, ", "), fmt::join(options.contexts, ","), fmt::join(options.long_contexts, ","),
                       fmt::join(options.sequences, ","), fmt::join(options.tokens, ","), fmt::join(options.branches, ","),
                       options.most_rows, fmt::join(options.cycle_steps, ","));
}

Expected<std::vector<MeasuredModel>> default_gpu_models(const std::string& data_directory) {
    std::vector<MeasuredModel> models;
    const auto add = [&](Expected<MeasuredModel> model) -> Expected<void> {
        if (!model) return tl::unexpected(model.error());
        models.push_back(std::move(*model));
        return {};
    };
    if (auto ok = add(random_model("qwen3-30b", 0, 0, data_directory)); !ok) return tl::unexpected(ok.error());
    if (auto ok = add(random_model("kimi-k2.5", 4, 8, data_directory)); !ok) return tl::unexpected(ok.error());
    if (auto ok = add(random_model("qwen3.5-397b", 8, 8, data_directory)); !ok) return tl::unexpected(ok.error());
    for (const char* name : {"tiny-kimi", "tiny-qwen"}) {
        const auto folder = std::filesystem::path(data_directory) / "models" / name;
        std::error_code ec;
        if (!std::filesystem::exists(folder / "config.json", ec)) continue;
        if (auto ok = add(checkpoint_model(folder.string())); !ok) return tl::unexpected(ok.error());
    }
    return models;
}

Expected<void> measure_cuda(const CudaCalibrationOptions& options, EngineProgress& progress, const CudaProgressCallback& callback,
                            bool& complete) {
    complete = false;
    if (options.models.empty() || options.contexts.empty()) {
        return model::fail(model::ErrorCode::invalid_input, "a calibration needs a model and a context", "calibrate");
    }
    progress.settings = settings_of(options);
    const std::vector<Step> steps = steps_of(options);
    const auto settled = [&](const Step& step) {
        return progress.is_done(step.name) || std::any_of(progress.failed.begin(), progress.failed.end(), [&](const std::string& failed) {
                   return failed.starts_with(step.name + ": ");
               });
    };
    if (std::all_of(steps.begin(), steps.end(), settled)) {
        complete = true;
        return {};
    }
    if (auto same = check_box(progress); !same) return same;
    std::unique_ptr<EngineSession> session;
    SessionChoice open;
    for (std::size_t i = 0; i < steps.size(); ++i) {
        const Step& step = steps[i];
        if (settled(step)) continue;
        const auto begin = Clock::now();
        const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
        if (session == nullptr || !(open == step.session)) {
            session.reset();  // two sets of weights do not fit
            auto opened = open_session(options, step.session);
            if (!opened) {
                if (progress.done.empty()) return tl::unexpected(opened.error());  // no GPU, no library
                progress.failed.push_back(fmt::format("{}: {}", step.name, opened.error().to_text()));
                return tl::unexpected(opened.error());
            }
            session = std::move(*opened);
            open = step.session;
        }
        if (auto ok = step.run(*session, progress.measurements); !ok) {
            progress.failed.push_back(fmt::format("{}: {}", step.name, ok.error().to_text()));
            return tl::unexpected(ok.error());
        }
        progress.done.push_back(step.name);
        if (callback && !callback(progress, static_cast<double>(i + 1) / static_cast<double>(steps.size()), step.name, seconds())) return {};
    }
    complete = true;
    return {};
}

model::GpuSpec measured_gpu_spec(const Json& costs) {
    const auto number = [&](const char* key) { return costs.is_object() && costs.contains(key) && costs[key].is_number() ? costs[key].get<double>() : 0.0; };
    const std::string name = costs.is_object() ? costs.value("gpu", std::string()) : std::string();
    model::GpuSpec gpu;
    for (const char* known : {"rtx-pro-6000", "l40s", "h200"}) {
        auto sheet = gpu_datasheet(known);
        if (sheet && !name.empty() && (name.find(sheet->name) != std::string::npos || sheet->name.find(name) != std::string::npos)) gpu = *sheet;
    }
    if (gpu.name.empty()) {
        gpu.memory_gb_s = 1.1 * std::max(number("memory_read_gb_s"), 1.0);
        gpu.source = "as measured; the datasheet is not known";
    }
    gpu.name = name.empty() ? std::string("unknown GPU") : name;
    if (costs.is_object()) gpu.compute_capability = costs.value("compute_capability", gpu.compute_capability);
    if (number("memory_bytes") > 0) gpu.memory_bytes = number("memory_bytes");
    if (number("l2_bytes") > 0) gpu.l2_bytes = number("l2_bytes");
    if (number("multiprocessors") > 0) gpu.multiprocessors = static_cast<int>(number("multiprocessors"));
    return gpu;
}

Expected<CudaCalibrationResult> fit_measurements(const CudaCalibrationOptions& options, const EngineProgress& progress) {
    const EngineMeasurements& m = progress.measurements;
    auto passes = planned_passes(options.models, options.device, m);
    if (!passes) return tl::unexpected(passes.error());
    std::map<std::string, MeasuredPlanners> planners;
    const PlanOf plan_of = [&](const std::string& name, bool drafter, model::Pass pass, int sequences, int tokens,
                               std::int64_t context) -> Expected<model::Plan> {
        auto at = planners.find(name);
        if (at == planners.end()) {
            const auto found = std::find_if(options.models.begin(), options.models.end(), [&](const auto& one) { return one.name == name; });
            if (found == options.models.end()) {
                return model::fail(model::ErrorCode::not_found, "was measured, but is not among the models of the calibration", name,
                                   "name the same models");
            }
            auto made = planners_of(*found, options.device);
            if (!made) return tl::unexpected(made.error());
            at = planners.emplace(name, std::move(*made)).first;
        }
        return at->second.plan(drafter, pass, sequences, tokens, context);
    };
    CudaCalibrationResult result;
    Calibration& calibration = result.calibration;
    calibration.gpu = measured_gpu_spec(m.device_costs);
    auto fit = fit_cuda(*passes, m, plan_of, calibration.gpu);
    if (!fit) return tl::unexpected(fit.error());
    result.fit = std::move(*fit);
    result.complete = true;
    calibration.name = "cuda";
    calibration.kernels = result.fit.kernels;
    calibration.kernels.name = calibration.name;
    calibration.fits = result.fit.tables;
    calibration.description = fmt::format("The GPU engine on {}: {} kernels, fitted to {} passes and {} cycles", calibration.gpu.name,
                                          calibration.kernels.entries.size(), passes->size(), m.cycles.size());
    calibration.provenance = {fmt::format("measured by `draftboard calibrate --device cuda`: {}", progress.settings),
                              "activations and caches in bf16; weights as a pass over all layers finds them; operations between events "
                              "in captured graphs"};
    calibration.provenance.insert(calibration.provenance.end(), result.fit.notes.begin(), result.fit.notes.end());
    for (const std::string& failed : progress.failed) calibration.provenance.push_back("not measured: " + failed);
    set_cuda_terms(calibration, result.fit.terms);
    Json& cuda = calibration.unknown["cuda"];
    cuda["gpu"] = m.gpu;
    cuda["device_costs"] = m.device_costs;
    cuda["clock_us"] = m.clock_us;
    const auto fitted = [](const std::vector<FittedTime>& times) {
        Json list = Json::array();
        for (const FittedTime& time : times) {
            list.push_back({{"name", time.name}, {"measured_us", time.measured_us}, {"fitted_us", time.fitted_us},
                            {"operations_us", time.operations_us}});
        }
        return list;
    };
    cuda["passes"] = fitted(result.fit.passes);
    cuda["cycles"] = fitted(result.fit.cycles);
    cuda["roles"] = Json::array();
    for (const FittedRole& role : result.fit.roles) {
        cuda["roles"].push_back({{"pass", role.pass}, {"role", role.role}, {"count", role.count}, {"measured_us", role.measured_us},
                                 {"fitted_us", role.fitted_us}});
    }
    cuda["measured"] = Json::array();
    std::set<std::tuple<std::string, int, std::string, int, int>> shapes;
    for (const auto& [key, samples] : m.passes) shapes.insert({key.model, key.ranks, std::string(to_name(key.pass)), key.sequences, key.tokens});
    for (const auto& [model, ranks, pass, sequences, tokens] : shapes) {
        cuda["measured"].push_back({{"model", model}, {"ranks", ranks}, {"pass", pass}, {"sequences", sequences}, {"tokens", tokens}});
    }
    return result;
}

}  // namespace draftboard::calibration
