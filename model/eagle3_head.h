// SPDX-License-Identifier: Apache-2.0
#pragma once
// The EAGLE-3 heads that are usual in the field, sized for a target. Each says in `source` which figures
// are published and which are assumed. A scenario may give its own head instead (speculation_json.h).

#include "model/speculation.h"

namespace draftboard::model {

/// The Llama-style head. For a hidden size of 7168 it is SpecForge's deepseek-v3-671b-eagle3 (1 layer, MLP
/// 40960, 56 heads of 128, 8 KV heads, draft vocabulary 32000, 3 auxiliary layers); for others the same
/// proportions: heads hidden / 128, 8 KV heads if the heads divide by 8, else as many as divide, MLP
/// 40960 / 7168 hidden to the next multiple of 1024.
[[nodiscard]] Eagle3Head llama_style_eagle3_head(const Architecture& target);

/// The MLA-style head (kimi-k2.x-eagle3-mla): attention of the target's own MLA shape without a sparse
/// indexer, a dense MLP as wide as the target's first dense layer (Kimi-K2.5: 18432). Falls back to the
/// Llama-style head where the target has no MLA layer.
[[nodiscard]] Eagle3Head mla_style_eagle3_head(const Architecture& target);

/// MLA-style for a target with MLA layers, Llama-style for others.
[[nodiscard]] Eagle3Head default_eagle3_head(const Architecture& target);

}  // namespace draftboard::model
