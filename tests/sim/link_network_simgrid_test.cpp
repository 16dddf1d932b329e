// SPDX-License-Identifier: Apache-2.0
// Completion times of random flows over random trees, against SimGrid's raw network model (CM02
// without TCP effects: fluid max-min sharing). SimGrid weighs a flow's share by its latency, as TCP
// would; a GPU's stores don't. So its links have none, and each sender waits its route's latency
// first. Built only where SimGrid is installed.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <simgrid/s4u.hpp>

#include "sim/link_network.h"

namespace draftboard::sim {
namespace {

namespace sg = simgrid::s4u;

struct Transfer {
    int from = 0;
    int to = 0;
    double bytes = 0;
    double latency_us = 0;
};

/// A tree of nodes 0..n-1 (parent below the child's number); node i > 0 has a link to its parent.
struct Tree {
    std::vector<int> parent;
    std::vector<double> bandwidth;
    std::vector<double> latency_us;

    [[nodiscard]] std::vector<int> links(int a, int b) const {
        std::vector<int> route;
        while (a != b) {
            int& deeper = a > b ? a : b;
            route.push_back(deeper);
            deeper = parent[static_cast<std::size_t>(deeper)];
        }
        return route;
    }
};

TEST(LinkNetworkAgainstSimGrid, Completion_times_agree_within_a_millionth) {
    int argc = 1;
    char name[] = "test";
    char* arguments[] = {name, nullptr};
    sg::Engine engine(&argc, arguments);
    for (const char* setting :
         {"network/model:CM02", "network/TCP-gamma:0", "network/bandwidth-factor:1",
          "network/latency-factor:1", "network/weight-S:0", "network/crosstraffic:0"}) {
        sg::Engine::set_config(setting);
    }
    // All trees live in one zone and are simulated at once: they share nothing.
    std::mt19937 random(20260901);
    const auto draw = [&](int low, int high) {
        return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
    };
    auto* zone = sg::create_full_zone("trees");
    std::vector<double> ours;
    std::vector<double> theirs;
    struct Send {
        sg::Host* from = nullptr;
        sg::Host* to = nullptr;
        Transfer transfer;
    };
    std::vector<Send> sends;
    for (int t = 0; t < 20; ++t) {
        Tree tree;
        const int nodes = draw(3, 12);
        std::vector<double> capacities(static_cast<std::size_t>(nodes), 1.0);
        std::vector<sg::Link*> links(static_cast<std::size_t>(nodes), nullptr);
        std::vector<sg::Host*> hosts;
        for (int i = 0; i < nodes; ++i) {
            tree.parent.push_back(i == 0 ? -1 : draw(0, i - 1));
            tree.bandwidth.push_back(draw(5, 60) * 1e9);
            tree.latency_us.push_back(draw(1, 20) * 0.1);
            const std::string id = std::to_string(t) + "_" + std::to_string(i);
            hosts.push_back(zone->create_host("h" + id, 1e9));
            capacities[static_cast<std::size_t>(i)] = tree.bandwidth.back();
            links[static_cast<std::size_t>(i)] =
                zone->create_link("l" + id, tree.bandwidth.back())->set_latency(0)->seal();
        }
        std::vector<Transfer> transfers;
        const int flows = draw(1, 8);
        std::vector<std::vector<bool>> routed(
            static_cast<std::size_t>(nodes),
            std::vector<bool>(static_cast<std::size_t>(nodes), false));
        for (int f = 0; f < flows; ++f) {
            Transfer transfer{draw(0, nodes - 1), draw(0, nodes - 1), draw(1, 2000) * 1e4, 0};
            if (transfer.from == transfer.to) continue;
            if (transfer.from > transfer.to) std::swap(transfer.from, transfer.to);
            const auto a = static_cast<std::size_t>(transfer.from);
            const auto b = static_cast<std::size_t>(transfer.to);
            if (!routed[a][b]) {
                std::vector<sg::LinkInRoute> route;
                for (const int link : tree.links(transfer.from, transfer.to)) {
                    route.emplace_back(links[static_cast<std::size_t>(link)]);
                }
                zone->add_route(hosts[a]->get_netpoint(), hosts[b]->get_netpoint(), nullptr,
                                nullptr, route, true);
                routed[a][b] = true;
            }
            for (const int link : tree.links(transfer.from, transfer.to)) {
                transfer.latency_us += tree.latency_us[static_cast<std::size_t>(link)];
            }
            transfers.push_back(transfer);
            sends.push_back({hosts[a], hosts[b], transfer});
        }
        Engine clock;
        LinkNetwork network(clock, capacities);
        const std::size_t first = ours.size();
        ours.resize(first + transfers.size());
        for (std::size_t f = 0; f < transfers.size(); ++f) {
            FlowSpec flow;
            for (const int link : tree.links(transfers[f].from, transfers[f].to)) {
                flow.uses.push_back({link, 1.0});
            }
            flow.bytes = transfers[f].bytes;
            flow.latency = from_us(transfers[f].latency_us);
            flow.on_done = [&ours, &clock, at = first + f] { ours[at] = to_us(clock.now()); };
            network.start(std::move(flow));
        }
        clock.run();
    }
    zone->seal();
    theirs.resize(sends.size());
    for (std::size_t f = 0; f < sends.size(); ++f) {
        sg::Actor::create("send" + std::to_string(f), sends[f].from, [&sends, &theirs, f] {
            const Send& send = sends[f];
            sg::this_actor::sleep_for(send.transfer.latency_us * 1e-6);
            sg::Comm::sendto(send.from, send.to, static_cast<uint64_t>(send.transfer.bytes));
            theirs[f] = sg::Engine::get_clock() * 1e6;
        });
    }
    engine.run();
    ASSERT_EQ(ours.size(), theirs.size());
    ASSERT_GT(ours.size(), 40u);
    for (std::size_t f = 0; f < ours.size(); ++f)
        EXPECT_NEAR(ours[f], theirs[f], 1e-6 * theirs[f]) << f;
}

}  // namespace
}  // namespace draftboard::sim
