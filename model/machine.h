// SPDX-License-Identifier: Apache-2.0
#pragma once
// A machine as a graph: GPUs, PCIe switches, root ports, NUMA nodes, host memory, NVSwitches, and
// the links between them. Each link has a latency and, for each direction, a capacity for posted
// writes and one for read completions (they differ on real fabrics). machine_json.h reads and
// writes it, import/ builds it from what tools print, sim/link_network.h shares its links between
// flows.
//
// GB = 1e9 bytes. Latencies are one-way, in nanoseconds, and add up along a route.
//
//   numa_node -memory- host_memory            the NUMA node's DRAM
//   numa_node -internal- root_port -pcie- [pcie_switch -pcie-]* gpu      the PCIe fabric: a forest
//   numa_node -inter_socket- numa_node        may form cycles
//   gpu -nvlink- gpu, gpu -nvlink- nvswitch   may form cycles
//   pcie_switch -internal- pcie_switch        a path inside one switch chip that the PCI tree does
//   not show
//
// The Router below finds ways through it, fabric_tree.h climbs the forest, link_defaults.h has the
// figures for links that state none, machine_builder.h puts boxes together.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/error.h"
#include "model/number_format.h"

namespace draftboard::model {

enum class NodeKind { gpu, pcie_switch, root_port, numa_node, host_memory, nvswitch, nic };
enum class LinkKind { pcie, inter_socket, memory, nvlink, internal };

[[nodiscard]] std::string_view to_name(NodeKind kind);
[[nodiscard]] std::string_view to_name(LinkKind kind);

struct MachineNode {
    std::string id;  ///< unique, e.g. "gpu0", "numa1", "switch0"
    NodeKind kind = NodeKind::gpu;
    int numa = -1;       ///< NUMA node it hangs below; -1 unknown
    int socket = -1;     ///< only for numa_node
    std::string bus_id;  ///< PCI address if known
    /// root_port: which host bridge (PCI domain/root bus) of the machine it belongs to; -1 unknown.
    /// Ports of one bridge are PHB apart, of different bridges in one NUMA node NODE.
    int host_bridge = -1;
};

/// Capacity of one direction of a link in GB/s.
struct LinkCapacity {
    double write_gb_s = 0;
    double read_gb_s = 0;
};

struct MachineLink {
    int a = 0;  ///< index into nodes
    int b = 0;
    LinkKind kind = LinkKind::pcie;
    int generation = 0;     ///< PCIe generation, 0 where it has none
    int width = 0;          ///< lanes, or bonded NVLinks
    LinkCapacity forward;   ///< data moving a -> b
    LinkCapacity backward;  ///< data moving b -> a
    double latency_ns = 0;
    /// What one flow alone gets over it (each direction), 0: the capacity. An inter-socket fabric
    /// carries several flows that each stay below what a GPU's own link would allow.
    double flow_gb_s = 0;
    std::string source;  ///< where the figures come from
};

/// The GPU all GPU nodes share (boxes with mixed GPUs are refused by the readers that see them).
struct GpuSpec {
    std::string name;
    std::string compute_capability;  ///< "12.0"
    double memory_bytes = 0;
    double memory_gb_s = 0;  ///< datasheet peak
    double l2_bytes = 0;
    int multiprocessors = 0;
    double bf16_tflops = 0;  ///< dense
    double fp8_tflops = 0;
    double fp4_tflops = 0;
    std::string source;
};

/// The "GPUs" are cores of a CPU: the CPU engine's ranks, which share memory and compute in float.
[[nodiscard]] inline bool is_cpu(const GpuSpec& gpu) { return gpu.compute_capability == "cpu"; }

struct HostSpec {
    std::string cpu;     ///< display name
    std::string vendor;  ///< "AuthenticAMD", "GenuineIntel", "ARM", ...
    int family = 0;      ///< as NCCL's XML gives it; aliases are normalised by the reader
    int model = 0;
    std::string source;
};

/// NCCL up to 2.30 writes an AMD family as base + (extended << 4): 143, 175, 191 for 23, 25, 26.
/// Gives the family as /proc/cpuinfo counts it; any other number as it is.
[[nodiscard]] int normalised_cpu_family(int family);

/// nvidia-smi's and NCCL's names for how far apart two GPUs are, nearest first.
enum class PathType { self, nvlink, pix, pxb, phb, node, sys, disconnected };
[[nodiscard]] std::string_view to_name(PathType type);
[[nodiscard]] std::optional<PathType> path_type_from_name(std::string_view name);

enum class IommuMode { off, passthrough, translated };
[[nodiscard]] std::string_view to_name(IommuMode mode);

/// What decides whether GPUs may reach each other directly, and how well.
struct PeerAccess {
    bool enabled = true;  ///< false: driver or platform refuses P2P, all goes through host memory
    PathType level = PathType::sys;  ///< farthest path over which the driver grants it
    bool force_p2p =
        true;  ///< driver's ForceP2P keys set (else SM peer loads over PHB/NODE stage through host)
    bool acs_redirect = false;  ///< ACS on: same-switch traffic bounces off the root port
    IommuMode iommu = IommuMode::passthrough;
    std::string source;
};

/// Fabric behaviour that fair sharing cannot show; see docs/machine.md.
struct WriteCollapseRule {
    std::vector<int> switches;  ///< node indices of the upstream switches it applies to
    int min_sources = 2;        ///< concurrent writing GPUs behind one switch
    double aggregate_gb_s = 0;  ///< what all of them together still get
    std::string source;
};

struct Machine {
    std::string name;
    std::string description;
    std::vector<std::string> sources;
    GpuSpec gpu;
    HostSpec host;
    std::vector<MachineNode> nodes;
    std::vector<MachineLink> links;
    PeerAccess peer;
    std::vector<WriteCollapseRule> write_collapse;
    std::vector<std::string> notes;  ///< what a reader assumed, for reports
    std::string calibration;         ///< name of a calibration that goes with it, may be empty

    [[nodiscard]] std::vector<int> gpus() const;  ///< node indices, in GPU order
    /// Unknown nodes, self links, cycles in the PCIe forest, disconnected GPUs, non-positive or
    /// non-finite figures, kinds that do not go together, more than the limits below: each with its
    /// JSON pointer.
    [[nodiscard]] std::vector<Problem> validate() const;
};

// What a machine may have at most; a larger one is an error and not a wait. Largest known: 16 GPUs
// behind switches, 72 in an NVLink rack.
inline constexpr int kMaxNodes = 4096;
inline constexpr int kMaxLinks = 32768;
inline constexpr int kMaxGpus = 1024;
inline constexpr int kMaxPcieDepth = 32;  ///< links between a GPU and its NUMA node
inline constexpr double kMaxLinkGbS = 1e6;
inline constexpr double kMaxLinkLatencyNs = 1e9;

enum class TransferKind { write, read };
[[nodiscard]] std::string_view to_name(TransferKind kind);

/// One link in one direction on a route.
struct Hop {
    int link = 0;
    bool forward = true;
};

/// A way through the machine and what it allows one flow that has it to itself.
///
///   bottleneck = efficiency * min over hops h of min(C_h, flow_h)       C: capacity for the
///   transfer kind latency    = sum over hops of the links' latencies                   the same
///   for writes and reads
/// A flow of payload rate x takes x / efficiency from each hop's capacity. Worked example: two GPUs
/// (55.5 GB/s each) on two sockets joined by a fabric of 95 GB/s that gives one flow 51: bottleneck
/// 51, four flows get 23.75 each.
struct Route {
    std::vector<Hop> hops;
    double latency_ns = 0;
    double bottleneck_gb_s = 0;  ///< for the given transfer kind, after the rules
    double efficiency =
        1;  ///< share of a link's capacity that arrives as payload (IOMMU translation: 0.85)
    /// How many times slower a kernel's own loads and stores are than copies, 1: not at all (see
    /// PeerAccess::force_p2p).
    double kernel_access_factor = 1;
    PathType type = PathType::disconnected;
    std::vector<std::string> remarks;  ///< rules that applied, with their figures
};

/// A transfer through host memory: first.hops into the receiver's NUMA node's memory, second.hops
/// out of it.
struct StagedRoute {
    Route first;
    Route second;
};

/// Routes over a machine: shortest by latency, then by hops. Data goes through switches, root
/// ports, NUMA nodes and NVSwitches, never through a GPU or a NIC; GPUs joined by NVLink use NVLink
/// alone. Where one switch joins two GPUs the route turns there, with ACS redirect at the root
/// port. Keeps a copy of the machine, caches nothing, may be shared between threads. An unsound
/// machine (validate()) is not routed: every answer is then an error.
class Router {
 public:
    explicit Router(const Machine& machine);
    ~Router();
    Router(Router&&) noexcept;
    Router& operator=(Router&&) noexcept;

    /// GPU ordinals (0..n-1). The route data takes from `source` to `destination`. Error where the
    /// GPUs can't reach each other directly (peer_reachable): use host_staged().
    [[nodiscard]] Expected<Route> gpu_to_gpu(int source, int destination, TransferKind kind) const;
    /// Between a GPU and the host memory of NUMA node `numa` (-1: the GPU's own; a node without
    /// memory: the nearest).
    [[nodiscard]] Expected<Route> gpu_to_host(int gpu, int numa, TransferKind kind) const;
    [[nodiscard]] Expected<Route> host_to_gpu(int gpu, int numa, TransferKind kind) const;
    /// The two transfers that replace gpu_to_gpu without peer access: `source` writes into host
    /// memory of the receiver's NUMA node (NCCL's SHM transport keeps its buffer on that side),
    /// `destination` reads it.
    [[nodiscard]] Expected<StagedRoute> host_staged(int source, int destination) const;
    /// As nvidia-smi labels it, from the PCIe forest alone; disconnected for unknown ordinals.
    [[nodiscard]] PathType path_type(int gpu_a, int gpu_b) const;
    /// Bonded NVLinks between two GPUs (through NVSwitches: the fewer of both ends), 0: none.
    [[nodiscard]] int nvlinks(int gpu_a, int gpu_b) const;
    /// True if the driver grants direct access and the path is within PeerAccess::level.
    [[nodiscard]] bool peer_reachable(int gpu_a, int gpu_b) const;
    [[nodiscard]] int gpu_count() const;
    [[nodiscard]] int numa_of(
        int gpu) const;  ///< NUMA number of the node it hangs below, -1 if unknown

 private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

/// The `nvidia-smi topo -m` view of a machine, one row a GPU, tab-separated as the tool prints it.
[[nodiscard]] std::string topology_table(const Machine& machine);

}  // namespace draftboard::model
