// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/experts.h"

#include <cmath>
#include <cstring>
#include <set>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "backend/cpu/elementwise.h"
#include "sample_matrices.h"

namespace draftboard::backend::cpu {
namespace {

model::MoeFeedForward softmax_router(int experts, int k) {
    model::MoeFeedForward moe;
    moe.experts = experts;
    moe.experts_per_token = k;
    return moe;
}

struct Routed {
    std::vector<std::int32_t> ids;
    std::vector<float> weights;
};

Routed route_rows(const std::vector<float>& logits, const model::MoeFeedForward& moe, const Numerics& numerics,
                  const float* bias = nullptr) {
    const auto rows = static_cast<std::int64_t>(logits.size()) / moe.experts;
    Routed result;
    result.ids.resize(static_cast<std::size_t>(rows * moe.experts_per_token), -1);
    result.weights.resize(result.ids.size());
    Scratch scratch;
    route(logits.data(), rows, moe, numerics, bias, result.ids.data(), result.weights.data(), scratch);
    return result;
}

TEST(Route, Softmax_takes_the_largest_and_shares_one_among_them) {
    // logits 0, ln 2, ln 3, ln 4: the best two weigh 4 and 3 of 7, or of all 10.
    const std::vector<float> logits{0, std::log(2.0F), std::log(3.0F), std::log(4.0F)};
    Numerics numerics;
    const Routed normalised = route_rows(logits, softmax_router(4, 2), numerics);
    EXPECT_EQ(normalised.ids, (std::vector<std::int32_t>{3, 2}));
    EXPECT_NEAR(normalised.weights[0], 4.0 / 7, 1e-6);
    EXPECT_NEAR(normalised.weights[1], 3.0 / 7, 1e-6);
    numerics.normalise_top_k = false;
    const Routed plain = route_rows(logits, softmax_router(4, 2), numerics);
    EXPECT_NEAR(plain.weights[0], 0.4, 1e-6);
    EXPECT_NEAR(plain.weights[1], 0.3, 1e-6);
}

TEST(Route, Ties_go_to_the_lower_expert) {
    const Routed routed = route_rows({1, 2, 2, 2, 1, 2}, softmax_router(6, 5), {});
    EXPECT_EQ(routed.ids, (std::vector<std::int32_t>{1, 2, 3, 5, 0}));
}

TEST(Route, Sigmoid_chooses_with_the_bias_and_weighs_without_it) {
    // sigmoid(0) = 1/2 for all; the bias picks experts 2 and 0; weights are (1/2) / (1) x 2.5
    model::MoeFeedForward moe = softmax_router(4, 2);
    moe.scoring = model::RouterScoring::sigmoid;
    Numerics numerics;
    numerics.routed_scaling = 2.5;
    const std::vector<float> bias{0.2F, -1, 0.3F, 0.1F};
    const Routed routed = route_rows({0, 0, 0, 0}, moe, numerics, bias.data());
    EXPECT_EQ(routed.ids, (std::vector<std::int32_t>{2, 0}));
    EXPECT_NEAR(routed.weights[0], 1.25, 1e-6);
    numerics.normalise_top_k = false;
    EXPECT_NEAR(route_rows({0, 0, 0, 0}, moe, numerics, bias.data()).weights[1], 1.25, 1e-6);
}

TEST(Route, Groups_are_ranked_by_the_sum_of_their_two_best) {
    // Sums of two best logits' order: group 0 has the best single expert but a poor second; group 1 wins.
    // s: (0.9, 0.1, 0.1 | 0.7, 0.7, 0.2 | 0.5, 0.6, 0.1 ): sums 1.0, 1.4, 1.1; the best group 1 alone gives both.
    const auto logit = [](double s) { return static_cast<float>(std::log(s / (1 - s))); };
    const std::vector<float> logits{logit(.9), logit(.1), logit(.1), logit(.7), logit(.7), logit(.2), logit(.5), logit(.6), logit(.1)};
    model::MoeFeedForward moe = softmax_router(9, 3);
    moe.scoring = model::RouterScoring::sigmoid;
    moe.groups = 3;
    moe.top_groups = 2;
    const Routed routed = route_rows(logits, moe, {});
    EXPECT_EQ(routed.ids, (std::vector<std::int32_t>{3, 4, 7}));
    EXPECT_NEAR(routed.weights[2], 0.6 / 2.0, 1e-6);
}

TEST(Route, Gives_different_experts_that_exist_whatever_the_logits) {
    const bool holds = rc::check("k distinct experts", [] {
        const int experts = *rc::gen::inRange(1, 40);
        model::MoeFeedForward moe = softmax_router(experts, *rc::gen::inRange(1, experts + 1));
        if (*rc::gen::arbitrary<bool>()) moe.scoring = model::RouterScoring::sigmoid;
        auto logits = *rc::gen::container<std::vector<float>>(static_cast<std::size_t>(experts), rc::gen::arbitrary<float>());
        logits[0] = std::nanf("");
        const Routed routed = route_rows(logits, moe, {});
        RC_ASSERT(std::set<std::int32_t>(routed.ids.begin(), routed.ids.end()).size() == routed.ids.size());
        for (const std::int32_t id : routed.ids) RC_ASSERT(id >= 0 && id < experts);
    });
    EXPECT_TRUE(holds);
}

MoeWeights random_experts(int experts, int first, std::int64_t hidden, std::int64_t width, const model::WeightFormat& format) {
    MoeWeights weights;
    weights.first_expert = first;
    for (int e = 0; e < experts; ++e) {
        DenseWeights expert;
        const auto seed = static_cast<std::uint64_t>(3 * (e + first));
        expert.gate_up.parts.push_back(random_matrix(width, hidden, format, seed));
        expert.gate_up.parts.push_back(random_matrix(width, hidden, format, seed + 1));
        expert.down = random_matrix(hidden, width, format, seed + 2);
        weights.experts.push_back(std::move(expert));
    }
    return weights;
}

TEST(Experts, Each_pair_is_its_expert_applied_to_its_token_and_other_ranks_pairs_are_zero) {
    const std::int64_t hidden = 64;
    const std::int64_t width = 32;
    const MoeWeights weights = random_experts(3, 4, hidden, width, model::WeightFormat::plain(model::NumberFormat::bf16));
    const auto x = random_floats(4 * 64, 5);
    const std::vector<std::int32_t> ids{4, 6, 6, 9, 0, 4, 6, 4};  // local experts 0 and 2 of 4 .. 6
    std::vector<float> outputs(8 * 64, std::nanf(""));
    Scratch scratch;
    EXPECT_EQ(run_experts(x.data(), 4, hidden, weights, ids.data(), 2, outputs.data(), scratch), 2);
    for (std::size_t pair = 0; pair < ids.size(); ++pair) {
        const float* token = x.data() + pair / 2 * 64;
        const int local = ids[pair] - 4;
        if (local < 0 || local > 2) {
            for (std::size_t c = 0; c < 64; ++c) ASSERT_EQ(outputs[pair * 64 + c], 0.0F);
            continue;
        }
        const DenseWeights& expert = weights.experts[static_cast<std::size_t>(local)];
        const auto gate = dequantised(expert.gate_up.parts[0]);
        const auto up = dequantised(expert.gate_up.parts[1]);
        const auto down = dequantised(expert.down);
        // down(silu(gate x) up x) in double precision
        std::vector<double> inner(32);
        for (std::size_t r = 0; r < 32; ++r) {
            double g = 0;
            double u = 0;
            for (std::size_t c = 0; c < 64; ++c) {
                g += static_cast<double>(gate[r * 64 + c]) * static_cast<double>(token[c]);
                u += static_cast<double>(up[r * 64 + c]) * static_cast<double>(token[c]);
            }
            inner[r] = g / (1 + std::exp(-g)) * u;
        }
        for (std::size_t c = 0; c < 64; ++c) {
            double sum = 0;
            double magnitude = 0;
            for (std::size_t r = 0; r < 32; ++r) {
                sum += static_cast<double>(down[c * 32 + r]) * inner[r];
                magnitude += std::abs(static_cast<double>(down[c * 32 + r]) * inner[r]);
            }
            ASSERT_NEAR(outputs[pair * 64 + c], sum, 3e-5 * magnitude);
        }
    }
}

TEST(Experts, Narrow_experts_kept_by_input_give_the_same_outputs_and_one_tokens_bits_among_others) {
    const std::int64_t hidden = 96;
    const std::int64_t width = 64;
    MoeWeights weights = random_experts(3, 0, hidden, width, model::WeightFormat::plain(model::NumberFormat::bf16));
    const auto x = random_floats(static_cast<std::size_t>(5 * hidden), 9);
    const std::vector<std::int32_t> ids{0, 2, 2, 1, 0, 1, 2, 0, 1, 2};
    std::vector<float> by_output(ids.size() * 96);
    std::vector<float> by_input(by_output.size());
    std::vector<float> alone(2 * 96);
    Scratch scratch;
    (void)run_experts(x.data(), 5, hidden, weights, ids.data(), 2, by_output.data(), scratch);
    for (DenseWeights& expert : weights.experts) store_by_input(expert);
    ASSERT_EQ(weights.experts[0].down_by_input.rows, width);
    (void)run_experts(x.data(), 5, hidden, weights, ids.data(), 2, by_input.data(), scratch);
    for (std::size_t i = 0; i < by_input.size(); ++i) ASSERT_NEAR(by_input[i], by_output[i], 2e-3);  // 64 terms of up to 10^2, each rounded to 2^-24
    for (std::size_t token = 0; token < 5; ++token) {
        (void)run_experts(x.data() + token * 96, 1, hidden, weights, ids.data() + 2 * token, 2, alone.data(), scratch);
        ASSERT_TRUE(std::equal(alone.begin(), alone.end(), by_input.begin() + static_cast<std::ptrdiff_t>(2 * token * 96)));
    }
}

TEST(Experts, A_token_gives_the_same_bits_alone_and_among_others) {
    for (const model::WeightFormat& format : sample_formats()) {
        const std::int64_t hidden = 160;
        const int k = 2;
        const MoeWeights weights = random_experts(4, 0, hidden, 48, format);
        const std::int64_t most = 24;
        const auto x = random_floats(static_cast<std::size_t>(most * hidden), 6);
        std::vector<std::int32_t> ids;
        for (std::int32_t i = 0; i < most; ++i) {
            ids.push_back(i % 4);
            ids.push_back((i + 1) % 4);
        }
        Scratch scratch;
        std::vector<float> all(static_cast<std::size_t>(most * k * hidden));
        run_experts(x.data(), most, hidden, weights, ids.data(), k, all.data(), scratch);
        std::vector<float> one(static_cast<std::size_t>(k * hidden));
        for (std::int64_t i = 0; i < most; ++i) {
            run_experts(x.data() + i * hidden, 1, hidden, weights, ids.data() + i * k, k, one.data(), scratch);
            ASSERT_EQ(std::memcmp(one.data(), all.data() + i * k * hidden, one.size() * sizeof(float)), 0) << format.name();
        }
    }
}

}  // namespace
}  // namespace draftboard::backend::cpu
