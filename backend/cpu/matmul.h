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
//
// y[i, r] has the same bits whatever m is and whatever the other rows hold: the order of its sum depends on the columns and
// the format alone. So a row that is verified beside others gives what it would give when decoded alone.

#include <cstddef>
#include <cstdint>

#include "backend/cpu/instruction_set.h"
#include "backend/cpu/weight_matrix.h"

namespace draftboard::backend::cpu {

/// Memory of n elements that starts at a cache line, kept and grown between calls; what it held is lost on growth.
template <class T>
class Buffer {
   public:
    [[nodiscard]] T* get(std::size_t count) {
        if (bytes_.size() < count * sizeof(T)) bytes_ = AlignedBytes(count * sizeof(T) + bytes_.size() / 2);
        return reinterpret_cast<T*>(bytes_.data());
    }

   private:
    AlignedBytes bytes_;
};

/// Buffers that kernels grow and keep; one a rank. Which kernel uses which is said beside it; none of them holds
/// anything from one call to the next.
struct Scratch {
    InstructionSet instruction_set = best_instruction_set();
    Buffer<float> inputs;         ///< matmul: x, reordered as the weights are stored
    Buffer<float> panel;          ///< matmul: rows of W as floats
    Buffer<float> row;            ///< matmul: one row of W as floats
    Buffer<std::int32_t> scales;  ///< matmul: which scale belongs to which lanes
    Buffer<float> scores;         ///< attend_*, route, delta_net_row
    Buffer<float> sums;           ///< attend_*, delta_net_row
    Buffer<std::int32_t> slots;   ///< attend_*, route, run_experts
    Buffer<float> tokens;         ///< run_experts: gathered inputs and outputs
    Buffer<float> hidden;         ///< run_experts: gate and up
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

/// The instruction set that the kernels choose on this processor: "AVX-512", "AVX2", "baseline".
[[nodiscard]] const char* instruction_set();

}  // namespace draftboard::backend::cpu
