// SPDX-License-Identifier: Apache-2.0
#pragma once
// What NCCL's own collectives take once NCCL has chosen (nccl_tuner.h): rings over the steps of
// collective_steps.h, the tree (a chain in one node), NVLS, and exchanges of all pairs. The formulas
// stand in collective.h. Custom all-reduces are custom_collective.h; coverage and memory of answers
// are CollectiveModel's.

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "sim/collective.h"
#include "sim/collective_network.h"
#include "sim/collective_steps.h"
#include "sim/custom_collective.h"
#include "sim/nccl_tuner.h"

namespace draftboard::sim {

/// Told of each change: the time since the bytes began to move, and bytes/s by network resource.
using RatesCallback = std::function<void(Time, const std::vector<double>&)>;

class NcclCollectives {
   public:
    /// All references must outlive this object.
    NcclCollectives(const model::Machine& machine, const model::Router& router,
                    const CollectiveNetwork& network, const CollectiveConstants& constants,
                    const CollectiveSettings& settings)
        : machine_(machine), router_(router), network_(network), constants_(constants), settings_(settings) {}

    /// Chooses as NCCL would, says so in `time` (choice, remarks), and prices the choice.
    [[nodiscard]] model::Expected<CollectiveTerms> price(const CollectiveRequest& request,
                                                         CollectiveTime& time);
    /// Runs the bytes of a priced request over the links in full.
    [[nodiscard]] model::Expected<void> sample(const CollectiveRequest& request,
                                               const CollectiveChoice& choice,
                                               const RatesCallback& on_rates);

   private:
    struct Ring {
        NcclGraph graph;
        std::vector<TransferPath> paths;  // hop r: graph.ring[r] -> graph.ring[r+1]
    };
    struct RingPlan {
        RingSchedule schedule;
        std::vector<double> rates;
        double loops = 1;
        double drain_us = 0;
        double trips = 1;
        double slowest_gb_s = 0;
        double hop_us = 0;  // mean
    };

    [[nodiscard]] const TransportConstants& of(Transport transport) const;
    [[nodiscard]] NcclBelief belief() const;
    [[nodiscard]] CollectiveSettings settings_for(model::OperationKind operation) const;
    [[nodiscard]] double efficiency(const TransferPath& path, Protocol protocol) const;
    [[nodiscard]] model::Expected<const Ring*> ring_of(const std::vector<int>& gpus);
    [[nodiscard]] model::Expected<std::vector<TransferPath>> all_pairs(const std::vector<int>& gpus) const;
    [[nodiscard]] RingPlan plan_ring(const Ring& ring, model::OperationKind operation, double bytes,
                                     const CollectiveChoice& choice, int threads) const;
    [[nodiscard]] CollectiveTerms price_ring(const Ring& ring, model::OperationKind operation, double bytes,
                                             const CollectiveChoice& choice, int threads) const;
    [[nodiscard]] CollectiveTerms price_tree(const Ring& ring, double bytes, const CollectiveChoice& choice,
                                             int threads) const;
    [[nodiscard]] CollectiveTerms price_nvls(const Ring& ring, model::OperationKind operation,
                                             double bytes) const;
    [[nodiscard]] model::Expected<CollectiveTerms> price_exchange(const CollectiveRequest& request,
                                                                  const CollectiveChoice& choice);

    const model::Machine& machine_;
    const model::Router& router_;
    const CollectiveNetwork& network_;
    const CollectiveConstants& constants_;
    const CollectiveSettings& settings_;
    std::map<std::vector<int>, Ring> rings_;
    std::map<std::pair<std::vector<int>, Protocol>, double> exchange_s_per_byte_;
};

}  // namespace draftboard::sim
