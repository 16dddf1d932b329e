// SPDX-License-Identifier: Apache-2.0
// Small matrices on ordinary arithmetic units: one a head (MLA's absorption), and those that few_rows.cu has no fast path for.
// Every format and grid of scales, by load_weights.cuh. A row's sum is taken in an order that depends on the matrix's shape
// alone.
#include <cuda_runtime.h>

#include "backend/cuda/check.h"
#include "backend/cuda/launch_ahead.cuh"
#include "backend/cuda/load_weights.cuh"
#include "backend/cuda/matmul.h"

namespace draftboard::backend::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWarpsOfBlock = kThreads / 32;

struct HeadProduct {
    const float* x = nullptr;
    int m = 0;
    std::int64_t x_stride = 0;
    std::int64_t x_head_stride = 0;
    DeviceMatrix w;
    int row_step = 0;
    int row_offset = 0;
    int rows = 0;  ///< of a head
    const float* bias = nullptr;
    float* y = nullptr;
    std::int64_t y_stride = 0;
    std::int64_t y_head_stride = 0;
};

/// A block: one head, kPlainRows rows for each of (8 / warps_k) warps, M rows of x. warps_k warps share the columns of a row.
/// Bytes: W once for every M rows of x; x from L1 and L2. Flops: 2 m rows columns.
template <Stored F, int M>
__global__ void __launch_bounds__(kThreads) head_rows_kernel(const __grid_constant__ HeadProduct product, int warps_k) {
    begin_behind_predecessor();
    __shared__ float partial[kWarpsOfBlock][kPlainRows][M];
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int head = static_cast<int>(blockIdx.y);
    const int first = (static_cast<int>(blockIdx.x) * (kWarpsOfBlock / warps_k) + warp / warps_k) * kPlainRows;
    const int first_x = static_cast<int>(blockIdx.z) * M;
    std::int64_t rows[kPlainRows];
#pragma unroll
    for (int j = 0; j < kPlainRows; ++j) {
        rows[j] = std::int64_t{head} * product.row_step + product.row_offset + min(first + j, product.rows - 1);
    }
    const float* base = product.x + head * product.x_head_stride;
    const float* x[M];
    bool aligned = true;
#pragma unroll
    for (int i = 0; i < M; ++i) {
        x[i] = base + min(first_x + i, product.m - 1) * product.x_stride;
        aligned = aligned && is_aligned(x[i], 0);
    }
    float sums[kPlainRows][M] = {};
    add_dots<F, M>(product.w, rows, x, aligned, (warp % warps_k) * 32 + lane, warps_k * 32, sums);
#pragma unroll
    for (int j = 0; j < kPlainRows; ++j) {
#pragma unroll
        for (int i = 0; i < M; ++i) {
            const float sum = warp_sum(sums[j][i]);
            if (lane == 0) partial[warp][j][i] = sum;
        }
    }
    __syncthreads();
    const int outputs = kWarpsOfBlock / warps_k * kPlainRows * M;
    for (int at = static_cast<int>(threadIdx.x); at < outputs; at += kThreads) {
        const int j = at % kPlainRows;
        const int group = at / kPlainRows % (kWarpsOfBlock / warps_k);
        const int i = at / kPlainRows / (kWarpsOfBlock / warps_k);
        const int row = (static_cast<int>(blockIdx.x) * (kWarpsOfBlock / warps_k) + group) * kPlainRows + j;
        if (row >= product.rows || first_x + i >= product.m) continue;
        float sum = 0;
        for (int k = 0; k < warps_k; ++k) sum += partial[group * warps_k + k][j][i];
        if (product.bias != nullptr) sum += product.bias[row];
        product.y[(first_x + i) * product.y_stride + head * product.y_head_stride + row] = sum;
    }
}

constexpr int kUnits = 16;                     ///< of eight columns, of a block
constexpr int kRowGroups = kThreads / kUnits;  ///< each sums the rows r, r + kRowGroups, ...

/// A block: one head, 128 columns, M rows of x. Bytes and flops as above.
template <Stored F, int M>
__global__ void __launch_bounds__(kThreads) head_columns_kernel(const __grid_constant__ HeadProduct product) {
    begin_behind_predecessor();
    __shared__ float partial[kRowGroups][kUnits * 8 + 4];
    const int unit = static_cast<int>(threadIdx.x) % kUnits;
    const int group = static_cast<int>(threadIdx.x) / kUnits;
    const int head = static_cast<int>(blockIdx.y);
    const int first_x = static_cast<int>(blockIdx.z) * M;
    const std::int64_t column = (std::int64_t{blockIdx.x} * kUnits + unit) * 8;
    const float* base = product.x + head * product.x_head_stride;
    float sums[M][8] = {};
    if (column < product.w.columns) {
        constexpr int kAhead = 4;
        for (int r = group; r < product.rows; r += kAhead * kRowGroups) {
            Eight<F> raw[kAhead];
#pragma unroll
            for (int a = 0; a < kAhead; ++a) {
                const int row = min(r + a * kRowGroups, product.rows - 1);
                raw[a] = load_eight<F>(stored_row(product.w, std::int64_t{head} * product.row_step + product.row_offset + row),
                                       column);
            }
#pragma unroll
            for (int a = 0; a < kAhead; ++a) {
                const int row = r + a * kRowGroups;
                if (row >= product.rows) break;
                float weights[8];
                unpack_eight<F>(raw[a], product.w, std::int64_t{head} * product.row_step + product.row_offset + row, column,
                                weights);
#pragma unroll
                for (int i = 0; i < M; ++i) {
                    const float value = __ldg(base + min(first_x + i, product.m - 1) * product.x_stride + row);
#pragma unroll
                    for (int e = 0; e < 8; ++e) sums[i][e] = __fmaf_rn(value, weights[e], sums[i][e]);
                }
            }
        }
    }
#pragma unroll
    for (int i = 0; i < M; ++i) {
        __syncthreads();
#pragma unroll
        for (int e = 0; e < 8; ++e) partial[group][unit * 8 + e] = sums[i][e];
        __syncthreads();
        const int at = static_cast<int>(threadIdx.x);
        const std::int64_t c = std::int64_t{blockIdx.x} * kUnits * 8 + at;
        if (at < kUnits * 8 && c < product.w.columns && first_x + i < product.m) {
            float sum = 0;
            for (int g = 0; g < kRowGroups; ++g) sum += partial[g][at];
            product.y[(first_x + i) * product.y_stride + head * product.y_head_stride + c] = sum;
        }
    }
}

template <Stored F, int M>
void launch(const HeadProduct& product, int heads, bool by_rows, cudaStream_t stream) {
    const unsigned passes = static_cast<unsigned>((product.m + M - 1) / M);
    if (by_rows) {
        const std::int64_t units = (product.w.columns + 7) / 8;
        int warps_k = 1;
        while (warps_k < kWarpsOfBlock && units >= 64 * warps_k) warps_k *= 2;
        const int rows_of_block = kWarpsOfBlock / warps_k * kPlainRows;
        const dim3 grid(static_cast<unsigned>((product.rows + rows_of_block - 1) / rows_of_block), static_cast<unsigned>(heads),
                        passes);
        launch_ahead("head_rows_matmul", head_rows_kernel<F, M>, grid, kThreads, 0, stream, product, warps_k);
    } else {
        const dim3 grid(static_cast<unsigned>((product.w.columns + 8 * kUnits - 1) / (8 * kUnits)), static_cast<unsigned>(heads),
                        passes);
        launch_ahead("head_columns_matmul", head_columns_kernel<F, M>, grid, kThreads, 0, stream, product);
    }
}

template <Stored F>
void launch_rows(const HeadProduct& product, int heads, bool by_rows, cudaStream_t stream) {
    if (product.m == 1) return launch<F, 1>(product, heads, by_rows, stream);
    if (product.m == 2) return launch<F, 2>(product, heads, by_rows, stream);
    if (product.m <= 4) return launch<F, 4>(product, heads, by_rows, stream);
    launch<F, 8>(product, heads, by_rows, stream);
}

void launch_format(const HeadProduct& product, int heads, bool by_rows, cudaStream_t stream) {
    if (product.m <= 0 || heads <= 0 || product.rows <= 0 || product.w.columns <= 0) return;
    switch (product.w.format) {
        case Stored::bf16: return launch_rows<Stored::bf16>(product, heads, by_rows, stream);
        case Stored::fp32: return launch_rows<Stored::fp32>(product, heads, by_rows, stream);
        case Stored::fp8_e4m3: return launch_rows<Stored::fp8_e4m3>(product, heads, by_rows, stream);
        case Stored::int4: return launch_rows<Stored::int4>(product, heads, by_rows, stream);
    }
}

}  // namespace

void plain_matmul(const float* x, int m, int heads, std::int64_t x_stride, std::int64_t x_head_stride, const DeviceMatrix& w,
                  int row_step, int row_offset, int rows, const float* bias, float* y, std::int64_t y_stride,
                  std::int64_t y_head_stride, cudaStream_t stream) {
    const HeadProduct product{x, m, x_stride, x_head_stride, w, row_step, row_offset, rows, bias, y, y_stride, y_head_stride};
    launch_format(product, heads, true, stream);
}

void head_rows_matmul(const float* x, int m, int heads, std::int64_t x_stride, std::int64_t x_head_stride, const DeviceMatrix& w,
                      int row_step, int row_offset, int rows, float* y, std::int64_t y_stride, std::int64_t y_head_stride,
                      cudaStream_t stream) {
    plain_matmul(x, m, heads, x_stride, x_head_stride, w, row_step, row_offset, rows, nullptr, y, y_stride, y_head_stride,
                 stream);
}

void head_columns_matmul(const float* x, int m, int heads, std::int64_t x_stride, std::int64_t x_head_stride,
                         const DeviceMatrix& w, int row_step, int row_offset, int rows, float* y, std::int64_t y_stride,
                         std::int64_t y_head_stride, cudaStream_t stream) {
    const HeadProduct product{x, m, x_stride, x_head_stride, w, row_step, row_offset, rows, nullptr, y, y_stride, y_head_stride};
    launch_format(product, heads, false, stream);
}

}  // namespace draftboard::backend::cuda
