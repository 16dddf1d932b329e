// SPDX-License-Identifier: Apache-2.0
#include "model/scenario.h"

#include <array>
#include <filesystem>

#include <fmt/format.h>

#include "model/architecture_library.h"
#include "model/data_library.h"
#include "model/hash.h"
#include "model/import/hf_config.h"
#include "model/layout_json.h"
#include "model/machine_json.h"
#include "model/routing_json.h"
#include "model/scenario_document.h"
#include "model/speculation_json.h"

namespace draftboard::model {

namespace fs = std::filesystem;

namespace {

constexpr std::array<std::pair<LaunchMode, std::string_view>, 3> kLaunchModes{
    {{LaunchMode::eager, "eager"},
     {LaunchMode::piecewise, "piecewise"},
     {LaunchMode::graph, "graph"}}};

LaunchMode read_launch(const JsonReader& reader, std::string_view key) {
    const std::string name = reader.string_or(key, "graph");
    for (const auto& [mode, known] : kLaunchModes) {
        if (known == name) return mode;
    }
    reader.problem(key, "\"" + name + "\" is not a launch mode; use eager, piecewise or graph");
    return LaunchMode::graph;
}

/// A name from a fixed set; `parse` yields an optional.
template <class Parse, class T>
T read_name(const JsonReader& reader, std::string_view key, Parse parse, T fallback,
            std::string_view expected) {
    if (!reader.has(key)) return fallback;
    const std::string name = reader.string_or(key, "");
    if (const auto value = parse(name)) return *value;
    reader.problem(key, fmt::format("\"{}\" is not one of {}", name, expected));
    return fallback;
}

EngineSettings read_engine(const JsonReader& reader) {
    EngineSettings engine;
    engine.name = reader.string_or("name", "");
    const JsonReader launch = reader.at("launch");
    engine.decode_launch = read_launch(launch, "decode");
    engine.verify_launch = read_launch(launch, "verify");
    engine.draft_launch = read_launch(launch, "draft");
    engine.graph_token_limit =
        static_cast<int>(reader.integer_or("graph_token_limit", 0, 0, 1 << 24));
    engine.full_graph_token_limit =
        static_cast<int>(reader.integer_or("full_graph_token_limit", 0, 0, 1 << 24));
    engine.overlap_scheduling = reader.boolean_or("overlap_scheduling", false);
    engine.fused_all_reduce_norm = reader.boolean_or("fused_all_reduce_norm", false);
    engine.overlap_shared_experts = reader.boolean_or("overlap_shared_experts", false);
    engine.overlap_token_limit =
        static_cast<int>(reader.integer_or("overlap_token_limit", 0, 0, 1 << 24));
    engine.host_sync_after = reader.strings_or("host_sync_after");
    const JsonReader implementations = reader.at("implementations");
    if (implementations.expect_object()) {
        for (const auto& item : implementations.value().items()) {
            engine.implementations[item.key()] = implementations.string(item.key());
        }
    }
    return engine;
}

CollectiveSettings read_collective(const JsonReader& reader) {
    CollectiveSettings settings;
    settings.implementation =
        read_name(reader, "implementation", implementation_from_name, settings.implementation,
                  "nccl, one_shot, two_shot, hierarchical, host_staged");
    settings.algorithm = read_name(reader, "algorithm", algorithm_from_name, settings.algorithm,
                                   "auto, ring, tree");
    settings.protocol = read_name(reader, "protocol", protocol_from_name, settings.protocol,
                                  "auto, ll, ll128, simple");
    settings.ll128 = reader.boolean_or("ll128", false);
    settings.channels = static_cast<int>(reader.integer_or("channels", 0, 0, 64));
    settings.peer_to_peer = reader.boolean_or("peer_to_peer", true);
    settings.peer_level = read_name(reader, "peer_level", path_type_from_name, settings.peer_level,
                                    "PIX, PXB, PHB, NODE, SYS");
    settings.graph_file = reader.boolean_or("graph_file", false);
    settings.pull = reader.boolean_or("pull", false);
    settings.custom_limit_bytes = reader.integer_or("custom_limit_bytes", 0, 0, 1LL << 40);
    return settings;
}

void read_constants(const JsonReader& reader, Scenario& scenario) {
    if (reader.has("constants") && reader.at("constants").expect_object()) {
        const JsonReader constants = reader.at("constants");
        for (const auto& item : constants.value().items()) {
            scenario.constants[item.key()] = constants.number(item.key(), -1e12, 1e12);
        }
    }
    if (reader.has("constant_reasons") && reader.at("constant_reasons").expect_object()) {
        const JsonReader reasons = reader.at("constant_reasons");
        for (const auto& item : reasons.value().items()) {
            scenario.constant_reasons[item.key()] = reasons.string(item.key());
        }
    }
}

Expected<Architecture> read_architecture(const Json& reference, const std::string& source,
                                         const std::string& data_directory,
                                         const std::string& directory) {
    if (reference.is_object()) {
        return architecture_from_config(reference, std::nullopt, source + ": /architecture");
    }
    return find_architecture(reference.get<std::string>(), data_directory, directory);
}

Expected<Machine> read_machine(const Json& reference, const std::string& source,
                               const std::string& data_directory, const std::string& directory) {
    if (reference.is_object()) return machine_from_json(reference, source + ": /machine");
    return find_machine(reference.get<std::string>(), data_directory, directory);
}

/// "architecture.hidden_size=..." edits a document that the scenario only names: bring it inline first.
Expected<void> inline_reference(Json& document, const std::string& edit,
                                const std::string& data_directory, const std::string& directory) {
    for (const auto& [field, kind] : {std::pair<std::string, std::string>{"architecture", "architectures"},
                                      {"machine", "machines"}}) {
        if (!edit.starts_with(field + ".") || !document[field].is_string()) continue;
        auto path = find_data_file(document[field].get<std::string>(), kind, data_directory, directory);
        if (!path) return tl::unexpected(path.error());
        auto content = load_json(*path);
        if (!content) return tl::unexpected(content.error());
        document[field] = std::move(*content);
    }
    return {};
}

/// Names the compact document, as hex.
std::string digest_of(const Json& document) {
    return fmt::format("{:016x}", fnv1a(document.dump()));
}

}  // namespace

std::string_view to_name(LaunchMode mode) {
    for (const auto& [value, name] : kLaunchModes) {
        if (value == mode) return name;
    }
    return "?";
}

int Scenario::sequences_per_replica() const {
    return (workload.concurrency + layout.replicas - 1) / std::max(layout.replicas, 1);
}

std::vector<Problem> Scenario::validate() const {
    std::vector<Problem> problems = layout.validate(architecture);
    for (const Problem& problem : speculation.validate(architecture)) problems.push_back(problem);
    for (const Problem& problem : routing.validate()) problems.push_back(problem);
    const auto available = static_cast<int>(machine.gpus().size());
    const std::int64_t used = std::int64_t{layout.tensor} * layout.pipeline * layout.replicas;
    if (used > available) {
        problems.push_back({"/layout", fmt::format("the layout uses {} GPUs, the machine has {}",
                                                   used, available)});
    }
    if (workload.concurrency < layout.replicas) {
        problems.push_back({"/workload/concurrency",
                            fmt::format("{} sequences leave some of {} replicas idle",
                                        workload.concurrency, layout.replicas)});
    }
    return problems;
}

Expected<Json> load_scenario_document(const std::string& name_or_path,
                                      const std::string& data_directory, const Edits& edits,
                                      std::string& directory) {
    auto path = find_data_file(name_or_path, "scenarios", data_directory);
    if (!path) return tl::unexpected(path.error());
    directory = fs::path(*path).parent_path().string();
    auto content = load_json(*path);
    if (!content) return tl::unexpected(content.error());
    std::vector<Problem> problems;
    JsonReader(*content, problems).expect_format("draftboard.scenario", 1);
    if (!problems.empty()) return tl::unexpected(to_error(problems, *path));
    Json document = merged(default_scenario_document(), *content);
    for (const std::string& edit : edits) {
        if (auto edited = edit_scenario_document(document, edit, data_directory, directory); !edited) {
            return tl::unexpected(edited.error());
        }
    }
    return document;
}

Expected<void> edit_scenario_document(Json& document, const std::string& edit, const std::string& data_directory,
                                      const std::string& directory) {
    if (auto inlined = inline_reference(document, edit, data_directory, directory); !inlined) return inlined;
    return apply_edit(document, edit);
}

Expected<Scenario> scenario_from_document(const Json& document, const std::string& source,
                                          const std::string& data_directory,
                                          const std::string& directory, ReferenceCache* cache) {
    std::vector<Problem> problems;
    const JsonReader reader(document, problems);
    if (!reader.expect_object()) return tl::unexpected(to_error(problems, source));
    Scenario scenario;
    scenario.name = reader.string_or("name", "");
    scenario.description = reader.string_or("description", "");
    scenario.sources = reader.strings_or("sources");
    scenario.calibration = reader.string_or("calibration", "");
    scenario.collective_calibration = reader.string_or("collective_calibration", "");
    scenario.layout = layout_from_json(reader.at("layout"));
    scenario.engine = read_engine(reader.at("engine"));
    scenario.collective = read_collective(reader.at("collective"));
    const JsonReader workload = reader.at("workload");
    scenario.workload.concurrency =
        static_cast<int>(workload.integer_or("concurrency", 1, 1, 1 << 20));
    scenario.workload.context_tokens = workload.integer_or("context_tokens", 1024, 0, 1LL << 32);
    scenario.workload.shared_context = workload.boolean_or("shared_context", false);
    const JsonReader memory = reader.at("memory");
    scenario.memory.usable_fraction = memory.number_or("usable_fraction", 0.92, 0.01, 1.0);
    if (memory.has("kv_format")) {
        scenario.memory.kv_format =
            read_name(memory, "kv_format", number_format_from_name, NumberFormat::bf16,
                      "fp32, bf16, fp16, fp8, int8");
    }
    read_constants(reader, scenario);
    scenario.seed = static_cast<std::uint64_t>(reader.integer_or("seed", 1, 0, 1LL << 53));
    for (const char* field : {"architecture", "machine"}) {
        if (!document.contains(field) ||
            !(document[field].is_string() || document[field].is_object())) {
            reader.problem(field, "expected a name, a path or an inline document");
        }
    }
    if (!problems.empty()) return tl::unexpected(to_error(problems, source));

    ReferenceCache own;
    ReferenceCache& known = cache != nullptr ? *cache : own;
    const auto key = [&](const char* field) { return directory + "\n" + document[field].dump(); };
    auto architecture = known.architecture(
        key("architecture"), [&] { return read_architecture(document["architecture"], source, data_directory, directory); });
    if (!architecture) return tl::unexpected(architecture.error());
    scenario.architecture = std::move(*architecture);
    auto machine = known.machine(key("machine"),
                                 [&] { return read_machine(document["machine"], source, data_directory, directory); });
    if (!machine) return tl::unexpected(machine.error());
    scenario.machine = std::move(*machine);
    if (is_cpu(scenario.machine.gpu)) {  // the CPU engine computes in float, whatever the checkpoint was made for
        scenario.architecture.activation_format = NumberFormat::fp32;
        scenario.architecture.kv_format = NumberFormat::fp32;
    }
    scenario.routing = routing_from_json(reader.at("routing"));
    if (scenario.routing.kind == RoutingKind::trace) {
        const fs::path file(scenario.routing.trace_file);
        auto trace = read_routing_trace((file.is_relative() ? fs::path(directory) / file : file).string());
        if (!trace) return tl::unexpected(trace.error());
        scenario.routing.trace = std::move(*trace);
    }
    scenario.speculation = speculation_from_json(reader.at("speculation"), scenario.architecture);
    if (!scenario.speculation.draft_model.empty()) {
        const std::string& name = scenario.speculation.draft_model;
        auto draft = known.architecture(directory + "\ndraft " + name,
                                        [&] { return find_architecture(name, data_directory, directory); });
        if (!draft) return tl::unexpected(draft.error());
        scenario.speculation.draft_architecture = std::make_shared<Architecture>(std::move(*draft));
    }
    if (problems.empty()) problems = scenario.validate();
    if (!problems.empty()) return tl::unexpected(to_error(problems, source));
    scenario.directory = directory;
    if (known.bare) return scenario;
    scenario.unknown_fields = unknown_paths(document);
    scenario.digest = digest_of(document);
    return scenario;
}

Expected<Scenario> load_scenario(const std::string& name_or_path,
                                 const std::string& data_directory, const Edits& edits) {
    std::string directory;
    auto document = load_scenario_document(name_or_path, data_directory, edits, directory);
    if (!document) return tl::unexpected(document.error());
    return scenario_from_document(*document, name_or_path, data_directory, directory);
}

}  // namespace draftboard::model
