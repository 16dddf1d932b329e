// SPDX-License-Identifier: Apache-2.0
#pragma once
// RMSNorm of a row by a block of kNormThreads threads, device code only: what an all-reduce with a fused norm and the norm after
// an all-reduce of its own have to do alike, to the bit. It knows nothing of ranks or messages (collective_kernels.cu) and
// chooses no grid. Which formula: elementwise.h, add_rms_norm.
//
// The order of the sum: thread t takes the squares of numbers 4 t ... 4 t + 3, then those 4 kNormThreads further on, each by one
// fused multiply-add; the 32 threads of a warp add theirs by a tree (lanes 16, 8, 4, 2, 1 apart); every thread adds the sums of
// the warps from warp 0 up. It depends on the width alone. Rows that don't begin at multiples of 16 bytes are read number by
// number, in the same order.

#include <cstdint>

#include <cuda_runtime.h>

namespace draftboard::backend::cuda {

constexpr int kNormThreads = 512;
/// float4 of a row that a thread keeps in registers; what a wider row has beyond them is read again.
constexpr int kNormHeld = 4;

/// Numbers [at, at + kCount) of a row of `width`, 0 beyond its end. kCount: 2 or 4; `vector`: row + at is aligned to them.
template <int kCount>
__device__ __forceinline__ void load_numbers(const float* row, std::int64_t at, std::int64_t width, bool vector,
                                             float (&v)[kCount]) {
    if (vector && at + kCount <= width) {
        if constexpr (kCount == 4) {
            const float4 read = *reinterpret_cast<const float4*>(row + at);
            v[0] = read.x, v[1] = read.y, v[2] = read.z, v[3] = read.w;
        } else {
            const float2 read = *reinterpret_cast<const float2*>(row + at);
            v[0] = read.x, v[1] = read.y;
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) v[i] = at + i < width ? row[at + i] : 0.0f;
}

template <int kCount>
__device__ __forceinline__ void store_numbers(float* row, std::int64_t at, std::int64_t width, bool vector,
                                              const float (&v)[kCount]) {
    if (vector && at + kCount <= width) {
        if constexpr (kCount == 4) {
            *reinterpret_cast<float4*>(row + at) = {v[0], v[1], v[2], v[3]};
        } else {
            *reinterpret_cast<float2*>(row + at) = {v[0], v[1]};
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
        if (at + i < width) row[at + i] = v[i];
    }
}

/// Rows of `stride` numbers that begin at p are all aligned to kCount numbers.
template <int kCount>
__device__ __forceinline__ bool aligned_rows(const void* p, std::int64_t stride, int rows) {
    return reinterpret_cast<std::uintptr_t>(p) % (4 * kCount) == 0 && (rows == 1 || stride % kCount == 0);
}

/// The sum over the block of kNormThreads, the same bits in every thread. Between two calls in a block there has to be a barrier.
__device__ __forceinline__ float norm_block_sum(float sum) {
    __shared__ float sums[kNormThreads / 32];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    float total = 0;
    for (int w = 0; w < kNormThreads / 32; ++w) total += sums[w];
    return total;
}

/// normed = x / sqrt(mean(x^2) + epsilon) * weight for one row, by one block; or by `segments` blocks (a power of 2), of which
/// each takes the whole sum and writes every segments-th stretch of 4 kNormThreads numbers. x is read after the caller's barrier.
/// Every thread of the block calls. Bytes: x and weight read, normed written, 4 width each; flops: 4 width.
__device__ __forceinline__ void norm_row(const float* x, bool x_vector, const float* weight, std::int64_t width, float epsilon,
                                         float* normed, bool normed_vector, int segment, int segments) {
    constexpr std::int64_t kStep = 4 * kNormThreads;
    const std::int64_t first = 4 * static_cast<std::int64_t>(threadIdx.x);
    const bool weight_vector = aligned_rows<4>(weight, 0, 1);
    float held[kNormHeld][4];
    float weights[kNormHeld][4];  // read with the row, so that nothing waits for them after the sum
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kNormHeld; ++i) {
        const std::int64_t at = first + i * kStep;
        if (at < width) load_numbers<4>(x, at, width, x_vector, held[i]);
        if (at < width && (i & (segments - 1)) == segment) load_numbers<4>(weight, at, width, weight_vector, weights[i]);
    }
#pragma unroll
    for (int i = 0; i < kNormHeld; ++i) {
        if (first + i * kStep >= width) continue;
#pragma unroll
        for (int k = 0; k < 4; ++k) sum = fmaf(held[i][k], held[i][k], sum);
    }
    for (std::int64_t at = first + kNormHeld * kStep; at < width; at += kStep) {
        float v[4];
        load_numbers<4>(x, at, width, x_vector, v);
#pragma unroll
        for (int k = 0; k < 4; ++k) sum = fmaf(v[k], v[k], sum);
    }
    const float scale = 1.0f / sqrtf(norm_block_sum(sum) / static_cast<float>(width) + epsilon);
    const auto write = [&](std::int64_t at, const float(&v)[4], const float(&w)[4]) {
        float y[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) y[k] = v[k] * scale * w[k];
        store_numbers<4>(normed, at, width, normed_vector, y);
    };
#pragma unroll
    for (int i = 0; i < kNormHeld; ++i) {
        const std::int64_t at = first + i * kStep;
        if (at < width && (i & (segments - 1)) == segment) write(at, held[i], weights[i]);
    }
    int i = kNormHeld;
    for (std::int64_t at = first + kNormHeld * kStep; at < width; at += kStep, ++i) {
        if ((i & (segments - 1)) != segment) continue;
        float v[4];
        float w[4];
        load_numbers<4>(x, at, width, x_vector, v);
        load_numbers<4>(weight, at, width, weight_vector, w);
        write(at, v, w);
    }
}

}  // namespace draftboard::backend::cuda
