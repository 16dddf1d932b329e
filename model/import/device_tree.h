// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the readers of this folder agree on: a tree of NUMA nodes, host bridges, PCIe switches and GPUs,
// with NVLinks across it. A reader fills it with what its input says and nothing more; to_machine()
// turns it into a model::Machine through MachineBuilder, which puts figures on the links.
// It is no Machine: no GB/s, no host memory, no links between sockets, and it may hold devices that
// lead to no GPU (they are dropped). Next: import_machine.h, the entry over all readers.
//
//   numa_node (root)  <-  root_port = host bridge  <-  pcie_switch ...  <-  gpu
//
// The tree alone decides the path type of two GPUs, by their lowest common ancestor:
//   a switch, nothing else passed: PIX;  a switch, other switches passed: PXB;  a root port: PHB;
//   a NUMA node: NODE;  none: SYS.
// Worked example: numa0 <- port0 <- switch0 <- {gpu0, gpu1}, numa0 <- port1 <- gpu2:
//   gpu0-gpu1 PIX, gpu0-gpu2 NODE.

#include <string>
#include <utility>
#include <vector>

#include "model/error.h"
#include "model/machine.h"

namespace draftboard::model {

struct Device {
    NodeKind kind = NodeKind::gpu;  ///< numa_node, root_port, pcie_switch, gpu or nvswitch
    int parent = -1;                ///< index of a device before this one; -1 for numa_node and nvswitch
    int numa = -1;                  ///< numa_node: its number (unique); others: ignored
    int socket = -1;                ///< numa_node: its socket, -1 unknown
    int ordinal = -1;               ///< gpu: place in GPU order; -1: after the numbered ones, in tree order
    std::string bus_id;
    int generation = 0;  ///< of the PCIe link towards the parent; 0: unknown, the options' is assumed
    int width = 0;       ///< 0: unknown
};

struct NvlinkBond {
    int a = 0;  ///< device index of a gpu
    int b = 0;  ///< of a gpu or an nvswitch
    int links = 1;
};

struct DeviceTree {
    std::vector<Device> devices;
    std::vector<NvlinkBond> nvlinks;  ///< each pair once
    /// Switches joined inside one chip past the PCI tree (NCCL's <pcilink>), each pair once.
    std::vector<std::pair<int, int>> chip_links;
    double nvlink_gb_s = 0;  ///< of one link in one direction where link_defaults.h has none (AMD xGMI)
    std::string nvlink_source;
    GpuSpec gpu;
    HostSpec host;
    std::string description;
    std::string source;                 ///< "nvidia-smi topo -m: FILE", becomes the links' source
    std::vector<std::string> notes;     ///< what was assumed; becomes Machine::notes
    std::vector<std::string> warnings;  ///< what contradicts itself or is missing in the input

    int add(Device device);  ///< appends, returns the index
};

/// What the readers fill in where their input is silent.
struct ImportOptions {
    int pcie_generation = 5;  ///< 1..6
    int pcie_width = 16;      ///< 1, 2, 4, 8, 16
};

/// More NUMA nodes than any box has; the links between them grow with the square.
inline constexpr int kMaxNumaNodes = 64;

/// Checks the options; drops what leads to no GPU; gives each device at a host bridge a root port of its
/// own (same host_bridge); orders GPUs by ordinal; validates. Errors: no GPU, limits passed, no tree.
[[nodiscard]] Expected<Machine> to_machine(const DeviceTree& tree, const std::string& name,
                                           const ImportOptions& options = {});

/// Path type of two GPUs (device indices) by the tree alone, NVLinks left aside.
[[nodiscard]] PathType tree_path_type(const DeviceTree& tree, int gpu_a, int gpu_b);

/// The first `limit` bytes, all but printable ASCII replaced by '?': to carry input into messages and JSON.
[[nodiscard]] std::string quoted(const std::string& text, std::size_t limit = 100);

}  // namespace draftboard::model
