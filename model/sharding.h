// SPDX-License-Identifier: Apache-2.0
#pragma once
// How tensors split over the ranks of a layout: the small integer functions that layout.cpp checks with,
// plan_layers.cpp builds with and memory.cpp (through the plan) counts with, so that the three can't
// disagree. Nothing here allocates. Preconditions: degrees >= 1, sizes >= 0, Layout::validate() empty.
//
//   attention ranks       A = tensor / attention_data
//   query heads a rank    heads / A
//   kv heads a rank       kv_heads / A, or 1 (replicated) when A > kv_heads and A divides by kv_heads
//   expert width a rank   intermediate / tensor under TP, whole under EP
//   pipeline stage        layers are dealt out in order, the first (layers mod stages) stages get one more

#include <algorithm>
#include <cstdint>

#include "model/architecture.h"
#include "model/layout.h"

namespace draftboard::model {

[[nodiscard]] inline std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Ranks that one attention head set is sharded over.
[[nodiscard]] inline int attention_tensor(const Layout& layout) {
    return layout.tensor / layout.attention_data;
}

[[nodiscard]] inline std::int64_t kv_heads_per_rank(int kv_heads, int ranks) {
    return std::max<std::int64_t>(1, kv_heads / ranks);
}

/// Width of one expert on one rank. MXFP4 shards that do not divide by their 32-wide scale blocks are
/// padded up to one, as vLLM and SGLang do for gpt-oss (2880 / 4 = 720 becomes 736); other formats are
/// refused by Layout::validate() and never padded.
[[nodiscard]] inline std::int64_t expert_width_per_rank(const MoeFeedForward& moe,
                                                        const WeightFormat& format,
                                                        const Layout& layout) {
    if (layout.expert > 1) return moe.intermediate;
    const std::int64_t width = moe.intermediate / layout.tensor;
    if (layout.tensor == 1 || format.format != NumberFormat::mxfp4 || format.block_columns <= 0) {
        return width;
    }
    return divide_up(width, format.block_columns) * format.block_columns;
}

/// Stage (0-based) that runs decoder layer `layer` of `layers`.
[[nodiscard]] inline int pipeline_stage(int layer, int layers, int stages) {
    if (stages <= 1 || layers <= 0) return 0;
    const int base = layers / stages;
    const int extra = layers % stages;
    const int long_part = extra * (base + 1);  // layers in the stages that hold one more
    if (layer < long_part) return layer / (base + 1);
    return base == 0 ? stages - 1 : extra + (layer - long_part) / base;
}

}  // namespace draftboard::model
