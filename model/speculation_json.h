// SPDX-License-Identifier: Apache-2.0
#pragma once
// Speculation as the scenario's "speculation" object:
//
//   {"method": "none|eagle3|mtp|ngram|draft_model", "steps": 3, "top_k": 1, "draft_tokens": 4,
//    "sibling_decay": 1.0, "acceptance": {..}, "head": "llama_style|mla_style" or {..},
//    "draft_model": "Qwen3-0.6B", "draft_tensor": 0, "pad_misses": true}
//
// A string alone names the method. Steps default to SGLang's choice for all but Llama and Grok: 3, top_k 1.
// Without a head eagle3 takes default_eagle3_head(). A head object: {"style": "llama_style", ...} starts from
// that style, and "name", "layers", "aux_layers", "intermediate", "draft_vocabulary", "heads", "kv_heads",
// "head_dim", "own_embedding", "format", "source" replace its figures. draft_architecture stays empty: the
// scenario, which knows where architectures are found, resolves draft_model and calls validate().

#include "model/json_reader.h"
#include "model/speculation.h"

namespace draftboard::model {

[[nodiscard]] Speculation speculation_from_json(const JsonReader& reader, const Architecture& target);
[[nodiscard]] Json speculation_to_json(const Speculation& speculation);

}  // namespace draftboard::model
