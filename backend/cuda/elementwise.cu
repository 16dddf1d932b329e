// SPDX-License-Identifier: Apache-2.0
// Norms, activations and copies of rows: formulae in elementwise.h and cpu/elementwise.h. Rotary
// embedding and the write into the cache are in rope_cache.cu. Sums are taken in an order that
// depends on the width alone: per thread in ascending order, then a tree over the lanes of a warp,
// then warp after warp. Rows that are not 16-byte aligned are read number by number, in the same
// order.
#include "backend/cuda/elementwise.h"

#include <initializer_list>

#include <cuda_runtime.h>

#include "backend/cuda/check.h"
#include "backend/cuda/launch_ahead.cuh"

namespace draftboard::backend::cuda {

namespace {

/// Threads of a row of add_rms_norm. The all-reduce with a fused norm sums in the same order, so
/// both have to agree on it.
constexpr int kNormThreads = 512;
/// float4 a thread of add_rms_norm keeps in registers; wider rows are read again.
constexpr int kHeld = 4;
constexpr int kThreads = 256;

bool aligned(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }

/// All rows begin at multiples of 16 bytes.
bool vectors(std::initializer_list<const void*> pointers,
             std::initializer_list<std::int64_t> strides) {
    for (const void* p : pointers) {
        if (!aligned(p)) return false;
    }
    for (const std::int64_t stride : strides) {
        if (stride % 4 != 0) return false;
    }
    return true;
}

int blocks(std::int64_t items, int each) { return static_cast<int>((items + each - 1) / each); }

/// Numbers [at, at + 4) of a row of `width`, 0 beyond its end.
template <bool kVector>
__device__ float4 load4(const float* row, std::int64_t at, std::int64_t width) {
    if (kVector) return *reinterpret_cast<const float4*>(row + at);
    float4 v{0, 0, 0, 0};
    if (at < width) v.x = row[at];
    if (at + 1 < width) v.y = row[at + 1];
    if (at + 2 < width) v.z = row[at + 2];
    if (at + 3 < width) v.w = row[at + 3];
    return v;
}

template <bool kVector>
__device__ void store4(float* row, std::int64_t at, std::int64_t width, const float4& v) {
    if (kVector) {
        *reinterpret_cast<float4*>(row + at) = v;
        return;
    }
    if (at < width) row[at] = v.x;
    if (at + 1 < width) row[at + 1] = v.y;
    if (at + 2 < width) row[at + 2] = v.z;
    if (at + 3 < width) row[at + 3] = v.w;
}

__device__ float add_squares(const float4& v, float sum) {
    return fmaf(v.w, v.w, fmaf(v.z, v.z, fmaf(v.y, v.y, fmaf(v.x, v.x, sum))));
}

__device__ float4 sum4(const float4& a, const float4& b) {
    return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

__device__ float4 scaled4(const float4& v, float scale, const float4& w) {
    return {v.x * scale * w.x, v.y * scale * w.y, v.z * scale * w.z, v.w * scale * w.w};
}

/// The sum over a block, the same bits in every thread. For one warp no barrier is needed.
template <int kBlock>
__device__ float block_sum(float sum) {
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
    if (kBlock == 32) return sum;
    __shared__ float sums[kBlock / 32];
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    float total = 0;
    for (int w = 0; w < kBlock / 32; ++w) total += sums[w];
    return total;
}

/// Bytes a row: hidden read, and written where there is a block to add; block read; normed and kept
/// written: up to 20 width. Flops: 5 width.
template <bool kVector>
__global__ void __launch_bounds__(kNormThreads)
    add_rms_norm_kernel(float* hidden, const float* block, const float* weight, int width,
                        float epsilon, float* normed, std::int64_t normed_stride, float* kept,
                        std::int64_t kept_stride) {
    begin_behind_predecessor();
    const std::int64_t row = blockIdx.x;
    float* x = hidden + row * width;
    const float* added = block == nullptr ? nullptr : block + row * width;
    float* y = normed + row * normed_stride;
    float* copy = kept == nullptr ? nullptr : kept + row * kept_stride;
    constexpr int kStep = 4 * kNormThreads;
    const int first = 4 * static_cast<int>(threadIdx.x);
    float4 held[kHeld];
    float sum = 0;
    const auto take = [&](int at) {
        float4 v = load4<kVector>(x, at, width);
        if (added != nullptr) {
            v = sum4(v, load4<kVector>(added, at, width));
            store4<kVector>(x, at, width, v);
        }
        if (copy != nullptr) store4<kVector>(copy, at, width, v);
        sum = add_squares(v, sum);
        return v;
    };
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
        if (first + i * kStep < width) held[i] = take(first + i * kStep);
    }
    for (int at = first + kHeld * kStep; at < width; at += kStep) take(at);
    const float scale =
        1.0f / sqrtf(block_sum<kNormThreads>(sum) / static_cast<float>(width) + epsilon);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
        const int at = first + i * kStep;
        if (at < width)
            store4<kVector>(y, at, width,
                            scaled4(held[i], scale, load4<kVector>(weight, at, width)));
    }
    for (int at = first + kHeld * kStep; at < width; at += kStep) {
        store4<kVector>(
            y, at, width,
            scaled4(load4<kVector>(x, at, width), scale, load4<kVector>(weight, at, width)));
    }
}

/// kBlock threads a vector; block x: part, y: row. Bytes a vector: 8 width, and the weights from
/// cache. Flops: 4 width.
template <int kBlock, bool kVector>
__global__ void __launch_bounds__(kBlock)
    rms_norm_kernel(const float* x, std::int64_t x_stride, const float* weight, int width,
                    float epsilon, float* y, std::int64_t y_stride) {
    begin_behind_predecessor();
    const float* from = x + blockIdx.y * x_stride + std::int64_t{blockIdx.x} * width;
    float* to = y + blockIdx.y * y_stride + std::int64_t{blockIdx.x} * width;
    const int first = 4 * static_cast<int>(threadIdx.x);
    float sum = 0;
#pragma unroll 4
    for (int at = first; at < width; at += 4 * kBlock)
        sum = add_squares(load4<kVector>(from, at, width), sum);
    const float scale = 1.0f / sqrtf(block_sum<kBlock>(sum) / static_cast<float>(width) + epsilon);
    for (int at = first; at < width; at += 4 * kBlock) {
        store4<kVector>(
            to, at, width,
            scaled4(load4<kVector>(from, at, width), scale, load4<kVector>(weight, at, width)));
    }
}

__device__ float silu(float x) { return x / (1.0f + expf(-x)); }
__device__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/// Bytes a row: 12 width. Flops: some 10 width.
template <bool kVector>
__global__ void __launch_bounds__(kThreads)
    silu_multiply_kernel(const float* x, std::int64_t x_stride, int width, float* y,
                         std::int64_t y_stride) {
    begin_behind_predecessor();
    const int at = 4 * static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
    if (at >= width) return;
    const float* gate = x + blockIdx.y * x_stride;
    const float4 g = load4<kVector>(gate, at, width);
    const float4 u = load4<kVector>(gate + width, at, width);
    store4<kVector>(y + blockIdx.y * y_stride, at, width,
                    {silu(g.x) * u.x, silu(g.y) * u.y, silu(g.z) * u.z, silu(g.w) * u.w});
}

/// Block x: part of a row, y: row. Bytes a row: 12 heads width.
template <bool kVector>
__global__ void __launch_bounds__(kThreads)
    sigmoid_multiply_kernel(const float* gate, std::int64_t gate_stride,
                            std::int64_t gate_head_stride, int heads, int width, float* y) {
    begin_behind_predecessor();
    const int quads = (width + 3) / 4;
    const int item = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
    if (item >= heads * quads) return;
    const int head = item / quads;
    const int at = 4 * (item % quads);
    const float4 g =
        load4<kVector>(gate + blockIdx.y * gate_stride + head * gate_head_stride, at, width);
    float* to = y + (std::int64_t{blockIdx.y} * heads + head) * width;
    const float4 v = load4<kVector>(to, at, width);
    store4<kVector>(
        to, at, width,
        {v.x * sigmoid(g.x), v.y * sigmoid(g.y), v.z * sigmoid(g.z), v.w * sigmoid(g.w)});
}

/// A block a row. Bytes a row: 4 width, w from cache. Flops: 2 width.
template <bool kVector>
__global__ void __launch_bounds__(kThreads)
    row_dot_kernel(const float* x, std::int64_t x_stride, const float* w, int width, float* y) {
    begin_behind_predecessor();
    const float* from = x + blockIdx.x * x_stride;
    float sum = 0;
#pragma unroll 4
    for (int at = 4 * static_cast<int>(threadIdx.x); at < width; at += 4 * kThreads) {
        const float4 a = load4<kVector>(from, at, width);
        const float4 b = load4<kVector>(w, at, width);
        sum = fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
    }
    sum = block_sum<kThreads>(sum);
    if (threadIdx.x == 0) y[blockIdx.x] = sum;
}

/// Row blockIdx.y of y is row rows[blockIdx.y] of x, or the same row where rows is null. Bytes a
/// row: 8 width.
template <bool kVector>
__global__ void __launch_bounds__(kThreads)
    copy_rows_kernel(const float* x, std::int64_t x_stride, const std::int32_t* rows,
                     std::int64_t width, float* y, std::int64_t y_stride) {
    begin_behind_predecessor();
    const std::int64_t at = 4 * (std::int64_t{blockIdx.x} * kThreads + threadIdx.x);
    if (at >= width) return;
    const std::int64_t from = rows == nullptr ? static_cast<std::int64_t>(blockIdx.y)
                                              : static_cast<std::int64_t>(rows[blockIdx.y]);
    store4<kVector>(y + blockIdx.y * y_stride, at, width,
                    load4<kVector>(x + from * x_stride, at, width));
}

void copy(const float* x, std::int64_t x_stride, const std::int32_t* rows, int m,
          std::int64_t width, float* y, std::int64_t y_stride, cudaStream_t stream,
          const char* what) {
    if (m <= 0 || width <= 0) return;
    const dim3 grid(static_cast<unsigned>(blocks(width, 4 * kThreads)), static_cast<unsigned>(m));
    const auto kernel = vectors({x, y}, {x_stride, y_stride, width}) ? copy_rows_kernel<true>
                                                                     : copy_rows_kernel<false>;
    launch_ahead(what, kernel, grid, kThreads, 0, stream, x, x_stride, rows, width, y, y_stride);
}

template <int kBlock>
void norm(const float* x, std::int64_t x_stride, const float* weight, int m, int parts, int width,
          float epsilon, float* y, std::int64_t y_stride, cudaStream_t stream) {
    const dim3 grid(static_cast<unsigned>(parts), static_cast<unsigned>(m));
    const auto kernel = vectors({x, weight, y}, {x_stride, y_stride, width})
                            ? rms_norm_kernel<kBlock, true>
                            : rms_norm_kernel<kBlock, false>;
    launch_ahead("rms_norm", kernel, grid, kBlock, 0, stream, x, x_stride, weight, width, epsilon, y, y_stride);
}

}  // namespace

void add_rms_norm(float* hidden, const float* block, const float* weight, int m, int width,
                  float epsilon, float* normed, std::int64_t normed_stride, float* kept,
                  std::int64_t kept_stride, cudaStream_t stream) {
    if (m <= 0) return;
    const bool vector = vectors({hidden, block, weight, normed, kept},
                                {width, normed_stride, kept == nullptr ? 0 : kept_stride});
    const auto kernel = vector ? add_rms_norm_kernel<true> : add_rms_norm_kernel<false>;
    launch_ahead("add_rms_norm", kernel, dim3(static_cast<unsigned>(m)), kNormThreads, 0, stream,
        hidden, block, weight, width, epsilon, normed, normed_stride, kept, kept_stride);
}

void rms_norm(const float* x, std::int64_t x_stride, const float* weight, int m, int parts,
              int width, float epsilon, float* y, std::int64_t y_stride, cudaStream_t stream) {
    if (m <= 0 || parts <= 0) return;
    const auto run = width <= 512 ? norm<32> : norm<kThreads>;
    run(x, x_stride, weight, m, parts, width, epsilon, y, y_stride, stream);
}

void silu_multiply(const float* x, std::int64_t x_stride, int m, int width, float* y,
                   std::int64_t y_stride, cudaStream_t stream) {
    if (m <= 0 || width <= 0) return;
    const dim3 grid(static_cast<unsigned>(blocks(width, 4 * kThreads)), static_cast<unsigned>(m));
    const auto kernel = vectors({x, y}, {x_stride, y_stride, width}) ? silu_multiply_kernel<true>
                                                                     : silu_multiply_kernel<false>;
    launch_ahead("silu_multiply", kernel, grid, kThreads, 0, stream, x, x_stride, width, y, y_stride);
}

void sigmoid_multiply(const float* gate, std::int64_t gate_stride, std::int64_t gate_head_stride,
                      int m, int heads, int width, float* y, cudaStream_t stream) {
    if (m <= 0 || heads <= 0 || width <= 0) return;
    const dim3 grid(
        static_cast<unsigned>(blocks(std::int64_t{heads} * ((width + 3) / 4), kThreads)),
        static_cast<unsigned>(m));
    const bool vector = vectors({gate, y}, {gate_stride, gate_head_stride, width});
    const auto kernel = vector ? sigmoid_multiply_kernel<true> : sigmoid_multiply_kernel<false>;
    launch_ahead("sigmoid_multiply", kernel, grid, kThreads, 0, stream, gate, gate_stride, gate_head_stride, heads, width, y);
}

void row_dot(const float* x, std::int64_t x_stride, const float* w, int m, int width, float* y,
             cudaStream_t stream) {
    if (m <= 0) return;
    const auto kernel =
        vectors({x, w}, {x_stride, width}) ? row_dot_kernel<true> : row_dot_kernel<false>;
    launch_ahead("row_dot", kernel, dim3(static_cast<unsigned>(m)), kThreads, 0, stream, x, x_stride, w, width, y);
}

void gather_rows(const float* x, std::int64_t width, const std::int32_t* rows, int count, float* y,
                 cudaStream_t stream) {
    copy(x, width, rows, count, width, y, width, stream, "gather_rows");
}

void copy_rows(const float* x, std::int64_t x_stride, int m, std::int64_t width, float* y,
               std::int64_t y_stride, cudaStream_t stream) {
    copy(x, x_stride, nullptr, m, width, y, y_stride, stream, "copy_rows");
}

}  // namespace draftboard::backend::cuda
