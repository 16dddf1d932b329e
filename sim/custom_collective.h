// SPDX-License-Identifier: Apache-2.0
#pragma once
// All-reduces that engines bring instead of NCCL's, over peer access or host memory. S bytes, n ranks;
// "moves" are priced on the links with all flows of a phase at once, latency apart.
//
//   one_shot      every rank gives its S to all others                     T = kernel + peers + hop + S to each
//   two_shot      S/n to each, reduced, S/n from each                      T = kernel + peers + 2 (hop + S/n to each) + barrier
//   hierarchical  islands of g ranks (a NUMA node each), m islands: S/g to each within the island, S/g
//                 to each counterpart in the other islands, S/g within the island again
//                                                                          T = kernel + peers + hops of 3 phases + 2 barriers + moves
//   host_staged   S into pinned memory of the own node, n-1 reads of S     T = kernel + flag + there + 2 back + moves
//
// push: the giver writes, one hop a phase. pull: the taker reads, a round trip a phase; reads do not
// fall under a fabric's write collapse. Worked example: 8 GPUs on two sockets, 14,336 bytes: one_shot
// crosses the sockets with 4 x 4 x 14,336 bytes a direction, hierarchical with 4 x 3,584.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "model/collective_settings.h"
#include "model/machine.h"
#include "sim/collective_constants.h"
#include "sim/collective_network.h"

namespace draftboard::sim {

/// What a priced algorithm comes to, in microseconds.
struct CollectiveTerms {
    double latency_us = 0;
    double transport_us = 0;
    std::string formula;
};

class CustomCollectives {
   public:
    /// All references must outlive this object.
    CustomCollectives(const model::Router& router, const CollectiveNetwork& network,
                      const CollectiveConstants& constants,
                      const model::CollectiveSettings& settings)
        : router_(router), network_(network), constants_(constants), settings_(settings) {}

    /// Empty if the configured implementation can run an all-reduce of `bytes` over these GPUs, else why not.
    [[nodiscard]] std::string why_not(const std::vector<int>& gpus, std::int64_t bytes) const;

    /// Precondition: why_not() is empty.
    [[nodiscard]] model::Expected<CollectiveTerms> price(const std::vector<int>& gpus,
                                                         double bytes) const;

    /// Runs the bytes over the links: one-shot's and the host-staged one's whole, else one phase of two-shot.
    [[nodiscard]] model::Expected<void> sample(
        const std::vector<int>& gpus, double bytes,
        const std::function<void(Time, const std::vector<double>&)>& on_rates) const;

   private:
    using Islands = std::vector<std::vector<int>>;
    struct Phase {
        double hop_us = 0;  ///< longest
        double move_us = 0;
    };
    /// The GPUs by NUMA node, in order of first appearance.
    [[nodiscard]] Islands islands_of(const std::vector<int>& gpus) const;
    /// `pairs` (giver, taker) move `bytes` each, all at once.
    [[nodiscard]] model::Expected<Phase> move(const std::vector<std::pair<int, int>>& pairs,
                                              double bytes) const;
    [[nodiscard]] model::Expected<CollectiveTerms> price_shots(const std::vector<int>& gpus,
                                                               double bytes) const;
    [[nodiscard]] model::Expected<CollectiveTerms> price_hierarchical(const std::vector<int>& gpus,
                                                                      double bytes) const;
    [[nodiscard]] model::Expected<CollectiveTerms> price_host_staged(const std::vector<int>& gpus,
                                                                     double bytes) const;

    const model::Router& router_;
    const CollectiveNetwork& network_;
    const CollectiveConstants& constants_;
    const model::CollectiveSettings& settings_;
};

}  // namespace draftboard::sim
