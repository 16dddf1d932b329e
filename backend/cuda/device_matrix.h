// SPDX-License-Identifier: Apache-2.0
#pragma once
// A weight matrix in device memory (output features x input features), as kernels see it: a plain view, passed by value.
// The element formats and the block grid of scales are those of cpu/weight_matrix.h, bit for bit, so that one loader serves
// both devices. device_weights.h owns the memory.
//
//   bf16       2 bytes an element
//   fp32       4 bytes
//   fp8_e4m3   1 byte; value = code * scale
//   int4       4 bits, offset 8: value = (code - 8) * scale; element c of a row in bits 4 (c % 8) of the little-endian
//              32-bit word c / 8
// Rows start at multiples of row_bytes, itself a multiple of 64: every row can be read 16 bytes at a time.

#include <cstdint>

namespace draftboard::backend::cuda {

enum class Stored : int { bf16, fp32, fp8_e4m3, int4 };

struct DeviceMatrix {
    const void* data = nullptr;
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    std::int64_t row_bytes = 0;
    Stored format = Stored::bf16;
    /// Of element (r, c): scales[((r + row_offset) / block_rows) * scale_columns + (c + column_offset) / block_columns];
    /// block_rows 0: scales[0] for all; nullptr: 1.
    const float* scales = nullptr;
    int scale_columns = 0;
    int block_rows = 0;
    int block_columns = 0;
    int row_offset = 0;
    int column_offset = 0;
};

/// The same projection of every routed expert of a rank: expert e is `first` moved by e * stride_bytes (data) and
/// e * scale_stride numbers (scales).
struct ExpertMatrices {
    DeviceMatrix first;
    std::int64_t stride_bytes = 0;
    std::int64_t scale_stride = 0;
    int experts = 0;
};

}  // namespace draftboard::backend::cuda
