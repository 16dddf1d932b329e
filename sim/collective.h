// SPDX-License-Identifier: Apache-2.0
#pragma once
// Collectives as steps over links. What NCCL would *choose* (nccl_tuner.h) is kept apart from the
// *time* that the chosen algorithm takes on this machine's links (here). Times are for ranks that
// arrive together; waiting for late ranks is added by the rank simulation (ranks.h), never here.
// Constants are collective_constants.h, the ring's schedule is collective_steps.h,
// docs/collectives.md works one out by hand.
//
//   n ranks, c channels, S bytes (all_gather: n * contribution), m = S / (n c) a channel and step
//   ring   T = kernel + loops * (pipeline(steps, slices, L_h, d_h) + drain)
//          steps 2(n-1) all_reduce, n-1 all_gather, reduce_scatter; loops = ceil(m / chunk)
//   Simple d_h = m c / x_h       x_h: max-min share of hop h, at most what c channels move;
//                                up to 2 slices, chunk 2 MiB
//   LL     d_h = K max(trip, w / x_h) in K slices over switches, w / x_h for K = 1; through a CPU
//          or its memory w / x_h + (K - 1) max(trip, w / x_h), the step arriving as a whole
//                                K = ceil(m / (8 threads)) trips = slices, w = 2 m c / K bytes on the
//                                wire a trip, chunk 32 KiB
//   LL128  as LL, with trips of 60 bytes a thread and wire = payload * 128 / 120
//   drain  the ends: LL (K - 1) max(0, ll_ends - max(trip, w / x)), Simple simple_drain m c / x
//   tree   (a chain in one node) up and down at once; NVLS: S over the NVLinks once
//   all_to_all  all pairs at once; one_shot: S to all others; two_shot: S/n to all, twice
// Worked example (8 GPUs, LL, 64 KiB, 2 channels, staged hops of 1.4 us): m = 4 KiB = 1 trip,
//   w = 16 KiB, at 45 GB/s 0.36 us: 5 + 14 * (1.4 + 0.36) = 29.7 us.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/collective_settings.h"
#include "model/machine.h"
#include "model/plan.h"
#include "sim/collective_constants.h"
#include "sim/coverage.h"
#include "sim/time.h"

namespace draftboard::sim {

using model::Algorithm;
using model::CollectiveSettings;
using model::Implementation;
using model::Protocol;

struct CollectiveRequest {
    model::OperationKind operation = model::OperationKind::all_reduce;
    std::vector<int> gpus;     ///< GPU ordinals taking part, in rank order
    std::int64_t bytes = 0;    ///< payload per rank (all_gather: contribution of one rank)
    bool graph_launch = true;  ///< inside a CUDA graph (else a launch cost is the host's, not ours)
};

struct CollectiveChoice {
    Implementation implementation = Implementation::nccl;
    Algorithm algorithm = Algorithm::ring;
    Protocol protocol = Protocol::ll;
    int channels = 1;
    bool through_host = false;   ///< SHM transport: staged in host memory
    bool search_failed = false;  ///< NCCL's graph search fell back to its 0.1 GB/s default
    bool nvls = false;           ///< reduced inside the NVSwitch; algorithm then reads tree
    double predicted_us = 0;     ///< what NCCL's own model believes the choice takes
};

struct CollectiveTime {
    Time total = 0;    ///< = latency + transport
    Time latency = 0;  ///< launch, steps' hop latencies and handshakes: what a 1-byte message pays
    Time transport = 0;  ///< bytes moving
    Time skew = 0;           ///< expected lateness of the last rank, which is wait: CPU ranks only, see shared_memory_collective.h
    double skew_share = 0;   ///< the same per time of kernels since the last collective
    CollectiveChoice choice;
    Coverage coverage = Coverage::datasheet;
    double relative_uncertainty = 0.3;  ///< standard deviation of total / total
    std::string formula;                ///< for `explain`: the terms with numbers
    std::vector<std::string> remarks;   ///< rules that applied, risks (LL128 over SYS, ...)
};

/// Utilisation of links while a collective runs, for traces: (time since its start, link,
/// direction, bytes/s).
struct LinkSample {
    Time at = 0;
    int link = 0;
    bool forward = true;
    double bytes_per_s = 0;
};

inline constexpr std::int64_t kMaxCollectiveBytes = std::int64_t{1} << 50;
inline constexpr int kMaxSampledRanks = 64;    ///< link_samples() runs the event simulation

/// Prices collectives on one machine; remembers what it has priced (same request, same answer).
/// Not thread-safe: one per thread.
class CollectiveModel {
 public:
    CollectiveModel(const model::Machine& machine, CollectiveSettings settings);
    CollectiveModel(const model::Machine& machine, CollectiveSettings settings,
                    const CollectiveConstants& constants);
    ~CollectiveModel();
    CollectiveModel(CollectiveModel&&) noexcept;
    CollectiveModel& operator=(CollectiveModel&&) noexcept;

    /// Errors: no GPU, one named twice or unknown, negative or absurd bytes, an operation that is
    /// no collective, more ranks than all_to_all and one_shot are simulated for. One GPU or no
    /// bytes: zero.
    [[nodiscard]] model::Expected<CollectiveTime> time(const CollectiveRequest& request);
    /// What the links carry while it runs: the same schedule simulated in full, one entry for each
    /// change. Of a ring of several loops the first is shown.
    [[nodiscard]] model::Expected<std::vector<LinkSample>> link_samples(
        const CollectiveRequest& request);

 private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace draftboard::sim
