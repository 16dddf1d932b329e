// SPDX-License-Identifier: Apache-2.0
#pragma once
// Files of texts to go on from, a text a line: JSON Lines of {"prompt": "..."} (data/models/prompts/*.jsonl), or token ids.
// Blank lines are passed over. Errors name the file and the line. Nothing here knows of models: ByteTokenizer makes tokens
// of a prompt, calibration/cpu_texts.h deals prompts into halves.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "model/error.h"

namespace draftboard::backend {

inline constexpr std::size_t kMaxPrompts = 100'000;  ///< of a file

/// {"prompt": "..."} a line, other members unread. `name` stands in errors. Errors: lines that hold no prompt or an empty one,
/// no line at all, too many of them.
[[nodiscard]] model::Expected<std::vector<std::string>> parse_prompt_lines(std::string_view text, const std::string& name);

/// Token ids a line, separated by spaces, tabs or commas. Errors: what is no whole number from 0, no token at all, too many
/// lines.
[[nodiscard]] model::Expected<std::vector<std::vector<int>>> parse_token_lines(std::string_view text, const std::string& name);

}  // namespace draftboard::backend
