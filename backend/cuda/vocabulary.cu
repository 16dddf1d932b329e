// SPDX-License-Identifier: Apache-2.0
// Both ends of a pass at the vocabulary (vocabulary.h): rows of the embedding table, and the best tokens of logits. A cluster of
// blocks shares a row of logits: each finds the best of its part, the first one merges what they found. Sampling is the host's.
#include <stdexcept>

#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include "backend/cuda/check.h"
#include "backend/cuda/launch_ahead.cuh"
#include "backend/cuda/load_weights.cuh"
#include "backend/cuda/vocabulary.h"

namespace draftboard::backend::cuda {

namespace {

constexpr int kEmbedThreads = 128;

/// Eight columns a thread. Bytes: a stored row and 4 columns a token.
template <Stored F>
__global__ void __launch_bounds__(kEmbedThreads)
    embed_kernel(const __grid_constant__ DeviceMatrix table, std::int64_t first_token, const std::int32_t* token_ids,
                 float* output) {
    begin_behind_predecessor();
    const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * kEmbedThreads + threadIdx.x) * 8;
    if (column >= table.columns) return;
    const std::int64_t row = token_ids[blockIdx.y] - first_token;
    float values[8] = {};
    if (row >= 0 && row < table.rows) unpack_eight<F>(load_eight<F>(stored_row(table, row), column), table, row, column, values);
    float* target = output + blockIdx.y * table.columns + column;
    if (column + 8 <= table.columns && is_aligned(output, table.columns)) {
        reinterpret_cast<float4*>(target)[0] = make_float4(values[0], values[1], values[2], values[3]);
        reinterpret_cast<float4*>(target)[1] = make_float4(values[4], values[5], values[6], values[7]);
        return;
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) {
        if (column + e < table.columns) target[e] = values[e];
    }
}

constexpr int kParties = 8;  // blocks of a cluster, for one row
constexpr int kBestThreads = 1024;
constexpr int kHeld = 32;  // numbers a thread holds
constexpr std::int64_t kLargestVocabulary = std::int64_t{kParties} * kBestThreads * kHeld;

using Key = unsigned long long;

/// Numbers in the order of logits: 0 for none, 1 for a NaN, then from -infinity up; -0 is 0.
__device__ inline unsigned order_of(float logit) {
    const unsigned bits = __float_as_uint(logit + 0.0F);
    return isnan(logit) ? 1U : (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

/// The logit again; -infinity for a NaN and for none.
__device__ inline float logit_of(unsigned order) {
    return order <= 1 ? -INFINITY : __uint_as_float((order & 0x80000000U) != 0 ? order & 0x7FFFFFFFU : ~order);
}

/// Keys are ordered as tokens are: by logit, then the lower index first. 0 is no token.
__device__ inline Key key_of(unsigned order, unsigned token) {
    return order == 0 ? 0 : (static_cast<Key>(order) << 32) | (0xFFFFFFFFU - token);
}

__device__ inline unsigned token_of(Key key) { return 0xFFFFFFFFU - static_cast<unsigned>(key); }
__device__ inline unsigned order_of(Key key) { return static_cast<unsigned>(key >> 32); }

__device__ inline Key warp_largest(Key key) {
    const unsigned order = __reduce_max_sync(0xFFFFFFFFU, order_of(key));
    const unsigned rest = __reduce_max_sync(0xFFFFFFFFU, order_of(key) == order ? static_cast<unsigned>(key) : 0U);
    return (static_cast<Key>(order) << 32) | rest;
}

/// exp(value - most), where most is the largest.
__device__ inline float share(float value, float most) { return value == most ? 1.0F : expf(value - most); }

struct Found {
    Key keys[kMaxBest];
    float most;     ///< logit of keys[0]
    float sum_exp;  ///< against it
};

/// Bytes: 4 vocabulary a row. Operations: an exp a number, k rounds of a block's maximum over what its threads hold in registers.
__global__ void __launch_bounds__(kBestThreads) best_kernel(const float* logits, std::int64_t vocabulary, std::int64_t stride,
                                                            int k, std::int32_t* tokens, float* values, float* sum_exp) {
    __shared__ Found found;
    __shared__ Key of_warps[2][kBestThreads / 32];
    __shared__ float sums[kBestThreads / 32];
    const auto cluster = cooperative_groups::this_cluster();
    const int rank = static_cast<int>(blockIdx.x);
    const std::int64_t row = blockIdx.y;
    const int thread = static_cast<int>(threadIdx.x);
    const int warp = thread / 32;
    const int lane = thread % 32;
    const float* mine = logits + row * stride;
    const std::int64_t part = (vocabulary + 4 * kParties - 1) / (4 * kParties) * 4;
    const std::int64_t begin = rank * part;
    const std::int64_t end = begin + part < vocabulary ? begin + part : vocabulary;
    const bool aligned = is_aligned(mine, 0);
    unsigned held[kHeld];  // in the order of logits
#pragma unroll
    for (int j = 0; j < kHeld / 4; ++j) {
        const std::int64_t at = begin + (std::int64_t{j} * kBestThreads + thread) * 4;
        if (at - 4 * thread >= end) {
#pragma unroll
            for (int e = 0; e < 4; ++e) held[4 * j + e] = 0;
        } else if (aligned && at + 4 <= end) {
            const float4 four = *reinterpret_cast<const float4*>(mine + at);
            held[4 * j] = order_of(four.x);
            held[4 * j + 1] = order_of(four.y);
            held[4 * j + 2] = order_of(four.z);
            held[4 * j + 3] = order_of(four.w);
        } else {
#pragma unroll
            for (int e = 0; e < 4; ++e) held[4 * j + e] = at + e < end ? order_of(mine[at + e]) : 0U;
        }
    }
    // The largest that this thread has left; tokens ascend with h, so the first of equals is the lowest.
    unsigned taken = 0;
    int best_at = 0;
    const auto look = [&] {
        unsigned most_order = 0;
        best_at = 0;
#pragma unroll
        for (int h = 0; h < kHeld; ++h) {
            const bool better = held[h] > most_order && (taken >> h & 1U) == 0;
            most_order = better ? held[h] : most_order;
            best_at = better ? h : best_at;
        }
        const std::int64_t token = begin + (std::int64_t{best_at / 4} * kBestThreads + thread) * 4 + best_at % 4;
        return key_of(most_order, static_cast<unsigned>(token));
    };
    Key best = look();
    for (int j = 0; j < k; ++j) {
        const Key of_warp = warp_largest(best);
        if (lane == 0) of_warps[j % 2][warp] = of_warp;
        __syncthreads();
        const Key of_block = warp_largest(of_warps[j % 2][lane]);
        if (thread == 0) found.keys[j] = of_block;
        if (best == of_block && best != 0) {
            taken |= 1U << best_at;
            best = look();
        }
    }
    __syncthreads();
    const float most = logit_of(order_of(found.keys[0]));
    if (sum_exp != nullptr) {
        float sum = 0;
#pragma unroll
        for (int h = 0; h < kHeld; ++h) {
            if (begin + std::int64_t{h / 4} * 4 * kBestThreads >= end) continue;  // nobody holds anything
            if (held[h] > 1) sum += share(logit_of(held[h]), most);
        }
        sum = warp_sum(sum);
        if (lane == 0) sums[warp] = sum;
        __syncthreads();
        if (warp == 0) {
            sum = warp_sum(sums[lane]);
            if (lane == 0) found.sum_exp = sum;
        }
    }
    if (thread == 0) found.most = most;
    cluster.sync();
    if (rank == 0 && warp == 0) {
        const Found* theirs = cluster.map_shared_rank(&found, lane < kParties ? lane : 0);
        int at = 0;
        float whole_most = -INFINITY;
        for (int j = 0; j < k; ++j) {
            const Key head = lane < kParties && at < k ? theirs->keys[at] : 0;
            const Key next = warp_largest(head);
            if (head == next && next != 0) ++at;
            if (lane == 0) {
                const bool any = next != 0;
                tokens[row * k + j] = any ? static_cast<std::int32_t>(token_of(next)) : -1;
                if (values != nullptr) values[row * k + j] = any ? mine[token_of(next)] : -INFINITY;
            }
            if (j == 0) whole_most = logit_of(order_of(next));
        }
        if (sum_exp != nullptr) {
            float sum = lane < kParties && theirs->sum_exp > 0 ? theirs->sum_exp * share(theirs->most, whole_most) : 0.0F;
            sum = warp_sum(sum);
            if (lane == 0) sum_exp[row] = sum;
        }
    }
    cluster.sync();  // the first block still reads what the others found
}

}  // namespace

void embed(const DeviceMatrix& table, std::int64_t first_token, const std::int32_t* token_ids, int m, float* output,
           cudaStream_t stream) {
    if (m <= 0 || table.columns <= 0) return;
    const std::int64_t units = (table.columns + 7) / 8;
    const dim3 grid(static_cast<unsigned>((units + kEmbedThreads - 1) / kEmbedThreads), static_cast<unsigned>(m));
    const auto launch = [&](auto kernel) {
        launch_ahead("embed", kernel, grid, kEmbedThreads, 0, stream, table, first_token, token_ids, output);
    };
    switch (table.format) {
        case Stored::bf16: return launch(embed_kernel<Stored::bf16>);
        case Stored::fp32: return launch(embed_kernel<Stored::fp32>);
        case Stored::fp8_e4m3: return launch(embed_kernel<Stored::fp8_e4m3>);
        case Stored::int4: return launch(embed_kernel<Stored::int4>);
    }
}

void best_tokens(const float* logits, int rows, std::int64_t vocabulary, std::int64_t stride, int k, std::int32_t* tokens,
                 float* values, float* sum_exp, cudaStream_t stream) {
    if (rows <= 0 || k <= 0) return;
    if (k > kMaxBest) throw std::runtime_error("best_tokens: more than kMaxBest tokens");
    if (vocabulary > kLargestVocabulary) throw std::runtime_error("best_tokens: more than 262144 logits a row");
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(kParties, static_cast<unsigned>(rows));
    config.blockDim = dim3(kBestThreads);
    config.stream = stream;
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = kParties;
    attribute.val.clusterDim.y = 1;
    attribute.val.clusterDim.z = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
    check(cudaLaunchKernelEx(&config, best_kernel, logits, vocabulary, stride, k, tokens, values, sum_exp), "best_kernel");
}

}  // namespace draftboard::backend::cuda
