// SPDX-License-Identifier: Apache-2.0
#include "sim/shared_memory_collective.h"

#include <algorithm>

#include <fmt/format.h>

namespace draftboard::sim {

using model::OperationKind;

const std::vector<std::pair<std::string_view, double SharedMemoryConstants::*>>& shared_memory_fields() {
    using S = SharedMemoryConstants;
    static const std::vector<std::pair<std::string_view, double S::*>> kFields = {
        {"ranks", &S::ranks},
        {"call_us", &S::call_us},
        {"barrier_us", &S::barrier_us},
        {"one_shot_gb_s", &S::one_shot_gb_s},
        {"ring_gb_s", &S::ring_gb_s},
        {"gather_gb_s", &S::gather_gb_s},
        {"skew_us", &S::skew_us},
        {"skew_share", &S::skew_share},
        {"relative_error", &S::relative_error},
        {"bytes_low", &S::bytes_low},
        {"bytes_high", &S::bytes_high},
        {"points", &S::points},
    };
    return kFields;
}

SharedMemoryConstants shared_memory_constants(const std::vector<SharedMemoryConstants>& measured, int ranks) {
    if (measured.empty()) return {};
    const double wanted = ranks;
    if (wanted <= measured.front().ranks) return measured.front();
    for (std::size_t i = 1; i < measured.size(); ++i) {
        const SharedMemoryConstants& right = measured[i];
        if (wanted > right.ranks) continue;
        const SharedMemoryConstants& left = measured[i - 1];
        const double share = (wanted - left.ranks) / std::max(1e-9, right.ranks - left.ranks);
        SharedMemoryConstants mixed;
        for (const auto& [name, field] : shared_memory_fields()) {
            mixed.*field = left.*field + share * (right.*field - left.*field);
        }
        return mixed;
    }
    return measured.back();
}

model::Expected<SharedMemoryTime> shared_memory_time(const std::vector<SharedMemoryConstants>& measured, OperationKind operation,
                                                     model::Algorithm algorithm, int ranks, double bytes) {
    const SharedMemoryConstants c = shared_memory_constants(measured, ranks);
    const double others = ranks - 1.0;
    double barriers = 2;
    double moved = others * bytes;
    double gb_s = c.one_shot_gb_s;
    std::string_view name = "one_shot";
    switch (operation) {
        case OperationKind::all_reduce:
            if (algorithm == model::Algorithm::ring) {
                name = "ring";
                barriers = ranks + 1.0;
                moved = 2 * others / ranks * bytes;
                gb_s = c.ring_gb_s;
            }
            break;
        case OperationKind::all_gather:
            name = "all_gather";
            gb_s = c.gather_gb_s;
            break;
        default:
            return model::fail(model::ErrorCode::unsupported,
                               fmt::format("ranks on CPU cores have no {}", model::to_name(operation)), "collective",
                               "choose a layout whose collectives are all_reduce and all_gather");
    }
    SharedMemoryTime time;
    time.latency_us = c.call_us + barriers * c.barrier_us;
    time.transport_us = moved / (std::max(gb_s, 1e-3) * 1e3);
    time.skew_us = c.skew_us;
    time.skew_share = c.skew_share;
    time.relative_error = c.relative_error;
    const bool measured_ranks = !measured.empty() && ranks >= measured.front().ranks && ranks <= measured.back().ranks;
    time.inside = measured_ranks && c.points > 0 && bytes >= c.bytes_low && bytes <= c.bytes_high;
    time.formula = fmt::format("shared memory {}: call {:.2f} us + {:g} barriers x {:.2f} us + {:g} B at {:.2f} GB/s = {:.2f} us",
                               name, c.call_us, barriers, c.barrier_us, moved, gb_s, time.latency_us + time.transport_us);
    return time;
}

}  // namespace draftboard::sim
