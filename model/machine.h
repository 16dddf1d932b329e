// SPDX-License-Identifier: Apache-2.0
#pragma once
// A machine as a graph: GPUs, PCIe switches, root ports, NUMA nodes, host memory, NVSwitches, and the
// links between them. Each link has a latency and, for each direction, a capacity for posted writes and
// one for read completions (they differ on real fabrics). machine_json.h reads and writes it,
// import/ builds it from what tools print, sim/link_network.h shares its links between flows.
//
// GB = 1e9 bytes. Latencies are one-way, in nanoseconds, and add up along a route.

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
    int numa = -1;      ///< NUMA node it hangs below; -1 unknown
    int socket = -1;    ///< only for numa_node
    std::string bus_id; ///< PCI address if known
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
    int generation = 0;  ///< PCIe generation, 0 where it has none
    int width = 0;       ///< lanes, or bonded NVLinks
    LinkCapacity forward;   ///< data moving a -> b
    LinkCapacity backward;  ///< data moving b -> a
    double latency_ns = 0;
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

struct HostSpec {
    std::string cpu;     ///< display name
    std::string vendor;  ///< "AuthenticAMD", "GenuineIntel", "ARM", ...
    int family = 0;      ///< as NCCL's XML gives it; aliases are normalised by the reader
    int model = 0;
    std::string source;
};

/// nvidia-smi's and NCCL's names for how far apart two GPUs are, nearest first.
enum class PathType { self, nvlink, pix, pxb, phb, node, sys, disconnected };
[[nodiscard]] std::string_view to_name(PathType type);
[[nodiscard]] std::optional<PathType> path_type_from_name(std::string_view name);

enum class IommuMode { off, passthrough, translated };

/// What decides whether GPUs may reach each other directly, and how well.
struct PeerAccess {
    bool enabled = true;                  ///< false: driver or platform refuses P2P, all goes through host memory
    PathType level = PathType::sys;       ///< farthest path over which the driver grants it
    bool force_p2p = true;                ///< driver's ForceP2P keys set (else SM peer loads over PHB/NODE stage through host)
    bool acs_redirect = false;            ///< ACS on: same-switch traffic bounces off the root port
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
    /// Unknown nodes, self links, cycles in the PCIe tree, disconnected GPUs, non-positive or
    /// non-finite figures, more than kMaxNodes nodes: each with its JSON pointer.
    [[nodiscard]] std::vector<Problem> validate() const;
};

inline constexpr int kMaxNodes = 4096;
inline constexpr int kMaxGpus = 1024;

enum class TransferKind { write, read };

/// One link in one direction on a route.
struct Hop {
    int link = 0;
    bool forward = true;
};

struct Route {
    std::vector<Hop> hops;
    double latency_ns = 0;
    double bottleneck_gb_s = 0;  ///< min over hops for the given transfer kind, after the rules below
    PathType type = PathType::disconnected;
    std::vector<std::string> remarks;  ///< rules that applied: "ACS redirect: x0.5", ...
};

/// Routes over a machine; precomputes nothing it does not need. Shortest by latency, then hops.
/// PCIe trees are climbed only as far as the lowest common ancestor. Host memory: the NUMA node's own.
class Router {
   public:
    explicit Router(const Machine& machine);
    ~Router();
    Router(Router&&) noexcept;
    Router& operator=(Router&&) noexcept;

    /// GPU ordinals (0..n-1). The route data takes from `source` to `destination`.
    [[nodiscard]] Expected<Route> gpu_to_gpu(int source, int destination, TransferKind kind) const;
    /// Between a GPU and the host memory of NUMA node `numa` (-1: the GPU's own).
    [[nodiscard]] Expected<Route> gpu_to_host(int gpu, int numa, TransferKind kind) const;
    [[nodiscard]] Expected<Route> host_to_gpu(int gpu, int numa, TransferKind kind) const;
    [[nodiscard]] PathType path_type(int gpu_a, int gpu_b) const;
    /// True if the driver grants direct access and the path is within PeerAccess::level.
    [[nodiscard]] bool peer_reachable(int gpu_a, int gpu_b) const;

   private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

/// The `nvidia-smi topo -m` view of a machine, one row a GPU.
[[nodiscard]] std::string topology_table(const Machine& machine);

}  // namespace draftboard::model
