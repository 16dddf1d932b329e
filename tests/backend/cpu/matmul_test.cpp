// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/matmul.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "sample_matrices.h"

namespace draftboard::backend::cpu {
namespace {

/// Rounding of a float sum of k terms in any order is below k u sum |terms|, u = 2^-24; partial sums in lanes stay far below.
double bound(std::int64_t terms, double sum_of_magnitudes) {
    return static_cast<double>(terms + 4) * 0x1p-24 * sum_of_magnitudes + 1e-30;
}

/// Every y[i, r] of x (m x k) against W's rows [first, first + count) in double precision. Returns the worst error as a share of its bound.
double worst_dot_error(const std::vector<float>& x, std::int64_t m, const WeightMatrix& w, std::int64_t first, std::int64_t count,
                       const std::vector<float>& y) {
    const auto weights = dequantised(w);
    double worst = 0;
    for (std::int64_t i = 0; i < m; ++i) {
        for (std::int64_t r = 0; r < count; ++r) {
            double sum = 0;
            double magnitude = 0;
            for (std::int64_t c = 0; c < w.columns; ++c) {
                const double term = static_cast<double>(x[static_cast<std::size_t>(i * w.columns + c)]) *
                                    static_cast<double>(weights[static_cast<std::size_t>((first + r) * w.columns + c)]);
                sum += term;
                magnitude += std::abs(term);
            }
            const double error = std::abs(static_cast<double>(y[static_cast<std::size_t>(i * count + r)]) - sum);
            worst = std::max(worst, error / bound(w.columns, magnitude));
        }
    }
    return worst;
}

std::vector<float> multiply(const std::vector<float>& x, std::int64_t m, const WeightMatrix& w, Scratch& scratch) {
    std::vector<float> y(static_cast<std::size_t>(m * w.rows), std::numeric_limits<float>::quiet_NaN());
    matmul(x.data(), m, w.columns, w, nullptr, y.data(), w.rows, scratch);
    return y;
}

bool same_bits(const float* a, const float* b, std::size_t count) { return std::memcmp(a, b, count * sizeof(float)) == 0; }

class Matmul : public testing::TestWithParam<InstructionSet> {
   protected:
    Matmul() { scratch_.instruction_set = GetParam(); }
    Scratch scratch_;
};
INSTANTIATE_TEST_SUITE_P(All, Matmul, testing::ValuesIn(supported_instruction_sets()), set_name);

TEST_P(Matmul, Agrees_with_double_precision_for_any_shape_and_format) {
    for (const model::WeightFormat& format : sample_formats()) {
        for (const std::int64_t columns : {1, 7, 16, 31, 64, 127, 128, 200, 513}) {
            for (const std::int64_t rows : {1, 3, 8, 21}) {
                const WeightMatrix w = random_matrix(rows, columns, format, static_cast<std::uint64_t>(columns * 100 + rows));
                for (const std::int64_t m : {1, 2, 3, 4, 5, 9, 26}) {
                    const auto x = random_floats(static_cast<std::size_t>(m * columns), static_cast<std::uint64_t>(m));
                    const auto y = multiply(x, m, w, scratch_);
                    ASSERT_LT(worst_dot_error(x, m, w, 0, rows, y), 1.0)
                        << format.name() << " " << rows << " x " << columns << ", m " << m;
                }
            }
        }
    }
}

TEST_P(Matmul, A_row_has_the_same_bits_whatever_the_number_of_rows) {
    for (const model::WeightFormat& format : sample_formats()) {
        for (const std::int64_t columns : {48, 256, 300, 1030}) {
            const std::int64_t most = 40;
            const WeightMatrix w = random_matrix(37, columns, format, 3);
            const auto x = random_floats(static_cast<std::size_t>(most * columns), 4);
            std::vector<float> alone;
            for (std::int64_t i = 0; i < most; ++i) {
                const std::vector<float> row(x.begin() + i * columns, x.begin() + (i + 1) * columns);
                const auto y = multiply(row, 1, w, scratch_);
                alone.insert(alone.end(), y.begin(), y.end());
            }
            for (const std::int64_t m : {2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 24, 25, 40}) {
                const auto y = multiply(x, m, w, scratch_);
                ASSERT_TRUE(same_bits(y.data(), alone.data(), y.size())) << format.name() << " columns " << columns << ", m " << m;
            }
        }
    }
}

TEST_P(Matmul, A_weight_row_gives_the_same_bits_wherever_it_stands_in_its_share) {
    for (const model::WeightFormat& format : sample_formats()) {
        const WeightMatrix w = random_matrix(24, 256, format, 5);
        const auto x = random_floats(30 * 256, 6);
        for (const std::int64_t m : {1, 3, 9, 30}) {
            const auto whole = multiply(x, m, w, scratch_);
            for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>{0, 1}, {5, 7}, {23, 1}, {1, 16}}) {
                std::vector<float> part(static_cast<std::size_t>(m * count));
                matmul_rows(x.data(), m, 256, w, first, count, part.data(), count, scratch_);
                for (std::int64_t i = 0; i < m; ++i) {
                    ASSERT_TRUE(same_bits(part.data() + i * count, whole.data() + i * 24 + first, static_cast<std::size_t>(count)))
                        << format.name() << " m " << m << " rows from " << first;
                }
            }
        }
    }
}

TEST_P(Matmul, Shares_that_begin_inside_a_block_of_scales_are_exact_too) {
    const model::WeightFormat fp8{model::NumberFormat::fp8_e4m3, 128, 128, 32, 0};
    for (const model::WeightFormat& format : {fp8, model::WeightFormat{model::NumberFormat::int4, 1, 32, 16, 0},
                                              model::WeightFormat{model::NumberFormat::int4, 1, 128, 16, 0},
                                              model::WeightFormat{model::NumberFormat::int4, 1, 20, 16, 0}}) {
        for (const std::int64_t column_offset : {8, 16, 32, 64, 96, 100}) {
            const WeightMatrix w = random_matrix(10, 176, format, 7, 3, column_offset);
            const auto x = random_floats(26 * 176, 8);
            for (const std::int64_t m : {1, 2, 6, 26}) {
                const auto y = multiply(x, m, w, scratch_);
                ASSERT_LT(worst_dot_error(x, m, w, 0, 10, y), 1.0) << format.name() << " offset " << column_offset << " m " << m;
            }
        }
    }
}

TEST_P(Matmul, Panels_larger_than_the_cache_are_multiplied_in_parts) {
    // 2560 columns: a panel holds 24 rows, x passes it in blocks of 24.
    const WeightMatrix w = random_matrix(70, 2560, sample_formats()[0], 9);
    const auto x = random_floats(53 * 2560, 10);
    EXPECT_LT(worst_dot_error(x, 53, w, 0, 70, multiply(x, 53, w, scratch_)), 1.0);
}

TEST_P(Matmul, A_NaN_code_of_fp8_is_a_NaN_in_its_row_only) {
    WeightMatrix w = random_matrix(9, 128, sample_formats()[2], 11);
    w.data.data()[4 * w.row_bytes + 77] = std::byte{0xFF};
    const auto x = random_floats(30 * 128, 12);
    for (const std::int64_t m : {1, 2, 3, 6, 30}) {
        const auto y = multiply(x, m, w, scratch_);
        for (std::int64_t i = 0; i < m * 9; ++i) EXPECT_EQ(std::isnan(y[static_cast<std::size_t>(i)]), i % 9 == 4);
    }
}

TEST_P(Matmul, A_NaN_code_reaches_its_column_only_when_transposed) {
    WeightMatrix w = random_matrix(9, 128, sample_formats()[2], 11);
    w.data.data()[4 * w.row_bytes + 77] = std::byte{0x7F};
    const auto x = random_floats(5 * 9, 12);
    std::vector<float> y(5 * 128);
    matmul_transposed(x.data(), 5, 9, w, 0, 9, y.data(), 128, scratch_);
    for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i % 128 == 77);
}

TEST_P(Matmul, Scales_of_fp8_may_be_very_small_or_very_large) {
    for (const float scale : {1e-30F, 1e-3F, 127.0F, 129.0F, 1e30F}) {
        WeightMatrix w = random_matrix(6, 130, sample_formats()[3], 13);
        std::fill(w.scales.begin(), w.scales.end(), scale);
        const auto x = random_floats(40 * 130, 14);
        for (const std::int64_t m : {1, 3, 40}) EXPECT_LT(worst_dot_error(x, m, w, 0, 6, multiply(x, m, w, scratch_)), 1.0) << scale;
    }
}

TEST_P(Matmul, Adds_the_bias_and_keeps_what_lies_between_the_rows_of_y) {
    const WeightMatrix w = random_matrix(5, 40, sample_formats()[1], 13);
    const auto x = random_floats(3 * 50, 14);  // rows 50 floats apart, 40 used
    const std::vector<float> bias{1, 2, 3, 4, 5};
    std::vector<float> y(3 * 8, -7);
    matmul(x.data(), 3, 50, w, bias.data(), y.data(), 8, scratch_);
    std::vector<float> plain(3 * 5);
    matmul(x.data(), 3, 50, w, nullptr, plain.data(), 5, scratch_);
    for (std::size_t i = 0; i < 3; ++i) {
        for (std::size_t r = 0; r < 5; ++r) EXPECT_EQ(y[i * 8 + r], plain[i * 5 + r] + bias[r]);
        for (std::size_t r = 5; r < 8; ++r) EXPECT_EQ(y[i * 8 + r], -7);
    }
}

TEST_P(Matmul, Transposed_agrees_with_double_precision_and_with_itself_for_any_number_of_rows) {
    for (const model::WeightFormat& format : sample_formats()) {
        for (const std::int64_t columns : {1, 16, 45, 64, 130, 512, 576}) {
            const std::int64_t first = 3;
            const std::int64_t count = 18;
            const std::int64_t most = 11;
            const WeightMatrix w = random_matrix(24, columns, format, 15);
            const auto weights = dequantised(w);
            const auto x = random_floats(static_cast<std::size_t>(most * count), 16);
            std::vector<float> all(static_cast<std::size_t>(most * columns));
            matmul_transposed(x.data(), most, count, w, first, count, all.data(), columns, scratch_);
            for (std::int64_t i = 0; i < most; ++i) {
                for (std::int64_t c = 0; c < columns; ++c) {
                    double sum = 0;
                    double magnitude = 0;
                    for (std::int64_t r = 0; r < count; ++r) {
                        const double term = static_cast<double>(x[static_cast<std::size_t>(i * count + r)]) *
                                            static_cast<double>(weights[static_cast<std::size_t>((first + r) * columns + c)]);
                        sum += term;
                        magnitude += std::abs(term);
                    }
                    ASSERT_NEAR(all[static_cast<std::size_t>(i * columns + c)], sum, bound(count, magnitude))
                        << format.name() << " columns " << columns;
                }
            }
            for (std::int64_t m = 1; m < most; ++m) {
                std::vector<float> some(static_cast<std::size_t>(m * columns));
                matmul_transposed(x.data(), m, count, w, first, count, some.data(), columns, scratch_);
                ASSERT_TRUE(same_bits(some.data(), all.data(), some.size())) << format.name() << " columns " << columns << " m " << m;
            }
        }
    }
}

TEST_P(Matmul, Transposed_shares_that_begin_inside_a_block_of_scales_are_exact_too) {
    const WeightMatrix w = random_matrix(10, 176, {model::NumberFormat::fp8_e4m3, 128, 128, 32, 0}, 17, 3, 100);
    const auto weights = dequantised(w);
    std::vector<float> unit(10);
    unit[6] = 1;
    std::vector<float> y(176);
    matmul_transposed(unit.data(), 1, 10, w, 0, 10, y.data(), 176, scratch_);
    // A unit vector picks row 6.
    EXPECT_TRUE(std::equal(y.begin(), y.end(), weights.begin() + 6 * 176));
}

TEST_P(Matmul, Doubling_x_doubles_every_bit_of_y) {
    // A power of two changes exponents only, in every product and every sum.
    const bool holds = rc::check("W (2 x) = 2 (W x)", [this] {
        const auto columns = *rc::gen::inRange<std::int64_t>(1, 300);
        const auto rows = *rc::gen::inRange<std::int64_t>(1, 40);
        const auto m = *rc::gen::inRange<std::int64_t>(1, 12);
        const auto formats = sample_formats();
        const auto& format = formats[*rc::gen::inRange<std::size_t>(0, formats.size())];
        const WeightMatrix w = random_matrix(rows, columns, format, 21);
        const auto x = random_floats(static_cast<std::size_t>(m * columns), 22);
        std::vector<float> twice(x);
        for (float& value : twice) value *= 2;
        const auto y = multiply(x, m, w, scratch_);
        const auto y2 = multiply(twice, m, w, scratch_);
        for (std::size_t i = 0; i < y.size(); ++i) RC_ASSERT(y2[i] == 2 * y[i]);
    });
    EXPECT_TRUE(holds);
}

}  // namespace
}  // namespace draftboard::backend::cpu
