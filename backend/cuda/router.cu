// SPDX-License-Identifier: Apache-2.0
// The router's matrix times few rows, with the norm before it: every block norms its rows itself (a few KB that lie in L2) and
// multiplies four experts' rows of the matrix, which it asked for before its predecessor ended. Which experts are chosen then is
// route.cu's; rows that are many go by the norm and matmul.h.
#include <cuda_runtime.h>

#include "backend/cuda/experts.h"
#include "backend/cuda/launch_ahead.cuh"
#include "backend/cuda/load_weights.cuh"
#include "backend/cuda/row_norm.cuh"

namespace draftboard::backend::cuda {

namespace {

constexpr int kExpertsABlock = 4;
constexpr int kThreadsAnExpert = kNormThreads / kExpertsABlock;
constexpr int kWarpsAnExpert = kThreadsAnExpert / 32;
constexpr std::int64_t kSmallBytes = 1 << 20;  ///< 128 experts of 2048 bf16 numbers are half of it, 384 of 7168 six times as much
constexpr int kHeldUnits = 8;  ///< of eight columns, a thread: read before the predecessor has ended

struct RouterWork {
    ResidualNorm norm;
    const float* block = nullptr;
    DeviceMatrix matrix;
    float* scores = nullptr;
};

/// Block x: four experts, y: row. Bytes: the matrix once a row (from memory once), 4 columns (4 or 1) a block from L2.
/// Flops: 2 m columns experts, and the norm's 6 columns a block.
template <Stored F>
__global__ void __launch_bounds__(kNormThreads) router_kernel(const __grid_constant__ RouterWork work) {
    extern __shared__ __align__(16) float row[];
    __shared__ float partial[kExpertsABlock][kWarpsAnExpert];
    let_successor_begin();
    const int thread = static_cast<int>(threadIdx.x);
    const int columns = static_cast<int>(work.matrix.columns);
    const int experts = static_cast<int>(work.matrix.rows);
    const int units = (columns + 7) / 8;
    const int local = thread / kThreadsAnExpert;
    const int expert = static_cast<int>(blockIdx.x) * kExpertsABlock + local;
    const int first = thread % kThreadsAnExpert;
    const unsigned char* stored = stored_row(work.matrix, min(expert, experts - 1));
    Eight<F> held[kHeldUnits];
#pragma unroll
    for (int j = 0; j < kHeldUnits; ++j) {
        const int u = first + j * kThreadsAnExpert;
        if (u < units) held[j] = load_eight<F>(stored, 8 * u);
    }
    wait_for_predecessor();

    const std::int64_t i = blockIdx.y;
    float* normed = work.norm.normed + i * work.norm.normed_stride;
    if (work.norm.weight != nullptr) {
        for (int at = 4 * thread; at < columns; at += 4 * kNormThreads) {
            float4 v = *reinterpret_cast<const float4*>(work.norm.hidden + i * columns + at);
            if (work.block != nullptr) {
                const float4 b = *reinterpret_cast<const float4*>(work.block + i * columns + at);
                v = {v.x + b.x, v.y + b.y, v.z + b.z, v.w + b.w};
            }
            *reinterpret_cast<float4*>(row + at) = v;  // read again by this thread alone
        }
        norm_row(row, true, work.norm.weight, columns, work.norm.epsilon, row, true, 0, 1);
        if (blockIdx.x == 0) {
            for (int at = 4 * thread; at < columns; at += 4 * kNormThreads) {
                *reinterpret_cast<float4*>(normed + at) = *reinterpret_cast<const float4*>(row + at);
            }
        }
    } else {
        for (int at = 4 * thread; at < columns; at += 4 * kNormThreads) {
            *reinterpret_cast<float4*>(row + at) = *reinterpret_cast<const float4*>(normed + at);
        }
    }
    __syncthreads();
    float sum = 0;
    const auto add = [&](const Eight<F>& raw, int u) {
        float values[8], x[8];
        unpack_eight<F>(raw, work.matrix, expert, 8 * u, values);
        load_x(row, 8 * u, columns, true, x);
#pragma unroll
        for (int e = 0; e < 8; ++e) sum = __fmaf_rn(values[e], x[e], sum);
    };
#pragma unroll
    for (int j = 0; j < kHeldUnits; ++j) {
        const int u = first + j * kThreadsAnExpert;
        if (u < units) add(held[j], u);
    }
    for (int u = first + kHeldUnits * kThreadsAnExpert; u < units; u += kThreadsAnExpert) add(load_eight<F>(stored, 8 * u), u);
    sum = warp_sum(sum);
    if (thread % 32 == 0) partial[local][first / 32] = sum;
    __syncthreads();
    if (first == 0 && expert < experts) {
        float score = 0;
        for (int w = 0; w < kWarpsAnExpert; ++w) score += partial[local][w];
        work.scores[i * experts + expert] = score;
    }
}

}  // namespace

bool can_score_few_rows(const DeviceMatrix& router) {
    const bool plain = router.format == Stored::bf16 || router.format == Stored::fp32;
    return plain && router.rows * router.row_bytes <= kSmallBytes && can_norm_in_place(router.columns);
}

void score_few_rows(const ResidualNorm& norm, const float* block, int m, const DeviceMatrix& router, float* scores,
                    cudaStream_t stream) {
    if (m <= 0) return;
    const dim3 grid(static_cast<unsigned>((router.rows + kExpertsABlock - 1) / kExpertsABlock), static_cast<unsigned>(m));
    launch_ahead("router_kernel", router.format == Stored::bf16 ? router_kernel<Stored::bf16> : router_kernel<Stored::fp32>, grid,
                 kNormThreads, static_cast<std::size_t>(router.columns) * 4, stream, RouterWork{norm, block, router, scores});
}

}  // namespace draftboard::backend::cuda
