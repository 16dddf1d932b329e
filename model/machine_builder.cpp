// SPDX-License-Identifier: Apache-2.0
#include "model/machine_builder.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace draftboard::model {

namespace {

constexpr int kMaxHostBridge = 1 << 30;  // keeps the next free number from overflowing

}  // namespace

MachineBuilder::MachineBuilder(std::string name) { machine_.name = std::move(name); }

NodeKind MachineBuilder::kind_of(int node) const {
    const bool known = node >= 0 && node < static_cast<int>(machine_.nodes.size());
    return known ? machine_.nodes[node].kind
                 : NodeKind::root_port;  // the link itself will be refused
}

int MachineBuilder::add_node(NodeKind kind, const std::string& stem, const std::string& id,
                             int parent) {
    MachineNode node;
    node.kind = kind;
    const auto ordinal =
        std::count_if(machine_.nodes.begin(), machine_.nodes.end(),
                      [&](const MachineNode& other) { return other.kind == kind; });
    node.id = id.empty() ? fmt::format("{}{}", stem, ordinal) : id;
    if (parent >= 0 && parent < static_cast<int>(machine_.nodes.size()))
        node.numa = machine_.nodes[parent].numa;
    machine_.nodes.push_back(std::move(node));
    return static_cast<int>(machine_.nodes.size()) - 1;
}

int MachineBuilder::connect(int a, int b, LinkKind kind, const LinkFigures& figures, int generation,
                            int width) {
    MachineLink link;
    link.a = a;
    link.b = b;
    link.kind = kind;
    link.generation = generation;
    link.width = width;
    link.forward = figures.capacity;
    link.backward = figures.capacity;
    link.latency_ns = figures.latency_ns;
    link.flow_gb_s = figures.flow_gb_s;
    link.source = figures.source;
    machine_.links.push_back(std::move(link));
    return static_cast<int>(machine_.links.size()) - 1;
}

int MachineBuilder::add_below(int parent, int node, int generation, int width) {
    // An unknown generation leaves figures of zero, which validate() names.
    const auto figures = pcie_figures(generation, width, kind_of(node), kind_of(parent));
    connect(node, parent, LinkKind::pcie, figures.value_or(LinkFigures{}), generation, width);
    return node;
}

int MachineBuilder::add_numa(int numa, int socket) {
    const int node = add_node(NodeKind::numa_node, "numa", fmt::format("numa{}", numa), -1);
    machine_.nodes[node].numa = numa;
    machine_.nodes[node].socket = socket;
    const int memory =
        add_node(NodeKind::host_memory, "memory", fmt::format("memory{}", numa), node);
    connect(memory, node, LinkKind::memory, memory_figures());
    return node;
}

int MachineBuilder::add_root_port(int numa_node, int host_bridge, const std::string& id) {
    const int node = add_node(NodeKind::root_port, "port", id, numa_node);
    machine_.nodes[node].host_bridge = host_bridge >= 0 ? host_bridge : next_host_bridge_;
    next_host_bridge_ =
        std::max(next_host_bridge_, std::min(machine_.nodes[node].host_bridge, kMaxHostBridge) + 1);
    connect(node, numa_node, LinkKind::internal, internal_figures());
    return node;
}

int MachineBuilder::add_switch(int parent, int generation, int width, const std::string& id) {
    return add_below(parent, add_node(NodeKind::pcie_switch, "switch", id, parent), generation,
                     width);
}

int MachineBuilder::add_gpu(int parent, int generation, int width, const std::string& bus_id,
                            const std::string& id) {
    const int node =
        add_below(parent, add_node(NodeKind::gpu, "gpu", id, parent), generation, width);
    machine_.nodes[node].bus_id = bus_id;
    return node;
}

int MachineBuilder::add_nic(int parent, int generation, int width, const std::string& id) {
    return add_below(parent, add_node(NodeKind::nic, "nic", id, parent), generation, width);
}

int MachineBuilder::add_nvswitch(const std::string& id) {
    return add_node(NodeKind::nvswitch, "nvswitch", id, -1);
}

int MachineBuilder::connect_nvlink(int a, int b, int count) {
    const auto figures = nvlink_figures(count, machine_.gpu.compute_capability);
    return connect(a, b, LinkKind::nvlink, figures.value_or(LinkFigures{}), 0, count);
}

void MachineBuilder::connect_all_numa(int pcie_generation) {
    std::map<int, std::vector<int>> sockets;
    int unknown = -1;  // each NUMA node of unknown socket counts as one of its own
    for (std::size_t i = 0; i < machine_.nodes.size(); ++i) {
        const MachineNode& node = machine_.nodes[i];
        if (node.kind != NodeKind::numa_node) continue;
        sockets[node.socket >= 0 ? node.socket : unknown--].push_back(static_cast<int>(i));
    }
    const auto join = [&](int a, int b, const LinkFigures& figures) {
        // Hostile input may ask for a full mesh of thousands; validate() refuses the stump.
        if (machine_.links.size() <= kMaxLinks) connect(a, b, LinkKind::inter_socket, figures);
    };
    const LinkFigures between = inter_socket_figures(machine_.host, pcie_generation);
    for (auto socket = sockets.begin(); socket != sockets.end(); ++socket) {
        const std::vector<int>& numas = socket->second;
        for (std::size_t i = 0; i < numas.size(); ++i) {
            for (std::size_t j = i + 1; j < numas.size(); ++j) {
                join(numas[i], numas[j], same_socket_figures());
            }
        }
        for (auto other = std::next(socket); other != sockets.end(); ++other) {
            join(numas.front(), other->second.front(), between);
        }
    }
}

Expected<Machine> MachineBuilder::build(const std::string& context) const {
    const auto problems = machine_.validate();
    if (!problems.empty())
        return tl::unexpected(to_error(problems, context.empty() ? machine_.name : context));
    return machine_;
}

}  // namespace draftboard::model
