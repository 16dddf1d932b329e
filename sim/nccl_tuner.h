// SPDX-License-Identifier: Apache-2.0
#pragma once
// What NCCL would choose: transport, rings, channels, algorithm, protocol. This is NCCL's own
// belief about the machine, taken from its constants (2.30.7:
// src/graph/{topo,search,tuning,connect}.cc, enqueue.cc). It is not how long a collective takes:
// that is collective.h, and the two disagree where NCCL is wrong.
//
//   predicted(a, p, S) = latency(a, p) + S / bandwidth(a, p)
//     S          bytes of the whole result: all_gather n * contribution, else payload per rank
//     latency    base(a, p) + steps * hop(a, p); steps 2(n-1) all_reduce, n-1 the other rings
//     bandwidth  B * efficiency(a, p) * n / steps for rings; B = channels * speed of the graph
//   graph: the most channels * speed that fits min(path bandwidth) of the ring, speeds from a
//     fixed ladder per GPU generation. Nothing fits (a 16 GB/s socket link under a ladder that ends
//     at 18): one channel believed to carry 0.1 GB/s.
// Worked example: 8 GPUs, 22 GB/s between sockets: 1 x 20 GB/s. 512 KiB:
//   LL     6.6 + 14 * 1.0 + 524288 / (20e3 * 0.5 * 8/14) = 112.4 us
//   Simple 8.4 + 14 * 5.7 + 524288 / (20e3 * 8/14)       = 134.1 us: LL is taken.
// Worked example: the failed search, B = 0.1. 8 KiB: LL 307 us, Simple 232 us: Simple is taken.

#include <cstdint>
#include <string>
#include <vector>

#include "model/collective_settings.h"
#include "model/machine.h"
#include "model/plan.h"

namespace draftboard::sim {

/// What the graph search finds for one set of GPUs.
struct NcclGraph {
    std::vector<int> ring;    ///< GPU ordinals in ring order
    std::vector<bool> peer;   ///< hop ring[i] -> ring[i+1] direct (else through host memory)
    int search_channels = 1;  ///< as the search finds them (and prints them)
    double speed_gb_s = 0;    ///< per search channel
    int channels = 2;         ///< that collectives may use: twice the search's
    bool nvlink = false;      ///< all hops over NVLink
    bool nvswitch = false;    ///< multicast in the switch (NVLS) possible
    bool search_failed = false;
    double inter_cpu_gb_s = 0;   ///< the socket link as NCCL counts it; 0: the ring crosses none
    int compute_capability = 0;  ///< 90, 120, ...
    std::vector<std::string> remarks;

    [[nodiscard]] double bus_gb_s() const { return search_channels * speed_gb_s; }
    [[nodiscard]] bool through_host() const;  ///< some hop is staged in host memory
};

/// What NCCL takes from the CPU's name, where a calibration that has seen a host's switch points
/// knows better.
struct NcclBelief {
    double inter_cpu_gb_s = 0;  ///< the link between sockets; 0: nccl_inter_cpu_gb_s(host)
    /// Up to so many GPUs talk directly over any distance; 0: 2 on AMD, else none.
    int peer_ranks = 0;
};

[[nodiscard]] model::Expected<NcclGraph> nccl_graph(const model::Machine& machine,
                                                    const model::Router& router,
                                                    const std::vector<int>& gpus,
                                                    const model::CollectiveSettings& settings,
                                                    const NcclBelief& belief = {});

/// NCCL's constant for the link between the sockets of this host, GB/s.
[[nodiscard]] double nccl_inter_cpu_gb_s(const model::HostSpec& host);

/// Whether NCCL moves bytes directly between two of `ranks` GPUs (else through host memory): the
/// driver allows it and the path is no farther than settings.peer_level; at peer_level's default,
/// up to belief.peer_ranks GPUs any distance will do.
[[nodiscard]] bool nccl_reaches(const model::Machine& machine, const model::Router& router,
                                const model::CollectiveSettings& settings, int from, int to,
                                int ranks, const NcclBelief& belief = {});

/// One row of NCCL's table. `nvls`: reduced inside the NVSwitch; algorithm then reads `tree`.
struct NcclOption {
    model::Algorithm algorithm = model::Algorithm::ring;
    model::Protocol protocol = model::Protocol::ll;
    bool nvls = false;
    double latency_us = 0;
    double bandwidth_gb_s = 0;  ///< bytes of S over time, 0: not available
    double predicted_us = 0;
};

/// All options that NCCL compares, available or not. Precondition: a ring collective, bytes >= 0.
[[nodiscard]] std::vector<NcclOption> nccl_options(const NcclGraph& graph,
                                                   const model::CollectiveSettings& settings,
                                                   model::OperationKind operation,
                                                   std::int64_t bytes);

/// How the bytes are split over thread blocks.
struct NcclSplit {
    int channels = 1;
    int threads = 512;
};

struct NcclChoice {
    NcclOption option;
    NcclSplit split;
};

/// The option with the least predicted time. all_to_all is a set of sends: LL up to 16 KiB a peer,
/// else Simple, no model. Errors: an algorithm or protocol is forced that the operation does not
/// have.
[[nodiscard]] model::Expected<NcclChoice> nccl_choose(const NcclGraph& graph,
                                                      const model::CollectiveSettings& settings,
                                                      model::OperationKind operation,
                                                      std::int64_t bytes);

/// Channels are dropped while there are fewer than 8 (LL128), 8 n (ring LL) or 64 (Simple) bytes a
/// thread, then threads halved. Ring LL at 8 ranks: the second channel from 2 * 512 * 64 B = 64 KiB
/// on.
[[nodiscard]] NcclSplit nccl_split(const NcclGraph& graph, model::Algorithm algorithm,
                                   model::Protocol protocol, std::int64_t bytes,
                                   int fixed_channels);

/// The payload that NCCL reasons with: all_gather's contribution times the ranks, else as it is.
[[nodiscard]] std::int64_t nccl_bytes(model::OperationKind operation, std::int64_t bytes_per_rank,
                                      int ranks);

}  // namespace draftboard::sim
