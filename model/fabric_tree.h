// SPDX-License-Identifier: Apache-2.0
#pragma once
// The PCIe fabric of a machine as a forest whose roots are NUMA nodes: who hangs below whom. This
// is what nvidia-smi's labels are made of. It knows no bandwidth and no way that leaves the forest
// (inter-socket, NVLink, paths inside a switch chip): those are the Router's (machine.h).

#include <vector>

#include "model/machine.h"

namespace draftboard::model {

struct FabricTree {
    std::vector<int>
        parent;  ///< per node: towards its NUMA node; -1 at roots and outside of the forest
    std::vector<int> parent_link;  ///< per node: the link to `parent`, -1 without one
    std::vector<int> root;         ///< per node: index of the numa_node it hangs below, -1 if none
    std::vector<int> depth;        ///< per node: links up to its root

    [[nodiscard]] int lowest_common_ancestor(int a,
                                             int b) const;  ///< node index, -1 in different trees
    /// The root port on the way up from `node`, -1 if it has none.
    [[nodiscard]] int root_port(const Machine& machine, int node) const;
};

/// PCIe links, and internal ones except those between two switches, make the forest.
[[nodiscard]] bool is_fabric_link(const Machine& machine, const MachineLink& link);

/// Breadth first from all NUMA nodes. Precondition: link ends are node indices. Safe on cyclic
/// input (each node is visited once), meaningful only on a forest.
[[nodiscard]] FabricTree build_fabric_tree(const Machine& machine);

/// What nvidia-smi would call the path between two nodes of the forest, NVLink left aside:
/// one switch PIX, several PXB, ports of one host bridge PHB, of two NODE, two NUMA nodes SYS.
[[nodiscard]] PathType fabric_path_type(const Machine& machine, const FabricTree& tree, int node_a,
                                        int node_b);

}  // namespace draftboard::model
