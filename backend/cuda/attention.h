// SPDX-License-Identifier: Apache-2.0
#pragma once
// Attention of a pass's rows over the caches, with split KV and a tree mask (pass_view.h says what a row sees):
//
//   p = softmax over visible positions of  scale q . k,      out = sum p v       (online: running maximum)
//
// Splits are kSplit positions each, counted in what the row sees, and put together in ascending order, so that a row's bits
// depend neither on the pass's other rows nor on which of its ancestors are committed.
//
//   gqa  bytes: 2 context kv_heads dim x cache bytes a sequence;  flops: 4 rows heads dim context
//   mla  bytes: context (latent + rope) x cache bytes a sequence;  flops: 2 rows heads context (2 latent + rope)
// The cache is read once for all rows and heads of a sequence that share it, as far as they fit in one block (32 pairs).
//
// fp32 caches are multiplied in float. bf16 caches go through the matrix units: queries and weights as two bf16 numbers each
// (errors of 2^-17), sums in float. Widths are multiples of 8, values at most 512 wide.

#include <cstdint>

#include <cuda_runtime_api.h>

#include "backend/cuda/pass_view.h"

namespace draftboard::backend::cuda {

/// Small enough that a short context is spread over many multiprocessors, large enough that partial results stay a small part of
/// a long one's bytes.
inline constexpr int kSplit = 128;

/// Device memory for the partial results of `rows` rows of `heads` heads, each `value_width` numbers wide, bytes.
[[nodiscard]] std::int64_t attention_workspace_bytes(int rows, int heads, int value_width, std::int64_t max_visible);

/// max_visible: no row sees more positions than this (the bucket of a captured graph); blocks beyond a row's own end return at
/// once. query, output: rows x heads x dim. Query head h reads kv head h / (heads / kv_heads).
void attend_gqa(const PassView& pass, const float* query, int heads, int kv_heads, int dim, float scale,
                const KeyValueCache& cache, std::int64_t max_visible, float* output, void* workspace, cudaStream_t stream);
/// query: rows x heads x (latent + rope); output: rows x heads x latent.
void attend_mla(const PassView& pass, const float* query, int heads, int latent, int rope, float scale,
                const KeyValueCache& cache, std::int64_t max_visible, float* output, void* workspace, cudaStream_t stream);

}  // namespace draftboard::backend::cuda
