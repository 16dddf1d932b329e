// SPDX-License-Identifier: Apache-2.0
#pragma once
// Norms, activations, rotary embedding with the write into the cache: everything bound by its activations. Formulae as in
// cpu/elementwise.h. Bytes: inputs and outputs once, 4 a number. Each row's result depends on the row alone, in a fixed
// order of sums. An output may be one of the inputs.

#include <cstdint>

#include <cuda_runtime_api.h>

#include "backend/cuda/pass_view.h"

namespace draftboard::backend::cuda {

/// hidden += block (where block is not null); kept = hidden (where kept is not null, rows kept_stride apart);
/// normed = hidden / sqrt(mean(hidden^2) + epsilon) * weight. hidden, block: m x width; normed rows normed_stride apart.
void add_rms_norm(float* hidden, const float* block, const float* weight, int m, int width, float epsilon, float* normed,
                  std::int64_t normed_stride, float* kept, std::int64_t kept_stride, cudaStream_t stream);
/// y = rms_norm(x) for m rows of `parts` vectors each: vector p of row i at x + i * x_stride + p * width, and so y.
void rms_norm(const float* x, std::int64_t x_stride, const float* weight, int m, int parts, int width, float epsilon, float* y,
              std::int64_t y_stride, cudaStream_t stream);
/// y[i][c] = silu(x[i][c]) * x[i][width + c]
void silu_multiply(const float* x, std::int64_t x_stride, int m, int width, float* y, std::int64_t y_stride, cudaStream_t stream);
/// y[i][h][c] *= sigmoid(gate[i][h][c]); gate of head h at gate + i * gate_stride + h * gate_head_stride; y dense: m x heads x
/// width
void sigmoid_multiply(const float* gate, std::int64_t gate_stride, std::int64_t gate_head_stride, int m, int heads, int width,
                      float* y, cudaStream_t stream);
/// y[i] = sum_c x[i][c] w[c]
void row_dot(const float* x, std::int64_t x_stride, const float* w, int m, int width, float* y, cudaStream_t stream);
/// y[i] = x[rows[i]], i < count; rows on the device
void gather_rows(const float* x, std::int64_t width, const std::int32_t* rows, int count, float* y, cudaStream_t stream);
/// m rows of width numbers between strides
void copy_rows(const float* x, std::int64_t x_stride, int m, std::int64_t width, float* y, std::int64_t y_stride,
               cudaStream_t stream);

/// GQA: takes each row's q heads from `projected` (head h at h * q_step numbers; q_step 2 dim where a head is query | gate) and
/// its k heads, norms them by head where q_norm, k_norm are not null, rotates the first rotary.dim of each, and writes the
/// queries (rows x heads x slot_dim) and, with the v heads, the row's slot of the cache. k and v begin at k_offset and v_offset
/// of the projected row. Numbers of a head beyond dim are left alone: buffers that begin as zeros stay padded with zeros.
struct GqaRows {
    int heads = 0;
    int kv_heads = 0;
    int dim = 0;
    int slot_dim = 0;         ///< of a head in query and cache: dim up to a multiple of 8, as attention wants it
    std::int64_t stride = 0;  ///< of projected
    int q_step = 0;
    std::int64_t k_offset = 0;
    std::int64_t v_offset = 0;
    float epsilon = 0;
};
void gqa_rope_cache(const PassView& pass, const float* projected, const GqaRows& shape, const float* q_norm, const float* k_norm,
                    const RotaryView& rotary, float* query, const KeyValueCache& cache, cudaStream_t stream);

/// MLA: rotates the last `rope` of each of the row's heads of `query` (m x heads x (latent + rope), whose first `latent` are in
/// place already), taking them unrotated from `q` (head h at q + i * q_stride + h * q_head_stride + q_offset), and writes latent
/// (m rows, latent_stride apart) and the rotated shared key (`rope` numbers at key + i * key_stride) into the cache.
struct MlaRows {
    int heads = 0;
    int latent = 0;
    int rope = 0;
};
void mla_rope_cache(const PassView& pass, const MlaRows& shape, const float* q, std::int64_t q_stride, std::int64_t q_head_stride,
                    std::int64_t q_offset, const float* latent, std::int64_t latent_stride, const float* key,
                    std::int64_t key_stride, const RotaryView& rotary, float* query, const KeyValueCache& cache,
                    cudaStream_t stream);

}  // namespace draftboard::backend::cuda
