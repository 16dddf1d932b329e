// SPDX-License-Identifier: Apache-2.0
#include "model/machine_json.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "model/data_library.h"
#include "model/link_defaults.h"

namespace draftboard::model {

namespace {

constexpr std::array kNodeKinds = {NodeKind::gpu,       NodeKind::pcie_switch, NodeKind::root_port,
                                   NodeKind::numa_node, NodeKind::host_memory, NodeKind::nvswitch,
                                   NodeKind::nic};
constexpr std::array kLinkKinds = {LinkKind::pcie, LinkKind::inter_socket, LinkKind::memory,
                                   LinkKind::nvlink, LinkKind::internal};
constexpr std::array kIommuModes = {IommuMode::off, IommuMode::passthrough, IommuMode::translated};
constexpr std::size_t kMaxTexts = 1000;  ///< notes, sources, rules

/// The enumerator whose name stands under `key`, a Problem listing the names otherwise.
template <class Kind, std::size_t Count>
Kind read_kind(const JsonReader& reader, std::string_view key, const std::array<Kind, Count>& kinds,
               const std::string& name) {
    std::string known;
    for (const Kind kind : kinds) {
        if (name == to_name(kind)) return kind;
        known += (known.empty() ? "" : ", ") + std::string(to_name(kind));
    }
    if (reader.has(key) || !name.empty()) {
        reader.problem(key, fmt::format("\"{}\" is none of {}", name.substr(0, 40), known));
    }
    return kinds[0];
}

LinkCapacity read_direction(const JsonReader& owner, std::string_view key) {
    if (owner.value().is_object() && owner.has(key) && !owner.at(key).value().is_object()) {
        const double both = owner.number(key, 0, kMaxLinkGbS);
        return {both, both};
    }
    const JsonReader direction = owner.at(key);
    return {direction.number("write", 0, kMaxLinkGbS), direction.number("read", 0, kMaxLinkGbS)};
}

/// True if the link states its bandwidth.
bool read_bandwidth(const JsonReader& reader, MachineLink& link) {
    if (!reader.has("gb_s")) return false;
    const JsonReader figures = reader.at("gb_s");
    if (figures.has("forward") || figures.has("backward")) {
        link.forward = read_direction(figures, "forward");
        link.backward = read_direction(figures, "backward");
    } else {
        link.forward = read_direction(reader, "gb_s");
        link.backward = link.forward;
    }
    return true;
}

std::optional<LinkFigures> default_figures(const MachineLink& link, const Machine& machine,
                                           int pcie_generation) {
    const auto kind_of = [&](int node) { return machine.nodes[node].kind; };
    switch (link.kind) {
        case LinkKind::pcie:
            return pcie_figures(link.generation, link.width, kind_of(link.a), kind_of(link.b));
        case LinkKind::nvlink: return nvlink_figures(link.width, machine.gpu.compute_capability);
        case LinkKind::memory: return memory_figures();
        case LinkKind::internal: return internal_figures();
        case LinkKind::inter_socket: {
            const MachineNode& a = machine.nodes[link.a];
            const MachineNode& b = machine.nodes[link.b];
            if (a.socket >= 0 && a.socket == b.socket) return same_socket_figures();
            return inter_socket_figures(machine.host, pcie_generation);
        }
    }
    return std::nullopt;
}

GpuSpec read_gpu(const JsonReader& reader) {
    GpuSpec gpu;
    if (!reader.expect_object()) return gpu;
    gpu.name = reader.string_or("name", {});
    gpu.compute_capability = reader.string_or("compute_capability", {});
    gpu.memory_bytes = reader.number_or("memory_bytes", 0, 0, 1e18);
    gpu.memory_gb_s = reader.number_or("memory_gb_s", 0, 0, 1e9);
    gpu.l2_bytes = reader.number_or("l2_bytes", 0, 0, 1e15);
    gpu.multiprocessors = static_cast<int>(reader.integer_or("multiprocessors", 0, 0, 1'000'000));
    gpu.bf16_tflops = reader.number_or("bf16_tflops", 0, 0, 1e9);
    gpu.fp8_tflops = reader.number_or("fp8_tflops", 0, 0, 1e9);
    gpu.fp4_tflops = reader.number_or("fp4_tflops", 0, 0, 1e9);
    gpu.source = reader.string_or("source", {});
    return gpu;
}

HostSpec read_host(const JsonReader& reader) {
    HostSpec host;
    if (!reader.expect_object()) return host;
    host.cpu = reader.string_or("cpu", {});
    host.vendor = reader.string_or("vendor", {});
    host.family =
        normalised_cpu_family(static_cast<int>(reader.integer_or("family", 0, 0, 1'000'000)));
    host.model = static_cast<int>(reader.integer_or("model", 0, 0, 1'000'000));
    host.source = reader.string_or("source", {});
    return host;
}

PeerAccess read_peer(const JsonReader& reader) {
    PeerAccess peer;
    if (!reader.expect_object()) return peer;
    peer.enabled = reader.boolean_or("enabled", peer.enabled);
    const std::string level = reader.string_or("level", std::string(to_name(peer.level)));
    if (const auto known = path_type_from_name(level)) {
        peer.level = *known;
    } else {
        reader.problem("level", fmt::format("\"{}\" is none of NV, PIX, PXB, PHB, NODE, SYS",
                                            level.substr(0, 40)));
    }
    peer.force_p2p = reader.boolean_or("force_p2p", peer.force_p2p);
    peer.acs_redirect = reader.boolean_or("acs_redirect", peer.acs_redirect);
    peer.iommu = read_kind(reader, "iommu", kIommuModes,
                           reader.string_or("iommu", std::string(to_name(peer.iommu))));
    peer.source = reader.string_or("source", {});
    return peer;
}

using NodeIndex = std::unordered_map<std::string, int>;

std::vector<MachineNode> read_nodes(const JsonReader& reader) {
    std::vector<MachineNode> nodes;
    const std::size_t count = reader.size();
    if (count > kMaxNodes) {
        reader.problem({}, fmt::format("{} nodes, at most {} are covered", count, kMaxNodes));
        return nodes;
    }
    for (std::size_t i = 0; i < count; ++i) {
        const JsonReader item = reader.at(i);
        MachineNode node;
        if (item.expect_object()) {
            node.id = item.string("id");
            node.kind = read_kind(item, "kind", kNodeKinds, item.string("kind"));
            node.numa = static_cast<int>(item.integer_or("numa", -1, -1, 1'000'000));
            node.socket = static_cast<int>(item.integer_or("socket", -1, -1, 1'000'000));
            node.host_bridge = static_cast<int>(item.integer_or("host_bridge", -1, -1, 1 << 30));
            node.bus_id = item.string_or("bus_id", {});
        }
        nodes.push_back(std::move(node));
    }
    return nodes;
}

int read_end(const JsonReader& reader, std::string_view key, const NodeIndex& index) {
    const std::string id = reader.string(key);
    const auto found = index.find(id);
    if (found != index.end()) return found->second;
    if (!id.empty()) reader.problem(key, fmt::format("no node \"{}\"", id.substr(0, 80)));
    return -1;
}

std::string read_link_source(const JsonReader& reader, const std::vector<std::string>& sources) {
    if (!reader.has("source") || !reader.at("source").value().is_number()) {
        return reader.string_or("source", {});
    }
    const auto last = static_cast<std::int64_t>(sources.size()) - 1;
    if (last < 0) {
        reader.problem("source", "there are no \"sources\" to point into");
        return {};
    }
    return sources[static_cast<std::size_t>(reader.integer("source", 0, last))];
}

void read_links(const JsonReader& reader, Machine& machine) {
    const std::size_t count = reader.size();
    if (count > kMaxLinks) {
        reader.problem({}, fmt::format("{} links, at most {} are covered", count, kMaxLinks));
        return;
    }
    NodeIndex index;
    for (std::size_t i = 0; i < machine.nodes.size(); ++i) {
        index.emplace(machine.nodes[i].id, static_cast<int>(i));
    }
    std::vector<std::pair<bool, bool>> stated(count);  // bandwidth, latency
    int pcie_generation = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const JsonReader item = reader.at(i);
        MachineLink link;
        if (item.expect_object()) {
            link.a = read_end(item, "a", index);
            link.b = read_end(item, "b", index);
            link.kind = read_kind(item, "kind", kLinkKinds, item.string("kind"));
            link.generation = static_cast<int>(item.integer_or("generation", 0, 0, 16));
            link.width = static_cast<int>(item.integer_or("width", 0, 0, 1024));
            stated[i] = {read_bandwidth(item, link), item.has("latency_ns")};
            link.latency_ns = item.number_or("latency_ns", 0, 0, kMaxLinkLatencyNs);
            link.flow_gb_s = item.number_or("flow_gb_s", 0, 0, kMaxLinkGbS);
            link.source = read_link_source(item, machine.sources);
            if (link.kind == LinkKind::pcie) {
                pcie_generation = std::max(pcie_generation, link.generation);
            }
        } else {
            link.a = link.b = -1;
        }
        machine.links.push_back(std::move(link));
    }
    for (std::size_t i = 0; i < count; ++i) {  // once the PCIe generation is known
        MachineLink& link = machine.links[i];
        if (link.a < 0 || link.b < 0 || (stated[i].first && stated[i].second)) continue;
        const auto figures = default_figures(link, machine, pcie_generation);
        if (!figures) {
            reader.at(i).problem(stated[i].first ? "latency_ns" : "gb_s",
                                 link.kind == LinkKind::pcie
                                     ? "needed: no default for this \"generation\" and \"width\""
                                     : "needed: no default for this GPU and \"width\"");
            continue;
        }
        if (!stated[i].first) {
            link.forward = link.backward = figures->capacity;
            if (link.flow_gb_s == 0) link.flow_gb_s = figures->flow_gb_s;
        }
        if (!stated[i].second) link.latency_ns = figures->latency_ns;
        if (link.source.empty()) link.source = figures->source;
    }
}

void read_write_collapse(const JsonReader& reader, Machine& machine) {
    const std::size_t count = reader.size();
    if (count > kMaxTexts) {
        reader.problem({}, fmt::format("{} rules, at most {} are covered", count, kMaxTexts));
        return;
    }
    NodeIndex index;
    for (std::size_t i = 0; i < machine.nodes.size(); ++i) {
        index.emplace(machine.nodes[i].id, static_cast<int>(i));
    }
    for (std::size_t i = 0; i < count; ++i) {
        const JsonReader item = reader.at(i);
        if (!item.expect_object()) continue;
        WriteCollapseRule rule;
        for (const std::string& id : item.strings_or("switches")) {
            const auto found = index.find(id);
            if (found == index.end()) {
                item.problem("switches", fmt::format("no node \"{}\"", id.substr(0, 80)));
            } else {
                rule.switches.push_back(found->second);
            }
        }
        rule.min_sources = static_cast<int>(item.integer_or("min_sources", 2, 1, kMaxGpus));
        rule.aggregate_gb_s = item.number("aggregate_gb_s", 0, kMaxLinkGbS);
        rule.source = item.string_or("source", {});
        machine.write_collapse.push_back(std::move(rule));
    }
}

Json direction_json(const LinkCapacity& capacity) {
    if (capacity.write_gb_s == capacity.read_gb_s) return capacity.write_gb_s;
    return Json{{"write", capacity.write_gb_s}, {"read", capacity.read_gb_s}};
}

Json link_json(const MachineLink& link, const Machine& machine) {
    Json json;
    json["a"] = machine.nodes[link.a].id;
    json["b"] = machine.nodes[link.b].id;
    json["kind"] = to_name(link.kind);
    if (link.generation != 0) json["generation"] = link.generation;
    if (link.width != 0) json["width"] = link.width;
    const Json forward = direction_json(link.forward);
    const Json backward = direction_json(link.backward);
    json["gb_s"] =
        forward == backward ? forward : Json{{"forward", forward}, {"backward", backward}};
    if (link.flow_gb_s != 0) json["flow_gb_s"] = link.flow_gb_s;
    json["latency_ns"] = link.latency_ns;
    if (!link.source.empty()) {
        const auto found = std::find(machine.sources.begin(), machine.sources.end(), link.source);
        if (found == machine.sources.end())
            json["source"] = link.source;
        else
            json["source"] = found - machine.sources.begin();
    }
    return json;
}

Json node_json(const MachineNode& node) {
    Json json{{"id", node.id}, {"kind", to_name(node.kind)}};
    if (node.numa >= 0) json["numa"] = node.numa;
    if (node.socket >= 0) json["socket"] = node.socket;
    if (node.host_bridge >= 0) json["host_bridge"] = node.host_bridge;
    if (!node.bus_id.empty()) json["bus_id"] = node.bus_id;
    return json;
}

/// Keys of `original` that `written` lacks and `known` does not name. Known but unwritten keys are
/// fields at their default: bringing them back would undo a change.
void keep_unknown(Json& written, const Json& original,
                  std::initializer_list<std::string_view> known) {
    if (!original.is_object()) return;
    for (const auto& [key, value] : original.items()) {
        if (!written.contains(key) && std::find(known.begin(), known.end(), key) == known.end()) {
            written[key] = value;
        }
    }
}

const Json* member(const Json& json, std::string_view key) {
    if (!json.is_object()) return nullptr;
    const auto found = json.find(std::string(key));
    return found == json.end() ? nullptr : &*found;
}

std::string text_of(const Json& json, std::string_view key) {
    const Json* found = member(json, key);
    return found != nullptr && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

Expected<Machine> machine_from_json(const Json& json, const std::string& source) {
    std::vector<Problem> problems;
    const JsonReader reader(json, problems);
    reader.expect_format("draftboard.machine", kMachineVersion);
    Machine machine;
    if (problems.empty()) {
        machine.name = reader.string("name");
        machine.description = reader.string_or("description", {});
        machine.sources = reader.strings_or("sources");
        machine.notes = reader.strings_or("notes");
        machine.calibration = reader.string_or("calibration", {});
        machine.gpu = read_gpu(reader.at("gpu"));
        if (reader.has("host")) machine.host = read_host(reader.at("host"));
        if (reader.has("peer")) machine.peer = read_peer(reader.at("peer"));
        machine.nodes = read_nodes(reader.at("nodes"));
        // Links of nodes that could not be read would only repeat the trouble.
        if (problems.empty()) read_links(reader.at("links"), machine);
        if (reader.has("write_collapse")) {
            read_write_collapse(reader.at("write_collapse"), machine);
        }
    }
    if (problems.empty()) problems = machine.validate();
    if (!problems.empty()) return tl::unexpected(to_error(problems, source));
    return machine;
}

Json machine_to_json(const Machine& machine) {
    Json json;
    json["format"] = "draftboard.machine";
    json["version"] = kMachineVersion;
    json["name"] = machine.name;
    if (!machine.description.empty()) json["description"] = machine.description;
    if (!machine.notes.empty()) json["notes"] = machine.notes;
    if (!machine.sources.empty()) json["sources"] = machine.sources;
    if (!machine.calibration.empty()) json["calibration"] = machine.calibration;
    const GpuSpec& gpu = machine.gpu;
    json["gpu"] = Json{{"name", gpu.name},
                       {"compute_capability", gpu.compute_capability},
                       {"memory_bytes", gpu.memory_bytes},
                       {"memory_gb_s", gpu.memory_gb_s},
                       {"l2_bytes", gpu.l2_bytes},
                       {"multiprocessors", gpu.multiprocessors},
                       {"bf16_tflops", gpu.bf16_tflops},
                       {"fp8_tflops", gpu.fp8_tflops},
                       {"fp4_tflops", gpu.fp4_tflops},
                       {"source", gpu.source}};
    const HostSpec& host = machine.host;
    json["host"] = Json{{"cpu", host.cpu},
                        {"vendor", host.vendor},
                        {"family", host.family},
                        {"model", host.model},
                        {"source", host.source}};
    const PeerAccess& peer = machine.peer;
    json["peer"] = Json{{"enabled", peer.enabled},      {"level", to_name(peer.level)},
                        {"force_p2p", peer.force_p2p},  {"acs_redirect", peer.acs_redirect},
                        {"iommu", to_name(peer.iommu)}, {"source", peer.source}};
    json["nodes"] = Json::array();
    for (const MachineNode& node : machine.nodes) json["nodes"].push_back(node_json(node));
    json["links"] = Json::array();
    for (const MachineLink& link : machine.links) json["links"].push_back(link_json(link, machine));
    for (const WriteCollapseRule& rule : machine.write_collapse) {
        Json switches = Json::array();
        for (const int node : rule.switches) switches.push_back(machine.nodes[node].id);
        json["write_collapse"].push_back(Json{{"switches", std::move(switches)},
                                              {"min_sources", rule.min_sources},
                                              {"aggregate_gb_s", rule.aggregate_gb_s},
                                              {"source", rule.source}});
    }
    return json;
}

Json machine_to_json(const Machine& machine, const Json& original) {
    Json json = machine_to_json(machine);
    keep_unknown(json, original,
                 {"description", "notes", "sources", "calibration", "write_collapse"});
    for (const char* part : {"gpu", "host", "peer"}) {
        if (const Json* was = member(original, part)) keep_unknown(json[part], *was, {});
    }
    std::map<std::string, const Json*> nodes;
    if (const Json* list = member(original, "nodes"); list != nullptr && list->is_array()) {
        for (const Json& node : *list) nodes.emplace(text_of(node, "id"), &node);
    }
    for (Json& node : json["nodes"]) {
        if (const auto was = nodes.find(text_of(node, "id")); was != nodes.end()) {
            keep_unknown(node, *was->second, {"numa", "socket", "host_bridge", "bus_id"});
        }
    }
    using Ends = std::tuple<std::string, std::string, std::string>;
    std::map<Ends, const Json*> links;
    if (const Json* list = member(original, "links"); list != nullptr && list->is_array()) {
        for (const Json& link : *list) {
            links.emplace(Ends{text_of(link, "a"), text_of(link, "b"), text_of(link, "kind")},
                          &link);
        }
    }
    for (Json& link : json["links"]) {
        const auto was =
            links.find(Ends{text_of(link, "a"), text_of(link, "b"), text_of(link, "kind")});
        if (was != links.end()) {
            keep_unknown(link, *was->second, {"generation", "width", "flow_gb_s", "source"});
        }
    }
    return json;
}

Expected<Machine> find_machine(const std::string& name_or_path, const std::string& data_directory,
                               const std::string& relative_to) {
    const auto path = find_data_file(name_or_path, "machines", data_directory, relative_to);
    if (!path) return tl::unexpected(path.error());
    const auto json = load_json(*path);
    if (!json) return tl::unexpected(json.error());
    return machine_from_json(*json, *path);
}

}  // namespace draftboard::model
