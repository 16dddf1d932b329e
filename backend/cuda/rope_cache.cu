// SPDX-License-Identifier: Apache-2.0
// Queries and cache entries of a pass's rows: rotary embedding, and the write into each row's slot.
// Angles come from the table (RotaryView), as cpu::RotaryTable computed them; products and sums are
// rounded one by one, so that fp32 results have the CPU engine's bits. The norms of q and k go before
// it in the same kernel. Attention reads what is written here (attention_gqa.cu, attention_mla.cu).
#include <stdexcept>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "backend/cuda/check.h"
#include "backend/cuda/launch_ahead.cuh"
#include "backend/cuda/elementwise.h"

namespace draftboard::backend::cuda {

namespace {

constexpr int kWarps = 4;

/// Number i of a vector, given by `x(i)`, after its first rotary.dim numbers are rotated.
template <class Vector>
__device__ float rotated(const Vector& x, int i, const RotaryView& rotary, std::int64_t position) {
    if (i >= rotary.dim) return x(i);
    const int half = rotary.dim / 2;
    const int pair = rotary.interleaved ? i / 2 : i % half;
    const float c = rotary.cos[position * half + pair];
    const float s = rotary.sin[position * half + pair];
    const float a = x(rotary.interleaved ? 2 * pair : pair);
    const float b = x(rotary.interleaved ? 2 * pair + 1 : pair + half);
    const bool first = rotary.interleaved ? i % 2 == 0 : i < half;
    return first ? __fsub_rn(__fmul_rn(a, c), __fmul_rn(b, s))
                 : __fadd_rn(__fmul_rn(b, c), __fmul_rn(a, s));
}

__device__ void put(void* cache, CacheFormat format, std::int64_t at, float value) {
    if (format == CacheFormat::bf16) {
        static_cast<__nv_bfloat16*>(cache)[at] = __float2bfloat16_rn(value);
    } else {
        static_cast<float*>(cache)[at] = value;
    }
}

/// Where row i's numbers begin in the cache.
__device__ std::int64_t slot_start(const PassView& pass, const KeyValueCache& cache, int row) {
    const int s = row / pass.tokens;
    const std::int64_t slot =
        std::int64_t{pass.committed[s]} + pass.first_row[s] + row % pass.tokens;
    return pass.slots[s] * cache.sequence_stride + slot * cache.slot_width;
}

/// A warp a head: query heads, then key heads, then value heads. Block x: heads, y: row. What does not come from the predecessor
/// is read before the wait. kEach numbers a lane: heads of up to 32 kEach.
/// Bytes a row: 8 heads dim + 2 kv_heads dim (4 + cache bytes). Flops: 4 a number for the norm, 3 for the rotation.
template <int kEach>
__global__ void __launch_bounds__(32 * kWarps)
    gqa_rope_cache_kernel(PassView pass, const float* projected, GqaRows shape, const float* q_norm, const float* k_norm,
                          RotaryView rotary, float* query, KeyValueCache cache) {
    let_successor_begin();
    const int vector = static_cast<int>(blockIdx.x * kWarps + threadIdx.x / 32);
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int row = static_cast<int>(blockIdx.y);
    const float* from = projected + row * shape.stride;
    const bool is_query = vector < shape.heads;
    const int head = is_query ? vector : (vector - shape.heads) % shape.kv_heads;
    const bool is_key = !is_query && vector - shape.heads < shape.kv_heads;
    if (vector >= shape.heads + 2 * shape.kv_heads) return wait_for_predecessor();
    const std::int64_t slot = is_query ? 0 : slot_start(pass, cache, row) + std::int64_t{head} * shape.slot_dim;
    if (!is_query && !is_key) {
        const float* x = from + shape.v_offset + std::int64_t{head} * shape.dim;
        wait_for_predecessor();
#pragma unroll
        for (int e = 0; e < kEach; ++e) {
            const int i = lane + 32 * e;
            if (i < shape.dim) put(cache.values, cache.format, slot + i, x[i]);
        }
        return;
    }
    const float* norm = is_query ? q_norm : k_norm;
    const std::int64_t angles = std::int64_t{pass.positions[row]} * (rotary.dim / 2);
    // Of number lane + 32 e: its pair's other number, the angle, the norm's weights.
    int other[kEach];
    bool first[kEach];
    float cosine[kEach], sine[kEach], weight[kEach], other_weight[kEach];
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
        const int i = lane + 32 * e;
        const int half = rotary.dim / 2;
        const bool rotates = i < rotary.dim;
        first[e] = rotary.interleaved ? i % 2 == 0 : i < half;
        other[e] = !rotates ? i : rotary.interleaved ? i ^ 1 : first[e] ? i + half : i - half;
        const int pair = rotary.interleaved ? i / 2 : min(i, other[e]);
        cosine[e] = rotates ? rotary.cos[angles + pair] : 1.0f;
        sine[e] = rotates ? rotary.sin[angles + pair] : 0.0f;
        const bool weighed = norm != nullptr && i < shape.dim;
        weight[e] = weighed ? norm[i] : 1.0f;
        other_weight[e] = weighed ? norm[other[e]] : 1.0f;
    }
    const float* x = from + (is_query ? std::int64_t{head} * shape.q_step : shape.k_offset + std::int64_t{head} * shape.dim);
    wait_for_predecessor();
    float mine[kEach], others[kEach];
    float squares = 0;
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
        const bool there = lane + 32 * e < shape.dim;
        mine[e] = there ? x[lane + 32 * e] : 0.0f;
        others[e] = there ? x[other[e]] : 0.0f;
    }
#pragma unroll
    for (int e = 0; e < kEach; ++e) squares = fmaf(mine[e], mine[e], squares);
    if (norm != nullptr) {
        for (int step = 16; step > 0; step /= 2) squares += __shfl_xor_sync(0xFFFFFFFFu, squares, step);
        const float scale = 1.0f / sqrtf(squares / static_cast<float>(shape.dim) + shape.epsilon);
#pragma unroll
        for (int e = 0; e < kEach; ++e) {
            mine[e] = mine[e] * scale * weight[e];
            others[e] = others[e] * scale * other_weight[e];
        }
    }
    float* to = query + (std::int64_t{row} * shape.heads + head) * shape.slot_dim;
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
        const int i = lane + 32 * e;
        if (i >= shape.dim) continue;
        const float along = __fmul_rn(mine[e], cosine[e]);
        const float across = __fmul_rn(others[e], sine[e]);
        const float value = i >= rotary.dim ? mine[e] : first[e] ? __fsub_rn(along, across) : __fadd_rn(along, across);
        if (is_query) {
            to[i] = value;
        } else {
            put(cache.keys, cache.format, slot + i, value);
        }
    }
}

/// A warp a query head, and one for the shared key; the blocks' other warps share the latent. Block
/// x: heads + 1 and latent, y: row. Bytes a row: 8 heads rope + (latent + rope) (4 + cache bytes).
__global__ void __launch_bounds__(32 * kWarps)
    mla_rope_cache_kernel(PassView pass, MlaRows shape, const float* q, std::int64_t q_stride,
                          std::int64_t q_head_stride, std::int64_t q_offset, const float* latent,
                          std::int64_t latent_stride, const float* key, std::int64_t key_stride,
                          RotaryView rotary, float* query, KeyValueCache cache) {
    let_successor_begin();
    const int vector = static_cast<int>(blockIdx.x * kWarps + threadIdx.x / 32);
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int row = static_cast<int>(blockIdx.y);
    const std::int64_t position = pass.positions[row];
    const std::int64_t start = slot_start(pass, cache, row);
    wait_for_predecessor();
    if (vector < shape.heads) {
        const float* x = q + row * q_stride + vector * q_head_stride + q_offset;
        float* to = query +
                    (std::int64_t{row} * shape.heads + vector) * (shape.latent + shape.rope) +
                    shape.latent;
        for (int i = lane; i < shape.rope; i += 32) to[i] = rotated([x](int n) { return x[n]; }, i, rotary, position);
        return;
    }
    if (vector == shape.heads) {
        const float* x = key + row * key_stride;
        for (int i = lane; i < shape.rope; i += 32)
            put(cache.keys, cache.format, start + shape.latent + i,
                rotated([x](int n) { return x[n]; }, i, rotary, position));
        return;
    }
    // 128 numbers of the latent a warp.
    const int first = (vector - shape.heads - 1) * 128;
    for (int i = first + lane; i < min(first + 128, shape.latent); i += 32) {
        put(cache.keys, cache.format, start + i, latent[row * latent_stride + i]);
    }
}

}  // namespace

void gqa_rope_cache(const PassView& pass, const float* projected, const GqaRows& shape, const float* q_norm, const float* k_norm,
                    const RotaryView& rotary, float* query, const KeyValueCache& cache, cudaStream_t stream) {
    if (pass.rows() <= 0) return;
    const dim3 grid(static_cast<unsigned>((shape.heads + 2 * shape.kv_heads + kWarps - 1) / kWarps),
                    static_cast<unsigned>(pass.rows()));
    if (shape.dim > 512) throw std::runtime_error("gqa_rope_cache: heads of more than 512 numbers");
    const auto kernel = shape.dim <= 128   ? gqa_rope_cache_kernel<4>
                        : shape.dim <= 256 ? gqa_rope_cache_kernel<8>
                                           : gqa_rope_cache_kernel<16>;
    launch_ahead("gqa_rope_cache", kernel, grid, 32 * kWarps, 0, stream, pass, projected, shape, q_norm, k_norm,
                 rotary, query, cache);
}

void mla_rope_cache(const PassView& pass, const MlaRows& shape, const float* q,
                    std::int64_t q_stride, std::int64_t q_head_stride, std::int64_t q_offset,
                    const float* latent, std::int64_t latent_stride, const float* key,
                    std::int64_t key_stride, const RotaryView& rotary, float* query,
                    const KeyValueCache& cache, cudaStream_t stream) {
    if (pass.rows() <= 0) return;
    const int vectors = shape.heads + 1 + (shape.latent + 127) / 128;
    const dim3 grid(static_cast<unsigned>((vectors + kWarps - 1) / kWarps),
                    static_cast<unsigned>(pass.rows()));
    launch_ahead("mla_rope_cache", mla_rope_cache_kernel, grid, 32 * kWarps, 0, stream, pass, shape, q, q_stride, q_head_stride,
                                                            q_offset, latent, latent_stride, key,
                                                            key_stride, rotary, query, cache);
}

}  // namespace draftboard::backend::cuda
