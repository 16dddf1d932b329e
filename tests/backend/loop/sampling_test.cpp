// SPDX-License-Identifier: Apache-2.0
#include "backend/sampling.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tests/backend/loop/chi_square.h"

namespace draftboard::backend {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> distribution(const std::vector<float>& logits, const Sampling& sampling) {
    std::vector<float> out(logits.size());
    DistributionMaker maker;
    EXPECT_TRUE(maker.make(logits, sampling, out));
    return out;
}

TEST(Sampling, Greedy_takes_the_lowest_of_equal_logits_and_says_that_the_gap_is_zero) {
    const std::vector<float> logits{1, 3, 3, 2};
    EXPECT_EQ(greedy_choice(logits).token, 1);
    EXPECT_EQ(greedy_choice(logits).gap, 0);
}

TEST(Sampling, Greedy_reports_the_gap_to_the_second_wherever_it_stands) {
    EXPECT_FLOAT_EQ(static_cast<float>(greedy_choice(std::vector<float>{1, 4, 3.5F}).gap), 0.5F);
    EXPECT_FLOAT_EQ(static_cast<float>(greedy_choice(std::vector<float>{3.5F, 4, 1}).gap), 0.5F);
    EXPECT_EQ(greedy_choice(std::vector<float>{7}).gap, std::numeric_limits<double>::infinity());
}

TEST(Sampling, Refuses_logits_that_are_not_numbers_and_takes_masked_ones) {
    DistributionMaker maker;
    std::vector<float> out(2);
    for (const std::vector<float>& bad : {std::vector<float>{NAN, 1}, {1, NAN}, {kInfinity, 1}, {-kInfinity, -kInfinity}}) {
        EXPECT_EQ(greedy_choice(bad).token, -1);
        EXPECT_FALSE(maker.make(bad, {.temperature = 1}, out));
    }
    EXPECT_EQ(greedy_choice({}).token, -1);
    const auto masked = distribution({-kInfinity, 2}, {.temperature = 1});
    EXPECT_EQ(masked, (std::vector<float>{0, 1}));
}

TEST(Sampling, A_temperature_divides_the_logits) {
    // T = 2: weights 1, 4^(1/2) = 2, 16^(1/2) = 4: p = 1/7, 2/7, 4/7
    const auto p = distribution({0, std::log(4.0F), std::log(16.0F)}, {.temperature = 2});
    EXPECT_NEAR(p[0], 1.0 / 7, 1e-6);
    EXPECT_NEAR(p[1], 2.0 / 7, 1e-6);
    EXPECT_NEAR(p[2], 4.0 / 7, 1e-6);
}

TEST(Sampling, The_nucleus_keeps_the_likeliest_tokens_whose_sum_reaches_top_p) {
    // q = 1/8, 2/8, 5/8; 0.8 > 5/8, so the second joins: 2/7, 5/7. 0.5 < 5/8: one is enough.
    const std::vector<float> logits{0, std::log(2.0F), std::log(5.0F)};
    const auto two = distribution(logits, {.temperature = 1, .top_p = 0.8});
    EXPECT_EQ(two[0], 0);
    EXPECT_NEAR(two[1], 2.0 / 7, 1e-6);
    EXPECT_NEAR(two[2], 5.0 / 7, 1e-6);
    EXPECT_EQ(distribution(logits, {.temperature = 1, .top_p = 0.5}), (std::vector<float>{0, 0, 1}));
}

TEST(Sampling, Equal_tokens_enter_the_nucleus_by_rising_id) {
    // Four of 1/4; 0.5 keeps exactly tokens 0 and 1.
    EXPECT_EQ(distribution({1, 1, 1, 1}, {.temperature = 1, .top_p = 0.5}), (std::vector<float>{0.5F, 0.5F, 0, 0}));
}

TEST(Sampling, A_tiny_temperature_is_greedy_without_overflow) {
    EXPECT_EQ(distribution({3e30F, -3e30F, 1}, {.temperature = 1e-30}), (std::vector<float>{1, 0, 0}));
}

TEST(Sampling, Draws_follow_their_weights_and_never_take_a_zero) {
    const std::vector<float> weights{0, 2, 1, 0, 5, 0};
    model::Random random(7);
    std::vector<double> counts(weights.size());
    for (int i = 0; i < 20000; ++i) ++counts[static_cast<std::size_t>(draw(weights, random))];
    // p = w / 8; 2 degrees of freedom: critical value 13.8 at 0.1 %
    const ChiSquare test = chi_square(counts, {0, 0.25, 0.125, 0, 0.625, 0});
    EXPECT_NEAR(test.critical, 13.816, 0.001);
    EXPECT_TRUE(test.fits()) << test.statistic;
    EXPECT_EQ(draw(std::vector<float>{0, 0}, random), -1);
}

TEST(Sampling, Says_each_field_that_is_out_of_range) {
    EXPECT_TRUE(Sampling{}.validate().empty());
    EXPECT_EQ((Sampling{.temperature = -1, .top_p = 0, .tie_tolerance = NAN}).validate().size(), 3U);
    EXPECT_EQ((Sampling{.temperature = INFINITY, .top_p = 1.5}).validate().size(), 2U);
}

}  // namespace
}  // namespace draftboard::backend
