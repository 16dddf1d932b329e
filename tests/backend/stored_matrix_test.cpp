// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/stored_matrix.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/cpu/random_source.h"
#include "tests/backend/weight_shares.h"
#include "tests/backend/written_checkpoint.h"

namespace draftboard::backend::cpu {
namespace {

using ::testing::HasSubstr;
using backend::testing::bytes_of_values;
using model::NumberFormat;
using model::WeightFormat;

constexpr std::int64_t kRows = 10;
constexpr std::int64_t kColumns = 24;

struct Sample {
    std::vector<std::byte> storage;
    StoredMatrix matrix;
};

/// Codes that count up, in blocks of 4 x 8 with scales 1, 2, 3, ...
Sample fp8_blocks() {
    Sample out;
    for (std::int64_t i = 0; i < kRows * kColumns; ++i) out.storage.push_back(std::byte(i % 120));  // below the NaN code
    StoredMatrix& m = out.matrix;
    m.name = "w";
    m.rows = kRows;
    m.columns = kColumns;
    m.type = TensorType::f8_e4m3;
    m.format = {NumberFormat::fp8_e4m3, 4, 8, 32, 0};
    m.row_bytes = kColumns;
    m.scale_columns = 3;
    for (int i = 0; i < 9; ++i) m.scales.push_back(static_cast<float>(i + 1));  // 3 block rows (the last of 2) x 3
    m.bytes = out.storage;
    return out;
}

/// Element (r, c) of the sample above, from its definition.
float fp8_value(std::int64_t r, std::int64_t c) {
    const auto code = static_cast<std::uint8_t>((r * kColumns + c) % 120);
    return fp8_e4m3_to_float(code) * static_cast<float>(r / 4 * 3 + c / 8 + 1);
}

TEST(StoredMatrix, Fp8_shares_that_start_inside_a_block_keep_its_scales) {
    const Sample sample = fp8_blocks();
    for (std::int64_t first = 0; first < kRows; ++first) {
        for (std::int64_t column = 0; column < kColumns; column += 3) {
            const auto share = cut(sample.matrix, {{first, kRows - first}}, Range{column, kColumns - column});
            ASSERT_TRUE(share);
            EXPECT_EQ(share->row_offset, first % 4);
            EXPECT_EQ(share->column_offset, column % 8);
            const auto values = dequantized(*share);
            for (std::int64_t r = first; r < kRows; ++r) {
                for (std::int64_t c = column; c < kColumns; ++c) {
                    EXPECT_EQ(values[static_cast<std::size_t>((r - first) * share->columns + c - column)], fp8_value(r, c));
                }
            }
        }
    }
}

TEST(StoredMatrix, Several_ranges_on_the_grid_keep_blocks_and_others_get_a_row_of_scales_a_row) {
    const Sample sample = fp8_blocks();
    const auto on_grid = cut(sample.matrix, {{0, 4}, {8, 2}}, std::nullopt);
    const auto off_grid = cut(sample.matrix, {{1, 2}, {7, 3}}, std::nullopt);
    ASSERT_TRUE(on_grid && off_grid);
    EXPECT_EQ(on_grid->format.block_rows, 4);
    EXPECT_EQ(off_grid->format.block_rows, 1);
    const auto a = dequantized(*on_grid);
    const auto b = dequantized(*off_grid);
    const std::int64_t rows_a[] = {0, 1, 2, 3, 8, 9};
    const std::int64_t rows_b[] = {1, 2, 7, 8, 9};
    for (std::int64_t c = 0; c < kColumns; ++c) {
        for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(a[i * kColumns + static_cast<std::size_t>(c)], fp8_value(rows_a[i], c));
        for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(b[i * kColumns + static_cast<std::size_t>(c)], fp8_value(rows_b[i], c));
    }
}

TEST(StoredMatrix, Int4_shares_start_at_words_and_take_their_groups_with_them) {
    // 2 rows of 64 codes: word w of row r holds codes (r + w + e) mod 16, e = 0 .. 7; groups of 32 with scales 1 .. 4.
    std::vector<std::uint32_t> words;
    for (std::uint32_t r = 0; r < 2; ++r) {
        for (std::uint32_t w = 0; w < 8; ++w) {
            std::uint32_t word = 0;
            for (std::uint32_t e = 0; e < 8; ++e) word |= ((r + w + e) % 16) << (4 * e);
            words.push_back(word);
        }
    }
    const auto storage = bytes_of_values(words);
    StoredMatrix m;
    m.name = "w";
    m.rows = 2;
    m.columns = 64;
    m.type = TensorType::i32;
    m.format = {NumberFormat::int4, 1, 32, 16, 0};
    m.bytes = storage;
    m.row_bytes = 32;
    m.scales = {1, 2, 3, 4};
    m.scale_columns = 2;
    const auto share = cut(m, {{1, 1}}, Range{32, 32});
    ASSERT_TRUE(share);
    const auto values = dequantized(*share);
    for (std::uint32_t c = 0; c < 32; ++c) {
        const auto code = static_cast<int>((1 + (c + 32) / 8 + c % 8) % 16);
        EXPECT_EQ(values[c], static_cast<float>((code - 8) * 4)) << c;
    }
    const auto inside_a_word = cut(m, {}, Range{4, 8});
    ASSERT_FALSE(inside_a_word);
    EXPECT_THAT(inside_a_word.error().message, HasSubstr("inside a word"));
}

TEST(StoredMatrix, F16_becomes_fp32_exactly) {
    const auto storage = bytes_of_values(std::vector<std::uint16_t>{0x3c00, 0xc000, 0x0001, 0x7bff});  // 1, -2, 2^-24, 65504
    StoredMatrix m;
    m.rows = 2;
    m.columns = 2;
    m.type = TensorType::f16;
    m.format = WeightFormat::plain(NumberFormat::fp32);
    m.bytes = storage;
    m.row_bytes = 4;
    const auto all = cut(m, {}, std::nullopt);
    ASSERT_TRUE(all);
    EXPECT_EQ(dequantized(*all), (std::vector<float>{1, -2, 0x1p-24f, 65504}));
}

TEST(StoredMatrix, A_share_beyond_the_matrix_is_an_error) {
    const Sample sample = fp8_blocks();
    for (const Range& rows : {Range{0, 11}, Range{10, 1}, Range{-1, 2}, Range{0, -1}, Range{std::numeric_limits<std::int64_t>::max(), 2}}) {
        EXPECT_FALSE(cut(sample.matrix, {rows}, std::nullopt)) << rows.begin;
    }
    EXPECT_FALSE(cut(sample.matrix, {}, Range{20, 5}));
}

TEST(RandomSource, Fp8_codes_round_to_the_nearest_and_ties_to_even) {
    // Each code's own value gives the code back; the middle between two codes gives the even one.
    for (int code = 0; code < 0x7f; ++code) {
        const float value = fp8_e4m3_to_float(static_cast<std::uint8_t>(code));
        EXPECT_EQ(float_to_fp8_e4m3(value), code);
        EXPECT_EQ(float_to_fp8_e4m3(-value), code | 0x80);
        if (code == 0x7e) continue;
        const float middle = (value + fp8_e4m3_to_float(static_cast<std::uint8_t>(code + 1))) / 2;
        EXPECT_EQ(float_to_fp8_e4m3(middle), code % 2 == 0 ? code : code + 1);
    }
    EXPECT_EQ(float_to_fp8_e4m3(1e9f), 0x7e);
    EXPECT_EQ(float_to_fp8_e4m3(std::numeric_limits<float>::quiet_NaN()), 0x7f);
}

}  // namespace
}  // namespace draftboard::backend::cpu
