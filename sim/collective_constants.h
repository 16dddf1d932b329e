// SPDX-License-Identifier: Apache-2.0
#pragma once
// The constants of the collective model: few, named, physical, the same for all world sizes and message sizes
// of one machine. Defaults come from published constants; a calibration (written by
// calibration/collective_fit.h) replaces them. What they mean in the formulas: collective.h and docs/collectives.md.
//
// File: {"format": "draftboard.collective_calibration", "version": 1, "system", "machines": [names],
// "constants": {...}, "entries": [{operation, gpus, error, bytes_low, bytes_high, points}], "provenance": {...}}

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/json_reader.h"
#include "model/plan.h"

namespace draftboard::sim {

/// How bytes go from one GPU to the next.
enum class Transport { peer, staged, nvlink };
[[nodiscard]] std::string_view to_name(Transport transport);

struct TransportConstants {
    double ll_hop_us = 0;      ///< LL: flag seen and acted on, beyond the route's own latency
    double ll_trip_us = 0;     ///< LL: period of one trip of a thread block (512 threads x 8 bytes) round its loop
    double ll_efficiency = 1;  ///< share of the links' capacity that a burst of LL stores reaches
    double ll128_hop_us = 0;
    double ll128_trip_us = 0;  ///< LL128: trip of 640 threads x 15 bytes x 4
    double simple_hop_us = 0;    ///< Simple: post, fence, poll of one step, beyond the route's latency
    double simple_slice_us = 0;  ///< Simple: what a block stops for at every slice
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

struct CollectiveConstants {
    TransportConstants peer;
    TransportConstants staged;
    TransportConstants nvlink;

    double kernel_us = 0;      ///< a ring kernel's start and end, replayed or queued back to back
    double ll_drain = 0;       ///< the last receive of a ring relative to a send: LL's further trips
    double simple_drain = 0;   ///< the same of Simple's bytes

    double nvls_us = 0;        ///< NVLS: start, barrier over the multicast group
    double nvls_efficiency = 0;  ///< share of the NVLinks' capacity

    double exchange_us = 0;       ///< all_to_all: kernel start and end
    double exchange_peer_us = 0;  ///< all_to_all: each further peer
    double exchange_trip_share = 1;   ///< LL trips of all peers that do not overlap
    double exchange_channel_gb_s = 0; ///< Simple: a block that sends and receives at once

    double custom_us = 0;           ///< one_shot, two_shot: kernel and flags
    double custom_efficiency = 0;   ///< share of the links' capacity that its loads and stores reach
    double host_flag_us = 0;        ///< host_staged: flags in host memory, beyond custom_us

    /// NCCL's constant for the socket link that explains the measured switch points; 0: by the CPU's name.
    double inter_cpu_gb_s = 0;

    std::string name = "defaults";
    std::string system;                  ///< of the measurements
    std::vector<std::string> machines;   ///< names of machines that it goes with
    std::vector<CollectiveFitEntry> entries;  ///< empty: not calibrated
    model::Json provenance;

    [[nodiscard]] const CollectiveFitEntry* entry(model::OperationKind operation,
                                                  std::string_view implementation, int gpus) const;
};

/// From literature: NCCL's hop latencies, measured kernel store rates; each with its source in the code.
[[nodiscard]] CollectiveConstants default_collective_constants();

/// The fitted numbers by name ("staged.ll_trip_us"), for files, fits and reports.
struct NamedConstant {
    std::string name;
    double CollectiveConstants::* scalar = nullptr;
    TransportConstants CollectiveConstants::* transport = nullptr;
    double TransportConstants::* field = nullptr;
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
[[nodiscard]] std::string_view collective_name(model::OperationKind operation);
[[nodiscard]] std::optional<model::OperationKind> collective_from_name(std::string_view name);

}  // namespace draftboard::sim
