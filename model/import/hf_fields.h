// SPDX-License-Identifier: Apache-2.0
#pragma once
// Fields that several Hugging Face families share, read once: grouped-query attention, MLA, layer
// counts and layer patterns. Families differ in defaults and extras; those are set by the caller
// (hf_families.cpp).

#include <optional>
#include <string>
#include <vector>

#include "model/architecture.h"
#include "model/json_reader.h"

namespace draftboard::model {

[[nodiscard]] int read_size(const JsonReader& text,
                            std::string_view key);  ///< required, 1 .. kMaxFeatures
[[nodiscard]] int read_size_or(const JsonReader& text, std::string_view key,
                               int fallback);  ///< 0 .. kMaxFeatures
[[nodiscard]] int read_layer_count(const JsonReader& text);

/// heads, kv_heads, head_dim (hidden / heads where absent) and rotary_dim.
[[nodiscard]] GqaShape read_gqa(const JsonReader& text, int hidden);
/// DeepSeek's latent attention; with index_topk also its sparse indexer.
[[nodiscard]] MlaShape read_mla(const JsonReader& text);
[[nodiscard]] DeltaNetShape read_delta_net(const JsonReader& text);

/// "layer_types": one of `allowed` a layer. Empty where the field is absent or wrong (then a
/// Problem).
[[nodiscard]] std::vector<std::string> read_layer_types(const JsonReader& text, int layers,
                                                        const std::vector<std::string>& allowed);
/// "mlp_only_layers" as one flag a layer.
[[nodiscard]] std::vector<bool> read_dense_only(const JsonReader& text, int layers);

/// Number of MTP modules under `key`; absent: 0.
[[nodiscard]] int read_mtp_count(const JsonReader& text, std::string_view key);

/// Number of experts under `experts_key` and "num_experts_per_tok"; the second may not exceed the
/// first.
void read_experts(const JsonReader& text, std::string_view experts_key, MoeFeedForward& moe);

/// "scoring_func": softmax or sigmoid.
[[nodiscard]] RouterScoring read_scoring(const JsonReader& text, RouterScoring fallback);

}  // namespace draftboard::model
