// SPDX-License-Identifier: Apache-2.0
#include "sim/shared_memory_collective.h"

#include <gtest/gtest.h>

#include "sim/ranks.h"

namespace draftboard::sim {
namespace {

std::vector<SharedMemoryConstants> two_counts() {
    SharedMemoryConstants two;
    two.ranks = 2;
    two.call_us = 0.1;
    two.barrier_us = 0.2;
    two.one_shot_gb_s = 10;
    two.ring_gb_s = 8;
    two.gather_gb_s = 5;
    two.points = 10;
    two.bytes_low = 256;
    two.bytes_high = 65536;
    SharedMemoryConstants four = two;
    four.ranks = 4;
    four.barrier_us = 0.6;
    return {two, four};
}

TEST(SharedMemoryCollective, One_shot_reads_all_others_between_two_barriers) {
    const auto time = shared_memory_time(two_counts(), model::OperationKind::all_reduce, model::Algorithm::automatic, 4, 1000);
    ASSERT_TRUE(time);
    // 0.1 + 2 x 0.6 us; 3 x 1000 B / 10 GB/s = 0.3 us
    EXPECT_DOUBLE_EQ(time->latency_us, 1.3);
    EXPECT_DOUBLE_EQ(time->transport_us, 0.3);
    EXPECT_TRUE(time->inside);
}

TEST(SharedMemoryCollective, Ring_reads_less_and_meets_more_often) {
    const auto time = shared_memory_time(two_counts(), model::OperationKind::all_reduce, model::Algorithm::ring, 4, 1000);
    ASSERT_TRUE(time);
    // 0.1 + (4 + 1) x 0.6 us; 2 x 3/4 x 1000 B / 8 GB/s = 0.1875 us
    EXPECT_DOUBLE_EQ(time->latency_us, 3.1);
    EXPECT_DOUBLE_EQ(time->transport_us, 0.1875);
}

TEST(SharedMemoryCollective, All_gather_reads_every_contribution) {
    const auto time = shared_memory_time(two_counts(), model::OperationKind::all_gather, model::Algorithm::automatic, 2, 1000);
    ASSERT_TRUE(time);
    // 0.1 + 2 x 0.2 us; 1000 B / 5 GB/s = 0.2 us
    EXPECT_DOUBLE_EQ(time->latency_us, 0.5);
    EXPECT_DOUBLE_EQ(time->transport_us, 0.2);
}

TEST(SharedMemoryCollective, Constants_between_two_rank_counts_lie_between) {
    // (0.2 + 0.6) / 2
    EXPECT_DOUBLE_EQ(shared_memory_constants(two_counts(), 3).barrier_us, 0.4);
    EXPECT_DOUBLE_EQ(shared_memory_constants(two_counts(), 9).barrier_us, 0.6);
}

TEST(SharedMemoryCollective, Says_when_a_size_or_a_rank_count_was_never_measured) {
    const auto large = shared_memory_time(two_counts(), model::OperationKind::all_reduce, model::Algorithm::automatic, 2, 1e6);
    const auto many = shared_memory_time(two_counts(), model::OperationKind::all_reduce, model::Algorithm::automatic, 8, 1024);
    ASSERT_TRUE(large && many);
    EXPECT_FALSE(large->inside);
    EXPECT_FALSE(many->inside);
}

TEST(SharedMemoryCollective, The_last_ranks_lateness_is_wait_and_part_of_the_pass) {
    PricedOperation work;
    work.kernel = from_us(10);
    PricedOperation meet;
    meet.collective = true;
    meet.latency = from_us(1);
    meet.transport = from_us(2);
    meet.skew = from_us(3);
    HostConstants host;
    host.graph_launch_us = host.launch_latency_us = host.kernel_gap_us = 0;
    host.kernel_jitter = host.rank_spread = 0;
    const auto times = simulate_pass({work, meet}, 2, model::LaunchMode::graph, host, Random(1));
    // 10 us of work, 3 of wait, 1 + 2 of the collective
    EXPECT_EQ(times.total, from_us(16));
    EXPECT_EQ(times.at(0, 1).wait, from_us(3));
}

}  // namespace
}  // namespace draftboard::sim
