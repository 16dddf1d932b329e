// SPDX-License-Identifier: Apache-2.0
#pragma once
// A weight matrix as it lies in a mapped file, and the cutting of a rank's share out of it.
//
//   BF16, F32       copied as they are;  F16 becomes fp32 (exact)
//   F8_E4M3         copied; a scale a tensor, a row, or a block of rows x columns
//   int4 groups     compressed-tensors' pack-quantized: I32 words of 8 codes; a share starts at a multiple of 8 columns
//
// Scales follow their elements. A share that is one range of rows keeps the block grid (row_offset, column_offset). A share of
// several ranges that begin or end inside blocks (a quantised delta net's q, k and v) gets one row of scales a row.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/cpu/tensor_source.h"
#include "backend/cpu/weight_matrix.h"
#include "backend/safetensors.h"

namespace draftboard::backend::cpu {

struct StoredMatrix {
    std::string name;             ///< of the tensor, for errors
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    TensorType type = TensorType::bf16;   ///< i32: int4 codes
    model::WeightFormat format;   ///< of the share that is cut
    std::span<const std::byte> bytes;     ///< rows x row_bytes
    std::size_t row_bytes = 0;
    std::vector<float> scales;    ///< scale_rows x scale_columns; one: of the whole tensor; empty: none
    std::int64_t scale_columns = 0;
};

/// Errors: a range beyond the matrix, a share of int4 that starts inside a 32-bit word.
[[nodiscard]] model::Expected<WeightMatrix> cut(const StoredMatrix& matrix, const std::vector<Range>& row_ranges,
                                                const std::optional<Range>& column_range);

/// The scales of such a share, set in `share` with the block grid they lie on. Ranges are inside, at least one.
void cut_scales(const StoredMatrix& matrix, const std::vector<Range>& row_ranges, const Range& columns, WeightMatrix& share);

/// Elements of a tensor as floats; nothing for a type that is no float of 32 or fewer bits.
[[nodiscard]] std::optional<std::vector<float>> to_floats(const TensorView& view);

}  // namespace draftboard::backend::cpu
