// SPDX-License-Identifier: Apache-2.0
#pragma once
// Flows over shared links: max-min fairness, latency paid before a flow takes bandwidth.
//
// Resources r have a capacity C_r (bytes/s). A flow f uses each resource on its route with a weight
// w_fr > 0 (1 for a plain use; C_write/C_read where reads and writes differ) and may have a rate
// cap. Rates x_f are the max-min fair ones:  for all r: sum_f w_fr x_f <= C_r,  and no x_f can grow
// without shrinking some x_g <= x_f. Found by progressive filling: raise all rates together; when a
// resource is full (or a cap met) freeze the flows on it; repeat.
// Worked example: A over r1; B over r1 and r2; C over r2; C_1 = 10, C_2 = 4: B = C = 2, A = 8.
//
//   set by the caller: capacities, routes, bytes, latency    computed: rates, completion times
//
// What fair sharing can't show (posted-write collapse) enters as group caps: a set of flows that
// together may not exceed a rate while at least `min_members` distinct sources are active.

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "sim/engine.h"

namespace draftboard::sim {

struct ResourceUse {
    int resource = 0;
    double weight = 1.0;
};

struct FlowSpec {
    std::vector<ResourceUse> uses;
    double bytes = 0;  ///< as on the wire, protocol overhead included; 0 completes after latency
    Time latency = 0;  ///< paid first, without holding bandwidth
    double rate_cap = std::numeric_limits<double>::infinity();  ///< bytes/s
    int source = -1;  ///< for group caps: identity of the writer
    int group = -1;   ///< index of a group cap it belongs to, -1: none
    Engine::Callback on_done;
};

/// While flows of the group from >= min_sources distinct sources are active, their rates sum to at
/// most `rate`.
struct GroupCap {
    int min_sources = 2;
    double rate = 0;  ///< bytes/s
};

class LinkNetwork {
 public:
    LinkNetwork(Engine& engine, std::vector<double> capacities, std::vector<GroupCap> groups = {});
    ~LinkNetwork();
    LinkNetwork(const LinkNetwork&) = delete;
    LinkNetwork& operator=(const LinkNetwork&) = delete;

    /// Starts a flow now. Its on_done runs at its completion time.
    void start(FlowSpec spec);

    /// Bytes moved over each resource so far (weights not applied), for conservation checks and
    /// counters.
    [[nodiscard]] const std::vector<double>& bytes_moved() const;

    /// If set, called whenever rates change, with the load of each resource in bytes/s (for
    /// traces).
    std::function<void(Time, const std::vector<double>&)> on_rates;

 private:
    void changed();  // flows came or went at this instant: share anew after all of them
    void book_next_completion();  // schedules complete() for the soonest flow
    void complete();
    struct Impl;
    Impl* impl_;
};

/// The fair-share solver alone: rates for flows given capacities. uses[f] lists flow f's resources
/// (indices into capacities, weights > 0); caps may be fewer than flows, the rest is uncapped. A
/// flow that nothing bounds gets infinity. At most one round a flow, each linear in uses and
/// capacities.
[[nodiscard]] std::vector<double> max_min_rates(const std::vector<double>& capacities,
                                                const std::vector<std::vector<ResourceUse>>& uses,
                                                const std::vector<double>& rate_caps);

}  // namespace draftboard::sim
