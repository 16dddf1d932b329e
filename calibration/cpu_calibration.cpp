// SPDX-License-Identifier: Apache-2.0
#include "calibration/cpu_calibration.h"

#include <algorithm>
#include <chrono>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "calibration/cpu_benchmarks.h"
#include "calibration/engine_session.h"
#include "calibration/cpu_texts.h"

namespace draftboard::calibration {

using model::Expected;
using model::Json;

namespace {

using Clock = std::chrono::steady_clock;

/// Sessions are opened when they are first needed and stay.
class Sessions {
   public:
    Sessions(const CpuCalibrationOptions& options, const std::vector<std::vector<std::string>>& prompts, double l3_bytes)
        : options_(&options), prompts_(&prompts), l3_bytes_(l3_bytes) {}

    Expected<EngineSession*> get(const std::string& folder, int ranks) {
        auto& session = open_[{folder, ranks}];
        if (session) return session.get();
        // Byte tokens: what a text of another tokenizer would be is not needed, tokens are clamped to the vocabulary.
        const auto tokenizer = backend::ByteTokenizer::parse(R"({"format": "draftboard.byte_tokenizer", "version": 1})", "bytes");
        if (!tokenizer) return tl::unexpected(tokenizer.error());
        const int longest = *std::max_element(options_->contexts.begin(), options_->contexts.end());
        auto model = checkpoint_model(folder);
        if (!model) return tl::unexpected(model.error());
        EngineSessionOptions of_session;
        of_session.model = std::move(*model);
        of_session.device.ranks = ranks;
        of_session.contexts = options_->contexts;
        of_session.sequences = options_->sequences;
        of_session.tokens = options_->tokens;
        of_session.branches = options_->branches;
        of_session.eviction = options_->eviction;
        of_session.l3_bytes = l3_bytes_;
        auto opened = EngineSession::open(std::move(of_session), texts_of_length(*prompts_, longest + 64, *tokenizer));
        if (!opened) return tl::unexpected(opened.error());
        session = std::make_unique<EngineSession>(std::move(*opened));
        return session.get();
    }

   private:
    const CpuCalibrationOptions* options_;
    const std::vector<std::vector<std::string>>* prompts_;
    double l3_bytes_;
    std::map<std::pair<std::string, int>, std::unique_ptr<EngineSession>> open_;
};

/// The models' plans: nothing is run for them.
Expected<std::vector<EngineMeasuredPass>> with_plans(const CpuCalibrationOptions& options, const EngineMeasurements& m) {
    std::vector<MeasuredModel> models;
    for (const std::string& folder : options.models) {
        auto model = checkpoint_model(folder);
        if (!model) return tl::unexpected(model.error());
        models.push_back(std::move(*model));
    }
    return planned_passes(models, MeasuredDevice{}, m);
}

}  // namespace

void apply_preset(CpuCalibrationOptions& options, const std::string& preset) {
    if (preset == "quick") {
        options.contexts = {64, 600};
        options.tokens = {2, 4, 8};
        options.branches = {1, 3};
        options.rounds = 8;
        options.collective_rounds = 30;
        options.host_prompts = 4;
        options.host_tokens = 24;
        options.budget_s = 20;
    } else if (preset == "full") {
        options.tokens = {2, 3, 4, 6, 8, 12, 16};
        options.sequences = {1, 2, 4};
        options.rounds = 60;
        options.collective_rounds = 200;
        options.budget_s = 0;
    }
}

std::string settings_of(const CpuCalibrationOptions& options) {
    std::vector<std::string> names;
    for (const std::string& folder : options.models) names.push_back(model_name(folder));
    return fmt::format("models {} ranks {} contexts {} sequences {} tokens {} branches {} eviction {}", fmt::join(names, ","),
                       fmt::join(options.ranks, ","), fmt::join(options.contexts, ","), fmt::join(options.sequences, ","),
                       fmt::join(options.tokens, ","), fmt::join(options.branches, ","), options.eviction);
}

std::vector<CpuAchieved> achieved_rates(const std::vector<EngineMeasuredPass>& passes) {
    std::vector<CpuAchieved> rates;
    int shortest = 0;
    for (const EngineMeasuredPass& pass : passes) {
        if (shortest == 0 || pass.key.context < shortest) shortest = pass.key.context;
    }
    for (const EngineMeasuredPass& pass : passes) {
        const bool shown = pass.key.context == shortest && pass.key.pass != model::Pass::draft_extend &&
                           pass.key.model.find('/') == std::string::npos && pass.total_us > 0;
        if (!shown) continue;
        double bytes = 0;
        double flops = 0;
        double operations = 0;
        for (std::size_t i = 0; i < pass.plan.operations.size(); ++i) {
            bytes += pass.plan.operations[i].weight_bytes + pass.plan.operations[i].cache_bytes;
            flops += pass.plan.operations[i].flops;
            operations += pass.us[i];
        }
        rates.push_back({pass.key.model,
                         fmt::format("{} {} x {}", to_name(pass.key.pass), pass.key.sequences, pass.key.tokens),
                         pass.key.ranks, pass.total_us, bytes * pass.key.ranks / pass.total_us * 1e-3,
                         flops * pass.key.ranks / pass.total_us * 1e-3, operations / pass.total_us});
    }
    return rates;
}

Expected<CpuCalibrationResult> calibrate_cpu(const CpuCalibrationOptions& options, EngineProgress& progress,
                                             const ProgressCallback& callback) {
    if (options.models.empty() || options.ranks.empty()) {
        return model::fail(model::ErrorCode::invalid_input, "a calibration needs a model and a number of ranks", "calibrate");
    }
    const auto prompts = read_prompt_sets(options.prompt_sets, PromptHalf::calibration, options.data_directory);
    if (!prompts) return tl::unexpected(prompts.error());
    EngineMeasurements& m = progress.measurements;
    progress.settings = settings_of(options);
    if (!progress.is_done("machine")) {
        const auto facts = probe_cpu();
        if (!facts) return tl::unexpected(facts.error());
        m.facts = *facts;
    }
    Sessions sessions(options, *prompts, m.facts.l3_bytes);

    struct Step {
        std::string name;
        std::function<Expected<void>()> run;
        int round = -1;
    };
    std::vector<Step> steps;
    steps.push_back({"machine", [&]() -> Expected<void> { measure_machine(options, m); return {}; }, -1});
    for (const int ranks : options.ranks) {
        if (ranks < 2) continue;
        steps.push_back({fmt::format("collectives on {} ranks", ranks),
                         [&, ranks]() -> Expected<void> { measure_collectives(options, ranks, m); return {}; }, -1});
    }
    for (const std::string& folder : options.models) {
        for (const int ranks : options.ranks) {
            steps.push_back({fmt::format("host work, {} on {} rank(s)", model_name(folder), ranks),
                             [&, ranks] { return measure_host(options, folder, ranks, *prompts, m); }, -1});
        }
    }
    for (int round = 0; round < options.rounds; ++round) {
        for (const std::string& folder : options.models) {
            for (const int ranks : options.ranks) {
                steps.push_back({fmt::format("round {}, {} on {} rank(s)", round + 1, model_name(folder), ranks),
                                 [&, ranks]() -> Expected<void> {
                                     auto session = sessions.get(folder, ranks);
                                     if (!session) return tl::unexpected(session.error());
                                     return (*session)->round(m);
                                 },
                                 round});
            }
        }
    }

    const auto begin = Clock::now();
    constexpr int kLeastRounds = 3;
    CpuCalibrationResult result;
    for (std::size_t i = 0; i < steps.size(); ++i) {
        const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
        const bool late = options.budget_s > 0 && seconds > options.budget_s && steps[i].round >= kLeastRounds;
        // Rounds are begun together for all models, so that all have as many samples.
        if (late && steps[i].round != steps[i - 1].round) break;
        if (progress.is_done(steps[i].name)) continue;
        if (auto ok = steps[i].run(); !ok) return tl::unexpected(ok.error());
        progress.done.push_back(steps[i].name);
        double share = static_cast<double>(i + 1) / static_cast<double>(steps.size());
        if (options.budget_s > 0) share = std::max(share, std::min(1.0, seconds / options.budget_s));
        if (callback && !callback(progress, share, steps[i].name)) return result;
    }

    auto passes = with_plans(options, m);
    if (!passes) return tl::unexpected(passes.error());
    const auto machine = cpu_machine(m.facts, m.ceilings);
    if (!machine) return tl::unexpected(machine.error());
    auto fit = fit_cpu(*passes, m, machine->gpu);
    if (!fit) return tl::unexpected(fit.error());
    result.fit = std::move(*fit);
    result.complete = true;

    Calibration& calibration = result.calibration;
    calibration.name = "cpu";
    calibration.gpu = machine->gpu;
    calibration.kernels = result.fit.kernels;
    calibration.kernels.name = calibration.name;
    calibration.fits = result.fit.tables;
    calibration.description = fmt::format("The CPU engine on {}: {} kernels, fitted to {} passes", m.facts.name,
                                          calibration.kernels.entries.size(), passes->size());
    calibration.provenance = {fmt::format("measured by `draftboard calibrate --device cpu`: {}", progress.settings),
                              "times are medians over interleaved rounds; weights as a pass over all layers finds them"};
    calibration.provenance.insert(calibration.provenance.end(), result.fit.notes.begin(), result.fit.notes.end());
    set_cpu_terms(calibration, result.fit.terms);
    Json cpu = {{"machine", to_json(m.facts)}, {"ceilings", to_json(m.ceilings)}, {"clock_us", m.clock_us}};
    cpu["team_start_us"] = Json::array();
    for (const auto& [ranks, us] : m.team_start_us) cpu["team_start_us"].push_back({{"ranks", ranks}, {"us", us}});
    cpu["achieved"] = Json::array();
    for (const CpuAchieved& rate : achieved_rates(*passes)) {
        cpu["achieved"].push_back({{"model", rate.model}, {"pass", rate.pass}, {"ranks", rate.ranks}, {"total_us", rate.total_us},
                                   {"gb_s", rate.gb_s}, {"gflop_s", rate.gflop_s}, {"kernel_share", rate.kernel_share}});
    }
    cpu["measured"] = Json::array();
    std::set<CpuMeasuredShape> shapes;
    for (const auto& [key, samples] : m.passes) {
        shapes.insert({key.model, key.ranks, std::string(to_name(key.pass)), key.sequences, key.tokens});
    }
    for (const CpuMeasuredShape& shape : shapes) {
        cpu["measured"].push_back({{"model", shape.model}, {"ranks", shape.ranks}, {"pass", shape.pass},
                                   {"sequences", shape.sequences}, {"tokens", shape.tokens}});
    }
    calibration.unknown["cpu"] = std::move(cpu);
    return result;
}

std::vector<CpuMeasuredShape> measured_shapes(const Calibration& calibration) {
    std::vector<CpuMeasuredShape> shapes;
    std::vector<model::Problem> ignored;
    const char* section = calibration.unknown.contains("cpu") ? "cpu" : "cuda";
    if (!calibration.unknown.contains(section)) return shapes;
    const model::JsonReader cpu(calibration.unknown[section], ignored);
    if (!cpu.value().is_object() || !cpu.has("measured")) return shapes;
    const model::JsonReader list = cpu.at("measured");
    for (std::size_t i = 0; i < list.size(); ++i) {
        const model::JsonReader entry = list.at(i);
        if (!entry.value().is_object()) continue;
        shapes.push_back({entry.string_or("model", ""), static_cast<int>(entry.integer_or("ranks", 1, 1, 1024)),
                          entry.string_or("pass", ""), static_cast<int>(entry.integer_or("sequences", 1, 1, 1 << 20)),
                          static_cast<int>(entry.integer_or("tokens", 1, 1, 1 << 20))});
    }
    return shapes;
}

std::string cpu_calibration_text(const Calibration& calibration) {
    std::vector<model::Problem> problems;
    if (!calibration.unknown.contains("cpu") || !calibration.unknown["cpu"].is_object()) return {};
    const model::JsonReader cpu(calibration.unknown["cpu"], problems);
    const CpuFacts facts = cpu_facts_from_json(cpu.at("machine"));
    const CpuCeilings ceilings = cpu_ceilings_from_json(cpu.at("ceilings"));
    std::string text = fmt::format("{}, {} core(s), L2 {:.3g} MiB a core, L3 {:.3g} MiB, {}\n", facts.name, facts.cores,
                                   facts.l2_bytes / (1 << 20), facts.l3_bytes / (1 << 20), facts.instruction_set);
    text += fmt::format("ceilings of one core: memory {:.1f} GB/s, L3 {:.1f} GB/s, {:.1f} GFLOP/s; of {} at once: {:.1f}, {:.1f}, {:.1f}\n",
                        ceilings.memory_gb_s, ceilings.l3_gb_s, ceilings.gflop_s, ceilings.cores_together,
                        ceilings.together_memory_gb_s, ceilings.together_l3_gb_s, ceilings.together_gflop_s);
    if (!cpu.has("achieved")) return text;
    text += fmt::format("{:<14} {:<16} {:>5} {:>9} {:>7} {:>8} {:>9} {:>9} {:>8}\n", "model", "pass", "ranks", "us", "GB/s", "of L3", "GFLOP/s",
                        "of FMA", "kernels");
    const model::JsonReader list = cpu.at("achieved");
    for (std::size_t i = 0; i < list.size(); ++i) {
        const model::JsonReader entry = list.at(i);
        if (!entry.value().is_object()) continue;
        const int ranks = static_cast<int>(entry.integer_or("ranks", 1, 1, 1024));
        // Between one core and all of them the ceiling is taken as linear in their number.
        const double share = ceilings.cores_together > 1 ? (ranks - 1.0) / (ceilings.cores_together - 1.0) : 0.0;
        const double l3 = ceilings.l3_gb_s + share * (ceilings.together_l3_gb_s - ceilings.l3_gb_s);
        const double fma = ceilings.gflop_s + share * (ceilings.together_gflop_s - ceilings.gflop_s);
        const double gb_s = entry.number_or("gb_s", 0, 0, 1e9);
        const double gflop_s = entry.number_or("gflop_s", 0, 0, 1e9);
        text += fmt::format("{:<14} {:<16} {:>5} {:>9.1f} {:>7.2f} {:>7.0f}% {:>9.2f} {:>8.0f}% {:>7.0f}%\n", entry.string_or("model", ""),
                            entry.string_or("pass", ""), ranks, entry.number_or("total_us", 0, 0, 1e12), gb_s, 100 * gb_s / l3, gflop_s,
                            100 * gflop_s / fma, 100 * entry.number_or("kernel_share", 0, 0, 10));
    }
    return text;
}

}  // namespace draftboard::calibration
