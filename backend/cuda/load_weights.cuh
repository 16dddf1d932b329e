// SPDX-License-Identifier: Apache-2.0
#pragma once
// Stored weights as floats, in every format and every block grid of scales, eight columns a lane: the plain way, on ordinary
// arithmetic units. It serves fp32, grids of scales that row_tile.cuh can't take, and the small matrices of MLA's heads. Not the
// fast path of bf16, fp8 and int4 (row_tile.cuh); few_rows.cu, head_matmul.cu, experts.cu and vocabulary.cu use this.
//
// A row is padded with zeros to 64 bytes (cpu/weight_matrix.h), so that its last eight columns may be read whole; x is not, and
// counts as 0 beyond `columns`.

#include <cstdint>

#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include "backend/cuda/device_matrix.h"

namespace draftboard::backend::cuda {

/// Sixteen bytes that are read once: kept out of L1.
__device__ inline uint4 load_once(const void* address) {
    uint4 value;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
        : "l"(address));
    return value;
}

__device__ inline const unsigned char* stored_row(const DeviceMatrix& w, std::int64_t row) {
    return static_cast<const unsigned char*>(w.data) + row * w.row_bytes;
}

/// Of element (row, column); 1 where there are no scales.
__device__ inline float scale_of(const DeviceMatrix& w, std::int64_t row, std::int64_t column) {
    if (w.scales == nullptr) return 1.0F;
    if (w.block_rows <= 0 || w.block_columns <= 0) return w.scales[0];
    const auto down = static_cast<unsigned>(row + w.row_offset) / static_cast<unsigned>(w.block_rows);
    const auto across = static_cast<unsigned>(column + w.column_offset) / static_cast<unsigned>(w.block_columns);
    return __ldg(w.scales + static_cast<std::int64_t>(down) * w.scale_columns + across);
}

/// Eight stored columns, as they lie in memory.
template <Stored F>
struct Eight {
    uint4 words[F == Stored::fp32 ? 2 : 1];
};

/// column is a multiple of 8.
template <Stored F>
__device__ inline Eight<F> load_eight(const unsigned char* row, std::int64_t column) {
    Eight<F> raw;
    if constexpr (F == Stored::fp32) {
        raw.words[0] = load_once(row + 4 * column);
        raw.words[1] = load_once(row + 4 * column + 16);
    } else if constexpr (F == Stored::bf16) {
        raw.words[0] = load_once(row + 2 * column);
    } else if constexpr (F == Stored::fp8_e4m3) {
        const uint2 pair = __ldg(reinterpret_cast<const uint2*>(row + column));
        raw.words[0] = make_uint4(pair.x, pair.y, 0, 0);
    } else {
        raw.words[0] = make_uint4(__ldg(reinterpret_cast<const unsigned*>(row + column / 2)), 0, 0, 0);
    }
    return raw;
}

/// Operations an element, beside the multiply-add: bf16 1, fp8 3, int4 4.
template <Stored F>
__device__ inline void unpack_eight(const Eight<F>& raw, const DeviceMatrix& w, std::int64_t row, std::int64_t column,
                                    float* values) {
    const unsigned words[4] = {raw.words[0].x, raw.words[0].y, raw.words[0].z, raw.words[0].w};
    if constexpr (F == Stored::fp32) {
        const uint4 high = raw.words[1];
        const unsigned more[4] = {high.x, high.y, high.z, high.w};
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            values[e] = __uint_as_float(words[e]);
            values[4 + e] = __uint_as_float(more[e]);
        }
    } else if constexpr (F == Stored::bf16) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            values[2 * e] = __uint_as_float(words[e] << 16);
            values[2 * e + 1] = __uint_as_float(words[e] & 0xFFFF0000U);
        }
    } else {
#pragma unroll
        for (int e = 0; e < 8; ++e) {
            if constexpr (F == Stored::fp8_e4m3) {
                __nv_fp8_e4m3 code;
                code.__x = static_cast<__nv_fp8_storage_t>(words[e / 4] >> (8 * (e % 4)));
                values[e] = static_cast<float>(code);
            } else {
                values[e] = static_cast<float>(static_cast<int>((words[0] >> (4 * e)) & 15U) - 8);
            }
        }
        const bool one_scale = w.block_rows <= 0 || ((w.block_columns | w.column_offset) & 7) == 0;
        const float scale = scale_of(w, row, column);
#pragma unroll
        for (int e = 0; e < 8; ++e) {
            // Columns beyond the last have no scale, and their codes multiply zeros of x.
            const std::int64_t at = column + e < w.columns ? column + e : w.columns - 1;
            values[e] *= one_scale ? scale : scale_of(w, row, at);
        }
    }
}

/// x[column .. column + 8), 0 beyond `columns`.
__device__ inline void load_x(const float* x, std::int64_t column, std::int64_t columns, bool aligned, float* values) {
    if (aligned && column + 8 <= columns) {
        const float4 low = *reinterpret_cast<const float4*>(x + column);
        const float4 high = *reinterpret_cast<const float4*>(x + column + 4);
        values[0] = low.x;
        values[1] = low.y;
        values[2] = low.z;
        values[3] = low.w;
        values[4] = high.x;
        values[5] = high.y;
        values[6] = high.z;
        values[7] = high.w;
        return;
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) values[e] = column + e < columns ? x[column + e] : 0.0F;
}

__device__ inline bool is_aligned(const float* x, std::int64_t stride) {
    return (reinterpret_cast<std::uintptr_t>(x) & 15U) == 0 && (stride & 3) == 0;
}

/// Matrix rows that one warp multiplies at a time on this path.
inline constexpr int kPlainRows = 4;

/// Adds W[rows[j]] . x[i] over the units of eight columns first, first + step, ... (one lane's) to sums[j][i].
/// The order of an element's sum depends on (first, step, columns) alone.
template <Stored F, int M>
__device__ inline void add_dots(const DeviceMatrix& w, const std::int64_t (&rows)[kPlainRows], const float* const (&x)[M],
                                bool aligned, int first, int step, float (&sums)[kPlainRows][M]) {
    const int units = static_cast<int>((w.columns + 7) / 8);
    for (int u = first; u < units; u += step) {
        const std::int64_t column = std::int64_t{8} * u;
        Eight<F> raw[kPlainRows];
#pragma unroll
        for (int j = 0; j < kPlainRows; ++j) raw[j] = load_eight<F>(stored_row(w, rows[j]), column);
        float weights[kPlainRows][8];
#pragma unroll
        for (int j = 0; j < kPlainRows; ++j) unpack_eight<F>(raw[j], w, rows[j], column, weights[j]);
#pragma unroll
        for (int i = 0; i < M; ++i) {
            float inputs[8];
            load_x(x[i], column, w.columns, aligned, inputs);
#pragma unroll
            for (int j = 0; j < kPlainRows; ++j) {
#pragma unroll
                for (int e = 0; e < 8; ++e) sums[j][i] = __fmaf_rn(weights[j][e], inputs[e], sums[j][i]);
            }
        }
    }
}

/// Sums over a warp's lanes, in a fixed order, the same in every lane.
__device__ inline float warp_sum(float value) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xFFFFFFFFU, value, distance);
    return value;
}

/// Any format and grid of scales, any m, on this path: rows and heads as head_rows_matmul (matmul.h) has them, with a bias of
/// `rows` numbers or nullptr. A row's bits do not depend on m. In head_matmul.cu.
void plain_matmul(const float* x, int m, int heads, std::int64_t x_stride, std::int64_t x_head_stride, const DeviceMatrix& w,
                  int row_step, int row_offset, int rows, const float* bias, float* y, std::int64_t y_stride,
                  std::int64_t y_head_stride, cudaStream_t stream);

}  // namespace draftboard::backend::cuda
