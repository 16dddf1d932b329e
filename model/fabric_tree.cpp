// SPDX-License-Identifier: Apache-2.0
#include "model/fabric_tree.h"

#include <queue>
#include <utility>

namespace draftboard::model {

int FabricTree::lowest_common_ancestor(int a, int b) const {
    if (root[a] < 0 || root[a] != root[b]) return -1;
    while (a != b) {
        if (depth[a] < depth[b]) std::swap(a, b);
        a = parent[a];
        if (a < 0) return -1;
    }
    return a;
}

int FabricTree::root_port(const Machine& machine, int node) const {
    for (; node >= 0; node = parent[node]) {
        if (machine.nodes[node].kind == NodeKind::root_port) return node;
    }
    return -1;
}

bool is_fabric_link(const Machine& machine, const MachineLink& link) {
    if (link.kind == LinkKind::pcie) return true;
    return link.kind == LinkKind::internal &&
           !(machine.nodes[link.a].kind == NodeKind::pcie_switch &&
             machine.nodes[link.b].kind == NodeKind::pcie_switch);
}

FabricTree build_fabric_tree(const Machine& machine) {
    const std::size_t count = machine.nodes.size();
    std::vector<std::vector<std::pair<int, int>>> neighbours(count);  // (node, link)
    for (std::size_t i = 0; i < machine.links.size(); ++i) {
        const MachineLink& link = machine.links[i];
        if (!is_fabric_link(machine, link)) continue;
        neighbours[link.a].emplace_back(link.b, static_cast<int>(i));
        neighbours[link.b].emplace_back(link.a, static_cast<int>(i));
    }
    FabricTree tree{std::vector<int>(count, -1), std::vector<int>(count, -1),
                    std::vector<int>(count, -1), std::vector<int>(count, 0)};
    std::queue<int> frontier;
    for (std::size_t i = 0; i < count; ++i) {
        if (machine.nodes[i].kind != NodeKind::numa_node) continue;
        tree.root[i] = static_cast<int>(i);
        frontier.push(static_cast<int>(i));
    }
    while (!frontier.empty()) {
        const int node = frontier.front();
        frontier.pop();
        for (const auto& [next, link] : neighbours[node]) {
            if (tree.root[next] >= 0) continue;
            tree.root[next] = tree.root[node];
            tree.parent[next] = node;
            tree.parent_link[next] = link;
            tree.depth[next] = tree.depth[node] + 1;
            frontier.push(next);
        }
    }
    return tree;
}

PathType fabric_path_type(const Machine& machine, const FabricTree& tree, int node_a, int node_b) {
    if (node_a == node_b) return PathType::self;
    if (tree.root[node_a] < 0 || tree.root[node_b] < 0) return PathType::disconnected;
    const int meeting = tree.lowest_common_ancestor(node_a, node_b);
    if (meeting < 0) return PathType::sys;
    switch (machine.nodes[meeting].kind) {
        case NodeKind::pcie_switch: {
            int switches = 1;
            for (const int start : {node_a, node_b}) {
                for (int node = tree.parent[start]; node >= 0 && node != meeting;
                     node = tree.parent[node]) {
                    if (machine.nodes[node].kind == NodeKind::pcie_switch) ++switches;
                }
            }
            return switches == 1 ? PathType::pix : PathType::pxb;
        }
        case NodeKind::numa_node: {
            const int port_a = tree.root_port(machine, node_a);
            const int port_b = tree.root_port(machine, node_b);
            if (port_a < 0 && port_b < 0) return PathType::phb;  // no ports told apart: one bridge
            const int bridge_a = port_a < 0 ? -1 : machine.nodes[port_a].host_bridge;
            const int bridge_b = port_b < 0 ? -1 : machine.nodes[port_b].host_bridge;
            return bridge_a >= 0 && bridge_a == bridge_b ? PathType::phb : PathType::node;
        }
        default: return PathType::phb;  // two ports below one root port or bridge
    }
}

}  // namespace draftboard::model
