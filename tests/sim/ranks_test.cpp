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

TEST(Ranks, Kernels_of_a_chain_save_up_to_their_share_and_no_more) {
    // 5 launch + 10 + 1 gap + (4 - 2) + 1 gap + (3 - 1.5): the first is behind nothing, the last has half of its 3 us to save.
    HostConstants host = exact_host();
    host.chain_saving_us = 2;
    host.chain_share = 0.5;
    const std::vector<PricedOperation> chain = {kernel(10), kernel(4), kernel(3)};
    EXPECT_EQ(simulate_pass(chain, 1, LaunchMode::graph, host, Random(1)).total, from_us(20.5));
    // Launched one by one nothing is saved: 6 + 10 + 1 + 4 + 1 + 3.
    EXPECT_EQ(simulate_pass(chain, 1, LaunchMode::eager, host, Random(1)).total, from_us(25));
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

/// Fork, 30 us on the main stream beside 20 us on the side stream, join.
std::vector<PricedOperation> two_streams(double main_us, double side_us, double joint_us) {
    std::vector<PricedOperation> operations{kernel(10), kernel(main_us), kernel(side_us), kernel(2)};
    operations[2].stream = 1;
    operations[2].after = 0;
    operations[3].join = true;
    operations[3].after = 2;
    operations[3].fork = 0;
    operations[3].joint = from_us(joint_us);
    return operations;
}

TEST(Ranks, Two_streams_take_as_long_as_the_longer_one_and_hide_the_other) {
    // 5 launch + 10; both start a gap of 1 later; the longer of 30 and 20 (of 15 and 20), a gap and 2 us after the join
    const PassTimes times =
        simulate_pass(two_streams(30, 20, 25), 2, LaunchMode::graph, exact_host(), Random(1));
    EXPECT_EQ(times.total, from_us(5 + 10 + 1 + 30 + 1 + 2));
    EXPECT_EQ(times.at(0, 2).start, times.at(0, 1).start);
    EXPECT_TRUE(times.at(0, 2).hidden);
    EXPECT_FALSE(times.at(0, 1).hidden);
    EXPECT_EQ(times.at(0, 3).contention, 0);
    const PassTimes side =
        simulate_pass(two_streams(15, 20, 20), 2, LaunchMode::graph, exact_host(), Random(1));
    EXPECT_EQ(side.total, from_us(5 + 10 + 1 + 20 + 1 + 2));
    EXPECT_TRUE(side.at(0, 1).hidden);
    EXPECT_FALSE(side.at(0, 2).hidden);
}

TEST(Ranks, Two_streams_join_no_earlier_than_the_memory_has_moved_the_bytes_of_both) {
    // parted at 15; the memory needs 40 us for both, the longer stream is ready at 46: 9 us more, a gap, 2 us
    const PassTimes times =
        simulate_pass(two_streams(30, 20, 40), 1, LaunchMode::graph, exact_host(), Random(1));
    EXPECT_EQ(times.at(0, 3).contention, from_us(9));
    EXPECT_EQ(times.at(0, 3).idle, from_us(1));
    EXPECT_EQ(times.total, from_us(15 + 40 + 1 + 2));
}

TEST(Ranks, An_eager_host_launches_both_streams_so_short_kernels_gain_nothing) {
    // four launches of 6 us: the last kernel starts at 24 with one stream or two
    const auto operations = two_streams(2, 2, 0);
    auto one_stream = operations;
    for (PricedOperation& operation : one_stream) {
        operation = kernel(to_us(operation.kernel));
    }
    const PassTimes two = simulate_pass(operations, 1, LaunchMode::eager, exact_host(), Random(1));
    const PassTimes one = simulate_pass(one_stream, 1, LaunchMode::eager, exact_host(), Random(1));
    EXPECT_EQ(two.total, from_us(4 * 6 + 2));
    EXPECT_EQ(one.total, two.total);
}

TEST(Ranks, A_host_that_waits_for_the_device_launches_nothing_before_it_returns) {
    // graph at 5, kernel to 15; the host returns at 15 + 2 and launches the next graph at 17 + 5
    HostConstants host = exact_host();
    host.sync_us = 2;
    std::vector<PricedOperation> operations{kernel(10), kernel(10)};
    operations[0].host_sync = true;
    const PassTimes times = simulate_pass(operations, 1, LaunchMode::graph, host, Random(1));
    EXPECT_EQ(times.at(0, 1).start, from_us(22));
    EXPECT_EQ(times.total, from_us(32));
    // without it the second kernel follows after a gap
    operations[0].host_sync = false;
    EXPECT_EQ(simulate_pass(operations, 1, LaunchMode::graph, host, Random(1)).total, from_us(26));
}

RC_GTEST_PROP(Ranks, The_critical_path_through_two_streams_has_no_gaps, ()) {
    // Blocks of: fork, main operations (kernels or collectives), side kernels, join.
    std::vector<PricedOperation> operations;
    const auto blocks = *rc::gen::inRange(1, 6);
    for (int b = 0; b < blocks; ++b) {
        operations.push_back(kernel(*rc::gen::inRange(0, 20)));
        operations.back().host_sync = *rc::gen::inRange(0, 4) == 0;
        const int fork = static_cast<int>(operations.size()) - 1;
        const auto main = *rc::gen::inRange(1, 4);
        for (int i = 0; i < main; ++i) {
            operations.push_back(*rc::gen::inRange(0, 3) == 0 ? collective(3, 4)
                                                              : kernel(*rc::gen::inRange(0, 40)));
        }
        const auto side = *rc::gen::inRange(1, 4);
        for (int i = 0; i < side; ++i) {
            operations.push_back(kernel(*rc::gen::inRange(0, 40)));
            operations.back().stream = 1;
            if (i == 0) operations.back().after = fork;
        }
        const int last = static_cast<int>(operations.size()) - 1;
        operations.push_back(kernel(*rc::gen::inRange(0, 10)));
        operations.back().join = true;
        operations.back().after = last;
        operations.back().fork = fork;
        operations.back().joint = from_us(*rc::gen::inRange(0, 120));
    }
    const auto ranks = *rc::gen::inRange(1, 5);
    const auto mode = *rc::gen::element(LaunchMode::eager, LaunchMode::piecewise, LaunchMode::graph);
    const PassTimes times =
        simulate_pass(operations, ranks, mode, HostConstants{}, Random(*rc::gen::arbitrary<std::uint64_t>()));
    for (int r = 0; r < ranks; ++r) {
        Time path = 0;
        for (std::size_t i = 0; i < operations.size(); ++i) {
            const OperationTimes& at = times.at(r, i);
            RC_ASSERT(at.idle >= 0 && at.wait >= 0 && at.contention >= 0);
            if (operations[i].after >= 0) {
                RC_ASSERT(at.start >= times.at(r, static_cast<std::size_t>(operations[i].after)).end);
            }
            if (at.hidden) continue;
            RC_ASSERT(at.start == path + at.idle + at.contention);
            path = at.end;
        }
        RC_ASSERT(path == times.rank_end[static_cast<std::size_t>(r)]);
    }
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
