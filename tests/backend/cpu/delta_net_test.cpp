// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/delta_net.h"

#include <cmath>

#include <gtest/gtest.h>

#include "sample_matrices.h"

namespace draftboard::backend::cpu {
namespace {

struct Layer {
    DeltaNetSizes sizes;
    std::vector<float> conv, a_log, dt_bias;
    [[nodiscard]] DeltaNetParameters parameters() const { return {conv.data(), a_log.data(), dt_bias.data()}; }
};

Layer make_layer(const DeltaNetSizes& sizes) {
    Layer layer{sizes, random_floats(static_cast<std::size_t>(sizes.channels() * sizes.conv_kernel), 1),
                random_floats(static_cast<std::size_t>(sizes.value_heads), 2), random_floats(static_cast<std::size_t>(sizes.value_heads), 3)};
    return layer;
}

struct Rows {
    std::vector<float> channels, b, a;
};

Rows random_rows(const DeltaNetSizes& sizes, int rows) {
    const auto count = static_cast<std::size_t>(rows);
    return {random_floats(count * static_cast<std::size_t>(sizes.channels()), 4), random_floats(count * static_cast<std::size_t>(sizes.value_heads), 5),
            random_floats(count * static_cast<std::size_t>(sizes.value_heads), 6)};
}

/// The formulas of the header in double precision, row after row from an empty state.
std::vector<double> exact(const Layer& layer, const Rows& rows, int count) {
    const DeltaNetSizes& s = layer.sizes;
    const std::int64_t channels = s.channels();
    std::vector<double> state(static_cast<std::size_t>(s.state()));
    std::vector<double> output;
    for (int row = 0; row < count; ++row) {
        std::vector<double> c(static_cast<std::size_t>(channels));
        for (std::int64_t i = 0; i < channels; ++i) {
            double sum = 0;
            for (int t = 0; t < s.conv_kernel; ++t) {
                const int from = row - (s.conv_kernel - 1) + t;
                if (from >= 0) sum += static_cast<double>(layer.conv[static_cast<std::size_t>(i * s.conv_kernel + t)]) *
                                      static_cast<double>(rows.channels[static_cast<std::size_t>(from * channels + i)]);
            }
            c[static_cast<std::size_t>(i)] = sum / (1 + std::exp(-sum));
        }
        const auto unit = [&](std::int64_t start, double scale) {
            double squares = 0;
            for (int i = 0; i < s.key_dim; ++i) squares += c[static_cast<std::size_t>(start + i)] * c[static_cast<std::size_t>(start + i)];
            for (int i = 0; i < s.key_dim; ++i) c[static_cast<std::size_t>(start + i)] *= scale / std::sqrt(squares + 1e-6);
        };
        for (int h = 0; h < s.key_heads; ++h) {
            unit(std::int64_t{h} * s.key_dim, 1 / std::sqrt(s.key_dim));
            unit(std::int64_t{s.key_heads + h} * s.key_dim, 1);
        }
        for (int h = 0; h < s.value_heads; ++h) {
            const auto at = static_cast<std::size_t>(row * s.value_heads + h);
            const double x = static_cast<double>(rows.a[at]) + static_cast<double>(layer.dt_bias[static_cast<std::size_t>(h)]);
            const double g = std::exp(-std::exp(static_cast<double>(layer.a_log[static_cast<std::size_t>(h)])) * std::log(1 + std::exp(x)));
            const double beta = 1 / (1 + std::exp(-static_cast<double>(rows.b[at])));
            const int key_head = h / (s.value_heads / s.key_heads);
            const double* q = c.data() + key_head * s.key_dim;
            const double* k = c.data() + (s.key_heads + key_head) * s.key_dim;
            const double* v = c.data() + 2 * s.key_heads * s.key_dim + h * s.value_dim;
            double* S = state.data() + std::int64_t{h} * s.key_dim * s.value_dim;
            for (int i = 0; i < s.key_dim * s.value_dim; ++i) S[i] *= g;
            for (int j = 0; j < s.value_dim; ++j) {
                double recalled = 0;
                for (int i = 0; i < s.key_dim; ++i) recalled += S[i * s.value_dim + j] * k[i];
                double sum = 0;
                for (int i = 0; i < s.key_dim; ++i) {
                    S[i * s.value_dim + j] += k[i] * beta * (v[j] - recalled);
                    sum += S[i * s.value_dim + j] * q[i];
                }
                output.push_back(sum);
            }
        }
    }
    return output;
}

class DeltaNet : public testing::TestWithParam<InstructionSet> {
   protected:
    DeltaNet() { scratch_.instruction_set = GetParam(); }

    std::vector<float> run(const Layer& layer, const Rows& rows, int count, std::vector<float>& state, std::vector<float>& window) {
        const DeltaNetSizes& s = layer.sizes;
        std::vector<float> output(static_cast<std::size_t>(count * s.value_heads * s.value_dim));
        for (int row = 0; row < count; ++row) {
            delta_net_row(s, layer.parameters(), rows.channels.data() + row * s.channels(), rows.b.data() + row * s.value_heads,
                          rows.a.data() + row * s.value_heads, state.data(), window.data(), state.data(), window.data(),
                          output.data() + row * s.value_heads * s.value_dim, scratch_);
        }
        return output;
    }
    Scratch scratch_;
};
INSTANTIATE_TEST_SUITE_P(All, DeltaNet, testing::ValuesIn(supported_instruction_sets()), set_name);

TEST_P(DeltaNet, Agrees_with_double_precision_over_rows_heads_and_widths) {
    for (const DeltaNetSizes& sizes : {DeltaNetSizes{1, 1, 4, 4, 4}, {2, 4, 16, 32, 4}, {2, 2, 128, 128, 4}, {1, 3, 10, 21, 2}, {2, 2, 8, 72, 3}}) {
        const Layer layer = make_layer(sizes);
        const Rows rows = random_rows(sizes, 9);
        std::vector<float> state(static_cast<std::size_t>(sizes.state()));
        std::vector<float> window(static_cast<std::size_t>(sizes.window()));
        const auto output = run(layer, rows, 9, state, window);
        const auto expected = exact(layer, rows, 9);
        ASSERT_EQ(output.size(), expected.size());
        // Values are of order 1 and decay; each row adds a rounding of 1e-6 or so.
        for (std::size_t i = 0; i < output.size(); ++i) ASSERT_NEAR(output[i], expected[i], 1e-5) << sizes.key_dim << " " << i;
    }
}

TEST_P(DeltaNet, A_new_state_leaves_the_old_one_as_it_was_and_equals_the_state_updated_in_place) {
    const Layer layer = make_layer({2, 4, 16, 40, 4});
    const DeltaNetSizes& s = layer.sizes;
    const Rows rows = random_rows(s, 1);
    const auto state = random_floats(static_cast<std::size_t>(s.state()), 7);
    const auto window = random_floats(static_cast<std::size_t>(s.window()), 8);
    auto old_state = state;
    auto old_window = window;
    std::vector<float> new_state(state.size()), new_window(window.size()), output(4 * 40);
    delta_net_row(s, layer.parameters(), rows.channels.data(), rows.b.data(), rows.a.data(), old_state.data(), old_window.data(),
                  new_state.data(), new_window.data(), output.data(), scratch_);
    EXPECT_EQ(old_state, state);
    EXPECT_EQ(old_window, window);
    const auto in_place = run(layer, rows, 1, old_state, old_window);
    EXPECT_EQ(in_place, output);
    EXPECT_EQ(old_state, new_state);
    EXPECT_EQ(old_window, new_window);
}

TEST_P(DeltaNet, The_window_holds_the_last_inputs_oldest_first) {
    const Layer layer = make_layer({1, 1, 4, 4, 4});
    const Rows rows = random_rows(layer.sizes, 5);
    std::vector<float> state(16), window(3 * 12);
    run(layer, rows, 5, state, window);
    EXPECT_TRUE(std::equal(window.begin(), window.end(), rows.channels.begin() + 2 * 12));
}

TEST_P(DeltaNet, The_gated_norm_is_the_norm_times_weight_times_silu) {
    for (const int width : {1, 8, 19, 64, 128}) {
        const auto count = static_cast<std::size_t>(3 * width);
        const auto x = random_floats(count, 9);
        const auto z = random_floats(count, 10);
        const auto weight = random_floats(static_cast<std::size_t>(width), 11);
        std::vector<float> y(count);
        gated_rms_norm(x.data(), z.data(), weight.data(), 3, width, 1e-6, y.data(), GetParam());
        for (std::size_t h = 0; h < 3; ++h) {
            double squares = 0;
            for (int i = 0; i < width; ++i) squares += std::pow(static_cast<double>(x[h * static_cast<std::size_t>(width) + static_cast<std::size_t>(i)]), 2);
            for (int i = 0; i < width; ++i) {
                const std::size_t at = h * static_cast<std::size_t>(width) + static_cast<std::size_t>(i);
                const auto gate = static_cast<double>(z[at]);
                const double expected = static_cast<double>(x[at]) / std::sqrt(squares / width + 1e-6) *
                                        static_cast<double>(weight[static_cast<std::size_t>(i)]) * gate / (1 + std::exp(-gate));
                ASSERT_NEAR(y[at], expected, 3e-6 * std::abs(expected));
            }
        }
    }
}

}  // namespace
}  // namespace draftboard::backend::cpu
