// SPDX-License-Identifier: Apache-2.0
#pragma once
// model.safetensors.index.json: which file of a checkpoint holds which tensor.
//   {"metadata": {...}, "weight_map": {"model.embed_tokens.weight": "model-00001-of-00061.safetensors", ...}}
// Read as events (json_events.h): Kimi-K2's has 210 000 entries.

#include <map>
#include <string>
#include <string_view>

#include "model/error.h"

namespace draftboard::backend {

/// Files that one checkpoint may consist of.
inline constexpr std::size_t kMaxCheckpointFiles = 4096;

/// File name by tensor name. A name that is no plain file name ("../x", "/x", "a/b") or does not end in .safetensors, a tensor
/// that is listed twice, and more than kMaxCheckpointFiles files are errors.
[[nodiscard]] model::Expected<std::map<std::string, std::string>> read_weight_map(std::string_view json,
                                                                                  const std::string& name);

}  // namespace draftboard::backend
