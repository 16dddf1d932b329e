// SPDX-License-Identifier: Apache-2.0
#pragma once
// The schedule of a ring: who sends when. Rank r's step s may begin when its step s-1 has left and
// when step s-1 of rank r-1 has arrived; a step is cut into slices that follow each other through
// the ring.
//
//   send(r, s, j) starts at   max( end(r, previous slice), end(r-1, s-1, j) + L_{r-1} )
//                             over a hop that does not stream  end(r-1, s-1, last) + L_{r-1}
//   and lasts                 d_r = max( b / (J x_r), f_r / J ) + o
//   b bytes a step on the wire   J slices                x_r rate of hop r
//   f_r least time of a step     o stop at each slice    L_r latency of hop r
// The last arrival ends the ring.
// Worked example: 4 equal ranks, 6 steps, b = 100 kB, x = 25 GB/s, L = 1 us, o = 0. J = 1:
//   6 * (4 + 1) = 30 us. J = 2: slices of 2 us follow each other without a gap, the second hides
//   the latency of the first: 6 * 4 + 1 = 25 us.
//
// Two ways to the same number: pipeline_us() takes all x_r as given, one recurrence over the grid
// (microseconds to compute); simulate_ring_us() runs the same schedule over the fair-share network,
// where a hop's rate changes whenever others start and stop. They agree exactly when all hops are
// alike: every rank then starts its step at the same instant, so the set of active flows never
// changes within a step and the rates are the max-min rates of all hops at once. On uneven machines
// the recurrence is pessimistic, for while a fast hop idles the others may use its share; a test
// holds them against each other.

#include <functional>
#include <vector>

#include "sim/link_network.h"

namespace draftboard::sim {

struct RingHop {
    std::vector<ResourceUse> uses;
    double rate_cap = 0;    ///< bytes/s
    double latency_us = 0;  ///< of the route and the protocol's handshake
    double least_us = 0;    ///< what a step takes even on an idle link
    bool streams = true;    ///< slices are passed on one by one; else a step arrives as a whole
};

struct RingSchedule {
    std::vector<RingHop> hops;  ///< hop r: from rank r to rank r+1
    int steps = 0;
    int slices = 1;
    double bytes = 0;     ///< a step, on the wire
    double slice_us = 0;  ///< stop at each slice
};

/// `rates[r]` in bytes/s. Cost: hops * steps * slices.
[[nodiscard]] double pipeline_us(const RingSchedule& schedule, const std::vector<double>& rates);

/// The full event simulation over links of these capacities.
[[nodiscard]] double simulate_ring_us(
    const RingSchedule& schedule, const std::vector<double>& capacities,
    const std::function<void(Time, const std::vector<double>&)>& on_rates = {});

}  // namespace draftboard::sim
