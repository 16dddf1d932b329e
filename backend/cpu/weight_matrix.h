// SPDX-License-Identifier: Apache-2.0
#pragma once
// A weight matrix (output features x input features) in its stored format, owned by one rank: contiguous, aligned,
// already cut to the rank's share. Kernels (matmul.h) read it as stored and compute in float.
//
//   bf16       2 bytes an element
//   fp32       4 bytes
//   fp8_e4m3   1 byte; value = code * scale[row / block_rows][column / block_columns] (block_rows 0: one scale)
//   int4       4 bits, offset 8: value = (code - 8) * scale[row][column / block_columns]; element c of a row in bits
//              4 (c % 8) of the little-endian 32-bit word c / 8 (compressed-tensors' pack-quantized order)
// Rows start at multiples of `row_bytes`, a multiple of 64. Scales are float, (scale_rows x scale_columns).

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/number_format.h"

namespace draftboard::backend::cpu {

/// 64-byte aligned memory, zeroed.
class AlignedBytes {
   public:
    AlignedBytes() = default;
    explicit AlignedBytes(std::size_t size);
    [[nodiscard]] std::byte* data() { return data_.get(); }
    [[nodiscard]] const std::byte* data() const { return data_.get(); }
    [[nodiscard]] std::size_t size() const { return size_; }

   private:
    struct Free {
        void operator()(std::byte* pointer) const;
    };
    std::unique_ptr<std::byte[], Free> data_;
    std::size_t size_ = 0;
};

struct WeightMatrix {
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    model::WeightFormat format;
    std::size_t row_bytes = 0;
    AlignedBytes data;
    std::vector<float> scales;
    std::int64_t scale_columns = 0;
    /// First row and column of this share within its block grid (fp8 shares that start inside a 128-block): the scale
    /// of element (r, c) is scales[((r + row_offset) / block_rows) * scale_columns + (c + column_offset) / block_columns].
    std::int64_t row_offset = 0;
    std::int64_t column_offset = 0;

    [[nodiscard]] const std::byte* row(std::int64_t r) const { return data.data() + static_cast<std::size_t>(r) * row_bytes; }
    [[nodiscard]] double stored_bytes() const { return format.bytes(rows, columns); }
    /// Of element (r, c); 1 where the format has no scales.
    [[nodiscard]] float scale(std::int64_t r, std::int64_t c) const;
    /// One row as floats; output has `columns` elements.
    void dequantize_row(std::int64_t r, float* output) const;
};

/// Whether a matrix can hold a format: bf16, fp32, fp8_e4m3 and int4.
[[nodiscard]] bool can_store(model::NumberFormat format);
/// Row-aligned zero matrix of a format that can_store() accepts, without scales filled in.
[[nodiscard]] WeightMatrix make_matrix(std::int64_t rows, std::int64_t columns, const model::WeightFormat& format);
/// From floats, rounded to nearest even; bf16 or fp32 only.
[[nodiscard]] WeightMatrix matrix_from_floats(std::span<const float> values, std::int64_t rows, std::int64_t columns,
                                              model::NumberFormat format);

[[nodiscard]] float bf16_to_float(std::uint16_t bits);
[[nodiscard]] std::uint16_t float_to_bf16(float value);
[[nodiscard]] float fp8_e4m3_to_float(std::uint8_t bits);
[[nodiscard]] float fp16_to_float(std::uint16_t bits);

}  // namespace draftboard::backend::cpu
