// SPDX-License-Identifier: Apache-2.0
#include "sample_matrices.h"

#include <cstring>
#include <random>

namespace draftboard::backend::cpu {

std::string set_name(const testing::TestParamInfo<InstructionSet>& info) {
    std::string name = to_name(info.param);
    std::erase(name, '-');
    return name;
}

std::vector<float> random_floats(std::size_t count, std::uint64_t seed) {
    std::mt19937_64 generator(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (float& value : values) value = normal(generator);
    return values;
}

std::vector<model::WeightFormat> sample_formats() {
    using model::NumberFormat;
    return {model::WeightFormat::plain(NumberFormat::bf16), model::WeightFormat::plain(NumberFormat::fp32),
            model::WeightFormat::plain(NumberFormat::fp8_e4m3), {NumberFormat::fp8_e4m3, 128, 128, 32, 0},
            {NumberFormat::int4, 1, 32, 16, 0}};
}

WeightMatrix random_matrix(std::int64_t rows, std::int64_t columns, const model::WeightFormat& format, std::uint64_t seed,
                           std::int64_t row_offset, std::int64_t column_offset) {
    std::mt19937_64 generator(seed);
    WeightMatrix matrix = make_matrix(rows, columns, format);
    matrix.row_offset = row_offset;
    matrix.column_offset = column_offset;
    std::normal_distribution<float> normal;
    for (std::int64_t r = 0; r < rows; ++r) {
        std::byte* row = matrix.data.data() + static_cast<std::size_t>(r) * matrix.row_bytes;
        for (std::int64_t c = 0; c < columns; ++c) {
            const auto at = static_cast<std::size_t>(c);
            const float value = normal(generator);
            switch (format.format) {
                case model::NumberFormat::fp32: std::memcpy(row + 4 * at, &value, 4); break;
                case model::NumberFormat::bf16: {
                    const std::uint16_t bits = float_to_bf16(value);
                    std::memcpy(row + 2 * at, &bits, 2);
                    break;
                }
                case model::NumberFormat::fp8_e4m3: {
                    auto code = static_cast<std::uint8_t>(generator());
                    if ((code & 0x7F) == 0x7F) code = 0;
                    row[at] = std::byte{code};
                    break;
                }
                default: row[at / 2] |= static_cast<std::byte>((generator() & 15u) << (4 * (at % 2))); break;
            }
        }
    }
    if (format.block_rows > 0) {
        const std::int64_t down = (rows + row_offset + format.block_rows - 1) / format.block_rows;
        matrix.scale_columns = (columns + column_offset + format.block_columns - 1) / format.block_columns;
        matrix.scales.resize(static_cast<std::size_t>(down * matrix.scale_columns));
        std::uniform_real_distribution<float> scale(0.005F, 0.015F);
        for (float& value : matrix.scales) value = scale(generator);
    }
    return matrix;
}

std::vector<float> dequantised(const WeightMatrix& matrix) {
    std::vector<float> values(static_cast<std::size_t>(matrix.rows * matrix.columns));
    for (std::int64_t r = 0; r < matrix.rows; ++r) matrix.dequantize_row(r, values.data() + r * matrix.columns);
    return values;
}

}  // namespace draftboard::backend::cpu
