// SPDX-License-Identifier: Apache-2.0
#include "sim/ranks.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace draftboard::sim {
namespace {

using model::LaunchMode;

PricedOperation kernel(double us) {
    PricedOperation operation;
    operation.kernel = from_us(us);
    return operation;
}

PricedOperation collective(double latency_us, double transport_us) {
    PricedOperation operation;
    operation.collective = true;
    operation.latency = from_us(latency_us);
    operation.transport = from_us(transport_us);
    return operation;
}

/// Host constants without chance and without launch latency.
HostConstants exact_host() {
    HostConstants host;
    host.launch_jitter = 0;
    host.rank_spread = 0;
    host.kernel_jitter = 0;
    host.launch_latency_us = 0;
    host.graph_launch_us = 5;
    host.kernel_gap_us = 1;
    host.stream_gap_us = 1;
    host.eager_launch_us = 6;
    host.collective_launch_us = 6;
    return host;
}

TEST(Ranks, A_graph_costs_one_launch_and_a_gap_between_kernels) {
    // 5 launch + 10 + 1 gap + 20 + 1 gap + (2 + 3) collective = 42 us
    const PassTimes times = simulate_pass({kernel(10), kernel(20), collective(2, 3)}, 4,
                                          LaunchMode::graph, exact_host(), Random(1));
    EXPECT_EQ(times.total, from_us(42));
    for (int r = 0; r < 4; ++r) EXPECT_EQ(times.at(r, 2).wait, 0);
}

TEST(Ranks, Eager_kernels_shorter_than_their_launch_run_at_the_pace_of_the_host) {
    // 3 kernels of 2 us launched every 6 us: the last starts at 18 and ends at 20.
    const PassTimes times = simulate_pass({kernel(2), kernel(2), kernel(2)}, 1, LaunchMode::eager,
                                          exact_host(), Random(1));
    EXPECT_EQ(times.total, from_us(20));
    EXPECT_EQ(times.at(0, 1).idle, from_us(4));  // from 8 to 12
}

TEST(Ranks, A_layer_left_between_two_graphs_costs_the_hosts_time_for_the_whole_layer) {
    // 5 graph launch and 10 kernel end at 15; the layer is launched at 5 + 700 and ends at 715; 5 more launch the
    // next graph at 710, so it starts after the layer and a gap of 1: 716 + 10
    HostConstants host = exact_host();
    host.piece_us = 700;
    PricedOperation layer = kernel(10);
    layer.eager_piece = true;
    layer.layer_piece = true;
    const PassTimes times = simulate_pass({kernel(10), layer, kernel(10)}, 1, LaunchMode::piecewise, host, Random(1));
    EXPECT_EQ(times.total, from_us(726));
}

TEST(Ranks, Eager_kernels_longer_than_their_launch_hide_it) {
    // 6 us until the first starts, then 50 + 1 + 50.
    const PassTimes times = simulate_pass({kernel(50), kernel(50)}, 1, LaunchMode::eager,
                                          exact_host(), Random(1));
    EXPECT_EQ(times.total, from_us(107));
}

TEST(Ranks, Piecewise_launches_attention_by_itself_and_the_rest_as_graphs) {
    // graph piece at 5, kernel to 7; attention launched at 5 + 6 = 11, to 13; next piece launched at 16.
    PricedOperation attention = kernel(2);
    attention.eager_piece = true;
    const PassTimes times = simulate_pass({kernel(2), attention, kernel(2)}, 1,
                                          LaunchMode::piecewise, exact_host(), Random(1));
    EXPECT_EQ(times.at(0, 1).start, from_us(11));
    EXPECT_EQ(times.at(0, 2).start, from_us(16));
    EXPECT_EQ(times.total, from_us(18));
}

TEST(Ranks, A_fused_operation_takes_no_launch_and_no_gap) {
    PricedOperation norm = kernel(0);
    norm.fused = true;
    const PassTimes times = simulate_pass({kernel(10), norm, kernel(10)}, 1, LaunchMode::graph,
                                          exact_host(), Random(1));
    EXPECT_EQ(times.total, from_us(26));
}

TEST(Ranks, Everybody_leaves_a_collective_together_and_the_last_to_arrive_does_not_wait) {
    HostConstants host = exact_host();
    host.rank_spread = 0.5;
    const std::vector<PricedOperation> operations{kernel(2), collective(1, 1), kernel(2),
                                                  collective(1, 1)};
    const PassTimes times = simulate_pass(operations, 8, LaunchMode::eager, host, Random(7));
    for (const std::size_t i : {std::size_t{1}, std::size_t{3}}) {
        Time least = times.at(0, i).wait;
        for (int r = 0; r < 8; ++r) {
            EXPECT_EQ(times.at(r, i).end, times.at(0, i).end);
            least = std::min(least, times.at(r, i).wait);
        }
        EXPECT_EQ(least, 0);
    }
    EXPECT_GT(times.at(0, 3).end, times.at(0, 1).end);
}

TEST(Ranks, The_same_seed_gives_the_same_times_and_another_seed_others) {
    const HostConstants host;
    const std::vector<PricedOperation> operations(20, kernel(1));
    const auto total = [&](std::uint64_t seed) {
        return simulate_pass(operations, 2, LaunchMode::eager, host, Random(seed)).total;
    };
    EXPECT_EQ(total(3), total(3));
    EXPECT_NE(total(3), total(4));
}

RC_GTEST_PROP(Ranks, Idle_kernel_wait_and_collective_time_fill_a_rank_without_gaps, ()) {
    const auto count = *rc::gen::inRange(1, 40);
    std::vector<PricedOperation> operations;
    for (int i = 0; i < count; ++i) {
        operations.push_back(*rc::gen::inRange(0, 3) == 0
                                 ? collective(*rc::gen::inRange(0, 30), *rc::gen::inRange(0, 30))
                                 : kernel(*rc::gen::inRange(0, 60)));
        operations.back().eager_piece = *rc::gen::inRange(0, 2) == 1;
    }
    const auto ranks = *rc::gen::inRange(1, 9);
    const auto mode = *rc::gen::element(LaunchMode::eager, LaunchMode::piecewise, LaunchMode::graph);
    const PassTimes times =
        simulate_pass(operations, ranks, mode, HostConstants{}, Random(*rc::gen::arbitrary<std::uint64_t>()));
    for (int r = 0; r < ranks; ++r) {
        Time previous = 0;
        for (std::size_t i = 0; i < operations.size(); ++i) {
            const OperationTimes& at = times.at(r, i);
            RC_ASSERT(at.start == previous + at.idle);
            RC_ASSERT(at.idle >= 0 && at.wait >= 0);
            if (operations[i].collective) {
                RC_ASSERT(at.end ==
                          at.start + at.wait + operations[i].latency + operations[i].transport);
            }
            previous = at.end;
        }
        RC_ASSERT(previous <= times.total);
    }
}

}  // namespace
}  // namespace draftboard::sim
