// SPDX-License-Identifier: Apache-2.0
#pragma once
// Collectives of ranks that are threads of one process and share memory: the price of what
// backend/cpu/communicator.h runs. No links and no NCCL here; collective.h asks this file where the machine's
// "GPUs" are CPU cores.
//
//   R ranks, S bytes a rank (all_gather: contribution of one rank), b one barrier, B bytes a second of one rank's reads
//   one_shot     t = call + 2 b   + (R - 1) S / B_one_shot            every rank reads all others' buffers
//   ring         t = call + (R + 1) b + 2 (R - 1) / R S / B_ring          parts of S / R, reduced, then gathered
//   all_gather   t = call + 2 b   + (R - 1) S / B_gather
//   latency = call and barriers, transport = bytes
//   wait         w = skew + skew_share t_k     t_k: kernels of the rank since its last collective
// A rank is late by chance (interrupts, another core's clock), the more so the longer it has worked; the
// last one is what all wait for. The wait is no part of t.
//
// One set of constants holds for one number of ranks, because ranks share the last-level cache and its bandwidth
// (and cores of one processor their power): B, b and the skew are measured for each number of ranks and interpolated
// between them. Worked example: 2 ranks, call 0.1 us, b 0.2 us, B 10 GB/s, S = 1024: one_shot 0.1 + 0.4 + 0.1 = 0.6 us.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/collective_settings.h"
#include "model/error.h"
#include "model/plan.h"

namespace draftboard::sim {

struct SharedMemoryConstants {
    double ranks = 2;            ///< that these were measured with
    double call_us = 0.1;
    double barrier_us = 0.3;
    double one_shot_gb_s = 8;
    double ring_gb_s = 8;
    double gather_gb_s = 8;
    double skew_us = 0;
    double skew_share = 0;
    double relative_error = 0.3; ///< standard deviation of log(measured / fitted)
    double bytes_low = 0;        ///< range of S that the fit saw; 0, 0: not measured
    double bytes_high = 0;
    double points = 0;
    bool operator==(const SharedMemoryConstants&) const = default;
};

/// The numbers by name, in the order of files.
[[nodiscard]] const std::vector<std::pair<std::string_view, double SharedMemoryConstants::*>>& shared_memory_fields();

/// By number of ranks, ascending. Between two measured numbers: linear in the number of ranks; beyond: the nearest.
/// Empty: the initialisers above.
[[nodiscard]] SharedMemoryConstants shared_memory_constants(const std::vector<SharedMemoryConstants>& measured, int ranks);

struct SharedMemoryTime {
    double latency_us = 0;
    double transport_us = 0;
    double skew_us = 0;
    double skew_share = 0;
    bool inside = false;  ///< within what was measured
    double relative_error = 0;
    std::string formula;
};

/// `algorithm`: ring, or anything else for one_shot (all_reduce only). Precondition: ranks >= 2, bytes >= 0.
/// Errors: operations that the engine's communicator does not have.
[[nodiscard]] model::Expected<SharedMemoryTime> shared_memory_time(const std::vector<SharedMemoryConstants>& measured,
                                                                   model::OperationKind operation, model::Algorithm algorithm,
                                                                   int ranks, double bytes);

}  // namespace draftboard::sim
