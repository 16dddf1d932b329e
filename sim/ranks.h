// SPDX-License-Identifier: Apache-2.0
#pragma once
// One pass of a plan on all ranks of a tensor-parallel group: a host thread, a main and a side stream a
// rank, and collectives that begin when the last rank arrives. This is where waiting comes from, and where
// it is kept apart from transport.
//
//   eager    host_i = host_{i-1} + launch * rank factor * jitter      start_i = max(stream + stream gap, host_i + launch latency)
//   graph    one launch; start_i = stream + kernel gap
//   piecewise  attention layers as eager with piece_us as their launch, the runs between them as graphs,
//            one launch each
//   kernel   stream = start_i + time_i * rank jitter
//   chain    behind another kernel of the same graph time_i is less by min(chain saving, chain share x time_i): it was launched early
//   collective  arrival_r = start on rank r; all leave at max_r arrival_r + latency + transport;
//               wait_r = max arrival - arrival_r
//   event    an operation may wait for an earlier one of the other stream: start >= end of `after` + gap
//   join     where two streams meet again, both have used one memory (and one set of multipliers):
//            start >= end of `fork` + joint + gap     joint = sum over both streams of max(bytes / bandwidth,
//                                                     flops / rate); what that adds is *contention*
//   host sync  host_i = max(host_i, end_i + sync): what follows is launched after the device got there; a
//            graph is cut at it
//
// Kernels side by side are not slowed by each other otherwise, and a collective beside kernels takes no
// multiprocessors from them: side by side is at best what is priced here. Between two collectives a rank depends on nothing but itself, so it is advanced in one event up to its
// next arrival: exact, and a few thousand events a pass. Worked example: 2 ranks, one 10 us kernel, ranks'
// factors 1 and 2 on a 6 us launch, launch latency 0: arrivals 16 and 22 us; rank 0 waits 6 us. Two streams of
// 30 and 20 us of which 25 and 15 us are bytes, gaps of 1 us: they join at 1 + 30 + 1 = 32 us for time alone, at
// 25 + 15 + 1 = 41 us for the memory: 9 us of contention.

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
    bool host_sync = false;    ///< the host waits for its end; not for collectives
    int stream = 0;            ///< 1: the side stream; its operations are no collectives and all joined
    int after = -1;            ///< waits for the end of this earlier operation too
    bool join = false;         ///< of the main stream; `after` is then the side stream's last
    int fork = -1;             ///< joins: the operation behind which the streams parted, -1: the pass's begin
    Time joint = 0;            ///< joins: what memory and multipliers need for both streams
    Time kernel = 0;           ///< not for collectives
    Time latency = 0;          ///< collectives
    Time transport = 0;        ///< collectives
    Time skew = 0;             ///< collectives: lateness of the last rank that no rank's own clock holds; counted as wait
};

/// When an operation ran on one rank, and what its time was made of.
struct OperationTimes {
    Time start = 0;   ///< kernel start, for collectives the arrival
    Time end = 0;
    Time idle = 0;    ///< stream idle before start: launch gap or waiting for the host
    Time wait = 0;    ///< collectives: for the last rank
    Time contention = 0;  ///< joins: beyond the longer stream, for memory that both streams use
    bool hidden = false;  ///< beside the longer stream: not on the rank's critical path
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
