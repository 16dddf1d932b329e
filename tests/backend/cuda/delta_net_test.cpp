// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/delta_net.h"

#include <cmath>

#include <gtest/gtest.h>

#include "../cpu/sample_matrices.h"
#include "backend/cpu/delta_net.h"
#include "device_array.h"

namespace draftboard::backend::cuda {
namespace {

using cpu::random_floats;

constexpr int kSlots = 3;
constexpr int kSnapshots = 24;

/// A layer, its caches on the device, and the same on the CPU.
class Layer {
   public:
    explicit Layer(const cpu::DeltaNetSizes& sizes)
        : sizes_(sizes),
          conv_(random_floats(static_cast<std::size_t>(sizes.channels() * sizes.conv_kernel), 1)),
          a_log_(random_floats(static_cast<std::size_t>(sizes.value_heads), 2)),
          dt_bias_(random_floats(static_cast<std::size_t>(sizes.value_heads), 3)),
          state_(random_floats(static_cast<std::size_t>(kSlots * sizes.state()), 4)),
          window_(random_floats(static_cast<std::size_t>(kSlots * sizes.window()), 5)),
          device_conv_(conv_),
          device_a_log_(a_log_),
          device_dt_bias_(dt_bias_),
          device_state_(state_),
          device_window_(window_),
          snapshot_state_(static_cast<std::size_t>(kSlots * kSnapshots * sizes.state()), kPoison),
          snapshot_input_(static_cast<std::size_t>(kSlots * kSnapshots * sizes.channels()),
                          kPoison) {}

    [[nodiscard]] DeltaNetShape shape() const {
        return {sizes_.key_heads, sizes_.value_heads, sizes_.key_dim, sizes_.value_dim,
                sizes_.conv_kernel};
    }
    [[nodiscard]] DeltaNetCache cache() const {
        return {device_state_.get(), device_window_.get(), snapshot_state_.get(),
                snapshot_input_.get(), kSnapshots};
    }
    [[nodiscard]] std::int64_t stride() const {
        return sizes_.channels() + std::int64_t{sizes_.value_heads} * sizes_.value_dim +
               2 * sizes_.value_heads + 1;
    }
    [[nodiscard]] std::vector<float> random_rows(int rows, std::uint64_t seed) const {
        return random_floats(static_cast<std::size_t>(rows * stride()), seed);
    }

    std::vector<float> run(const std::vector<PassSequence>& sequences, int tokens, bool keeps,
                           const std::vector<float>& projected) const {
        const DevicePass pass(sequences, tokens, keeps);
        const auto rows = static_cast<std::int64_t>(sequences.size()) * tokens;
        const DeviceArray<float> input(projected),
            scratch(static_cast<std::size_t>(rows * sizes_.channels()), kPoison);
        const DeviceArray<float> output(
            static_cast<std::size_t>(rows * sizes_.value_heads * sizes_.value_dim), kPoison);
        delta_net(pass.view(), shape(), input.get(), stride(), device_conv_.get(),
                  device_a_log_.get(), device_dt_bias_.get(), cache(), scratch.get(), output.get(),
                  nullptr);
        return output.host();
    }
    void commit(int slot, const std::vector<std::int32_t>& path) const {
        std::vector<std::int32_t> padded = path;
        padded.resize(2 * kMaxUncommitted, -1);
        // The second sequence keeps nothing.
        const DeviceArray<std::int32_t> slots(std::vector{slot, (slot + 1) % kSlots}),
            committed(std::vector{0, 0}),
            lengths(std::vector{static_cast<std::int32_t>(path.size()), 0}), paths(padded);
        commit_delta_net({2, slots.get(), committed.get(), lengths.get(), paths.get()}, shape(),
                         cache(), nullptr);
        check(cudaDeviceSynchronize(), "commit_delta_net");
    }

    /// State and window after a row on the CPU.
    struct Memory {
        std::vector<float> state, window;
    };
    [[nodiscard]] Memory committed(int slot) const {
        const auto part = [&](const std::vector<float>& all, std::int64_t size) {
            return std::vector<float>(all.begin() + slot * size, all.begin() + (slot + 1) * size);
        };
        return {part(state_, sizes_.state()), part(window_, sizes_.window())};
    }
    [[nodiscard]] Memory on_device(int slot) const {
        const auto part = [&](const std::vector<float>& all, std::int64_t size) {
            return std::vector<float>(all.begin() + slot * size, all.begin() + (slot + 1) * size);
        };
        return {part(device_state_.host(), sizes_.state()),
                part(device_window_.host(), sizes_.window())};
    }
    Memory row(const Memory& from, const float* projected, std::vector<float>& output) const {
        cpu::Scratch scratch;
        Memory to = from;
        const float* b = projected + sizes_.channels() + sizes_.value_heads * sizes_.value_dim;
        const auto at = output.size();
        output.resize(at + static_cast<std::size_t>(sizes_.value_heads * sizes_.value_dim));
        cpu::delta_net_row(sizes_, {conv_.data(), a_log_.data(), dt_bias_.data()}, projected, b,
                           b + sizes_.value_heads, from.state.data(), from.window.data(),
                           to.state.data(), to.window.data(), output.data() + at, scratch);
        return to;
    }
    [[nodiscard]] const cpu::DeltaNetSizes& sizes() const { return sizes_; }

   private:
    cpu::DeltaNetSizes sizes_;
    std::vector<float> conv_, a_log_, dt_bias_, state_, window_;
    DeviceArray<float> device_conv_, device_a_log_, device_dt_bias_, device_state_, device_window_,
        snapshot_state_, snapshot_input_;
};

void expect_close(const std::vector<float>& output, const std::vector<float>& expected) {
    ASSERT_EQ(output.size(), expected.size());
    // States and values are of order 1 to 10; a row adds a rounding of 1e-6 or so.
    for (std::size_t i = 0; i < output.size(); ++i)
        ASSERT_NEAR(output[i], expected[i], 2e-5 * (1 + std::abs(expected[i]))) << i;
}

std::vector<cpu::DeltaNetSizes> sample_sizes() {
    return {{1, 1, 8, 8, 4},   {2, 4, 16, 32, 4},  {2, 8, 128, 128, 4}, {1, 3, 10, 21, 2},
            {2, 2, 64, 72, 3}, {1, 2, 256, 40, 4}, {1, 1, 32, 16, 1}};
}

class CudaDeltaNet : public testing::Test {
   protected:
    void SetUp() override {
        if (!gpu_present()) GTEST_SKIP() << "no GPU";
    }
};

TEST_F(CudaDeltaNet,
       Rows_that_are_committed_at_once_agree_with_the_cpu_engine_and_move_state_and_window_on) {
    for (const auto& sizes : sample_sizes()) {
        for (const int tokens : {1, 2, 5, 40}) {
            const Layer layer(sizes);
            // Two passes, two sequences; slot 0 stays as it is.
            std::vector<Layer::Memory> memory{layer.committed(2), layer.committed(1)};
            const auto untouched = layer.committed(0);
            int committed = 10;
            for (std::uint64_t pass = 0; pass < 2; ++pass) {
                const auto projected = layer.random_rows(2 * tokens, 20 + pass);
                const auto output =
                    layer.run({{2, committed, 0, chain(tokens)}, {1, 3, 0, chain(tokens)}}, tokens,
                              false, projected);
                std::vector<float> expected;
                for (int i = 0; i < 2 * tokens; ++i) {
                    auto& at = memory[static_cast<std::size_t>(i / tokens)];
                    at = layer.row(at, projected.data() + i * layer.stride(), expected);
                }
                expect_close(output, expected);
                committed += tokens;
            }
            for (int s = 0; s < 2; ++s) {
                expect_close(layer.on_device(2 - s).state,
                             memory[static_cast<std::size_t>(s)].state);
                EXPECT_EQ(layer.on_device(2 - s).window,
                          memory[static_cast<std::size_t>(s)].window);
            }
            EXPECT_EQ(layer.on_device(0).state, untouched.state);
            EXPECT_EQ(layer.on_device(0).window, untouched.window);
        }
    }
}

/// Two passes over a tree, row by row against the CPU; then a path is committed and decoding goes
/// on.
TEST_F(CudaDeltaNet,
       Rows_of_a_tree_start_from_their_parents_and_a_committed_path_becomes_state_and_window) {
    const std::vector<std::int32_t> parents{-1, 0, 0, 1, 2, -1, 4, 5, 3, 6, 9, 8};
    const std::vector<std::int32_t> path{0, 2, 4, 6, 9};
    for (const auto& sizes : sample_sizes()) {
        for (std::size_t kept = 1; kept <= path.size(); ++kept) {
            const Layer layer(sizes);
            const auto rows = layer.random_rows(12, 30);
            const auto other = layer.random_rows(12, 31);
            std::vector<std::vector<Layer::Memory>> after(2);
            std::vector<std::vector<float>> expected(2);
            for (std::size_t s = 0; s < 2; ++s) {
                for (std::size_t u = 0; u < 12; ++u) {
                    const auto from = parents[u] < 0
                                          ? layer.committed(s == 0 ? 2 : 0)
                                          : after[s][static_cast<std::size_t>(parents[u])];
                    after[s].push_back(layer.row(from,
                                                 (s == 0 ? rows : other).data() +
                                                     static_cast<std::int64_t>(u) * layer.stride(),
                                                 expected[s]));
                }
            }
            const auto width = static_cast<std::ptrdiff_t>(sizes.value_heads) * sizes.value_dim;
            for (const auto& [first, tokens] : {std::pair{0, 5}, {5, 7}}) {
                std::vector<float> projected(rows.begin() + first * layer.stride(),
                                             rows.begin() + (first + tokens) * layer.stride());
                projected.insert(projected.end(), other.begin() + first * layer.stride(),
                                 other.begin() + (first + tokens) * layer.stride());
                const auto output = layer.run({{2, 10, first, parents}, {0, 8, first, parents}},
                                              tokens, true, projected);
                std::vector<float> wanted;
                for (std::size_t s = 0; s < 2; ++s) {
                    wanted.insert(wanted.end(), expected[s].begin() + first * width,
                                  expected[s].begin() + (first + tokens) * width);
                }
                expect_close(output, wanted);
            }
            EXPECT_EQ(layer.on_device(2).state, layer.committed(2).state);
            layer.commit(2, {path.begin(), path.begin() + static_cast<std::ptrdiff_t>(kept)});
            const auto& last = after[0][static_cast<std::size_t>(path[kept - 1])];
            expect_close(layer.on_device(2).state, last.state);
            EXPECT_EQ(layer.on_device(2).window, last.window);
            EXPECT_EQ(layer.on_device(0).state, layer.committed(0).state);
        }
    }
}

TEST_F(CudaDeltaNet, Decoding_verifying_a_chain_and_verifying_a_tree_give_the_same_bits) {
    for (const auto& sizes : sample_sizes()) {
        const Layer one_by_one(sizes), at_once(sizes), verified(sizes), tree(sizes);
        constexpr int kRows = 6;
        const auto rows = one_by_one.random_rows(kRows, 40);
        const auto stride = one_by_one.stride();
        std::vector<float> decoded;
        for (int t = 0; t < kRows; ++t) {
            const auto row =
                one_by_one.run({{1, 5 + t, 0, {-1}}}, 1, false,
                               {rows.begin() + t * stride, rows.begin() + (t + 1) * stride});
            decoded.insert(decoded.end(), row.begin(), row.end());
        }
        EXPECT_EQ(at_once.run({{1, 5, 0, chain(kRows)}}, kRows, false, rows), decoded);
        EXPECT_EQ(verified.run({{1, 5, 0, chain(kRows)}}, kRows, true, rows), decoded);
        verified.commit(1, {0, 1, 2, 3, 4, 5});
        // The same path at rows 0, 2, 3, 5, 6, 8 of a tree, with others between.
        const std::vector<std::int32_t> parents{-1, -1, 0, 2, 2, 3, 5, 1, 6};
        const std::vector<std::int32_t> path{0, 2, 3, 5, 6, 8};
        auto projected = tree.random_rows(9, 41);
        for (std::size_t t = 0; t < path.size(); ++t) {
            std::copy_n(rows.begin() + static_cast<std::int64_t>(t) * stride, stride,
                        projected.begin() + path[t] * stride);
        }
        const auto output = tree.run({{1, 5, 0, parents}}, 9, true, projected);
        const auto width = static_cast<std::ptrdiff_t>(sizes.value_heads) * sizes.value_dim;
        for (std::size_t t = 0; t < path.size(); ++t) {
            const auto at = static_cast<std::ptrdiff_t>(t) * width;
            EXPECT_TRUE(std::equal(decoded.begin() + at, decoded.begin() + at + width,
                                   output.begin() + path[t] * width))
                << t;
        }
        tree.commit(1, path);
        for (const Layer* layer : {&at_once, &verified, &tree}) {
            EXPECT_EQ(layer->on_device(1).state, one_by_one.on_device(1).state);
            EXPECT_EQ(layer->on_device(1).window, one_by_one.on_device(1).window);
        }
    }
}

TEST_F(CudaDeltaNet, The_gated_norm_agrees_with_the_cpu_engine) {
    for (const int width : {8, 19, 64, 128}) {
        constexpr int kRows = 5, kHeads = 3;
        const std::int64_t stride = kHeads * width + 7;
        auto x = random_floats(static_cast<std::size_t>(kRows * kHeads * width), 9);
        const auto z = random_floats(static_cast<std::size_t>(kRows * stride), 10);
        const auto weight = random_floats(static_cast<std::size_t>(width), 11);
        const DeviceArray<float> device(x), gate(z), w(weight);
        gated_rms_norm(device.get(), gate.get(), stride, w.get(), kRows, kHeads, width, 1e-6F,
                       nullptr);
        for (int i = 0; i < kRows; ++i) {
            float* row = x.data() + i * kHeads * width;
            cpu::gated_rms_norm(row, z.data() + i * stride, weight.data(), kHeads, width, 1e-6,
                                row);
        }
        const auto output = device.host();
        for (std::size_t i = 0; i < x.size(); ++i)
            ASSERT_NEAR(output[i], x[i], 3e-6F * std::abs(x[i]) + 1e-7F);
    }
}

}  // namespace
}  // namespace draftboard::backend::cuda
