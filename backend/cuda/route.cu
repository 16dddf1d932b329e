// SPDX-License-Identifier: Apache-2.0
// Before and after the routed experts (experts.h): which experts a row chooses, by the rules of cpu/route.cpp, and the weighted
// sum of what they gave. The experts themselves are in experts.cu.
#include <stdexcept>

#include <cuda_runtime.h>

#include "backend/cuda/check.h"
#include "backend/cuda/experts.h"
#include "backend/cuda/launch_ahead.cuh"
#include "backend/cuda/row_norm.cuh"

namespace draftboard::backend::cuda {

namespace {

constexpr int kMostExperts = 1024;  // 32 a lane
constexpr float kLowest = -INFINITY;

/// cpu/route.cpp's, letter by letter: its order among equals and NaNs is the rule.
__device__ void largest(const float* values, int count, int k, int* ids) {
    int kept = 0;
    for (int e = 0; e < count; ++e) {
        if (kept == k && !(values[e] > values[ids[k - 1]])) continue;
        int at = kept < k ? kept++ : k - 1;
        for (; at > 0 && values[e] > values[ids[at - 1]]; --at) ids[at] = ids[at - 1];
        ids[at] = e;
    }
}

/// Numbers in the order of values, none of which is a NaN; -0 is 0. Greater than 0.
__device__ inline unsigned order_of(float value) {
    const unsigned bits = __float_as_uint(value + 0.0F);
    return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

/// One warp a row, 32 kHeld experts at most. Bytes: 4 experts in, 8 k out a row; operations: one exp an expert, k rounds of a
/// warp's maximum.
template <int kHeld>
__global__ void __launch_bounds__(32)
    route_kernel(const float* logits, const __grid_constant__ RouterRule rule, int k, std::int32_t* ids, float* weights) {
    begin_behind_predecessor();
    extern __shared__ float shared[];
    float* choice = shared;                     // experts: ranked by this
    float* score = shared + rule.experts;       // experts: weighed with this
    float* totals = shared + 2 * rule.experts;  // groups
    int* best = reinterpret_cast<int*>(totals + rule.groups);
    const int lane = static_cast<int>(threadIdx.x);
    const float* row = logits + static_cast<std::int64_t>(blockIdx.x) * rule.experts;
    float logit[kHeld];  // of expert lane + 32 h, all on their way at once
#pragma unroll
    for (int h = 0; h < kHeld; ++h) logit[h] = lane + 32 * h < rule.experts ? row[lane + 32 * h] : kLowest;
    float most = kLowest;
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
        const int e = lane + 32 * h;
        if (e >= rule.experts) continue;
        choice[e] = isnan(logit[h]) ? kLowest : logit[h];
        most = fmaxf(most, choice[e]);
        if (rule.sigmoid) {
            score[e] = 1.0F / (1.0F + expf(-logit[h]));
            const float value = score[e] + (rule.correction_bias != nullptr ? rule.correction_bias[e] : 0.0F);
            choice[e] = isnan(value) ? kLowest : value;
        }
    }
    float all = 0;
    if (!rule.sigmoid) {
#pragma unroll
        for (int distance = 16; distance > 0; distance /= 2) most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFU, most, distance));
#pragma unroll
        for (int h = 0; h < kHeld; ++h) {
            const int e = lane + 32 * h;
            if (e >= rule.experts) continue;
            score[e] = expf(logit[h] - most);
            all += score[e];
        }
#pragma unroll
        for (int distance = 16; distance > 0; distance /= 2) all += __shfl_xor_sync(0xFFFFFFFFU, all, distance);
    }
    __syncwarp();
    if (rule.sigmoid && rule.groups > 1 && rule.top_groups < rule.groups && rule.experts % rule.groups == 0) {
        const int width = rule.experts / rule.groups;
        for (int g = lane; g < rule.groups; g += 32) {
            float first = kLowest;
            float second = kLowest;
            for (int e = g * width; e < (g + 1) * width; ++e) {
                if (choice[e] > first) {
                    second = first;
                    first = choice[e];
                } else if (second < choice[e]) {
                    second = choice[e];
                }
            }
            totals[g] = width > 1 ? first + second : first;
        }
        __syncwarp();
        const int kept = max(1, rule.top_groups);
        if (lane == 0) largest(totals, rule.groups, kept, best);
        __syncwarp();
        for (int e = lane; e < rule.experts; e += 32) {
            bool stays = false;
            for (int j = 0; j < kept; ++j) stays = stays || best[j] == e / width;
            if (!stays) choice[e] = kLowest;
        }
        __syncwarp();
    }
    // k rounds: each lane's best of what is left, then the warp's; ties go to the lower expert.
    unsigned order[kHeld];  // of expert lane + 32 h; 0: none, or taken
#pragma unroll
    for (int h = 0; h < kHeld; ++h) order[h] = lane + 32 * h < rule.experts ? order_of(choice[lane + 32 * h]) : 0U;
    float of_chosen = 0;
    std::int32_t* chosen = ids + static_cast<std::int64_t>(blockIdx.x) * k;
    float* chosen_weights = weights + static_cast<std::int64_t>(blockIdx.x) * k;
    for (int j = 0; j < k; ++j) {
        unsigned mine = 0;
        int mine_at = 0;
#pragma unroll
        for (int h = 0; h < kHeld; ++h) {
            mine_at = order[h] > mine ? h : mine_at;
            mine = order[h] > mine ? order[h] : mine;
        }
        const unsigned best_order = __reduce_max_sync(0xFFFFFFFFU, mine);
        const unsigned expert = mine == best_order ? static_cast<unsigned>(lane + 32 * mine_at) : 0xFFFFFFFFU;
        const unsigned best_expert = __reduce_min_sync(0xFFFFFFFFU, expert);
#pragma unroll
        for (int h = 0; h < kHeld; ++h) order[h] = static_cast<unsigned>(lane + 32 * h) == best_expert ? 0U : order[h];
        const float chosen_score = score[best_expert];
        of_chosen += chosen_score;
        if (lane == 0) {
            chosen[j] = static_cast<std::int32_t>(best_expert);
            chosen_weights[j] = chosen_score;  // divided below
        }
    }
    const float divisor = rule.sigmoid ? (rule.normalise ? of_chosen + 1e-20F : 1.0F) : (rule.normalise ? of_chosen : all);
    __syncwarp();
    for (int j = lane; j < k; j += 32) chosen_weights[j] = chosen_weights[j] / divisor * rule.scaling;
}

constexpr int kCombineThreads = 128;
constexpr std::int64_t kCombineNormBytes = 48 << 10;  ///< a row in shared memory, without asking for more

/// Bytes: 4 hidden (k + 1, and 1 with shared) a row. Flops: 2 k hidden a row.
template <class Number>
__global__ void __launch_bounds__(kCombineThreads)
    combine_kernel(const Number* outputs, const float* weights, int k, std::int64_t columns, const Number* shared,
                   const float* shared_gate, Number* block) {
    begin_behind_predecessor();
    constexpr int kNumbers = sizeof(Number) / sizeof(float);
    const std::int64_t row = blockIdx.y;
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kCombineThreads + threadIdx.x;
    if (column >= columns) return;
    union Bits {
        Number number;
        float values[kNumbers];
    };
    Bits sum;
    if (shared != nullptr) {
        sum.number = shared[row * columns + column];
        if (shared_gate != nullptr) {
            const float gate = 1.0F / (1.0F + expf(-shared_gate[row]));
            for (int e = 0; e < kNumbers; ++e) sum.values[e] *= gate;
        }
    } else {
        for (int e = 0; e < kNumbers; ++e) sum.values[e] = 0;
    }
#pragma unroll 4
    for (int j = 0; j < k; ++j) {
        Bits output;
        output.number = outputs[(row * k + j) * columns + column];
        const float weight = weights[row * k + j];
        for (int e = 0; e < kNumbers; ++e) sum.values[e] = __fmaf_rn(weight, output.values[e], sum.values[e]);
    }
    block[row * columns + column] = sum.number;
}

/// The same sum, added to the row's residual stream (after `block`, where one waits) and normed: a block a row, whose numbers wait
/// in shared memory for their sum. The bits of one kernel after the other. Bytes: 4 hidden (k + 6) a row. Flops: (2 k + 7) hidden.
__global__ void __launch_bounds__(kNormThreads)
    combine_add_norm_kernel(const float* outputs, const float* weights, int k, int columns, const float* shared,
                            const float* shared_gate, const float* block, const __grid_constant__ ResidualNorm norm) {
    begin_behind_predecessor();
    extern __shared__ __align__(16) float stream[];
    const std::int64_t row = blockIdx.x;
    const float* of_row = outputs + row * k * columns;
    float* hidden = norm.hidden + row * columns;
    for (int at = 4 * static_cast<int>(threadIdx.x); at < columns; at += 4 * kNormThreads) {
        float4 before = *reinterpret_cast<const float4*>(hidden + at);
        if (block != nullptr) {
            const float4 v = *reinterpret_cast<const float4*>(block + row * columns + at);
            before = {before.x + v.x, before.y + v.y, before.z + v.z, before.w + v.w};
        }
        float4 sum{0, 0, 0, 0};
        if (shared != nullptr) {
            sum = *reinterpret_cast<const float4*>(shared + row * columns + at);
            if (shared_gate != nullptr) {
                const float gate = 1.0F / (1.0F + expf(-shared_gate[row]));
                sum = {sum.x * gate, sum.y * gate, sum.z * gate, sum.w * gate};
            }
        }
#pragma unroll 8
        for (int j = 0; j < k; ++j) {
            const float4 v = *reinterpret_cast<const float4*>(of_row + std::int64_t{j} * columns + at);
            const float weight = weights[row * k + j];
            sum = {__fmaf_rn(weight, v.x, sum.x), __fmaf_rn(weight, v.y, sum.y), __fmaf_rn(weight, v.z, sum.z),
                   __fmaf_rn(weight, v.w, sum.w)};
        }
        const float4 after = {before.x + sum.x, before.y + sum.y, before.z + sum.z, before.w + sum.w};
        *reinterpret_cast<float4*>(hidden + at) = after;
        if (norm.kept != nullptr) *reinterpret_cast<float4*>(norm.kept + row * norm.kept_stride + at) = after;
        *reinterpret_cast<float4*>(stream + at) = after;  // read again by this thread alone
    }
    norm_row(stream, true, norm.weight, columns, norm.epsilon, norm.normed + row * norm.normed_stride, true, 0, 1);
}

bool aligned(const void* pointer) { return (reinterpret_cast<std::uintptr_t>(pointer) & 15U) == 0; }

}  // namespace

void route(const float* logits, int m, const RouterRule& rule, std::int32_t* ids, float* weights, cudaStream_t stream) {
    const int k = rule.k < rule.experts ? rule.k : rule.experts;
    if (m <= 0 || k <= 0) return;
    if (rule.experts > kMostExperts) throw std::runtime_error("route: more than 1024 experts");
    RouterRule used = rule;
    used.groups = rule.groups > 0 ? rule.groups : 1;
    const std::size_t bytes = sizeof(float) * static_cast<std::size_t>(2 * used.experts + 2 * used.groups);
    const auto launch = [&](auto kernel) {
        launch_ahead("route", kernel, dim3(static_cast<unsigned>(m)), 32, bytes, stream, logits, used, k, ids, weights);
    };
    if (used.experts <= 128) return launch(route_kernel<4>);
    if (used.experts <= 256) return launch(route_kernel<8>);
    if (used.experts <= 384) return launch(route_kernel<12>);
    if (used.experts <= 512) return launch(route_kernel<16>);
    launch(route_kernel<32>);
}

void combine(const float* expert_outputs, const float* weights, int m, int k, std::int64_t hidden, const float* shared,
             const float* shared_gate, float* block, cudaStream_t stream) {
    if (m <= 0 || hidden <= 0) return;
    const auto grid = [m](std::int64_t columns) {
        return dim3(static_cast<unsigned>((columns + kCombineThreads - 1) / kCombineThreads), static_cast<unsigned>(m));
    };
    if (hidden % 4 == 0 && aligned(expert_outputs) && aligned(shared) && aligned(block)) {
        launch_ahead("combine", combine_kernel<float4>, dim3(grid(hidden / 4)), kCombineThreads, 0, stream,
                     reinterpret_cast<const float4*>(expert_outputs), weights, k, hidden / 4,
                     reinterpret_cast<const float4*>(shared), shared_gate, reinterpret_cast<float4*>(block));
    } else {
        launch_ahead("combine", combine_kernel<float>, dim3(grid(hidden)), kCombineThreads, 0, stream, expert_outputs, weights, k,
                     hidden, shared, shared_gate, block);
    }
    check_launch("combine_kernel");
}

bool can_norm_in_place(std::int64_t hidden) { return hidden % 4 == 0 && hidden * 4 <= kCombineNormBytes; }

void combine_add_norm(const float* expert_outputs, const float* weights, int m, int k, std::int64_t hidden, const float* shared,
                      const float* shared_gate, const float* block, const ResidualNorm& norm, cudaStream_t stream) {
    if (m <= 0 || hidden <= 0) return;
    launch_ahead("combine_add_norm", combine_add_norm_kernel, dim3(static_cast<unsigned>(m)), kNormThreads,
                 static_cast<std::size_t>(hidden) * 4, stream, expert_outputs, weights, k, static_cast<int>(hidden), shared,
                 shared_gate, block, norm);
}

}  // namespace draftboard::backend::cuda
