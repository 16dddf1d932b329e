// SPDX-License-Identifier: Apache-2.0
#include "calibration/backtest_scenario.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

#include <fmt/format.h>

#include "model/architecture_library.h"
#include "model/eagle3_head.h"
#include "model/machine_json.h"

namespace draftboard::calibration {

using model::ErrorCode;
using model::Expected;
using model::fail;
using model::Implementation;
using model::LaunchMode;
using model::NumberFormat;
using model::SpeculationMethod;

namespace {

bool contains(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

std::string lower(std::string_view text) {
    std::string out(text);
    std::transform(out.begin(), out.end(), out.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return out;
}

tl::unexpected<model::Error> skip(const std::string& reason) {
    return fail(ErrorCode::unsupported, reason);
}

/// The whole number that begins right behind `mark`; 0: none.
std::int64_t number_behind(std::string_view text, std::string_view mark) {
    const auto at = text.find(mark);
    if (at == std::string_view::npos) return 0;
    text.remove_prefix(at + mark.size());
    while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
    std::int64_t value = 0;
    const auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    return code == std::errc() && stop != text.data() && value > 0 && value < (1 << 24) ? value : 0;
}

/// The whole number that ends right before `mark`; 0: none.
std::int64_t number_before(std::string_view text, std::string_view mark) {
    const auto at = text.find(mark);
    if (at == std::string_view::npos) return 0;
    auto begin = at;
    while (begin > 0 && std::isdigit(static_cast<unsigned char>(text[begin - 1])) != 0) --begin;
    std::int64_t value = 0;
    const auto [stop, code] = std::from_chars(text.data() + begin, text.data() + at, value);
    return code == std::errc() && stop == text.data() + at && value < (1 << 24) ? value : 0;
}

// Which model -------------------------------------------------------------------------------------------

struct ModelRule {
    std::string_view model;  ///< as published
    std::string_view quantization;  ///< how weights_quant begins
    std::string_view architecture;  ///< shipped
    std::string_view short_quantization;
};

// K2.6 has K2.5's shapes and GLM-5.1 GLM-5's (their pages, rtx6kpro@e2c2b95).
constexpr std::array<ModelRule, 6> kModels{{
    {"Kimi-K2.5", "INT4", "kimi-k2.5", "INT4"},
    {"Kimi-K2.6", "INT4", "kimi-k2.5", "INT4"},
    {"GLM-5", "NVFP4", "glm-5-nvfp4", "NVFP4"},
    {"GLM-5.1", "NVFP4", "glm-5-nvfp4", "NVFP4"},
    {"Qwen3.5-397B-A17B", "NVFP4", "qwen3.5-397b-nvfp4", "NVFP4"},
    {"Qwen3.5-397B-A17B", "AWQ", "qwen3.5-397b-awq", "AWQ"},
}};

Expected<ModelRule> model_rule(const PublishedRow& row) {
    bool known = false;
    for (const ModelRule& rule : kModels) {
        if (rule.model != row.model) continue;
        known = true;
        if (row.weights_quant.starts_with(rule.quantization)) return rule;
    }
    if (!known) return skip("no shipped architecture for the model " + row.model.substr(0, 60));
    return skip("weights not stated or not shipped for the model");
}

// Which machine -----------------------------------------------------------------------------------------

/// A shipped machine for the row's GPUs and topology; empty: none.
std::string_view machine_name(const PublishedRow& row) {
    const std::string topology = lower(row.topology);
    const bool broadcom = contains(topology, "broadcom") || contains(topology, "pex89");
    const bool switches = contains(topology, "c-payne") || contains(topology, "switch");
    if (row.gpus == 4) return broadcom ? "8x-rtx-pro-6000-switches" : "4x-rtx-pro-6000";
    if (row.gpus == 8) {
        if (broadcom) return "8x-rtx-pro-6000-switches";
        return switches ? "8x-rtx-pro-6000-flat" : "8x-rtx-pro-6000-direct";
    }
    if (row.gpus == 16) return "16x-rtx-pro-6000-flat";
    return {};
}

// Collectives -------------------------------------------------------------------------------------------

// vLLM's custom kernel reads all peers at once up to these sizes and then changes to two phases
// (csrc/custom_all_reduce.cuh): 512 KiB over up to four GPUs, 256 KiB over up to eight.
constexpr std::int64_t kVllmOneShot4 = 512 << 10;
constexpr std::int64_t kVllmOneShot8 = 256 << 10;
// SGLang's PCIe one-shot tunes its own limit; it prints 120 KB over four and 48 KB over eight GPUs
// (rtx6kpro@e2c2b95, optimization/pcie-oneshot-allreduce.md).
constexpr std::int64_t kTunedOneShot4 = 120 << 10;
constexpr std::int64_t kTunedOneShot8 = 48 << 10;

bool runs_one_shot(const std::string& text) {
    if (contains(text, "=0") || text.starts_with("nccl") || contains(text, "pure nccl") ||
        contains(text, "ar off")) {
        return false;
    }
    return contains(text, "custom ar") || contains(text, "oneshot") || contains(text, "one-shot") ||
           contains(text, "one-stage") || contains(text, "1-stage") || contains(text, "stage1") ||
           contains(text, "pcie_allreduce=1");
}

std::int64_t one_shot_limit(const PublishedRow& row, const std::string& text, int hidden) {
    const bool four = row.gpus <= 4;
    if (contains(text, "no cutoff") || contains(text, "force 1-stage")) return 0;  // never NCCL
    std::int64_t limit = number_before(text, "kb") << 10;
    if (limit == 0 && contains(text, "<=56k")) limit = 56 << 10;
    if (limit == 0) {
        const bool sglang = row.engine == "SGLang";
        limit = four ? (sglang ? kTunedOneShot4 : kVllmOneShot4)
                     : (sglang ? kTunedOneShot8 : kVllmOneShot8);
    }
    // A policy of up to r rows, whatever they take.
    const bool by_rows = contains(text, "rows<=") && !contains(text, "only");
    const std::int64_t rows = by_rows ? number_behind(text, "rows<=") : 0;
    return std::max(limit, rows * hidden * 2);
}

/// Nothing is said of all-reduces: the eight-GPU vLLM images of this publisher turn PCIe all-reduce on from
/// April 2026 on (VLLM_ENABLE_PCIE_ALLREDUCE, rtx6kpro@e2c2b95, models/kimi-k26.md).
std::string usual_implementation(const PublishedRow& row) {
    const bool image = row.engine == "vLLM" && row.gpus == 8 && row.date >= "2026-04";
    return image ? "vllm_enable_pcie_allreduce=1" : "nccl";
}

ReduceFamily read_collectives(const PublishedRow& row, int hidden, model::CollectiveSettings& settings) {
    const std::string implementation =
        row.allreduce_impl.empty() ? usual_implementation(row) : lower(row.allreduce_impl);
    const std::string environment = lower(row.nccl_env + " " + row.allreduce_impl);
    // PR 2127 to NCCL repairs the search that a graph file replaces: the same tables run at the same speed with
    // either (rtx6kpro@e2c2b95, models/kimi-k26-v2.md). Where neither is ruled out, the images have one of them.
    const bool patched = contains(environment, "pr2127") && !contains(environment, "no pr2127");
    const bool without_file = contains(environment, "no xml") || contains(environment, "xml no");
    settings.graph_file = patched || !without_file;
    if (settings.graph_file || contains(environment, "p2p_level=sys")) {
        settings.peer_level = model::PathType::sys;
    }
    if (contains(environment, "p2p_disable=1") || contains(environment, "p2p off")) {
        settings.peer_to_peer = false;
    }
    // "channels 16/32" are NCCL's least and most.
    settings.channels = static_cast<int>(std::min<std::int64_t>(number_behind(environment, "channels "), 64));
    const std::string mark = "nccl_proto=";
    if (const auto at = environment.find(mark); at != std::string::npos) {
        std::string list = environment.substr(at + mark.size());
        list = list.substr(0, list.find_first_of("; "));
        if (const auto only = model::protocol_from_name(list)) settings.protocol = *only;
        settings.ll128 = contains(list, "ll128");
    }
    if (!runs_one_shot(implementation)) return ReduceFamily::nccl;
    settings.implementation = Implementation::one_shot;
    // vLLM's kernel, and the one of SGLang's that comes from it, read from all peers at once
    // (csrc/custom_all_reduce.cuh); of b12x's it is not known, and writing is assumed.
    settings.pull = !contains(implementation, "b12x");
    settings.custom_limit_bytes = one_shot_limit(row, implementation, hidden);
    return ReduceFamily::one_shot;
}

// Acceptance --------------------------------------------------------------------------------------------

struct Profile {
    std::string_view model;  ///< how the model's name begins
    SpeculationMethod method;
    std::array<double, 5> per_position;
    std::string_view source;
};

// Unconditional rates by position.
constexpr std::array<Profile, 3> kProfiles{{
    {"Kimi", SpeculationMethod::eagle3, {0.655, 0.40, 0.25, 0.156, 0.098},
     "mean of four runs with kimi-k2.x-eagle3-mla drafters, k = 3 (rtx6kpro@e2c2b95, models/kimi-k26-v4.md); "
     "positions 4 and 5 continue geometrically"},
    {"Qwen3.5", SpeculationMethod::mtp, {0.85, 0.67, 0.51, 0.36, 0.31},
     "MTP with k = 5 (rtx6kpro@e2c2b95, speculative-decoding.md)"},
    {"GLM-5", SpeculationMethod::mtp, {0.80, 0.51, 0.26, 0.133, 0.068},
     "mean of the GLM-5.1 matrix, k = 3 (rtx6kpro@e2c2b95, glm51-v2-full); positions 4 and 5 continue "
     "geometrically"},
}};

/// SGLang chooses 3 steps for these models when none are given (server_args.py).
constexpr int kAutomaticSteps = 3;

Expected<bool> read_speculation(const PublishedRow& row, const model::Architecture& architecture,
                                model::Speculation& speculation) {
    if (row.spec_method.empty()) return skip("speculation not stated");
    const auto method = model::speculation_method_from_name(row.spec_method);
    if (!method) return skip("no model of the drafter " + row.spec_method.substr(0, 40));
    speculation.method = *method;
    if (*method == SpeculationMethod::none) return false;
    if (row.notes.find("steps=4") != std::string::npos && !row.spec_k) speculation.steps = 4;
    if (speculation.steps == 0) speculation.steps = row.spec_k.value_or(kAutomaticSteps);
    if (speculation.steps < 1) return skip("speculation without draft tokens");
    const int k = speculation.steps;
    if (*method == SpeculationMethod::eagle3) speculation.head = model::mla_style_eagle3_head(architecture);

    model::Acceptance& acceptance = speculation.acceptance;
    const auto engine_rate = [&](double rate) {
        return model::acceptance_from_rate(rate, model::RateDefinition::vllm, k);
    };
    Expected<model::Acceptance> stated = model::Acceptance{};
    bool given = true;
    if (!row.per_position.empty()) {
        stated->per_position = row.per_position;
        stated->source = "the published row, by position";
    } else if (row.accept_length && *row.accept_length >= 1) {
        stated = model::acceptance_from_length(*row.accept_length, k);
    } else if (row.acceptance_rate) {
        stated = engine_rate(*row.acceptance_rate);
    } else {
        given = false;
        for (const Profile& profile : kProfiles) {
            if (!row.model.starts_with(profile.model) || profile.method != *method) continue;
            stated->per_position.assign(profile.per_position.begin(), profile.per_position.end());
            stated->source = std::string(profile.source);
        }
        if (stated->per_position.empty()) return skip("no acceptance profile for the drafter");
    }
    if (!stated) return skip("an acceptance that the draft depth can't give");
    acceptance = std::move(*stated);
    if (!acceptance.validate().empty()) return skip("an acceptance that rises with the position");
    acceptance.relative_spread = kAcceptanceSpread;
    return given;
}

// Engines -----------------------------------------------------------------------------------------------

/// vLLM captures graphs of up to 512 tokens unless told otherwise (max_cudagraph_capture_size).
constexpr int kVllmCapture = 512;

constexpr int kSparseFullCapture = 16;

Expected<bool> read_engine(const PublishedRow& row, model::EngineSettings& engine) {
    const bool vllm = row.engine == "vLLM";
    if (!vllm && row.engine != "SGLang") return skip("engine not stated or not modelled");
    engine.name = row.engine;
    const std::string notes = lower(row.engine_notes);
    if (vllm) {
        const auto captured = number_behind(notes, "capture max ");
        engine.graph_token_limit = captured > 0 ? static_cast<int>(captured) : kVllmCapture;
    }
    const LaunchMode mode = row.cuda_graph == "piecewise" ? LaunchMode::piecewise : LaunchMode::graph;
    // With sparse attention the image captures whole passes for small batches only: steps jump from 43 to 100 ms
    // between 16 and 32 rows (rtx6kpro@e2c2b95, glm51-v2-full-68b3569f).
    if (contains(row.engine_notes, "FULL_AND_PIECEWISE") && contains(notes, "sparse mla")) {
        engine.full_graph_token_limit = kSparseFullCapture;
    }
    engine.decode_launch = mode;
    engine.verify_launch = mode;
    // engine.overlap_shared_experts stays off, though both engines have a second stream for small batches: what the
    // simulator lets it save does not show in the cells (docs/backtest.md).
    engine.implementations["experts/int4_g32"] = vllm ? "marlin@vllm" : "marlin@sglang";
    engine.implementations["experts/nvfp4_g16"] =
        contains(notes, "moe-runner b12x") || contains(notes, "moe b12x") || notes.starts_with("b12x") ||
                contains(notes, "sglang b12x")
            ? "b12x" : (vllm ? "cutlass" : "cutlass@sglang");
    engine.implementations["attention_gqa/bf16"] = vllm ? "flash@vllm" : "flashinfer";
    // GLM's attention reads chosen tokens only, with kernels of its own.
    const bool sparse = row.model.starts_with("GLM");
    engine.implementations["attention_mla/fp8_e4m3"] = sparse ? "sparse" : (vllm ? "triton@vllm" : "triton");
    engine.implementations["attention_mla/bf16"] = sparse ? "sparse" : "triton";
    return true;
}

/// engine_notes without what names the drafter: two rows that differ in speculation have the rest in common.
std::string notes_without_drafter(std::string_view notes) {
    std::string out;
    while (!notes.empty()) {
        const auto end = notes.find(';');
        std::string_view part = notes.substr(0, end);
        notes.remove_prefix(end == std::string_view::npos ? notes.size() : end + 1);
        while (!part.empty() && part.front() == ' ') part.remove_prefix(1);
        if (part.starts_with("draft") || part.starts_with("MTP")) continue;
        out += part;
        out += ';';
    }
    return out;
}

Expected<bool> read_formats(const PublishedRow& row, model::Scenario& scenario) {
    if (row.kv_dtype.empty() || row.kv_dtype == "auto") return true;
    const auto format = model::number_format_from_name(row.kv_dtype);
    if (!format) return skip("no such cache format: " + row.kv_dtype.substr(0, 40));
    scenario.memory.kv_format = *format;
    return true;
}

}  // namespace

std::string_view to_name(ReduceFamily family) {
    return family == ReduceFamily::nccl ? "nccl" : "one_shot";
}

std::optional<model::Acceptance> published_acceptance(const std::string& model, model::SpeculationMethod method) {
    for (const Profile& profile : kProfiles) {
        if (!model.starts_with(profile.model) || profile.method != method) continue;
        model::Acceptance acceptance;
        acceptance.per_position.assign(profile.per_position.begin(), profile.per_position.end());
        acceptance.relative_spread = kAcceptanceSpread;
        acceptance.source = std::string(profile.source);
        return acceptance;
    }
    return std::nullopt;
}

BacktestLibrary::BacktestLibrary(std::string data_directory)
    : data_directory_(std::move(data_directory)) {}

Expected<const model::Architecture*> BacktestLibrary::architecture(const std::string& name) {
    auto known = architectures_.find(name);
    if (known == architectures_.end()) {
        auto loaded = model::find_architecture(name, data_directory_);
        if (!loaded) return tl::unexpected(loaded.error());
        known = architectures_.emplace(name, std::move(*loaded)).first;
    }
    return &known->second;
}

Expected<const model::Machine*> BacktestLibrary::machine(const std::string& name) {
    auto known = machines_.find(name);
    if (known == machines_.end()) {
        auto loaded = model::find_machine(name, data_directory_);
        if (!loaded) return tl::unexpected(loaded.error());
        known = machines_.emplace(name, std::move(*loaded)).first;
    }
    return &known->second;
}

Expected<BacktestCase> BacktestLibrary::scenario_of(const PublishedRow& row) {
    if (!row.tokens_per_second || *row.tokens_per_second <= 0) return skip("no tok/s published");
    if (contains(row.notes, "artefact/capacity-limited")) {
        return skip("starred by its publisher as an artefact or limited by capacity");
    }
    if (row.concurrency < 1) return skip("concurrency not stated");
    if (!row.gpu_model.empty() && !contains(row.gpu_model, "RTX PRO 6000")) {
        return skip("no calibration of the GPU");
    }
    const auto rule = model_rule(row);
    if (!rule) return tl::unexpected(rule.error());
    const std::string_view box = machine_name(row);
    if (box.empty()) return skip("no shipped machine with this number of GPUs");
    const auto shapes = architecture(std::string(rule->architecture));
    if (!shapes) return tl::unexpected(shapes.error());
    const auto known_machine = machine(std::string(box));
    if (!known_machine) return tl::unexpected(known_machine.error());

    BacktestCase result;
    model::Scenario& scenario = result.scenario;
    scenario.name = row.id;
    scenario.architecture = **shapes;
    scenario.machine = **known_machine;
    scenario.layout.tensor = row.tp > 0 ? row.tp : row.gpus;
    scenario.layout.decode_context = std::max(row.dcp, 1);
    scenario.layout.pipeline = std::max(row.pp, 1);
    scenario.layout.expert = std::max(row.ep, 1);
    scenario.workload.concurrency = row.concurrency;
    scenario.workload.context_tokens = row.context_tokens.value_or(0) + kShortContextTokens;
    scenario.workload.shared_context = true;
    if (auto engine = read_engine(row, scenario.engine); !engine) return tl::unexpected(engine.error());
    if (auto formats = read_formats(row, scenario); !formats) return tl::unexpected(formats.error());
    // Without the driver's ForceP2P keys a kernel's own loads between GPUs on host bridges are staged.
    if (contains(row.nccl_env, "before ForceP2P")) scenario.machine.peer.force_p2p = false;
    result.family = read_collectives(row, scenario.architecture.hidden, scenario.collective);
    const auto stated = read_speculation(row, scenario.architecture, scenario.speculation);
    if (!stated) return tl::unexpected(stated.error());
    result.stated_acceptance = *stated;
    if (const auto problems = scenario.validate(); !problems.empty()) {
        return skip("the layout does not fit: " + problems.front().message);
    }
    result.group = fmt::format("{} {} {} {} GPUs {}", row.model, rule->short_quantization, row.engine,
                               row.gpus, to_name(result.family));
    result.twin = fmt::format("{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}", row.model, row.weights_quant,
                              row.kv_dtype, row.engine, row.gpus, row.topology, row.tp, row.dcp,
                              row.concurrency, row.context_tokens.value_or(0), row.allreduce_impl, row.nccl_env,
                              row.source_path, notes_without_drafter(row.engine_notes));
    return result;
}

}  // namespace draftboard::calibration
