// SPDX-License-Identifier: Apache-2.0
#pragma once
// What begins and ends a pass at the vocabulary: the rows of the embedding table, and from logits the tokens that are best. A
// greedy loop then moves a few numbers to the host instead of rows x vocabulary.

#include <cstdint>

#include <cuda_runtime_api.h>

#include "backend/cuda/device_matrix.h"

namespace draftboard::backend::cuda {

/// Row of each token if it lies in [first_token, first_token + table.rows), else zeros. output: m x columns.
void embed(const DeviceMatrix& table, std::int64_t first_token, const std::int32_t* token_ids, int m, float* output,
           cudaStream_t stream);

/// The k best of each row, best first, ties to the lower index, NaN lowest; and the sum of exp(logit - best logit), from which
/// probabilities follow. k <= kMaxBest.
inline constexpr int kMaxBest = 64;
void best_tokens(const float* logits, int rows, std::int64_t vocabulary, std::int64_t stride, int k, std::int32_t* tokens,
                 float* values, float* sum_exp, cudaStream_t stream);

}  // namespace draftboard::backend::cuda
