// SPDX-License-Identifier: Apache-2.0
#include "model/machine.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "model/fabric_tree.h"

namespace draftboard::model {

std::string_view to_name(NodeKind kind) {
    switch (kind) {
        case NodeKind::gpu: return "gpu";
        case NodeKind::pcie_switch: return "pcie_switch";
        case NodeKind::root_port: return "root_port";
        case NodeKind::numa_node: return "numa_node";
        case NodeKind::host_memory: return "host_memory";
        case NodeKind::nvswitch: return "nvswitch";
        case NodeKind::nic: return "nic";
    }
    return "?";
}

std::string_view to_name(LinkKind kind) {
    switch (kind) {
        case LinkKind::pcie: return "pcie";
        case LinkKind::inter_socket: return "inter_socket";
        case LinkKind::memory: return "memory";
        case LinkKind::nvlink: return "nvlink";
        case LinkKind::internal: return "internal";
    }
    return "?";
}

std::string_view to_name(PathType type) {
    switch (type) {
        case PathType::self: return "X";
        case PathType::nvlink: return "NV";
        case PathType::pix: return "PIX";
        case PathType::pxb: return "PXB";
        case PathType::phb: return "PHB";
        case PathType::node: return "NODE";
        case PathType::sys: return "SYS";
        case PathType::disconnected: return "DIS";
    }
    return "?";
}

std::string_view to_name(TransferKind kind) {
    return kind == TransferKind::write ? "write" : "read";
}

std::string_view to_name(IommuMode mode) {
    switch (mode) {
        case IommuMode::off: return "off";
        case IommuMode::passthrough: return "passthrough";
        case IommuMode::translated: return "translated";
    }
    return "?";
}

int normalised_cpu_family(int family) {
    const bool packed = family > 0xF && family <= 0xFFF && (family & 0xF) == 0xF;
    return packed ? 0xF + (family >> 4) : family;
}

std::optional<PathType> path_type_from_name(std::string_view name) {
    for (const PathType type :
         {PathType::self, PathType::nvlink, PathType::pix, PathType::pxb, PathType::phb,
          PathType::node, PathType::sys, PathType::disconnected}) {
        if (name == to_name(type)) return type;
    }
    if (name == "SOC") return PathType::sys;  // nvidia-smi before 2017
    // NV#: any number of bonded links.
    if (name.size() > 2 && name.size() <= 5 && name.substr(0, 2) == "NV" &&
        std::all_of(name.begin() + 2, name.end(), [](char c) { return c >= '0' && c <= '9'; })) {
        return PathType::nvlink;
    }
    return std::nullopt;
}

std::vector<int> Machine::gpus() const {
    std::vector<int> found;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        if (nodes[i].kind == NodeKind::gpu) found.push_back(static_cast<int>(i));
    }
    return found;
}

namespace {

constexpr std::size_t kMaxIdLength = 128;
constexpr int kMaxLanes = 1024;

/// Disjoint sets; answers "connected?" without walking anything.
class UnionFind {
 public:
    explicit UnionFind(std::size_t count) : parent_(count) {
        std::iota(parent_.begin(), parent_.end(), 0);
    }
    int find(int x) {
        while (parent_[x] != x) {
            parent_[x] = parent_[parent_[x]];
            x = parent_[x];
        }
        return x;
    }
    /// False if they were connected before.
    bool join(int a, int b) {
        a = find(a);
        b = find(b);
        if (a == b) return false;
        parent_[a] = b;
        return true;
    }

 private:
    std::vector<int> parent_;
};

std::string node_place(std::size_t index) { return fmt::format("/nodes/{}", index); }
std::string link_place(std::size_t index) { return fmt::format("/links/{}", index); }

/// May a link of this kind end at a node of that kind?
bool may_end_at(LinkKind link, NodeKind node) {
    switch (link) {
        case LinkKind::pcie:
        case LinkKind::internal: return node != NodeKind::host_memory && node != NodeKind::nvswitch;
        case LinkKind::inter_socket: return node == NodeKind::numa_node;
        case LinkKind::memory: return node == NodeKind::numa_node || node == NodeKind::host_memory;
        case LinkKind::nvlink: return node == NodeKind::gpu || node == NodeKind::nvswitch;
    }
    return false;
}

void check_figures(const MachineLink& link, const std::string& place,
                   std::vector<Problem>& problems) {
    const auto check = [&](const char* name, double value, double limit) {
        if (std::isfinite(value) && value > 0 && value <= limit) return;
        problems.push_back(
            {place + name, fmt::format("{} is not above 0 and at most {}", value, limit)});
    };
    check("/gb_s/forward/write", link.forward.write_gb_s, kMaxLinkGbS);
    check("/gb_s/forward/read", link.forward.read_gb_s, kMaxLinkGbS);
    check("/gb_s/backward/write", link.backward.write_gb_s, kMaxLinkGbS);
    check("/gb_s/backward/read", link.backward.read_gb_s, kMaxLinkGbS);
    check("/latency_ns", link.latency_ns, kMaxLinkLatencyNs);
    if (link.flow_gb_s != 0) check("/flow_gb_s", link.flow_gb_s, kMaxLinkGbS);
    if (link.generation < 0 || link.generation > 16) {
        problems.push_back(
            {place + "/generation", fmt::format("{} is no PCIe generation", link.generation)});
    }
    if (link.width < 0 || link.width > kMaxLanes) {
        problems.push_back(
            {place + "/width", fmt::format("{} is not within 0 .. {}", link.width, kMaxLanes)});
    }
}

void check_gpu_spec(const GpuSpec& gpu, std::vector<Problem>& problems) {
    const auto check = [&](const char* name, double value) {
        if (std::isfinite(value) && value >= 0 && value <= 1e18) return;
        problems.push_back(
            {std::string("/gpu/") + name, fmt::format("{} is not within 0 .. 1e18", value)});
    };
    check("memory_bytes", gpu.memory_bytes);
    check("memory_gb_s", gpu.memory_gb_s);
    check("l2_bytes", gpu.l2_bytes);
    check("multiprocessors", gpu.multiprocessors);
    check("bf16_tflops", gpu.bf16_tflops);
    check("fp8_tflops", gpu.fp8_tflops);
    check("fp4_tflops", gpu.fp4_tflops);
}

void check_nodes(const Machine& machine, std::vector<Problem>& problems) {
    std::unordered_map<std::string, std::size_t> seen;
    std::unordered_map<int, std::size_t> numa_seen;
    for (std::size_t i = 0; i < machine.nodes.size(); ++i) {
        const MachineNode& node = machine.nodes[i];
        const std::string place = node_place(i);
        if (node.id.empty() || node.id.size() > kMaxIdLength) {
            problems.push_back(
                {place + "/id", fmt::format("an id has 1 to {} characters", kMaxIdLength)});
        } else if (const auto [it, fresh] = seen.emplace(node.id, i); !fresh) {
            problems.push_back(
                {place + "/id", fmt::format("\"{}\" is also node {}", node.id, it->second)});
        }
        if (node.kind != NodeKind::numa_node) continue;
        if (node.numa < 0) {
            problems.push_back({place + "/numa", "a NUMA node needs its number"});
        } else if (const auto [it, fresh] = numa_seen.emplace(node.numa, i); !fresh) {
            problems.push_back({place + "/numa", fmt::format("{} is also the number of node {}",
                                                             node.numa, it->second)});
        }
    }
}

/// Ends, kinds, figures, duplicates. False if some end is no node: nothing may walk the graph then.
bool check_links(const Machine& machine, std::vector<Problem>& problems) {
    const int count = static_cast<int>(machine.nodes.size());
    bool walkable = true;
    std::set<std::tuple<int, int, LinkKind>> seen;
    for (std::size_t i = 0; i < machine.links.size(); ++i) {
        const MachineLink& link = machine.links[i];
        const std::string place = link_place(i);
        check_figures(link, place, problems);
        bool known = true;
        for (const auto& [name, end] : {std::pair{"/a", link.a}, std::pair{"/b", link.b}}) {
            if (end >= 0 && end < count) continue;
            problems.push_back({place + name, fmt::format("no node {}", end)});
            known = false;
        }
        walkable = walkable && known;
        if (!known) continue;
        const MachineNode& a = machine.nodes[link.a];
        const MachineNode& b = machine.nodes[link.b];
        if (link.a == link.b) {
            problems.push_back({place, fmt::format("joins \"{}\" with itself", a.id)});
        } else if (!may_end_at(link.kind, a.kind) || !may_end_at(link.kind, b.kind) ||
                   (link.kind == LinkKind::memory && a.kind == b.kind)) {
            problems.push_back({place + "/kind",
                                fmt::format("a {} link can't join a {} and a {}",
                                            to_name(link.kind), to_name(a.kind), to_name(b.kind))});
        }
        if (!seen.emplace(std::min(link.a, link.b), std::max(link.a, link.b), link.kind).second) {
            problems.push_back(
                {place,
                 fmt::format(
                     "a second {} link between \"{}\" and \"{}\"; give one with the width and "
                     "bandwidth of both",
                     to_name(link.kind), a.id, b.id)});
        }
    }
    return walkable;
}

/// The PCIe forest, the memories, and whether every GPU reaches every other. Precondition: link
/// ends exist.
void check_shape(const Machine& machine, std::vector<Problem>& problems) {
    const std::size_t before = problems.size();
    UnionFind forest(machine.nodes.size());
    UnionFind all(machine.nodes.size());
    std::vector<int> memories(machine.nodes.size(), 0);
    std::vector<int> fabric_links(machine.nodes.size(), 0);
    for (std::size_t i = 0; i < machine.links.size(); ++i) {
        const MachineLink& link = machine.links[i];
        if (link.a == link.b) continue;
        if (link.kind != LinkKind::nvlink) all.join(link.a, link.b);
        if (link.kind == LinkKind::memory) {
            ++memories[link.a];
            ++memories[link.b];
        }
        if (!is_fabric_link(machine, link)) continue;
        ++fabric_links[link.a];
        ++fabric_links[link.b];
        if (!forest.join(link.a, link.b)) {
            problems.push_back(
                {link_place(i),
                 fmt::format("closes a cycle of PCIe links between \"{}\" and \"{}\"",
                             machine.nodes[link.a].id, machine.nodes[link.b].id)});
        }
    }
    std::unordered_map<int, std::size_t> numa_of_tree;
    std::unordered_set<int> with_memory;
    for (std::size_t i = 0; i < machine.nodes.size(); ++i) {
        const MachineNode& node = machine.nodes[i];
        if (node.kind == NodeKind::host_memory || node.kind == NodeKind::numa_node) {
            if (memories[i] > 1) {
                problems.push_back(
                    {node_place(i), fmt::format("\"{}\" has {} memory links, one is possible",
                                                node.id, memories[i])});
            }
            if (memories[i] > 0) with_memory.insert(all.find(static_cast<int>(i)));
        }
        if ((node.kind == NodeKind::gpu || node.kind == NodeKind::nic) && fabric_links[i] > 1) {
            problems.push_back(
                {node_place(i), fmt::format("\"{}\" has {} PCIe links, one is possible", node.id,
                                            fabric_links[i])});
        }
        if (node.kind == NodeKind::numa_node) {
            const auto [it, fresh] = numa_of_tree.emplace(forest.find(static_cast<int>(i)), i);
            if (!fresh) {
                problems.push_back(
                    {node_place(i), fmt::format("\"{}\" and \"{}\" hang in one PCIe tree", node.id,
                                                machine.nodes[it->second].id)});
            }
        }
    }
    if (problems.size() > before) return;  // the forest is none: what follows would mislead
    const FabricTree tree = build_fabric_tree(machine);
    int first_gpu = -1;
    for (std::size_t i = 0; i < machine.nodes.size(); ++i) {
        const MachineNode& node = machine.nodes[i];
        if (node.kind != NodeKind::gpu) continue;
        const int root = tree.root[i];
        if (root < 0) {
            problems.push_back(
                {node_place(i), fmt::format("no path to a NUMA node from \"{}\"", node.id)});
            continue;
        }
        if (tree.depth[i] > kMaxPcieDepth) {
            problems.push_back(
                {node_place(i),
                 fmt::format("\"{}\" is {} links below its NUMA node, at most {} are covered",
                             node.id, tree.depth[i], kMaxPcieDepth)});
        }
        if (!with_memory.contains(all.find(static_cast<int>(i)))) {
            problems.push_back(
                {node_place(i), fmt::format("no path to host memory from \"{}\"", node.id)});
        }
        if (node.numa >= 0 && node.numa != machine.nodes[root].numa) {
            problems.push_back(
                {node_place(i) + "/numa", fmt::format("says {}, but its links lead to NUMA node {}",
                                                      node.numa, machine.nodes[root].numa)});
        }
        if (first_gpu < 0) first_gpu = static_cast<int>(i);
        if (all.find(static_cast<int>(i)) != all.find(first_gpu)) {
            problems.push_back({node_place(i), fmt::format("no path joins \"{}\" with \"{}\"",
                                                           node.id, machine.nodes[first_gpu].id)});
        }
    }
}

void check_rules(const Machine& machine, std::vector<Problem>& problems) {
    if (machine.peer.level == PathType::disconnected || machine.peer.level == PathType::self) {
        problems.push_back({"/peer/level", "must be one of NV, PIX, PXB, PHB, NODE, SYS"});
    }
    for (std::size_t i = 0; i < machine.write_collapse.size(); ++i) {
        const WriteCollapseRule& rule = machine.write_collapse[i];
        const std::string place = fmt::format("/write_collapse/{}", i);
        if (rule.switches.empty()) problems.push_back({place + "/switches", "names no switch"});
        for (std::size_t j = 0; j < rule.switches.size(); ++j) {
            const int index = rule.switches[j];
            if (index < 0 || index >= static_cast<int>(machine.nodes.size()) ||
                machine.nodes[index].kind != NodeKind::pcie_switch) {
                problems.push_back({fmt::format("{}/switches/{}", place, j), "is no PCIe switch"});
            }
        }
        if (rule.min_sources < 1 || rule.min_sources > kMaxGpus) {
            problems.push_back({place + "/min_sources", fmt::format("{} is not within 1 .. {}",
                                                                    rule.min_sources, kMaxGpus)});
        }
        if (!std::isfinite(rule.aggregate_gb_s) || rule.aggregate_gb_s <= 0 ||
            rule.aggregate_gb_s > kMaxLinkGbS) {
            problems.push_back(
                {place + "/aggregate_gb_s", fmt::format("{} is not above 0 and at most {}",
                                                        rule.aggregate_gb_s, kMaxLinkGbS)});
        }
    }
}

}  // namespace

std::vector<Problem> Machine::validate() const {
    std::vector<Problem> problems;
    if (nodes.size() > kMaxNodes) {
        return {
            {"/nodes", fmt::format("{} nodes, at most {} are covered", nodes.size(), kMaxNodes)}};
    }
    if (links.size() > kMaxLinks) {
        return {
            {"/links", fmt::format("{} links, at most {} are covered", links.size(), kMaxLinks)}};
    }
    const std::size_t gpu_count = gpus().size();
    if (gpu_count == 0) problems.push_back({"/nodes", "there is no GPU"});
    if (gpu_count > kMaxGpus) {
        problems.push_back(
            {"/nodes", fmt::format("{} GPUs, at most {} are covered", gpu_count, kMaxGpus)});
    }
    check_gpu_spec(gpu, problems);
    check_nodes(*this, problems);
    const bool walkable = check_links(*this, problems);
    check_rules(*this, problems);
    if (walkable) check_shape(*this, problems);
    return problems;
}

}  // namespace draftboard::model
