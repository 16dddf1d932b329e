// SPDX-License-Identifier: Apache-2.0
#pragma once
// Number formats of weights, activations and caches, and what they cost in memory. A WeightFormat is
// a NumberFormat plus its scales: bits per weight follow from the shape. This file knows no config
// syntax (see import/quantization_config.h) and no kernel speed (see sim/kernel_cost.h).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace draftboard::model {

enum class NumberFormat { fp32, bf16, fp16, fp8_e4m3, int8, int4, nvfp4, mxfp4 };

/// Bits of one element without its scales: fp32 32, bf16/fp16 16, fp8/int8 8, int4/nvfp4/mxfp4 4.
[[nodiscard]] int bits_per_element(NumberFormat format);

/// Lower-case name as used in files and reports: "bf16", "fp8_e4m3", "nvfp4", ...
[[nodiscard]] std::string_view to_name(NumberFormat format);
[[nodiscard]] std::optional<NumberFormat> number_format_from_name(std::string_view name);

/// How a weight matrix of `rows` x `columns` (output x input features) is stored.
///
///   bytes(rows, columns) = rows * columns * bits/8
///                        + ceil(rows / block_rows) * ceil(columns / block_columns) * (scale_bits + zero_bits) / 8
///
/// block_rows = 1, block_columns = g is "group g along the input" (int4 g32: 16-bit scale per 32;
/// NVFP4 g16: 8-bit e4m3 scale per 16; MXFP4 g32: 8-bit scale). fp8 block 128x128 has a 32-bit scale.
/// block_rows = 0 means unscaled or one scale a tensor (bytes neglected).
/// Worked example: int4 g32 with 16-bit scales costs 4 + 16/32 = 4.5 bits a weight.
struct WeightFormat {
    NumberFormat format = NumberFormat::bf16;
    std::int64_t block_rows = 0;
    std::int64_t block_columns = 0;
    int scale_bits = 0;
    int zero_bits = 0;

    [[nodiscard]] double bytes(std::int64_t rows, std::int64_t columns) const;
    /// Short name for keys and reports: "bf16", "int4_g32", "nvfp4_g16", "fp8_b128", "mxfp4_g32", "fp8".
    [[nodiscard]] std::string name() const;
    bool operator==(const WeightFormat&) const = default;

    [[nodiscard]] static WeightFormat plain(NumberFormat format) { return {format, 0, 0, 0, 0}; }
};

}  // namespace draftboard::model
