// SPDX-License-Identifier: Apache-2.0
#include "calibration/benchmark_routing.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace draftboard::calibration {
namespace {

TEST(BenchmarkRouting, Balanced_tokens_share_no_expert_until_all_are_touched) {
    // Kimi: E 384, k 8, stride 48: T = 4: 32; T = 48: 384; T = 64: still 384, and 512 pairs
    EXPECT_EQ(benchmark_load("balanced", 4, 384, 8, 1)->distinct_experts, 32);
    EXPECT_EQ(benchmark_load("balanced", 48, 384, 8, 1)->distinct_experts, 384);
    EXPECT_EQ(benchmark_load("balanced", 64, 384, 8, 1)->distinct_experts, 384);
    EXPECT_EQ(benchmark_load("balanced", 64, 384, 8, 1)->expert_tokens, 512);
}

TEST(BenchmarkRouting, Balanced_tokens_spread_over_the_ranks) {
    // 48 experts a rank; each token has one there: T = 4: 4 experts, 4 pairs
    const auto load = benchmark_load("balanced", 4, 384, 8, 8);
    EXPECT_EQ(load->distinct_experts, 4);
    EXPECT_EQ(load->expert_tokens, 4);
}

TEST(BenchmarkRouting, A_power_law_touches_fewer_experts_and_loads_one_rank_more) {
    const auto uniform = benchmark_load("balanced", 64, 384, 8, 1);
    const auto skewed = benchmark_load("power_law_1.2", 64, 384, 8, 1);
    EXPECT_LT(skewed->distinct_experts, uniform->distinct_experts);
    EXPECT_NEAR(skewed->expert_tokens, 512, 1e-9);
    const auto rank = benchmark_load("power_law_1.2", 64, 384, 8, 8);
    EXPECT_GT(rank->expert_tokens, 512.0 / 8);
    // One token has k different experts, whatever the law.
    EXPECT_NEAR(benchmark_load("power_law_1.01", 1, 384, 8, 1)->distinct_experts, 8, 1e-9);
}

TEST(BenchmarkRouting, Sizes_that_make_no_sense_are_refused) {
    EXPECT_FALSE(benchmark_load("balanced", 0, 8, 2, 1));
    EXPECT_FALSE(benchmark_load("balanced", 1, 8, 9, 1));
    EXPECT_FALSE(benchmark_load("balanced", 1, 8, 2, 3));
    EXPECT_FALSE(benchmark_load("balanced", 1 << 30, 8, 2, 1));
    EXPECT_FALSE(benchmark_load("power_law_1", 1, 8, 2, 1));
    EXPECT_FALSE(benchmark_load("power_law_nan", 1, 8, 2, 1));
    EXPECT_FALSE(benchmark_load("zipf", 1, 8, 2, 1));
}

RC_GTEST_PROP(BenchmarkRouting, Loads_lie_between_their_bounds, ()) {
    const auto ranks = std::int64_t{1} << *rc::gen::inRange(0, 3);
    const auto experts = ranks * *rc::gen::inRange<std::int64_t>(1, 40);
    const auto k = *rc::gen::inRange<std::int64_t>(1, experts + 1);
    const auto tokens = *rc::gen::inRange<std::int64_t>(1, 100);
    const bool balanced = *rc::gen::arbitrary<bool>();
    const auto load =
        benchmark_load(balanced ? "balanced" : "power_law_1.2", tokens, experts, k, ranks);
    RC_ASSERT(load.has_value());
    const double pairs = static_cast<double>(tokens * k);
    RC_ASSERT(load->distinct_experts <= static_cast<double>(experts / ranks) + 1e-9);
    RC_ASSERT(load->distinct_experts <= load->expert_tokens + 1e-9);
    RC_ASSERT(load->expert_tokens <= pairs + 1e-6);
    // The measured rank of a power law is the fullest: at least the mean.
    if (!balanced) RC_ASSERT(load->expert_tokens >= pairs / static_cast<double>(ranks) - 1e-6);
}

}  // namespace
}  // namespace draftboard::calibration
