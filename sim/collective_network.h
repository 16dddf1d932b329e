// SPDX-License-Identifier: Apache-2.0
#pragma once
// A machine's links as resources of the fair-share network, and the ways that a collective's bytes
// take over them. Resource 2 * link + 0 is the link's forward direction, + 1 the backward one;
// capacities are those of posted writes, reads weigh C_write / C_read. Algorithms are
// collective_steps.h and collective.cpp.

#include <functional>
#include <vector>

#include "model/machine.h"
#include "sim/collective_constants.h"
#include "sim/link_network.h"

namespace draftboard::sim {

/// The way of one flow, and what a flow that has it to itself gets.
struct TransferPath {
    Transport transport = Transport::peer;
    std::vector<ResourceUse> uses;
    double rate_cap = 0;  ///< bytes/s
    double latency_us = 0;
    int source = 0;            ///< GPU ordinal
    int group = -1;            ///< index into groups(): writes up the uplink of a switch, which may collapse
    bool through_cpu = false;  ///< crosses a NUMA node: a CPU, or its memory
    double kernel_factor = 1;  ///< how many times slower a kernel's own loads and stores are
};

inline constexpr int kMaxExchangeRanks = 128;  ///< all pairs at once: n (n-1) flows

class CollectiveNetwork {
 public:
    CollectiveNetwork(const model::Machine& machine, const model::Router& router);

    /// `peer`: directly (NVLink or PCIe writes), else staged in host memory of the receiver's side.
    [[nodiscard]] model::Expected<TransferPath> between(int from, int to, bool peer) const;
    /// The taker reads directly: the request's way and the data's way back make the latency.
    [[nodiscard]] model::Expected<TransferPath> pulled(int giver, int taker) const;
    [[nodiscard]] model::Expected<TransferPath> to_host(int gpu, int numa) const;
    [[nodiscard]] model::Expected<TransferPath> from_host(int gpu, int numa) const;

    /// One path for each ordered pair; `peer` says which are direct. Error: more than kMaxExchangeRanks.
    [[nodiscard]] model::Expected<std::vector<TransferPath>> all_pairs(
        const std::vector<int>& gpus, const std::function<bool(int from, int to)>& peer) const;

    [[nodiscard]] const std::vector<double>& capacities() const { return capacities_; }
    [[nodiscard]] const std::vector<GroupCap>& groups() const { return groups_; }

 private:
    void add(const model::Route& route, model::TransferKind kind, TransferPath& path) const;
    const model::Machine& machine_;
    const model::Router& router_;
    std::vector<double> capacities_;
    std::vector<GroupCap> groups_;
    struct Group {
        std::vector<int> members;  // GPU ordinals below the switch
        int uplink = -1;           // the switch's link towards its root port
    };
    std::vector<Group> group_members_;
};

/// A path of which kernels reach only `efficiency` of the capacity: each byte takes 1 / efficiency.
[[nodiscard]] TransferPath with_efficiency(TransferPath path, double efficiency);

/// Max-min rates of all paths at once, bytes/s; group caps in force as in LinkNetwork.
[[nodiscard]] std::vector<double> shared_rates(const CollectiveNetwork& network,
                                               const std::vector<TransferPath>& paths);

/// Seconds until the last of the paths has moved its bytes, all started together; latencies left
/// out.
[[nodiscard]] double transfer_seconds(
    const CollectiveNetwork& network, const std::vector<TransferPath>& paths, double bytes_each,
    const std::function<void(Time, const std::vector<double>&)>& on_rates = {});

}  // namespace draftboard::sim
