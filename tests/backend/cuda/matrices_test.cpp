// SPDX-License-Identifier: Apache-2.0
// Matrices and vocabulary on the GPU against float64. Inputs are fresh random numbers, outputs are NaN before.
#include "backend/cuda/matmul.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "backend/cuda/vocabulary.h"
#include "matrices_on_device.h"

namespace draftboard::backend::cuda {
namespace {

using cpu::WeightMatrix;
using model::NumberFormat;
using model::WeightFormat;

/// Worst |y - x W^T - bias| as a share of `unit` x the sum of the terms' magnitudes. NaN gives infinity.
double worst_error(const std::vector<float>& y, std::int64_t y_stride, const std::vector<float>& x, std::int64_t m,
                   std::int64_t x_stride, const std::vector<float>& weights, std::int64_t rows, std::int64_t columns,
                   const float* bias, double unit) {
    double worst = 0;
    for (std::int64_t i = 0; i < m; ++i) {
        for (std::int64_t r = 0; r < rows; ++r) {
            double sum = bias != nullptr ? static_cast<double>(bias[r]) : 0;
            double magnitude = std::abs(sum) + 1e-30;
            for (std::int64_t c = 0; c < columns; ++c) {
                const double term = static_cast<double>(x[static_cast<std::size_t>(i * x_stride + c)]) *
                                    static_cast<double>(weights[static_cast<std::size_t>(r * columns + c)]);
                sum += term;
                magnitude += std::abs(term);
            }
            const double error =
                std::abs(static_cast<double>(y[static_cast<std::size_t>(i * y_stride + r)]) - sum) / (unit * magnitude);
            worst = std::isfinite(error) ? std::max(worst, error) : std::numeric_limits<double>::infinity();
        }
    }
    return worst;
}

/// A float sum of k terms in any order is within (k + 4) 2^-24 of the sum of magnitudes. Tensor cores cut off where the others
/// round, which doubles it, and few terms leave the three products of each: 16.
double float_unit(std::int64_t terms) { return static_cast<double>(2 * std::min<std::int64_t>(terms, 256) + 16) * 0x1p-24; }

struct Shape {
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    std::int64_t row_offset = 0;
    std::int64_t column_offset = 0;
};

class CudaMatrices : public CudaTest {
 protected:
    /// few_rows_matmul for m rows of x, with every row and every m checked against float64 and for equal bits.
    static void expect_few_rows(const Shape& shape, const WeightFormat& format) {
        const std::string where =
            std::string(format.name()) + " " + std::to_string(shape.rows) + " x " + std::to_string(shape.columns);
        const WeightMatrix matrix =
            cpu::random_matrix(shape.rows, shape.columns, format, 1, shape.row_offset, shape.column_offset);
        const OnDevice device(matrix);
        const std::int64_t x_stride = shape.columns % 4 == 0 ? shape.columns + 4 : shape.columns + 1;
        const auto x = cpu::random_floats(static_cast<std::size_t>(kFewRows * x_stride), 2);
        const auto bias = cpu::random_floats(static_cast<std::size_t>(shape.rows), 3);
        const Device<float> device_x(x);
        const Device<float> device_bias(bias);
        const std::int64_t y_stride = shape.rows + 3;
        Device<float> y(static_cast<std::size_t>(kFewRows * y_stride));
        few_rows_matmul(device_x.get(), kFewRows, x_stride, device.view.first, device_bias.get(), y.get(), y_stride, nullptr);
        const auto all = y.read();
        const auto weights = cpu::dequantised(matrix);
        EXPECT_LT(worst_error(all, y_stride, x, kFewRows, x_stride, weights, shape.rows, shape.columns, bias.data(),
                              float_unit(shape.columns)),
                  1)
            << where;
        for (std::int64_t i = 0; i < kFewRows; ++i) {
            for (std::int64_t r = shape.rows; r < y_stride; ++r) {
                ASSERT_TRUE(std::isnan(all[static_cast<std::size_t>(i * y_stride + r)])) << where << ": wrote beyond a row";
            }
        }
        for (int m = 1; m < kFewRows; ++m) {
            y.poison();
            // Rows from the end, so that each lies at another place in its pass.
            const int first = kFewRows - m;
            few_rows_matmul(device_x.get() + first * x_stride, m, x_stride, device.view.first, device_bias.get(), y.get(),
                            y_stride, nullptr);
            const auto some = y.read();
            for (std::int64_t i = 0; i < m; ++i) {
                ASSERT_EQ(std::memcmp(some.data() + i * y_stride, all.data() + (first + i) * y_stride,
                                      static_cast<std::size_t>(shape.rows) * 4),
                          0)
                    << where << " m " << m << " row " << i;
            }
        }
    }
};

TEST_F(CudaMatrices, Few_rows_match_float64_in_every_format_and_a_row_has_the_same_bits_in_a_pass_of_any_width) {
    for (const WeightFormat& format : cpu::sample_formats()) {
        for (const Shape& shape : {Shape{1, 8}, Shape{40, 64}, Shape{33, 256}, Shape{50, 1000}, Shape{16, 77}, Shape{300, 520},
                                   Shape{256, 2048}, Shape{130, 4096}, Shape{64, 7168}}) {
            expect_few_rows(shape, format);
        }
    }
}

TEST_F(CudaMatrices, Few_rows_match_where_a_share_begins_inside_a_block_of_scales) {
    const WeightFormat blocks{NumberFormat::fp8_e4m3, 128, 128, 32, 0};
    expect_few_rows({200, 512, 100, 64}, blocks);
    expect_few_rows({200, 512, 3, 96}, blocks);  // no fast path: a scale changes within a step
    expect_few_rows({100, 256, 0, 32}, {NumberFormat::int4, 1, 32, 16, 0});
}

TEST_F(CudaMatrices, Few_rows_of_wide_and_tall_matrices_match) {
    expect_few_rows({2112, 1536}, WeightFormat::plain(NumberFormat::bf16));
    expect_few_rows({40, 18432}, {NumberFormat::fp8_e4m3, 128, 128, 32, 0});
    expect_few_rows({5000, 128}, {NumberFormat::int4, 1, 32, 16, 0});
}

TEST_F(CudaMatrices, A_NaN_code_of_fp8_reaches_its_own_output_only_and_an_infinity_stays_one) {
    const WeightFormat format = WeightFormat::plain(NumberFormat::fp8_e4m3);
    WeightMatrix matrix = cpu::random_matrix(48, 320, format, 5);
    matrix.data.data()[17 * matrix.row_bytes + 201] = std::byte{0xFF};
    auto x = cpu::random_floats(2 * 320, 6);
    const OnDevice device(matrix);
    Device<float> y(2 * 48);
    const Device<float> device_x(x);
    few_rows_matmul(device_x.get(), 2, 320, device.view.first, nullptr, y.get(), 48, nullptr);
    auto result = y.read();
    for (std::size_t r = 0; r < 48; ++r) {
        EXPECT_EQ(std::isnan(result[r]), r == 17) << r;
        EXPECT_EQ(std::isnan(result[48 + r]), r == 17) << r;
    }
    const WeightMatrix ones = cpu::matrix_from_floats(std::vector<float>(32 * 64, 1.0F), 32, 64, NumberFormat::bf16);
    const OnDevice device_ones(ones);
    x[3] = std::numeric_limits<float>::infinity();
    const Device<float> infinite(x);
    few_rows_matmul(infinite.get(), 2, 320, device_ones.view.first, nullptr, y.get(), 48, nullptr);
    result = y.read();
    for (std::size_t r = 0; r < 32; ++r) {
        EXPECT_EQ(result[r], std::numeric_limits<float>::infinity());
        EXPECT_TRUE(std::isfinite(result[48 + r]));
    }
}

TEST_F(CudaMatrices, Matrices_of_heads_match_float64_in_both_directions) {
    // kv_b of MLA: heads x (nope + v) rows of latent columns.
    constexpr int kHeads = 3, kNope = 24, kValue = 40;
    constexpr std::int64_t kLatent = 136;
    for (const WeightFormat& format : cpu::sample_formats()) {
        const WeightMatrix matrix = cpu::random_matrix(kHeads * (kNope + kValue), kLatent, format, 7);
        const auto weights = cpu::dequantised(matrix);
        const OnDevice device(matrix);
        for (const int m : {1, 2, 3, 5, 8, 11}) {
            const std::int64_t wide = kHeads * kLatent + 4;
            const std::int64_t narrow = kHeads * (kNope + kValue);
            const auto x = cpu::random_floats(static_cast<std::size_t>(m * wide), 8);
            const auto q = cpu::random_floats(static_cast<std::size_t>(m * narrow), 9);
            const Device<float> device_x(x), device_q(q);
            Device<float> values(static_cast<std::size_t>(m * narrow)), latents(static_cast<std::size_t>(m * wide));
            head_rows_matmul(device_x.get(), m, kHeads, wide, kLatent, device.view.first, kNope + kValue, kNope, kValue,
                             values.get(), narrow, kNope + kValue, nullptr);
            head_columns_matmul(device_q.get(), m, kHeads, narrow, kNope + kValue, device.view.first, kNope + kValue, 0, kNope,
                                latents.get(), wide, kLatent, nullptr);
            const auto y = values.read();
            const auto z = latents.read();
            for (int i = 0; i < m; ++i) {
                for (int h = 0; h < kHeads; ++h) {
                    for (int r = 0; r < kValue; ++r) {
                        double sum = 0, magnitude = 0;
                        for (std::int64_t c = 0; c < kLatent; ++c) {
                            const double term =
                                static_cast<double>(x[static_cast<std::size_t>(i * wide + h * kLatent + c)]) *
                                weights[static_cast<std::size_t>((h * (kNope + kValue) + kNope + r) * kLatent + c)];
                            sum += term;
                            magnitude += std::abs(term);
                        }
                        ASSERT_NEAR(y[static_cast<std::size_t>(i * narrow + h * (kNope + kValue) + r)], sum,
                                    float_unit(kLatent) * magnitude)
                            << format.name() << " m " << m;
                    }
                    for (std::int64_t c = 0; c < kLatent; ++c) {
                        double sum = 0, magnitude = 0;
                        for (int r = 0; r < kNope; ++r) {
                            const double term =
                                static_cast<double>(q[static_cast<std::size_t>(i * narrow + h * (kNope + kValue) + r)]) *
                                weights[static_cast<std::size_t>((h * (kNope + kValue) + r) * kLatent + c)];
                            sum += term;
                            magnitude += std::abs(term);
                        }
                        ASSERT_NEAR(z[static_cast<std::size_t>(i * wide + h * kLatent + c)], sum, float_unit(kNope) * magnitude)
                            << format.name() << " m " << m;
                    }
                }
            }
        }
    }
}

TEST_F(CudaMatrices, Many_rows_match_to_the_rounding_that_their_precision_names) {
    for (const WeightFormat& format : cpu::sample_formats()) {
        const bool exact = format.format == NumberFormat::fp32;
        // Codes of fp8 without scales are bf16 numbers; times a scale they are rounded to 2^-9.
        const bool rounded = format.block_rows > 0;
        for (const Shape& shape : {Shape{96, 256}, Shape{200, 300}, Shape{48, 77}}) {
            const WeightMatrix matrix = cpu::random_matrix(shape.rows, shape.columns, format, 11);
            const auto weights = cpu::dequantised(matrix);
            const OnDevice device(matrix);
            for (const Precision precision : {Precision::fp32, Precision::bf16}) {
                DenseMath math(64, shape.columns, shape.rows, precision, DenseChoice::library);
                for (const int m : {1, 17, 64}) {
                    const auto x = cpu::random_floats(static_cast<std::size_t>(m * shape.columns), 12);
                    const auto bias = cpu::random_floats(static_cast<std::size_t>(shape.rows), 13);
                    const Device<float> device_x(x), device_bias(bias);
                    Device<float> y(static_cast<std::size_t>(m * shape.rows));
                    math.matmul(device_x.get(), m, shape.columns, device.view.first, device_bias.get(), y.get(), shape.rows,
                                nullptr);
                    const double of_x = exact ? 0 : precision == Precision::bf16 ? 0x1p-8 : 0x1p-16;
                    const double unit = float_unit(shape.columns) + of_x + (rounded ? 0x1p-8 : 0);
                    EXPECT_LT(worst_error(y.read(), shape.rows, x, m, shape.columns, weights, shape.rows, shape.columns,
                                          bias.data(), unit),
                              1)
                        << format.name() << " m " << m << " rows " << shape.rows;
                }
            }
        }
    }
}

TEST_F(CudaMatrices, Many_rows_of_a_large_quantised_matrix_are_unpacked_a_block_at_a_time) {
    // 64 MiB hold 8192 rows of 4096 columns: the last 100 rows are a block of their own.
    const WeightFormat format{NumberFormat::int4, 1, 32, 16, 0};
    const std::int64_t rows = 8292, columns = 4096;
    const WeightMatrix matrix = cpu::random_matrix(rows, columns, format, 14);
    const OnDevice device(matrix);
    const int m = 17;
    const auto x = cpu::random_floats(static_cast<std::size_t>(m * columns), 15);
    const Device<float> device_x(x);
    Device<float> y(static_cast<std::size_t>(m * rows)), exact(static_cast<std::size_t>(kFewRows * rows));
    DenseMath math(m, columns, rows, Precision::bf16, DenseChoice::few_rows);
    math.matmul(device_x.get(), m, columns, device.view.first, nullptr, y.get(), rows, nullptr);
    math.matmul(device_x.get(), kFewRows, columns, device.view.first, nullptr, exact.get(), rows, nullptr);
    const auto a = y.read();
    const auto b = exact.read();
    double error = 0, norm = 0;
    for (std::size_t i = 0; i < b.size(); ++i) {
        error += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
        norm += std::pow(static_cast<double>(b[i]), 2);
    }
    EXPECT_LT(std::sqrt(error / norm), 3e-3);
    EXPECT_THROW(math.matmul(device_x.get(), m + 1, columns, device.view.first, nullptr, y.get(), rows, nullptr),
                 std::runtime_error);
}

TEST_F(CudaMatrices, Embedding_takes_the_rows_of_this_rank_exactly_and_zeros_for_others) {
    for (const WeightFormat& format : cpu::sample_formats()) {
        for (const std::int64_t columns : {40, 77, 1032}) {
            const WeightMatrix table = cpu::random_matrix(20, columns, format, 50);
            const auto weights = cpu::dequantised(table);
            const OnDevice device(table);
            const std::vector<std::int32_t> tokens{100, 119, 99, 120, 107, 0};
            const Device<std::int32_t> device_tokens(tokens);
            Device<float> output(tokens.size() * static_cast<std::size_t>(columns));
            embed(device.view.first, 100, device_tokens.get(), static_cast<int>(tokens.size()), output.get(), nullptr);
            const auto result = output.read();
            for (std::size_t i = 0; i < tokens.size(); ++i) {
                const std::int64_t row = tokens[i] - 100;
                for (std::int64_t c = 0; c < columns; ++c) {
                    const float expected = row >= 0 && row < 20 ? weights[static_cast<std::size_t>(row * columns + c)] : 0.0F;
                    ASSERT_EQ(result[i * static_cast<std::size_t>(columns) + static_cast<std::size_t>(c)], expected)
                        << format.name();
                }
            }
        }
    }
}

TEST_F(CudaMatrices, The_best_tokens_come_in_order_with_ties_to_the_lower_and_NaN_last) {
    for (const std::int64_t vocabulary : {5, 1000, 32001, 151936, 262144}) {
        const int rows = 4;
        const std::int64_t stride = vocabulary + 4;
        auto logits = cpu::random_floats(static_cast<std::size_t>(rows * stride), 60);
        for (float& value : logits) value *= 3;
        for (std::int64_t t = 0; t < vocabulary; ++t) {
            auto& tied = logits[static_cast<std::size_t>(stride + t)];
            tied = std::round(tied);  // many equals, zeros of both signs
            if (t % 2 == 0) logits[static_cast<std::size_t>(2 * stride + t)] = std::nanf("");
            logits[static_cast<std::size_t>(3 * stride + t)] =
                t == vocabulary / 2 ? std::nanf("") : -std::numeric_limits<float>::infinity();
        }
        const Device<float> device(logits);
        for (const int k : {1, 2, 4, 64}) {
            Device<std::int32_t> tokens(static_cast<std::size_t>(rows * k));
            Device<float> values(static_cast<std::size_t>(rows * k)), sums(rows);
            best_tokens(device.get(), rows, vocabulary, stride, k, tokens.get(), values.get(), sums.get(), nullptr);
            const auto found = tokens.read();
            const auto found_values = values.read();
            const auto found_sums = sums.read();
            for (int r = 0; r < rows; ++r) {
                const float* row = logits.data() + r * stride;
                std::vector<std::int32_t> order(static_cast<std::size_t>(vocabulary));
                std::iota(order.begin(), order.end(), 0);
                const auto count = std::min<std::int64_t>(k, vocabulary);
                std::partial_sort(order.begin(), order.begin() + count, order.end(), [row](std::int32_t a, std::int32_t b) {
                    if (std::isnan(row[a]) != std::isnan(row[b])) return std::isnan(row[b]);
                    if (!std::isnan(row[a]) && row[a] != row[b]) return row[a] > row[b];
                    return a < b;
                });
                for (std::int64_t j = 0; j < k; ++j) {
                    const std::int32_t token = found[static_cast<std::size_t>(r * k + j)];
                    if (j >= count) {
                        ASSERT_EQ(token, -1);
                        continue;
                    }
                    ASSERT_EQ(token, order[static_cast<std::size_t>(j)])
                        << "vocabulary " << vocabulary << " k " << k << " row " << r << " place " << j;
                    const float value = found_values[static_cast<std::size_t>(r * k + j)];
                    ASSERT_TRUE(value == row[token] || (std::isnan(value) && std::isnan(row[token])));
                }
                double sum = 0;
                const float best = row[order[0]];
                for (std::int64_t t = 0; t < vocabulary; ++t) {
                    if (row[t] == best) {
                        sum += 1;
                    } else if (!std::isnan(row[t])) {
                        sum += std::exp(static_cast<double>(row[t]) - static_cast<double>(best));
                    }
                }
                ASSERT_NEAR(found_sums[static_cast<std::size_t>(r)], sum, 1e-5 * sum)
                    << "vocabulary " << vocabulary << " row " << r;
            }
        }
    }
}

}  // namespace
}  // namespace draftboard::backend::cuda
