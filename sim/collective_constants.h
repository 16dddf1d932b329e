// SPDX-License-Identifier: Apache-2.0
#pragma once
// The constants of the collective model: few, named, physical, the same for all world sizes and
// message sizes of one machine. Defaults come from published constants; a calibration (written by
// calibration/collective_fit.h) replaces them. What they mean in the formulas: collective.h and
// docs/collectives.md.
//
// File: {"format": "draftboard.collective_calibration", "version": 1, "system",
//   "machines": [names], "constants": {name: number}, "provenance": {...},
//   "entries": [{operation, implementation, gpus, error, bytes_low, bytes_high, points}]}

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/json_reader.h"
#include "model/plan.h"
#include "sim/shared_memory_collective.h"

namespace draftboard::sim {

/// How bytes go from one GPU to the next.
enum class Transport { peer, staged, nvlink };
[[nodiscard]] std::string_view to_name(Transport transport);

struct TransportConstants {
    double ll_hop_us = 0;  ///< LL: flag seen and acted on, beyond the route's own latency
    /// LL: period of one trip of a thread block (512 threads x 8 bytes) round its loop.
    double ll_trip_us = 0;
    double ll_efficiency = 1;  ///< share of the links' capacity that a burst of LL stores reaches
    /// LL: a further trip of the first step, which only sends, and one of the last, which only receives, together.
    double ll_ends_us = 0;
    double ll128_hop_us = 0;
    double ll128_trip_us = 0;  ///< LL128: trip of 640 threads x 15 bytes x 4
    /// Simple: post, fence, poll of one step, beyond the route's latency.
    double simple_hop_us = 0;
    double simple_slice_us = 0;    ///< Simple: what a block stops for at every slice
    double simple_efficiency = 1;  ///< share of the links' capacity of loads and stores by kernels
    double channel_gb_s = 0;       ///< Simple: one thread block
    bool operator==(const TransportConstants&) const = default;
};

/// One operation over one number of GPUs as the fit saw it.
struct CollectiveFitEntry {
    model::OperationKind operation = model::OperationKind::all_reduce;
    std::string implementation = "nccl";
    int gpus = 0;
    double error = 0;  ///< standard deviation of log(measured / fitted)
    std::int64_t bytes_low = 0;
    std::int64_t bytes_high = 0;
    int points = 0;
    bool operator==(const CollectiveFitEntry&) const = default;
};

/// The literature's constants of a transport, each with its source in the code.
[[nodiscard]] TransportConstants default_transport(Transport transport);

struct CollectiveConstants {
    TransportConstants peer = default_transport(Transport::peer);
    TransportConstants staged = default_transport(Transport::staged);
    TransportConstants nvlink = default_transport(Transport::nvlink);

    /// A ring kernel's start and end, replayed or queued back to back. NCCL's base latency of ring
    /// LL, 6.6 us (2.30.7, src/graph/tuning.cc), includes the launch.
    double kernel_us = 5.0;
    /// Simple: the last receive of a ring relative to a send. It takes the place of a send but leaves
    /// nothing on the wire; between 0.5 and 1 on three systems (aiconfigurator tables).
    double simple_drain = 0.5;

    /// NVLS: start and barrier. 25 us in tuning.cc; 14-18 us measured on H200.
    double nvls_us = 15.0;
    /// NVLS: share of the NVLinks' capacity; tuning.cc counts on 272 of 371 GB/s.
    double nvls_efficiency = 0.73;

    // all_to_all: aiconfigurator tables, RTX PRO 6000.
    double exchange_us = 6.0;            ///< kernel start and end
    double exchange_peer_us = 0.5;       ///< each further peer
    double exchange_channel_gb_s = 7.5;  ///< Simple: a block that sends and receives at once
    double exchange_efficiency = 0.8;    ///< Simple: of what a ring reaches, with all pairs at once

    // one_shot, two_shot, host_staged.
    /// Kernel and flags: 4.5 us over two GPUs in all, of which a read's round trip is 1.4 (aiconfigurator tables).
    double custom_us = 3.1;
    /// Share of the links that its loads and stores reach: 0.72 over two GPUs (same tables), 0.63
    /// over four (95.6 us for 1 MiB, rtx6kpro one-shot).
    double custom_efficiency = 0.65;
    /// Each further peer: 6.4 us over four and 7.5-9.2 over eight GPUs of 4-8 KiB on PCIe (rtx6kpro
    /// one-shot).
    double custom_peer_us = 0.6;
    /// two_shot: barrier before the second phase (same tables, H200).
    double custom_phase_us = 2.5;
    double host_flag_us = 1.5;  ///< flags in host memory: one more round trip; assumed

    /// What NCCL believes on the calibrated host, where the measured switch points tell: the socket
    /// link in GB/s, and up to how many GPUs it lets all talk directly over any distance. 0: by the
    /// CPU's name.
    double inter_cpu_gb_s = 0;
    double peer_ranks = 0;

    /// Ranks that are CPU cores: by number of ranks, from the kernel calibration of that CPU.
    std::vector<SharedMemoryConstants> shared_memory;

    std::string name = "defaults";
    std::string system;                       ///< of the measurements
    std::vector<std::string> machines;        ///< names of machines that it goes with
    std::vector<CollectiveFitEntry> entries;  ///< empty: not calibrated
    model::Json provenance;

    [[nodiscard]] const CollectiveFitEntry* entry(model::OperationKind operation,
                                                  std::string_view implementation, int gpus) const;
};

/// What the initialisers above say: the literature's constants.
[[nodiscard]] inline CollectiveConstants default_collective_constants() { return {}; }

/// The fitted numbers by name ("staged.ll_trip_us"), for files, fits and reports.
struct NamedConstant {
    std::string name;
    double CollectiveConstants::*scalar = nullptr;
    TransportConstants CollectiveConstants::*transport = nullptr;
    double TransportConstants::*field = nullptr;
    [[nodiscard]] double get(const CollectiveConstants& constants) const;
    void set(CollectiveConstants& constants, double value) const;
};
[[nodiscard]] const std::vector<NamedConstant>& named_constants();

[[nodiscard]] model::Expected<CollectiveConstants> parse_collective_constants(
    const model::Json& json, const std::string& name);
[[nodiscard]] model::Expected<CollectiveConstants> load_collective_constants(
    const std::string& path);
[[nodiscard]] model::Json to_json(const CollectiveConstants& constants);

/// "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_receive".
[[nodiscard]] std::optional<model::OperationKind> collective_from_name(std::string_view name);

}  // namespace draftboard::sim
