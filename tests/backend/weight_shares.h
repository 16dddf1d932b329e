// SPDX-License-Identifier: Apache-2.0
#pragma once
// Comparison of a whole model with the shares of its ranks, number by number after dequantisation. The rule of each matrix
// is written down here independently of the loader: which rows of the whole, in order, rank r of T must hold.

#include <string>
#include <vector>

#include "backend/cpu/model_weights.h"

namespace draftboard::backend::cpu {

/// A matrix of a model and how it is cut.
struct NamedMatrix {
    enum class Cut { whole, rows, columns };
    std::string name;
    const WeightMatrix* weights = nullptr;
    Cut cut = Cut::whole;
    /// rows: sizes of the segments of the whole, each cut on its own (a delta net's q, k, v); empty: one segment.
    std::vector<std::int64_t> segments = {};
    /// rows: heads that are replicated when there are fewer than ranks; 0: cut evenly.
    int heads = 0;
    int expert = -1;  ///< of the model, or -1: not an expert
};

/// In a fixed order; embedding and LM head included.
[[nodiscard]] std::vector<NamedMatrix> matrices_of(const ModelWeights& weights, const model::Architecture& architecture);
[[nodiscard]] std::vector<float> dequantized(const WeightMatrix& matrix);

void expect_stitched(const ModelWeights& whole, const std::vector<ModelWeights>& ranks, const model::Architecture& architecture,
                     const model::Layout& layout);

}  // namespace draftboard::backend::cpu
