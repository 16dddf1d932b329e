// SPDX-License-Identifier: Apache-2.0
#pragma once
// Puts a machine together from parts: NUMA nodes with their memory, root ports, switches, GPUs,
// NVLinks. Figures come from link_defaults.h unless given. Used by the readers in import/ and by
// tests; it checks nothing itself but the whole, in build().
//
//   MachineBuilder builder("box");
//   const int numa = builder.add_numa(0);
//   const int hub = builder.add_switch(builder.add_root_port(numa), 5, 16);
//   builder.add_gpu(hub, 5, 16);
//   builder.add_gpu(hub, 5, 16);
//   auto machine = builder.build();        // gpu0 and gpu1 are PIX apart
//
// Functions return the index of the new node and take indices of earlier ones. A wrong index or an
// unknown generation leaves a link that validate() refuses, never undefined behaviour.

#include <string>

#include "model/link_defaults.h"
#include "model/machine.h"

namespace draftboard::model {

class MachineBuilder {
 public:
    explicit MachineBuilder(std::string name);

    /// A NUMA node ("numa0") and its memory ("memory0"). Give it before what hangs below.
    int add_numa(int numa, int socket = -1);
    /// Hangs below a numa_node over an internal link. `host_bridge` -1: a bridge of its own; else
    /// ports with the same number share one.
    int add_root_port(int numa_node, int host_bridge = -1, const std::string& id = {});
    int add_switch(int parent, int generation, int width, const std::string& id = {});
    /// `parent`: a switch, a root port, or a numa_node where the port is not known.
    int add_gpu(int parent, int generation, int width, const std::string& bus_id = {},
                const std::string& id = {});
    int add_nic(int parent, int generation, int width, const std::string& id = {});
    int add_nvswitch(const std::string& id = {});

    /// Both directions alike. Returns the index of the link.
    int connect(int a, int b, LinkKind kind, const LinkFigures& figures, int generation = 0,
                int width = 0);
    /// `count` bonded NVLinks between two GPUs or a GPU and an NVSwitch, figures from
    /// machine().gpu.
    int connect_nvlink(int a, int b, int count);
    /// Joins the NUMA nodes of a socket each with each (same_socket_figures()), and two sockets by
    /// one link that all their traffic shares (inter_socket_figures() of machine().host), between
    /// the first NUMA node of each. Unknown sockets (-1) count as different ones.
    void connect_all_numa(int pcie_generation);

    /// The machine so far, to fill in names, GPU, host, rules and single figures.
    [[nodiscard]] Machine& machine() { return machine_; }

    /// The machine if it is sound, else all its problems; `context` (a file name) stands in the
    /// error.
    [[nodiscard]] Expected<Machine> build(const std::string& context = {}) const;

 private:
    int add_node(NodeKind kind, const std::string& stem, const std::string& id, int parent);
    int add_below(int parent, int node, int generation, int width);
    [[nodiscard]] NodeKind kind_of(int node) const;

    Machine machine_;
    int next_host_bridge_ = 0;
};

}  // namespace draftboard::model
