// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/weight_matrix.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "sample_matrices.h"

namespace draftboard::backend::cpu {
namespace {

TEST(WeightMatrix, Rows_start_at_cache_lines_and_are_padded_with_zeros) {
    // bytes a row: ceil(37 bits/8 / 64) 64;  bf16 74 -> 128, fp32 148 -> 192, fp8 37 -> 64, int4 19 -> 64
    const std::vector<std::size_t> expected{128, 192, 64, 64, 64};
    const auto formats = sample_formats();
    for (std::size_t f = 0; f < formats.size(); ++f) {
        const WeightMatrix matrix = make_matrix(3, 37, formats[f]);
        EXPECT_EQ(matrix.row_bytes, expected[f]) << formats[f].name();
        EXPECT_EQ(matrix.data.size(), 3 * expected[f]);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(matrix.row(1)) % 64, 0u);
        for (std::size_t b = 0; b < matrix.data.size(); ++b) ASSERT_EQ(matrix.data.data()[b], std::byte{0});
    }
}

TEST(WeightMatrix, Formats_without_a_kernel_are_not_stored) {
    EXPECT_TRUE(can_store(model::NumberFormat::bf16));
    EXPECT_TRUE(can_store(model::NumberFormat::int4));
    EXPECT_FALSE(can_store(model::NumberFormat::nvfp4));
    EXPECT_FALSE(can_store(model::NumberFormat::fp16));
}

TEST(WeightMatrix, Bf16_rounds_to_nearest_even) {
    // 1 + 2^-8 lies between 1 and 1 + 2^-7: the even one is 1;  1 + 3 2^-8 lies between 1 + 2^-7 and 1 + 2^-6.
    EXPECT_EQ(bf16_to_float(float_to_bf16(1 + 0x1p-8F)), 1.0F);
    EXPECT_EQ(bf16_to_float(float_to_bf16(1 + 3 * 0x1p-8F)), 1 + 0x1p-6F);
    EXPECT_EQ(bf16_to_float(float_to_bf16(1 + 0x1.1p-8F)), 1 + 0x1p-7F);
    EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::numeric_limits<float>::signaling_NaN()))));
    EXPECT_TRUE(std::isinf(bf16_to_float(float_to_bf16(std::numeric_limits<float>::max()))));
    for (std::uint32_t bits = 0; bits < 0x7F80; ++bits) {
        ASSERT_EQ(float_to_bf16(bf16_to_float(static_cast<std::uint16_t>(bits))), bits);
    }
}

TEST(WeightMatrix, Fp8_has_subnormals_a_largest_number_and_one_NaN_a_sign) {
    // smallest 2^-9, smallest normal 2^-6, largest 1.75 2^8 = 448
    EXPECT_EQ(fp8_e4m3_to_float(0x01), 0x1p-9F);
    EXPECT_EQ(fp8_e4m3_to_float(0x07), 7 * 0x1p-9F);
    EXPECT_EQ(fp8_e4m3_to_float(0x08), 0x1p-6F);
    EXPECT_EQ(fp8_e4m3_to_float(0x38), 1.0F);
    EXPECT_EQ(fp8_e4m3_to_float(0x7E), 448.0F);
    EXPECT_EQ(fp8_e4m3_to_float(0xFE), -448.0F);
    EXPECT_TRUE(std::isnan(fp8_e4m3_to_float(0x7F)));
    EXPECT_TRUE(std::isnan(fp8_e4m3_to_float(0xFF)));
}

TEST(WeightMatrix, Fp16_has_subnormals_and_infinities) {
    EXPECT_EQ(fp16_to_float(0x3C00), 1.0F);
    EXPECT_EQ(fp16_to_float(0x0001), 0x1p-24F);
    EXPECT_EQ(fp16_to_float(0xFBFF), -65504.0F);
    EXPECT_TRUE(std::isinf(fp16_to_float(0x7C00)));
    EXPECT_TRUE(std::isnan(fp16_to_float(0x7C01)));
}

TEST(WeightMatrix, Int4_takes_eight_elements_from_a_little_endian_word_lowest_bits_first) {
    WeightMatrix matrix = make_matrix(1, 40, {model::NumberFormat::int4, 1, 32, 16, 0});
    matrix.scale_columns = 2;
    matrix.scales = {0.5F, 2};
    const std::uint32_t word = 0x76543210;
    std::memcpy(matrix.data.data(), &word, 4);
    std::memcpy(matrix.data.data() + 16, &word, 4);  // elements 32 .. 39: the second group
    std::vector<float> row(40);
    matrix.dequantize_row(0, row.data());
    for (int c = 0; c < 8; ++c) {
        EXPECT_EQ(row[static_cast<std::size_t>(c)], 0.5F * static_cast<float>(c - 8));
        EXPECT_EQ(row[static_cast<std::size_t>(32 + c)], 2.0F * static_cast<float>(c - 8));
        EXPECT_EQ(row[static_cast<std::size_t>(8 + c)], -4.0F);
    }
}

TEST(WeightMatrix, A_share_inside_a_block_of_scales_finds_its_scale) {
    // Rows 100 .. 139, columns 120 .. 139 of a matrix in blocks of 128: four blocks meet at row 28, column 8 of the share.
    WeightMatrix matrix = make_matrix(40, 20, {model::NumberFormat::fp8_e4m3, 128, 128, 32, 0});
    matrix.row_offset = 100;
    matrix.column_offset = 120;
    matrix.scale_columns = 2;
    matrix.scales = {1, 2, 3, 4};
    EXPECT_EQ(matrix.scale(27, 7), 1);
    EXPECT_EQ(matrix.scale(27, 8), 2);
    EXPECT_EQ(matrix.scale(28, 7), 3);
    EXPECT_EQ(matrix.scale(28, 8), 4);
}

TEST(WeightMatrix, Floats_come_back_rounded_to_the_format) {
    const auto values = random_floats(5 * 19, 1);
    EXPECT_EQ(dequantised(matrix_from_floats(values, 5, 19, model::NumberFormat::fp32)), values);
    const auto rounded = dequantised(matrix_from_floats(values, 5, 19, model::NumberFormat::bf16));
    // half a unit of 8 significant bits
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_LE(std::abs(rounded[i] - values[i]), std::abs(values[i]) * 0x1p-8F);
}

}  // namespace
}  // namespace draftboard::backend::cpu
