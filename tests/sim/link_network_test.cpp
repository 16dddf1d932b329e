// SPDX-License-Identifier: Apache-2.0
#include "sim/link_network.h"

#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace draftboard::sim {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kTolerance = 1e-9;

struct Problem {
    std::vector<double> capacities;
    std::vector<std::vector<ResourceUse>> uses;
    std::vector<double> caps;
};

/// Up to 6 resources and 10 flows, each over 1 to 4 distinct resources with weights 0.5 to 4.
Problem arbitrary_problem() {
    Problem problem;
    const int resources = *rc::gen::inRange(1, 7);
    const int flows = *rc::gen::inRange(1, 11);
    for (int r = 0; r < resources; ++r)
        problem.capacities.push_back(*rc::gen::inRange(1, 1000) * 0.1);
    for (int f = 0; f < flows; ++f) {
        std::vector<ResourceUse> uses;
        const int first = *rc::gen::inRange(0, resources);
        const int length = *rc::gen::inRange(1, std::min(resources, 4) + 1);
        for (int i = 0; i < length; ++i) {
            uses.push_back({(first + i) % resources, *rc::gen::inRange(1, 9) * 0.5});
        }
        problem.uses.push_back(uses);
        problem.caps.push_back(*rc::gen::inRange(0, 3) == 0 ? *rc::gen::inRange(1, 500) * 0.1
                                                            : kInfinity);
    }
    return problem;
}

double load_of(const Problem& problem, const std::vector<double>& rates, std::size_t resource) {
    double load = 0;
    for (std::size_t f = 0; f < rates.size(); ++f) {
        for (const ResourceUse& use : problem.uses[f]) {
            if (static_cast<std::size_t>(use.resource) == resource) load += use.weight * rates[f];
        }
    }
    return load;
}

TEST(MaxMin, Three_flows_over_two_links_share_as_in_the_worked_example) {
    // B and C halve link 2: 2 each. A takes what B leaves of link 1: 10 - 2 = 8.
    const auto rates = max_min_rates({10, 4}, {{{0, 1}}, {{0, 1}, {1, 1}}, {{1, 1}}}, {});
    EXPECT_DOUBLE_EQ(rates[0], 8);
    EXPECT_DOUBLE_EQ(rates[1], 2);
    EXPECT_DOUBLE_EQ(rates[2], 2);
}

TEST(MaxMin, A_reader_of_weight_two_gets_the_same_rate_at_twice_the_use) {
    // x + 2 x = 9: both get 3; the reader takes 6 of the 9.
    const auto rates = max_min_rates({9}, {{{0, 1}}, {{0, 2}}}, {});
    EXPECT_DOUBLE_EQ(rates[0], 3);
    EXPECT_DOUBLE_EQ(rates[1], 3);
}

TEST(MaxMin, What_a_capped_flow_leaves_goes_to_the_others) {
    // 12 over three flows, one capped at 1: (12 - 1) / 2 = 5.5.
    const auto rates =
        max_min_rates({12}, {{{0, 1}}, {{0, 1}}, {{0, 1}}}, {1, kInfinity, kInfinity});
    EXPECT_DOUBLE_EQ(rates[0], 1);
    EXPECT_DOUBLE_EQ(rates[1], 5.5);
    EXPECT_DOUBLE_EQ(rates[2], 5.5);
}

TEST(MaxMin, A_flow_that_nothing_bounds_is_infinitely_fast) {
    const auto rates = max_min_rates({5}, {{}, {{0, 1}}}, {});
    EXPECT_EQ(rates[0], kInfinity);
    EXPECT_DOUBLE_EQ(rates[1], 5);
}

TEST(MaxMin, A_dead_link_stops_its_flows_only) {
    const auto rates = max_min_rates({0, 4}, {{{0, 1}, {1, 1}}, {{1, 1}}}, {});
    EXPECT_EQ(rates[0], 0);
    EXPECT_DOUBLE_EQ(rates[1], 4);
}

RC_GTEST_PROP(MaxMin, No_resource_carries_more_than_it_can_and_no_cap_is_exceeded, ()) {
    const Problem problem = arbitrary_problem();
    const auto rates = max_min_rates(problem.capacities, problem.uses, problem.caps);
    for (std::size_t r = 0; r < problem.capacities.size(); ++r) {
        RC_ASSERT(load_of(problem, rates, r) <= problem.capacities[r] * (1 + kTolerance));
    }
    for (std::size_t f = 0; f < rates.size(); ++f) {
        RC_ASSERT(rates[f] > 0);
        RC_ASSERT(rates[f] <= problem.caps[f] * (1 + kTolerance));
    }
}

// Max-min fairness is equivalent to: every flow is at its cap or crosses a full resource on which
// no other flow is faster (its bottleneck).
RC_GTEST_PROP(MaxMin, Every_flow_has_its_cap_or_a_full_resource_where_none_is_faster, ()) {
    const Problem problem = arbitrary_problem();
    const auto rates = max_min_rates(problem.capacities, problem.uses, problem.caps);
    for (std::size_t f = 0; f < rates.size(); ++f) {
        bool has_bottleneck = rates[f] >= problem.caps[f] * (1 - kTolerance);
        for (const ResourceUse& use : problem.uses[f]) {
            const auto r = static_cast<std::size_t>(use.resource);
            const bool full = load_of(problem, rates, r) >= problem.capacities[r] * (1 - 1e-6);
            bool fastest = true;
            for (std::size_t g = 0; g < rates.size(); ++g) {
                for (const ResourceUse& other : problem.uses[g]) {
                    if (other.resource == use.resource && rates[g] > rates[f] * (1 + 1e-6))
                        fastest = false;
                }
            }
            has_bottleneck = has_bottleneck || (full && fastest);
        }
        RC_ASSERT(has_bottleneck);
    }
}

RC_GTEST_PROP(MaxMin, The_order_of_flows_does_not_matter, ()) {
    const Problem problem = arbitrary_problem();
    const auto rates = max_min_rates(problem.capacities, problem.uses, problem.caps);
    Problem turned = problem;
    std::reverse(turned.uses.begin(), turned.uses.end());
    std::reverse(turned.caps.begin(), turned.caps.end());
    auto other = max_min_rates(turned.capacities, turned.uses, turned.caps);
    std::reverse(other.begin(), other.end());
    for (std::size_t f = 0; f < rates.size(); ++f) {
        RC_ASSERT(std::abs(rates[f] - other[f]) <= 1e-9 * rates[f]);
    }
}

FlowSpec flow_over(int resource, double bytes, Engine::Callback done = {}) {
    FlowSpec flow;
    flow.uses = {{resource, 1.0}};
    flow.bytes = bytes;
    flow.on_done = std::move(done);
    return flow;
}

TEST(LinkNetwork, A_flow_takes_its_latency_and_then_bytes_over_rate) {
    Engine engine;
    LinkNetwork network(engine, {1e9});
    Time done = 0;
    FlowSpec flow = flow_over(0, 1000, [&] { done = engine.now(); });
    flow.latency = from_us(2);
    network.start(std::move(flow));
    engine.run();
    // 2 us + 1000 B / 1 GB/s = 3 us
    EXPECT_EQ(done, from_us(3));
}

TEST(LinkNetwork, A_shorter_flow_leaves_the_link_to_the_longer_one) {
    Engine engine;
    LinkNetwork network(engine, {1e9});
    Time first = 0;
    Time second = 0;
    network.start(flow_over(0, 1000, [&] { first = engine.now(); }));
    network.start(flow_over(0, 3000, [&] { second = engine.now(); }));
    engine.run();
    // Both at half until 1000 B are through: 2 us; the other then has 2000 B left at full rate: 4
    // us.
    EXPECT_EQ(first, from_us(2));
    EXPECT_EQ(second, from_us(4));
}

TEST(LinkNetwork, A_flow_still_in_its_latency_holds_no_bandwidth) {
    Engine engine;
    LinkNetwork network(engine, {1e9});
    Time first = 0;
    network.start(flow_over(0, 1000, [&] { first = engine.now(); }));
    FlowSpec late = flow_over(0, 1000);
    late.latency = from_us(10);
    network.start(std::move(late));
    engine.run();
    EXPECT_EQ(first, from_us(1));
    EXPECT_EQ(engine.now(), from_us(11));
}

TEST(LinkNetwork, Writers_behind_one_switch_collapse_together_and_one_alone_does_not) {
    // Alone 1 GB/s; two sources of the group together get 0.1 GB/s.
    Engine alone_engine;
    LinkNetwork alone(alone_engine, {1e9, 1e9}, {{2, 1e8}});
    FlowSpec flow = flow_over(0, 1000);
    flow.group = 0;
    flow.source = 0;
    alone.start(flow);
    EXPECT_EQ(alone_engine.run(), from_us(1));
    Engine engine;
    LinkNetwork network(engine, {1e9, 1e9}, {{2, 1e8}});
    network.start(flow);
    FlowSpec other = flow_over(1, 1000);
    other.group = 0;
    other.source = 1;
    network.start(std::move(other));
    // 2000 B at 0.1 GB/s
    EXPECT_EQ(engine.run(), from_us(20));
}

TEST(LinkNetwork, Nothing_to_move_ends_with_the_latency) {
    Engine engine;
    LinkNetwork network(engine, {1e9});
    Time done = -1;
    FlowSpec flow = flow_over(0, 0, [&] { done = engine.now(); });
    flow.latency = 7;
    network.start(std::move(flow));
    engine.run();
    EXPECT_EQ(done, 7);
}

TEST(LinkNetwork, A_dead_link_leaves_its_flow_open_and_the_run_ends) {
    Engine engine;
    LinkNetwork network(engine, {0.0});
    bool done = false;
    network.start(flow_over(0, 1000, [&] { done = true; }));
    engine.run();
    EXPECT_FALSE(done);
}

RC_GTEST_PROP(LinkNetwork, Every_byte_that_starts_arrives_over_each_resource_of_its_route, ()) {
    Engine engine;
    const int resources = *rc::gen::inRange(1, 5);
    std::vector<double> capacities;
    for (int r = 0; r < resources; ++r) capacities.push_back(*rc::gen::inRange(1, 100) * 1e9);
    LinkNetwork network(engine, capacities);
    std::vector<double> expected(static_cast<std::size_t>(resources), 0.0);
    const int flows = *rc::gen::inRange(1, 12);
    int done = 0;
    for (int f = 0; f < flows; ++f) {
        FlowSpec flow;
        const int first = *rc::gen::inRange(0, resources);
        const int last = *rc::gen::inRange(first, resources);
        flow.bytes = *rc::gen::inRange(1, 10'000'000);
        flow.latency = *rc::gen::inRange(0, 5) * 1'000'000;
        for (int r = first; r <= last; ++r) {
            flow.uses.push_back({r, 1.0});
            expected[static_cast<std::size_t>(r)] += flow.bytes;
        }
        flow.on_done = [&done] { ++done; };
        network.start(std::move(flow));
    }
    engine.run();
    RC_ASSERT(done == flows);
    for (std::size_t r = 0; r < expected.size(); ++r) {
        RC_ASSERT(std::abs(network.bytes_moved()[r] - expected[r]) <= 1e-6 * (1 + expected[r]));
    }
}

RC_GTEST_PROP(LinkNetwork, No_flow_is_faster_than_its_narrowest_link, ()) {
    Engine engine;
    LinkNetwork network(engine, {4e9, 1e9});
    const double bytes = *rc::gen::inRange(1, 1'000'000);
    Time done = 0;
    FlowSpec flow;
    flow.uses = {{0, 1.0}, {1, 1.0}};
    flow.bytes = bytes;
    flow.on_done = [&] { done = engine.now(); };
    network.start(std::move(flow));
    const int others = *rc::gen::inRange(0, 5);
    for (int i = 0; i < others; ++i)
        network.start(flow_over(i % 2, *rc::gen::inRange(1, 1'000'000)));
    engine.run();
    RC_ASSERT(static_cast<double>(done) >= bytes / 1e9 * 1e12 - 1);
}

}  // namespace
}  // namespace draftboard::sim
