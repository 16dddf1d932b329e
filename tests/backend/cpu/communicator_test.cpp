// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/communicator.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

#include <gtest/gtest.h>

#include "backend/cpu/ceilings.h"
#include "sample_matrices.h"

namespace draftboard::backend::cpu {
namespace {

void on_ranks(int ranks, const std::function<void(int)>& work) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(work, rank);
    for (std::thread& thread : threads) thread.join();
}

constexpr AllReduceAlgorithm kAlgorithms[] = {AllReduceAlgorithm::one_shot, AllReduceAlgorithm::ring};

TEST(Communicator, All_reduce_is_the_sum_in_rank_order_to_the_bit_on_every_rank) {
    for (int ranks = 1; ranks <= 5; ++ranks) {
        Communicator communicator(ranks);
        EXPECT_EQ(communicator.ranks(), ranks);
        for (const std::int64_t count : {0, 1, 2, 3, 7, 16, 81, 1000, 5003}) {
            for (const AllReduceAlgorithm algorithm : kAlgorithms) {
                std::vector<std::vector<float>> data;
                for (int rank = 0; rank < ranks; ++rank) data.push_back(random_floats(static_cast<std::size_t>(count), static_cast<std::uint64_t>(rank)));
                // ((x0 + x1) + x2) + ...
                auto expected = data[0];
                for (std::size_t rank = 1; rank < data.size(); ++rank) {
                    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += data[rank][i];
                }
                on_ranks(ranks, [&](int rank) { communicator.all_reduce(rank, data[static_cast<std::size_t>(rank)].data(), count, algorithm); });
                for (const auto& result : data) ASSERT_EQ(result, expected) << ranks << " ranks, " << count << " numbers";
            }
        }
    }
}

TEST(Communicator, Collectives_follow_one_another_without_a_pause) {
    // x -> sum over R ranks of x: after n rounds R^n times the first, exact in float for small powers.
    for (const int ranks : {2, 3, 4}) {
        Communicator communicator(ranks);
        std::vector<std::vector<float>> data(static_cast<std::size_t>(ranks), std::vector<float>(70, 1.0F));
        on_ranks(ranks, [&](int rank) {
            for (int round = 0; round < 10; ++round) {
                communicator.all_reduce(rank, data[static_cast<std::size_t>(rank)].data(), 70, kAlgorithms[round % 2]);
            }
        });
        float expected = 1;
        for (int round = 0; round < 10; ++round) expected *= static_cast<float>(ranks);
        for (const auto& result : data) EXPECT_EQ(result, std::vector<float>(70, expected));
    }
}

TEST(Communicator, All_gather_puts_the_ranks_columns_side_by_side) {
    for (int ranks = 1; ranks <= 4; ++ranks) {
        Communicator communicator(ranks);
        const std::int64_t stride = ranks * 3 + 2;
        std::vector<std::vector<float>> outputs(static_cast<std::size_t>(ranks), std::vector<float>(static_cast<std::size_t>(2 * stride), -1));
        on_ranks(ranks, [&](int rank) {
            std::vector<float> input(2 * 5);  // 2 rows 5 apart, 3 columns each: 100 rank + 10 row + column
            for (std::size_t i = 0; i < 2; ++i) {
                for (std::size_t c = 0; c < 3; ++c) input[i * 5 + c] = static_cast<float>(100 * rank) + static_cast<float>(10 * i + c);
            }
            communicator.all_gather(rank, input.data(), 2, 3, 5, outputs[static_cast<std::size_t>(rank)].data(), stride);
        });
        for (const auto& output : outputs) {
            for (std::int64_t i = 0; i < 2; ++i) {
                for (std::int64_t c = 0; c < stride; ++c) {
                    const float expected = c < 3 * ranks ? static_cast<float>(100 * (c / 3) + 10 * i + c % 3) : -1.0F;
                    ASSERT_EQ(output[static_cast<std::size_t>(i * stride + c)], expected);
                }
            }
        }
    }
}

TEST(Communicator, A_barrier_lets_nobody_through_before_all_have_come) {
    const int ranks = 5;
    Communicator communicator(ranks);
    std::atomic<int> arrived{0};
    std::atomic<bool> early{false};
    on_ranks(ranks, [&](int rank) {
        for (int round = 1; round <= 200; ++round) {
            arrived.fetch_add(1);
            communicator.barrier(rank);
            if (arrived.load() < round * ranks) early = true;
            communicator.barrier(rank);
        }
    });
    EXPECT_FALSE(early);
    EXPECT_EQ(arrived.load(), 200 * ranks);
}

TEST(Communicator, Waiting_for_a_late_rank_is_told_from_moving_bytes) {
    // Rank 1 comes 30 ms after the others: they wait about that long, it does not wait at all.
    for (const AllReduceAlgorithm algorithm : kAlgorithms) {
        Communicator communicator(3);
        std::vector<CollectiveTime> times(3);
        on_ranks(3, [&](int rank) {
            std::vector<float> data(100, 1);
            communicator.barrier(rank);
            if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(30));
            times[static_cast<std::size_t>(rank)] = communicator.all_reduce(rank, data.data(), 100, algorithm);
        });
        EXPECT_EQ(times[1].wait_ns, 0);
        for (const std::size_t rank : {0u, 2u}) {
            EXPECT_GE(times[rank].wait_ns, 15'000'000);
            EXPECT_GE(times[rank].total_ns, times[rank].wait_ns);
        }
        EXPECT_GT(times[1].total_ns, 0);
    }
}

TEST(Communicator, One_rank_waits_for_nobody) {
    Communicator communicator(1);
    std::vector<float> data{1, 2};
    EXPECT_EQ(communicator.all_reduce(0, data.data(), 2, AllReduceAlgorithm::ring).wait_ns, 0);
    EXPECT_EQ(data, (std::vector<float>{1, 2}));
}

TEST(Ceilings, Are_positive_and_a_cache_is_no_slower_than_half_of_memory) {
    const Ceilings ceilings = measure_ceilings(2, 1);
    EXPECT_EQ(ceilings.cores, 2);
    for (const CeilingRates& rates : {ceilings.one, ceilings.together}) {
        EXPECT_GT(rates.memory_gb_per_s, 0.01);
        EXPECT_GT(rates.l3_gb_per_s, 0.5 * rates.memory_gb_per_s);
        EXPECT_GT(rates.fma_gflop_per_s, 0.01);
    }
}

}  // namespace
}  // namespace draftboard::backend::cpu
