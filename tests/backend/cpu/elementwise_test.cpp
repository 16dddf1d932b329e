// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/elementwise.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "sample_matrices.h"

namespace draftboard::backend::cpu {
namespace {

class Elementwise : public testing::TestWithParam<InstructionSet> {};
INSTANTIATE_TEST_SUITE_P(All, Elementwise, testing::ValuesIn(supported_instruction_sets()), set_name);

TEST_P(Elementwise, The_exponential_is_within_a_millionth_wherever_it_is_normal) {
    std::vector<float> x;
    for (float value = -87.0F; value < 88.7F; value += 0.0137F) x.push_back(value);
    std::vector<float> y(x.size());
    exponentials(x.data(), 0, static_cast<std::int64_t>(x.size()), y.data(), GetParam());
    for (std::size_t i = 0; i < x.size(); ++i) {
        const double expected = std::exp(static_cast<double>(x[i]));
        ASSERT_NEAR(y[i] / expected, 1.0, 1e-6) << x[i];
    }
}

TEST_P(Elementwise, The_exponential_overflows_to_infinity_and_underflows_to_zero) {
    const float infinity = std::numeric_limits<float>::infinity();
    const std::vector<float> x{89, 1e30F, infinity, -105, -1e30F, -infinity, 0, std::nanf("")};
    std::vector<float> y(x.size());
    exponentials(x.data(), 0, static_cast<std::int64_t>(x.size()), y.data(), GetParam());
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(y[i], infinity);
    for (std::size_t i = 3; i < 6; ++i) EXPECT_LT(y[i], 1e-45F);
    EXPECT_EQ(y[6], 1.0F);
    EXPECT_TRUE(std::isnan(y[7]));
}

TEST_P(Elementwise, Norms_gates_and_sums_agree_with_double_precision_for_any_width) {
    for (std::int64_t width = 1; width < 150; width += width < 40 ? 1 : 13) {
        const auto count = static_cast<std::size_t>(width);
        const auto a = random_floats(count, 1);
        const auto b = random_floats(count, 2);
        double squares = 0;
        for (const float value : a) squares += static_cast<double>(value) * static_cast<double>(value);
        const double scale = 1 / std::sqrt(squares / static_cast<double>(width) + 1e-5);
        // One number beyond the end must stay as it is.
        std::vector<float> norm(count + 1, 7), gated(count + 1, 7), gate_of(b), sum(b), sigmoid(count + 1, 7);
        rms_norm(a.data(), b.data(), width, 1e-5, norm.data(), GetParam());
        silu_multiply(a.data(), b.data(), width, gated.data(), GetParam());
        sigmoid_multiply(a.data(), width, gate_of.data(), GetParam());
        sigmoids(a.data(), width, sigmoid.data(), GetParam());
        add(a.data(), width, sum.data(), GetParam());
        for (std::size_t i = 0; i < count; ++i) {
            const auto x = static_cast<double>(a[i]);
            const auto y = static_cast<double>(b[i]);
            const double s = 1 / (1 + std::exp(-x));
            ASSERT_NEAR(norm[i], x * scale * y, 1e-6 * std::abs(x * scale * y));
            ASSERT_NEAR(gated[i], x * s * y, 2e-6 * std::abs(x * s * y));
            ASSERT_NEAR(gate_of[i], y * s, 2e-6 * std::abs(y * s));
            ASSERT_NEAR(sigmoid[i], s, 2e-6 * s);
            ASSERT_EQ(sum[i], a[i] + b[i]);
        }
        EXPECT_EQ(norm[count], 7);
        EXPECT_EQ(gated[count], 7);
        EXPECT_EQ(sigmoid[count], 7);
    }
}

TEST(RotaryTable, Turns_each_pair_by_position_times_its_frequency) {
    // dim 4, theta 100: frequencies 1 and 1/10. The pair (1, 0) at position 3 becomes (cos 3 f, sin 3 f).
    Numerics numerics;
    numerics.rope_theta = 100;
    for (const bool interleaved : {false, true}) {
        numerics.rope_interleaved = interleaved;
        const RotaryTable table(numerics, 4, 10);
        std::vector<float> x{1, 0, 0, 2, 5};
        table.rotate(x.data(), 3);
        const float f = 0.3F;
        // interleaved: (x0, x1) and (x2, x3);  halves: (x0, x2) and (x1, x3)
        const std::size_t second = interleaved ? 1 : 2;
        const std::size_t third = interleaved ? 2 : 1;
        EXPECT_NEAR(x[0], std::cos(3.0F), 1e-6);
        EXPECT_NEAR(x[second], std::sin(3.0F), 1e-6);
        EXPECT_NEAR(x[third], -2 * std::sin(f), 1e-6);
        EXPECT_NEAR(x[3], 2 * std::cos(f), 1e-6);
        EXPECT_EQ(x[4], 5);
        EXPECT_EQ(table.softmax_factor(), 1);
    }
}

TEST(RotaryTable, Yarn_keeps_fast_pairs_stretches_slow_ones_and_scales_what_attention_sees) {
    // dim 64, theta 10000, original 4096, factor 40. Pair 0 turns 4096 / 2 pi = 652 times: kept. The last pair, frequency
    // 10000^(-62/64) = 1.33e-4, turns 0.087 times: divided by 40. m(s) = 0.1 s ln 40 + 1.
    Numerics numerics;
    Yarn yarn;
    yarn.factor = 40;
    yarn.mscale = 0.5;
    yarn.mscale_all_dim = 1;
    numerics.yarn = yarn;
    const RotaryTable table(numerics, 64, 101);
    std::vector<float> x(64);
    x[0] = 1;
    x[31] = 1;
    table.rotate(x.data(), 100);
    const double length = (0.05 * std::log(40.0) + 1) / (0.1 * std::log(40.0) + 1);
    EXPECT_NEAR(x[0], length * std::cos(100.0), 1e-5);
    EXPECT_NEAR(x[32], length * std::sin(100.0), 1e-5);
    const double slow = std::pow(10000.0, -62.0 / 64) / 40;
    EXPECT_NEAR(x[63], length * std::sin(100 * slow), 1e-7);
    EXPECT_NEAR(table.softmax_factor(), std::pow(0.1 * std::log(40.0) + 1, 2), 1e-12);
}

TEST(RotaryTable, Yarn_blends_between_the_two_betas) {
    // low = floor(64 ln(4096 / (32 2 pi)) / (2 ln 10000)) = floor(10.47) = 10, high = ceil(64 ln(4096 / (2 pi)) / (2 ln 10000))
    // = ceil(22.51) = 23. Pair 15: stretched share (15 - 10) / 13.
    Numerics numerics;
    Yarn yarn;
    yarn.factor = 8;
    numerics.yarn = yarn;
    const RotaryTable table(numerics, 64, 2);
    std::vector<float> x(64);
    x[15] = 1;
    table.rotate(x.data(), 1);
    const double share = 5.0 / 13;
    const double frequency = std::pow(10000.0, -30.0 / 64) * ((1 - share) + share / 8);
    EXPECT_NEAR(std::atan2(x[47], x[15]), frequency, 1e-7);
    // m(1) / m(0) = 0.1 ln 8 + 1
    EXPECT_NEAR(std::hypot(x[47], x[15]), 0.1 * std::log(8.0) + 1, 1e-6);
}

}  // namespace
}  // namespace draftboard::backend::cpu
