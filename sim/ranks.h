// SPDX-License-Identifier: Apache-2.0
#pragma once
// One pass of a plan on all ranks of a tensor-parallel group: a host thread and a stream a rank, and
// collectives that begin when the last rank arrives. This is where waiting comes from, and where it is
// kept apart from transport.
//
//   eager    host_i = host_{i-1} + launch * rank factor * jitter      start_i = max(stream + stream gap, host_i + launch latency)
//   graph    one launch; start_i = stream + kernel gap
//   piecewise  attention layers as eager with piece_us as their launch, the runs between them as graphs,
//            one launch each
//   kernel   stream = start_i + time_i * rank jitter
//   collective  arrival_r = start on rank r; all leave at max_r arrival_r + latency + transport;
//               wait_r = max arrival - arrival_r
//
// Between two collectives a rank depends on nothing but itself, so it is advanced in one event up to its
// next arrival: exact, and a few thousand events a pass. Worked example: 2 ranks, one 10 us kernel, ranks'
// factors 1 and 2 on a 6 us launch, launch latency 0: arrivals 16 and 22 us; rank 0 waits 6 us.

#include <cstdint>
#include <string>
#include <vector>

#include "model/random.h"
#include "model/scenario.h"
#include "sim/host_constants.h"
#include "sim/time.h"

namespace draftboard::sim {

using model::Random;

/// One operation of a pass with its price; made from a Plan by pass_cost.h.
struct PricedOperation {
    bool collective = false;
    bool eager_piece = false;  ///< launched eagerly in piecewise mode
    bool layer_piece = false;  ///< then stands for the whole layer between two graphs: piece_us
    bool fused = false;        ///< runs inside its predecessor: no launch, no gap
    Time kernel = 0;           ///< not for collectives
    Time latency = 0;          ///< collectives
    Time transport = 0;        ///< collectives
};

/// When an operation ran on one rank, and what its time was made of.
struct OperationTimes {
    Time start = 0;   ///< kernel start, for collectives the arrival
    Time end = 0;
    Time idle = 0;    ///< stream idle before start: launch gap or waiting for the host
    Time wait = 0;    ///< collectives: for the last rank
};

struct PassTimes {
    Time total = 0;  ///< from the host's first launch to the last rank's last operation
    int ranks = 0;
    std::size_t operations = 0;
    std::vector<OperationTimes> times;  ///< (rank, operation)
    std::vector<Time> rank_end;

    [[nodiscard]] const OperationTimes& at(int rank, std::size_t operation) const {
        return times[static_cast<std::size_t>(rank) * operations + operation];
    }
};

[[nodiscard]] PassTimes simulate_pass(const std::vector<PricedOperation>& operations, int ranks,
                                      model::LaunchMode mode, const HostConstants& host,
                                      Random random);

}  // namespace draftboard::sim
