// SPDX-License-Identifier: Apache-2.0
#pragma once
// Texts for measurements: the shipped prompts (data/models/prompts/*.jsonl), dealt into two halves that never meet. Calibration
// and the acceptance behind a prediction see the even ones of each set, validation runs the odd ones.
//
// A text of `length` tokens is a prompt with the prompts before it in its half and set in front of it, as many as are
// needed, cut at the left: the end is always a whole prompt, so that what is generated goes on from it.

#include <string>
#include <vector>

#include "backend/byte_tokenizer.h"
#include "model/error.h"

namespace draftboard::calibration {

enum class PromptHalf { calibration, validation };

/// By set, then by prompt. Errors: a set that is not there, lines that hold no prompt, fewer than two prompts.
[[nodiscard]] model::Expected<std::vector<std::vector<std::string>>> read_prompt_sets(const std::vector<std::string>& sets,
                                                                                      PromptHalf half,
                                                                                      const std::string& data_directory);

/// Texts of `length` tokens (at least 2), begin token included where there is one: the first prompt of each set, the second of
/// each, and so on.
[[nodiscard]] std::vector<std::vector<int>> texts_of_length(const std::vector<std::vector<std::string>>& sets, int length,
                                                            const backend::ByteTokenizer& tokenizer);

}  // namespace draftboard::calibration
