// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/elementwise.h"

#include <cmath>

#include <gtest/gtest.h>

#include "../cpu/sample_matrices.h"
#include "backend/cpu/elementwise.h"
#include "device_array.h"

namespace draftboard::backend::cuda {
namespace {

using cpu::random_floats;

class CudaElementwise : public testing::Test {
   protected:
    void SetUp() override {
        if (!gpu_present()) GTEST_SKIP() << "no GPU";
    }
};

void expect_close(const std::vector<float>& output, const std::vector<float>& expected,
                  float relative = 2e-6F) {
    ASSERT_EQ(output.size(), expected.size());
    for (std::size_t i = 0; i < output.size(); ++i)
        ASSERT_NEAR(output[i], expected[i], relative * std::abs(expected[i]) + 1e-7F) << i;
}

/// Row i of `rows` rows, `stride` apart.
std::vector<float> rows_of(const std::vector<float>& x, int rows, std::int64_t stride,
                           std::int64_t width) {
    std::vector<float> result;
    for (int i = 0; i < rows; ++i)
        result.insert(result.end(), x.begin() + i * stride, x.begin() + i * stride + width);
    return result;
}

/// 1 / sqrt(mean of squares + epsilon) in the order that elementwise.cu promises.
float scale_in_order(const float* x, int width, float epsilon) {
    constexpr int kThreads = 512;
    std::vector<float> sums(kThreads);
    for (int t = 0; t < kThreads; ++t) {
        for (int at = 4 * t; at < width; at += 4 * kThreads) {
            for (int i = at; i < std::min(at + 4, width); ++i)
                sums[static_cast<std::size_t>(t)] =
                    std::fma(x[i], x[i], sums[static_cast<std::size_t>(t)]);
        }
    }
    float total = 0;
    for (std::size_t warp = 0; warp < kThreads / 32; ++warp) {
        std::vector<float> lanes(sums.begin() + static_cast<std::ptrdiff_t>(warp) * 32,
                                 sums.begin() + static_cast<std::ptrdiff_t>(warp + 1) * 32);
        for (std::size_t step = 16; step > 0; step /= 2) {
            const auto before = lanes;
            for (std::size_t i = 0; i < 32; ++i) lanes[i] = before[i] + before[i ^ step];
        }
        total += lanes[0];
    }
    return 1.0F / std::sqrt(total / static_cast<float>(width) + epsilon);
}

TEST_F(CudaElementwise, The_norm_after_a_sum_is_taken_in_the_promised_order_bit_for_bit) {
    for (const int width : {1, 7, 64, 510, 2048, 2050, 7168, 8192, 9001}) {
        for (const bool adds : {false, true}) {
            constexpr int kRows = 3;
            const std::int64_t stride = width + 4;
            const auto count = static_cast<std::size_t>(kRows * width);
            auto hidden = random_floats(count, 1);
            const auto block = random_floats(count, 2);
            const auto weight = random_floats(static_cast<std::size_t>(width), 3);
            const DeviceArray<float> x(hidden), b(block), w(weight);
            const DeviceArray<float> normed(static_cast<std::size_t>(kRows * stride), kPoison),
                kept(static_cast<std::size_t>(kRows * 2 * stride), kPoison);
            add_rms_norm(x.get(), adds ? b.get() : nullptr, w.get(), kRows, width, 1e-5F,
                         normed.get(), stride, adds ? kept.get() : nullptr, 2 * stride, nullptr);
            std::vector<float> expected;
            for (int i = 0; i < kRows; ++i) {
                float* row = hidden.data() + i * width;
                for (int c = 0; c < width && adds; ++c)
                    row[c] += block[static_cast<std::size_t>(i * width + c)];
                const float scale = scale_in_order(row, width, 1e-5F);
                for (int c = 0; c < width; ++c)
                    expected.push_back(row[c] * scale * weight[static_cast<std::size_t>(c)]);
            }
            EXPECT_EQ(x.host(), hidden) << width;
            EXPECT_EQ(rows_of(normed.host(), kRows, stride, width), expected) << width;
            if (adds) {
                EXPECT_EQ(rows_of(kept.host(), kRows, 2 * stride, width), hidden);
            }
            EXPECT_TRUE(std::isnan(normed.host()[static_cast<std::size_t>(width)]))
                << "a number beyond the row was written";
        }
    }
}

TEST_F(CudaElementwise, Norms_of_parts_agree_with_the_cpu_engine) {
    for (const int width : {8, 19, 64, 128, 512, 520, 1536, 7168}) {
        for (const int parts : {1, 3}) {
            const std::int64_t stride = parts * width + 5;
            const auto x = random_floats(static_cast<std::size_t>(4 * stride), 4);
            const auto weight = random_floats(static_cast<std::size_t>(width), 5);
            const DeviceArray<float> from(x), w(weight), y(x.size() + 4, kPoison);
            rms_norm(from.get(), stride, w.get(), 4, parts, width, 1e-6F, y.get(), stride + 1,
                     nullptr);
            std::vector<float> expected(static_cast<std::size_t>(4 * parts * width));
            for (int i = 0; i < 4 * parts; ++i) {
                cpu::rms_norm(x.data() + i / parts * stride + i % parts * width, weight.data(),
                              width, 1e-6, expected.data() + i * width);
            }
            expect_close(rows_of(y.host(), 4, stride + 1, parts * width), expected);
        }
    }
}

TEST_F(CudaElementwise, Gates_agree_with_the_cpu_engine_for_any_width_and_stride) {
    for (const int width : {1, 6, 64, 100, 768, 2112}) {
        for (const int extra : {0, 3}) {
            constexpr int kRows = 3;
            const std::int64_t stride = 2 * width + extra;
            const auto x = random_floats(static_cast<std::size_t>(kRows * stride), 6);
            const DeviceArray<float> from(x),
                y(static_cast<std::size_t>(kRows * (width + 4)), kPoison);
            silu_multiply(from.get(), stride, kRows, width, y.get(), width + 4, nullptr);
            std::vector<float> expected(static_cast<std::size_t>(kRows * width));
            for (int i = 0; i < kRows; ++i)
                cpu::silu_multiply(x.data() + i * stride, x.data() + i * stride + width, width,
                                   expected.data() + i * width);
            expect_close(rows_of(y.host(), kRows, width + 4, width), expected);

            // A head of the projection is (query | gate).
            constexpr int kHeads = 2;
            const std::int64_t row = kHeads * 2 * width + extra;
            const auto gate = random_floats(static_cast<std::size_t>(kRows * row), 7);
            auto attended = random_floats(static_cast<std::size_t>(kRows * kHeads * width), 8);
            const DeviceArray<float> gates(gate), values(attended);
            sigmoid_multiply(gates.get() + width, row, 2 * width, kRows, kHeads, width,
                             values.get(), nullptr);
            for (int i = 0; i < kRows * kHeads; ++i) {
                cpu::sigmoid_multiply(
                    gate.data() + i / kHeads * row + (2 * (i % kHeads) + 1) * width, width,
                    attended.data() + i * width);
            }
            expect_close(values.host(), attended);
        }
    }
}

TEST_F(CudaElementwise, Gates_of_extreme_numbers_are_finite) {
    const DeviceArray<float> x(std::vector<float>{-200, 200, -1e30F, 1e30F, 3, 4, 5, 6});
    const DeviceArray<float> y(4, kPoison);
    silu_multiply(x.get(), 8, 1, 4, y.get(), 4, nullptr);
    EXPECT_EQ(y.host(), (std::vector<float>{0, 800, 0, 1e30F * 6}));
}

TEST_F(CudaElementwise, Products_with_a_row_agree_with_double_precision) {
    for (const int width : {1, 30, 1024, 7168}) {
        const std::int64_t stride = width + 2;
        const auto x = random_floats(static_cast<std::size_t>(5 * stride), 9);
        const auto w = random_floats(static_cast<std::size_t>(width), 10);
        const DeviceArray<float> from(x), weights(w), y(5, kPoison);
        row_dot(from.get(), stride, weights.get(), 5, width, y.get(), nullptr);
        const auto output = y.host();
        for (int i = 0; i < 5; ++i) {
            double sum = 0;
            for (int c = 0; c < width; ++c)
                sum += static_cast<double>(x[static_cast<std::size_t>(i * stride + c)]) *
                       static_cast<double>(w[static_cast<std::size_t>(c)]);
            // width products of order 1 sum to order sqrt(width); each step rounds to 6e-8 of that.
            EXPECT_NEAR(output[static_cast<std::size_t>(i)], sum, 1e-6 * std::sqrt(width) * 2);
        }
    }
}

TEST_F(CudaElementwise, Rows_are_gathered_and_copied_between_strides) {
    for (const std::int64_t width : {1, 6, 64, 7168}) {
        const auto x = random_floats(static_cast<std::size_t>(6 * width), 11);
        const DeviceArray<float> from(x), y(static_cast<std::size_t>(4 * width), kPoison);
        const std::vector<std::int32_t> rows{5, 0, 3, 3};
        const DeviceArray<std::int32_t> device_rows(rows);
        gather_rows(from.get(), width, device_rows.get(), 4, y.get(), nullptr);
        std::vector<float> expected;
        for (const int row : rows)
            expected.insert(expected.end(), x.begin() + row * width, x.begin() + (row + 1) * width);
        EXPECT_EQ(y.host(), expected);

        const DeviceArray<float> wide(static_cast<std::size_t>(3 * (width + 5)), kPoison);
        copy_rows(from.get(), 2 * width, 3, width, wide.get(), width + 5, nullptr);
        EXPECT_EQ(rows_of(wide.host(), 3, width + 5, width), rows_of(x, 3, 2 * width, width));
        EXPECT_TRUE(std::isnan(wide.host()[static_cast<std::size_t>(width)]));
    }
}

/// A rotary table and its view on the device. Rotating (1, 0) gives (cos, sin).
struct Rotary {
    Rotary(int dim, bool interleaved, int positions) {
        Numerics numerics;
        numerics.rope_theta = 1000;
        numerics.rope_interleaved = interleaved;
        table = cpu::RotaryTable(numerics, dim, positions);
        std::vector<float> c, s;
        for (int p = 0; p < positions; ++p) {
            std::vector<float> x(static_cast<std::size_t>(dim));
            for (int i = 0; i < dim / 2; ++i)
                x[static_cast<std::size_t>(interleaved ? 2 * i : i)] = 1;
            table.rotate(x.data(), p);
            for (int i = 0; i < dim / 2; ++i) {
                c.push_back(x[static_cast<std::size_t>(interleaved ? 2 * i : i)]);
                s.push_back(x[static_cast<std::size_t>(interleaved ? 2 * i + 1 : i + dim / 2)]);
            }
        }
        cos = DeviceArray(c);
        sin = DeviceArray(s);
        view = {cos.get(), sin.get(), dim, interleaved};
    }
    cpu::RotaryTable table;
    DeviceArray<float> cos, sin;
    RotaryView view;
};

/// Two sequences in slots 2 and 0: a tree and a chain with rows before the pass.
std::vector<PassSequence> two_sequences() {
    return {{2, 9, 0, {-1, 0, 0, 1}}, {0, 4, 3, chain(7)}};
}
constexpr int kTokens = 4;
/// position of each row, and its slot in the cache
constexpr int kPositions[8] = {9, 10, 10, 11, 7, 8, 9, 10};
constexpr int kSlots[8] = {9, 10, 11, 12, 7, 8, 9, 10};
constexpr int kSequences[8] = {2, 2, 2, 2, 0, 0, 0, 0};
constexpr int kLength = 20;

TEST_F(CudaElementwise, Queries_keys_and_values_are_rotated_and_written_as_the_cpu_engine_does) {
    for (const bool interleaved : {false, true}) {
        for (const int rotary_dim : {16, 48}) {
            for (const bool gated : {false, true}) {
                for (const CacheFormat format : {CacheFormat::fp32, CacheFormat::bf16}) {
                    GqaRows shape{3, 2, 48, 48, 0, gated ? 96 : 48, 0, 0, 1e-6F};
                    shape.k_offset = 3 * shape.q_step;
                    shape.v_offset = shape.k_offset + 2 * 48;
                    shape.stride = shape.v_offset + 2 * 48 + 7;
                    const Rotary rotary(rotary_dim, interleaved, 16);
                    const auto projected =
                        random_floats(static_cast<std::size_t>(8 * shape.stride), 12);
                    const DevicePass pass(two_sequences(), kTokens, true);
                    const DeviceArray<float> device(projected), query(8 * 3 * 48, kPoison);
                    const std::size_t cache_size = 3 * kLength * 96;
                    const DeviceArray<float> keys(cache_size, kPoison), values(cache_size, kPoison);
                    const DeviceArray<std::uint16_t> half_keys(cache_size, 0x7FC0),
                        half_values(cache_size, 0x7FC0);
                    const bool half = format == CacheFormat::bf16;
                    const KeyValueCache cache{
                        half ? static_cast<void*>(half_keys.get()) : keys.get(),
                        half ? static_cast<void*>(half_values.get()) : values.get(), format, 96,
                        kLength * 96};
                    gqa_rope_cache(pass.view(), device.get(), shape, nullptr, nullptr, rotary.view,
                                   query.get(), cache, nullptr);

                    std::vector<float> expected_query, expected_keys(cache_size, kPoison),
                        expected_values(cache_size, kPoison);
                    for (int i = 0; i < 8; ++i) {
                        const float* row = projected.data() + i * shape.stride;
                        for (int h = 0; h < 3; ++h) {
                            std::vector<float> head(row + h * shape.q_step,
                                                    row + h * shape.q_step + 48);
                            rotary.table.rotate(head.data(), kPositions[i]);
                            expected_query.insert(expected_query.end(), head.begin(), head.end());
                        }
                        const auto at =
                            static_cast<std::ptrdiff_t>(kSequences[i] * kLength + kSlots[i]) * 96;
                        std::copy_n(row + shape.k_offset, 96, expected_keys.begin() + at);
                        std::copy_n(row + shape.v_offset, 96, expected_values.begin() + at);
                        for (int h = 0; h < 2; ++h)
                            rotary.table.rotate(expected_keys.data() + at + h * 48, kPositions[i]);
                    }
                    EXPECT_EQ(query.host(), expected_query);
                    if (half) {
                        EXPECT_EQ(half_keys.host(), as_bf16(expected_keys));
                        EXPECT_EQ(half_values.host(), as_bf16(expected_values));
                    } else {
                        // NaN differs from itself: compared as bits.
                        const auto bits = [](const std::vector<float>& x) {
                            const auto* words = reinterpret_cast<const std::uint32_t*>(x.data());
                            return std::vector<std::uint32_t>(words, words + x.size());
                        };
                        EXPECT_EQ(bits(keys.host()), bits(expected_keys));
                        EXPECT_EQ(bits(values.host()), bits(expected_values));
                    }
                }
            }
        }
    }
}

TEST_F(CudaElementwise, Queries_and_keys_are_normed_before_they_are_rotated_and_heads_are_padded_with_what_was_there) {
    // Heads of 12 numbers lie 16 apart in query and cache; with an output gate a head is query | gate.
    constexpr int kDim = 12;
    constexpr int kSlotDim = 16;
    for (const bool gated : {false, true}) {
        GqaRows shape{3, 2, kDim, kSlotDim, 0, gated ? 2 * kDim : kDim, 0, 0, 1e-5F};
        shape.k_offset = 3 * shape.q_step;
        shape.v_offset = shape.k_offset + 2 * kDim;
        shape.stride = shape.v_offset + 2 * kDim + 3;
        const Rotary rotary(kDim, false, 16);
        const auto projected = random_floats(static_cast<std::size_t>(8 * shape.stride), 13);
        const auto q_norm = random_floats(kDim, 14);
        const auto k_norm = random_floats(kDim, 15);
        const DevicePass pass(two_sequences(), kTokens, true);
        const DeviceArray<float> device(projected), q_weight(q_norm), k_weight(k_norm);
        const std::size_t cache_size = 3 * kLength * 2 * kSlotDim;
        const DeviceArray<float> query(8 * 3 * kSlotDim, 5.0F), keys(cache_size, 5.0F), values(cache_size, 5.0F);
        gqa_rope_cache(pass.view(), device.get(), shape, q_weight.get(), k_weight.get(), rotary.view, query.get(),
                       {keys.get(), values.get(), CacheFormat::fp32, 2 * kSlotDim, kLength * 2 * kSlotDim}, nullptr);

        std::vector<float> expected_query(8 * 3 * kSlotDim, 5.0F), expected_keys(cache_size, 5.0F), expected_values(cache_size, 5.0F);
        for (int i = 0; i < 8; ++i) {
            const float* row = projected.data() + i * shape.stride;
            const auto normed = [&](const float* from, const std::vector<float>& weight, float* to) {
                cpu::rms_norm(from, weight.data(), kDim, 1e-5, to);
                rotary.table.rotate(to, kPositions[i]);
            };
            for (int h = 0; h < 3; ++h) normed(row + h * shape.q_step, q_norm, expected_query.data() + (i * 3 + h) * kSlotDim);
            for (int h = 0; h < 2; ++h) {
                const auto at = (static_cast<std::ptrdiff_t>(kSequences[i] * kLength + kSlots[i]) * 2 + h) * kSlotDim;
                normed(row + shape.k_offset + h * kDim, k_norm, expected_keys.data() + at);
                std::copy_n(row + shape.v_offset + h * kDim, kDim, expected_values.begin() + at);
            }
        }
        expect_close(query.host(), expected_query);
        expect_close(keys.host(), expected_keys);
        EXPECT_EQ(values.host(), expected_values);
    }
}

TEST_F(CudaElementwise, Latents_and_shared_keys_are_rotated_and_written_as_the_cpu_engine_does) {
    for (const bool interleaved : {false, true}) {
        const MlaRows shape{3, 136, 16};
        constexpr int kWidth = 136 + 16;
        const Rotary rotary(16, interleaved, 16);
        const std::int64_t q_stride = 3 * 40 + 5;  // a head is 24 | 16
        const auto q = random_floats(static_cast<std::size_t>(8 * q_stride), 16);
        const auto latent = random_floats(8 * 150, 17);
        const auto key = random_floats(8 * 21, 18);
        const DevicePass pass(two_sequences(), kTokens, true);
        const DeviceArray<float> device_q(q), device_latent(latent), device_key(key),
            query(8 * 3 * kWidth, 5.0F), keys(3 * kLength * kWidth, 5.0F);
        mla_rope_cache(pass.view(), shape, device_q.get(), q_stride, 40, 24, device_latent.get(),
                       150, device_key.get(), 21, rotary.view, query.get(),
                       {keys.get(), nullptr, CacheFormat::fp32, kWidth, kLength * kWidth}, nullptr);
        std::vector<float> expected_query(8 * 3 * kWidth, 5.0F),
            expected_keys(3 * kLength * kWidth, 5.0F);
        for (int i = 0; i < 8; ++i) {
            for (int h = 0; h < 3; ++h) {
                float* to = expected_query.data() + (i * 3 + h) * kWidth + 136;
                std::copy_n(q.data() + i * q_stride + h * 40 + 24, 16, to);
                rotary.table.rotate(to, kPositions[i]);
            }
            float* to = expected_keys.data() + (kSequences[i] * kLength + kSlots[i]) * kWidth;
            std::copy_n(latent.data() + i * 150, 136, to);
            std::copy_n(key.data() + i * 21, 16, to + 136);
            rotary.table.rotate(to + 136, kPositions[i]);
        }
        EXPECT_EQ(query.host(), expected_query);
        EXPECT_EQ(keys.host(), expected_keys);
    }
}

}  // namespace
}  // namespace draftboard::backend::cuda
