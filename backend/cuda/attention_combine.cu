// SPDX-License-Identifier: Apache-2.0
// The partial results of attention's splits put together; the formula and its order are in
// attention_combine.h.
#include "backend/cuda/attention_combine.h"

#include <algorithm>

#include <cuda_runtime.h>

#include "backend/cuda/attention.h"
#include "backend/cuda/attention_slots.cuh"
#include "backend/cuda/check.h"
#include "backend/cuda/launch_ahead.cuh"

namespace draftboard::backend::cuda {

namespace {

constexpr int kLanes = 32;    ///< sums of every 32nd split
constexpr int kColumns = 32;  ///< value columns a block, 4 a thread
constexpr int kThreads = kLanes * kColumns / 4;

/// Block x: row * heads + head, y: 32 value columns. Thread: 4 columns of every 32nd split.
__global__ void __launch_bounds__(kThreads)
    combine_kernel(PassView pass, int heads, int value_width, AttentionPartials partials,
                   int splits, float* output) {
    let_successor_begin();
    __shared__ float maxima[kThreads / 32];
    __shared__ float4 sums[kLanes][kColumns / 4];
    __shared__ float totals[kLanes];
    const std::int64_t pair = blockIdx.x;
    const int row = static_cast<int>(pair / heads);
    const int visible =
        visible_positions(pass, row / pass.tokens, pass.masks + std::int64_t{row} * kMaskWords);
    const int count = min((visible + kSplit - 1) / kSplit, splits);
    wait_for_predecessor();
    const float2* weights = partials.weights + pair * splits;
    const int thread = static_cast<int>(threadIdx.x);

    float most = -INFINITY;
    for (int i = thread; i < count; i += kThreads) most = fmaxf(most, weights[i].x);
    for (int distance = 16; distance > 0; distance /= 2)
        most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, distance));
    if (thread % 32 == 0) maxima[thread / 32] = most;
    __syncthreads();
    for (int w = 0; w < kThreads / 32; ++w) most = fmaxf(most, maxima[w]);

    const int lane = thread / (kColumns / 4);
    const int own = thread % (kColumns / 4);
    const int column = static_cast<int>(blockIdx.y) * kColumns + 4 * own;
    float4 sum{0, 0, 0, 0};
    float total = 0;
    if (lane < count && column < value_width) {
        const float* from = partials.sums + pair * splits * value_width + column;
        for (int i = lane; i < count; i += kLanes) {
            const float2 weight = weights[i];
            const float factor = weight.x == -INFINITY ? 0.0f : exp2f(weight.x - most);
            const float4 v = *reinterpret_cast<const float4*>(from + std::int64_t{i} * value_width);
            if (i == lane) {
                sum = {factor * v.x, factor * v.y, factor * v.z, factor * v.w};
                total = factor * weight.y;
            } else {
                sum = {fmaf(factor, v.x, sum.x), fmaf(factor, v.y, sum.y), fmaf(factor, v.z, sum.z),
                       fmaf(factor, v.w, sum.w)};
                total = fmaf(factor, weight.y, total);
            }
        }
    }
    sums[lane][own] = sum;
    if (own == 0) totals[lane] = total;
    __syncthreads();
    if (thread >= kColumns / 4 || column >= value_width) return;
    for (int i = 1; i < min(count, kLanes); ++i) {
        const float4 v = sums[i][own];
        sum = {sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w};
        total += totals[i];
    }
    const float factor = 1.0f / total;
    *reinterpret_cast<float4*>(output + pair * value_width + column) = {
        sum.x * factor, sum.y * factor, sum.z * factor, sum.w * factor};
}

}  // namespace

int attention_splits(std::int64_t max_visible) {
    return static_cast<int>(std::max<std::int64_t>((max_visible + kSplit - 1) / kSplit, 1));
}

AttentionPartials attention_partials(void* workspace, int rows, int heads, int value_width,
                                     int splits) {
    AttentionPartials partials;
    partials.sums = static_cast<float*>(workspace);
    partials.weights = reinterpret_cast<float2*>(partials.sums +
                                                 std::int64_t{rows} * heads * splits * value_width);
    return partials;
}

std::int64_t attention_workspace_bytes(int rows, int heads, int value_width,
                                       std::int64_t max_visible) {
    const int splits = attention_splits(max_visible);
    if (splits == 1) return 0;
    return std::int64_t{rows} * heads * splits *
           (std::int64_t{value_width} * 4 + static_cast<std::int64_t>(sizeof(float2)));
}

void combine_attention(const PassView& pass, int heads, int value_width,
                       const AttentionPartials& partials, int splits, float* output,
                       cudaStream_t stream) {
    const dim3 grid(static_cast<unsigned>(pass.rows() * heads),
                    static_cast<unsigned>((value_width + kColumns - 1) / kColumns));
    launch_ahead("combine_attention", combine_kernel, grid, kThreads, 0, stream, pass, heads, value_width, partials, splits,
                                                  output);
}

}  // namespace draftboard::backend::cuda
