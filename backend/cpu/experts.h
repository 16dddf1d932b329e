// SPDX-License-Identifier: Apache-2.0
#pragma once
// Routing of tokens to experts, and the routed experts themselves.
//
//   softmax   s = softmax(logits); the k largest; weights s, / sum of the k if normalised, x routed_scaling
//   sigmoid   s = sigmoid(logits); chosen by s + bias: groups of experts are ranked by the sum of their two best, the best
//             top_groups stay, then the k largest; weights are s (without bias), / (sum + 1e-20) if normalised, x routed_scaling
// Ties go to the lower expert; a NaN is chosen last. An expert's output has the same bits whatever the number of tokens.

#include <cstdint>

#include "backend/cpu/matmul.h"
#include "backend/cpu/model_weights.h"
#include "backend/numerics.h"
#include "model/architecture.h"

namespace draftboard::backend::cpu {

/// ids: m x k, in descending order of choice; weights: m x k.
void route(const float* logits, std::int64_t m, const model::MoeFeedForward& moe, const Numerics& numerics,
           const float* correction_bias, std::int32_t* ids, float* weights, Scratch& scratch);

/// A product with few input features spends its time on the sums across a register, one an output. Kept by input feature, the
/// same weights are added up over outputs and nothing is summed across: 1.7 times as fast for 64 features. Experts of up to
/// kNarrowExpert features in bf16 or fp32 are turned round here; others stay as they are.
inline constexpr std::int64_t kNarrowExpert = 128;
void store_by_input(DenseWeights& expert);

/// Grouped experts: for each distinct expert of this rank, in ascending order, its tokens through gate/up, silu and down.
/// outputs: m x k rows of `hidden`, pair (i, j) at (i k + j) hidden; pairs of other ranks' experts are zeroed.
/// Bytes: each distinct expert's weights once; flops 6 hidden width a pair. Returns the distinct experts it touched.
int run_experts(const float* x, std::int64_t m, std::int64_t hidden, const MoeWeights& weights, const std::int32_t* ids, int k,
                float* outputs, Scratch& scratch);

}  // namespace draftboard::backend::cpu
