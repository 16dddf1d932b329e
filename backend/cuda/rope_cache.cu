// SPDX-License-Identifier: Apache-2.0
// Queries and cache entries of a pass's rows: rotary embedding, and the write into each row's slot.
// Angles come from the table (RotaryView), as cpu::RotaryTable computed them; products and sums are
// rounded one by one, so that fp32 results have the CPU engine's bits. The norms of q and k go before
// it in the same kernel. Attention reads what is written here (attention_gqa.cu, attention_mla.cu).
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

/// 1 / root mean square of a head's numbers, by a warp; 1 without a norm.
__device__ float norm_scale(const float* x, int dim, float epsilon, int lane) {
    float sum = 0;
    for (int i = lane; i < dim; i += 32) sum = fmaf(x[i], x[i], sum);
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
    return 1.0f / sqrtf(sum / static_cast<float>(dim) + epsilon);
}

/// A warp a head: query heads, then key heads, then value heads. Block x: heads, y: row.
/// Bytes a row: 8 heads dim + 2 kv_heads dim (4 + cache bytes). Flops: 4 a number for the norm, 3 for the rotation.
__global__ void __launch_bounds__(32 * kWarps)
    gqa_rope_cache_kernel(PassView pass, const float* projected, GqaRows shape, const float* q_norm, const float* k_norm,
                          RotaryView rotary, float* query, KeyValueCache cache) {
    begin_behind_predecessor();
    const int vector = static_cast<int>(blockIdx.x * kWarps + threadIdx.x / 32);
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int row = static_cast<int>(blockIdx.y);
    const float* from = projected + row * shape.stride;
    const std::int64_t position = pass.positions[row];
    const bool is_query = vector < shape.heads;
    const int head = is_query ? vector : (vector - shape.heads) % shape.kv_heads;
    const bool is_key = !is_query && vector - shape.heads < shape.kv_heads;
    if (vector >= shape.heads + 2 * shape.kv_heads) return;
    const std::int64_t slot = is_query ? 0 : slot_start(pass, cache, row) + std::int64_t{head} * shape.slot_dim;
    if (!is_query && !is_key) {
        const float* x = from + shape.v_offset + std::int64_t{head} * shape.dim;
        for (int i = lane; i < shape.dim; i += 32) put(cache.values, cache.format, slot + i, x[i]);
        return;
    }
    const float* x = from + (is_query ? std::int64_t{head} * shape.q_step : shape.k_offset + std::int64_t{head} * shape.dim);
    const float* norm = is_query ? q_norm : k_norm;
    const float scale = norm == nullptr ? 1.0f : norm_scale(x, shape.dim, shape.epsilon, lane);
    const auto number = [&](int i) { return norm == nullptr ? x[i] : x[i] * scale * norm[i]; };
    float* to = query + (std::int64_t{row} * shape.heads + head) * shape.slot_dim;
    for (int i = lane; i < shape.dim; i += 32) {
        const float value = rotated(number, i, rotary, position);
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
    begin_behind_predecessor();
    const int vector = static_cast<int>(blockIdx.x * kWarps + threadIdx.x / 32);
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int row = static_cast<int>(blockIdx.y);
    const std::int64_t position = pass.positions[row];
    if (vector < shape.heads) {
        const float* x = q + row * q_stride + vector * q_head_stride + q_offset;
        float* to = query +
                    (std::int64_t{row} * shape.heads + vector) * (shape.latent + shape.rope) +
                    shape.latent;
        for (int i = lane; i < shape.rope; i += 32) to[i] = rotated([x](int n) { return x[n]; }, i, rotary, position);
        return;
    }
    const std::int64_t start = slot_start(pass, cache, row);
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
    launch_ahead("gqa_rope_cache", gqa_rope_cache_kernel, grid, 32 * kWarps, 0, stream, pass, projected, shape, q_norm, k_norm,
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
