// SPDX-License-Identifier: Apache-2.0
#pragma once
// Collectives as steps over links. What NCCL would *choose* (nccl_tuner.h) is kept apart from the *time*
// that the chosen algorithm takes on this machine's links (here). Times are for ranks that arrive
// together; waiting for late ranks is added by the rank simulation (ranks.h), never here.
//
//   ring all-reduce over n ranks, message S, c channels: 2(n-1) steps; in each, every rank sends
//   S/(n c) per channel to its successor. Wire bytes = payload / efficiency(protocol):
//   LL 1/2 (8 data + 8 flag bytes), LL128 120/128, Simple 1.
//
// time = overhead (kernel) + steps, each max(latency of the hop + protocol handshake, bytes at the fair share).

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/collective_settings.h"
#include "model/machine.h"
#include "model/plan.h"
#include "sim/coverage.h"
#include "sim/time.h"

namespace draftboard::sim {

using model::Algorithm;
using model::CollectiveSettings;
using model::Implementation;
using model::Protocol;

struct CollectiveRequest {
    model::OperationKind operation = model::OperationKind::all_reduce;
    std::vector<int> gpus;       ///< GPU ordinals taking part, in rank order
    std::int64_t bytes = 0;      ///< payload per rank (all_gather: contribution of one rank)
    bool graph_launch = true;    ///< inside a CUDA graph (else a launch cost is the host's, not ours)
};

struct CollectiveChoice {
    Implementation implementation = Implementation::nccl;
    Algorithm algorithm = Algorithm::ring;
    Protocol protocol = Protocol::ll;
    int channels = 1;
    bool through_host = false;      ///< SHM transport: staged in host memory
    bool search_failed = false;     ///< NCCL's graph search fell back to its 0.1 GB/s default
    double predicted_us = 0;        ///< what NCCL's own model believes the choice takes
};

struct CollectiveTime {
    Time total = 0;      ///< = latency + transport
    Time latency = 0;    ///< launch, steps' hop latencies and handshakes: what a 1-byte message pays
    Time transport = 0;  ///< bytes moving
    CollectiveChoice choice;
    Coverage coverage = Coverage::datasheet;
    double relative_uncertainty = 0.3;  ///< standard deviation of total / total
    std::string formula;                ///< for `explain`: the terms with numbers
    std::vector<std::string> remarks;   ///< rules that applied, risks (LL128 over SYS, ...)
};

/// Utilisation of links while a collective runs, for traces: (time since its start, link, direction, bytes/s).
struct LinkSample {
    Time at = 0;
    int link = 0;
    bool forward = true;
    double bytes_per_s = 0;
};

/// Constants of the collective model with their sources; a calibration replaces them.
struct CollectiveConstants;

/// Prices collectives on one machine; remembers what it has priced (same request, same answer).
/// Not thread-safe: one per thread.
class CollectiveModel {
   public:
    CollectiveModel(const model::Machine& machine, CollectiveSettings settings);
    CollectiveModel(const model::Machine& machine, CollectiveSettings settings,
                    const CollectiveConstants& constants);
    ~CollectiveModel();
    CollectiveModel(CollectiveModel&&) noexcept;

    [[nodiscard]] model::Expected<CollectiveTime> time(const CollectiveRequest& request);
    /// The same, and what the links carry while it runs.
    [[nodiscard]] model::Expected<std::vector<LinkSample>> link_samples(
        const CollectiveRequest& request);

   private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace draftboard::sim
