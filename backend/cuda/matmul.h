// SPDX-License-Identifier: Apache-2.0
#pragma once
// Dense matrices on the GPU:  y[i][r] = sum_c x[i][c] W[r][c]  (+ bias[r]),  activations and sums in float.
//
//   few_rows_matmul   m <= kFewRows, every stored format: streams W once for all rows of x. The order in which a row's sum is
//                     taken depends on the matrix alone, not on m: a row has the same bits in a pass of any width, so a verify
//                     pass chooses the tokens that plain decoding chooses.
//   DenseMath         any m: few rows by the above; more through cuBLASLt in bf16 with float sums. x is split into two bf16
//                     numbers, high + low, stacked as 2 m rows (W is read once all the same); with Precision::bf16 only the high
//                     part is used. fp8 and int4: Precision::bf16 unpacks them into a workspace, a block of rows at a time;
//                     Precision::fp32 goes through few_rows in chunks, because code * scale has more digits than bf16.
//   head_*            MLA's absorption, one small matrix a head.
//
// Bytes: W as stored, once; x and y 4 a number. Flops: 2 m rows columns.
// x: 16-byte aligned rows where columns is a multiple of 4. All calls only enqueue on `stream`.

#include <cstdint>
#include <memory>

#include <cuda_runtime_api.h>

#include "backend/cuda/device_matrix.h"

namespace draftboard::backend::cuda {

inline constexpr int kFewRows = 16;

enum class Precision { fp32, bf16 };
/// few_rows: own kernel up to kFewRows, cuBLASLt beyond; library: cuBLASLt always.
enum class DenseChoice { few_rows, library };

void few_rows_matmul(const float* x, int m, std::int64_t x_stride, const DeviceMatrix& w, const float* bias, float* y,
                     std::int64_t y_stride, cudaStream_t stream);

/// Head h reads rows [h * row_step + row_offset, + rows) of w:  y[i][h][r] = sum_c x[i][h][c] W[...r][c]   (MLA: values)
/// x[i][h] at x + i * x_stride + h * x_head_stride, and so y.
void head_rows_matmul(const float* x, int m, int heads, std::int64_t x_stride, std::int64_t x_head_stride, const DeviceMatrix& w,
                      int row_step, int row_offset, int rows, float* y, std::int64_t y_stride, std::int64_t y_head_stride,
                      cudaStream_t stream);
/// The transposed:  y[i][h][c] = sum_r x[i][h][r] W[h * row_step + row_offset + r][c], r < rows    (MLA: queries)
void head_columns_matmul(const float* x, int m, int heads, std::int64_t x_stride, std::int64_t x_head_stride,
                         const DeviceMatrix& w, int row_step, int row_offset, int rows, float* y, std::int64_t y_stride,
                         std::int64_t y_head_stride, cudaStream_t stream);

class DenseMath {
   public:
    /// On the current device; workspaces for at most max_rows rows of x with max_columns columns and max_outputs features are
    /// taken at once, so that calls can be captured. Throws std::runtime_error where cuBLASLt or memory can't be had.
    DenseMath(int max_rows, std::int64_t max_columns, std::int64_t max_outputs, Precision precision, DenseChoice choice);
    ~DenseMath();
    DenseMath(const DenseMath&) = delete;
    DenseMath& operator=(const DenseMath&) = delete;

    void matmul(const float* x, int m, std::int64_t x_stride, const DeviceMatrix& w, const float* bias, float* y,
                std::int64_t y_stride, cudaStream_t stream);

   private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace draftboard::backend::cuda
