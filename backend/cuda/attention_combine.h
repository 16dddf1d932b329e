// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the splits of attention (attention_core.cuh) leave behind, and how it is put together:
//
//   M = max_i m_i,   output = sum_i 2^(m_i - M) sums_i / sum_i 2^(m_i - M) t_i          i: the
//   splits that the row sees, ascending
//
// Splits i, i + 32, i + 64, ... are added first, ascending, and then the 32 sums, ascending: an
// order that is the same however many splits the graph has room for. With one split the result is
// sums / t, the bits of a pass that needs no combining.

#include <cstdint>

#include <cuda_runtime_api.h>

#include "backend/cuda/pass_view.h"

namespace draftboard::backend::cuda {

struct AttentionPartials {
    float* sums = nullptr;      ///< rows * heads x splits x value_width
    float2* weights = nullptr;  ///< rows * heads x splits: maximum (base 2) and sum of weights
};

/// Splits of a pass whose rows see up to max_visible positions, at least 1.
[[nodiscard]] int attention_splits(std::int64_t max_visible);
[[nodiscard]] AttentionPartials attention_partials(void* workspace, int rows, int heads,
                                                   int value_width, int splits);
/// Bytes: rows heads splits (value_width + 2) x 4 read. Flops: 2 a number.
void combine_attention(const PassView& pass, int heads, int value_width,
                       const AttentionPartials& partials, int splits, float* output,
                       cudaStream_t stream);

}  // namespace draftboard::backend::cuda
