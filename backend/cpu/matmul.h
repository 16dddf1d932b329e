// SPDX-License-Identifier: Apache-2.0
#pragma once
// Dense products against stored weights, on one core. Weights are read once, as stored, whatever the number of rows;
// sums are float. One thread a rank: parallelism is between ranks.
//
//   matmul             y[i, r] = sum_c x[i, c] W[r, c]         (+ bias[r])     i < m
//   matmul_transposed  y[i, c] = sum_r x[i, r] W[first + r, c]                 r < count
//
// Bytes: W once (stored_bytes), x and y. Flops: 2 m rows columns. Few rows (decode, verify) are bound by the bytes of W, read by
// dot products with W's row in registers for several x at once; many rows (prefill) unpack panels of W to float and run over blocks of rows that share them.

#include <cstdint>
#include <vector>

#include "backend/cpu/weight_matrix.h"

namespace draftboard::backend::cpu {

/// Buffers that kernels grow and keep; one a rank.
struct Scratch {
    std::vector<float> panel;
    std::vector<float> a;
    std::vector<float> b;
    std::vector<std::int32_t> index;
};

/// x: m rows, `x_stride` floats apart; y likewise. bias: w.rows or nullptr.
void matmul(const float* x, std::int64_t m, std::int64_t x_stride, const WeightMatrix& w, const float* bias, float* y,
            std::int64_t y_stride, Scratch& scratch);

/// Rows [first, first + count) of w.
void matmul_transposed(const float* x, std::int64_t m, std::int64_t x_stride, const WeightMatrix& w, std::int64_t first,
                       std::int64_t count, float* y, std::int64_t y_stride, Scratch& scratch);

/// Rows [first, first + count) of w: y[i, r] = x[i] . W[first + r].
void matmul_rows(const float* x, std::int64_t m, std::int64_t x_stride, const WeightMatrix& w, std::int64_t first,
                 std::int64_t count, float* y, std::int64_t y_stride, Scratch& scratch);

/// The instruction set that the kernels chose on this processor: "AVX-512", "AVX2", "baseline".
[[nodiscard]] const char* instruction_set();

}  // namespace draftboard::backend::cpu
