// SPDX-License-Identifier: Apache-2.0
#pragma once
// What `run` and `acceptance` ask alike: a model, a drafter, ranks, sampling. Options become backend::InferenceSettings;
// names become folders of data/models.

#include <cstdint>
#include <string>
#include <vector>

#include "backend/decode_loop.h"
#include "backend/inference.h"
#include "cli/command.h"

namespace draftboard::cli {

struct InferenceOptions {
    backend::InferenceSettings settings;
    std::string device = "cpu";
    std::string method = "none";
    std::string all_reduce = "one_shot";
    std::string launch = "full";
    std::string launch_decode;       ///< empty: as `launch`
    std::string launch_verify;
    std::string launch_draft;
    std::string synthetic;           ///< architecture; empty: a checkpoint
    int synthetic_layers = 0;        ///< 0: all
    bool plain_misses = false;
    int max_tokens = 128;
    backend::Sampling sampling;
    std::uint64_t seed = 1;
    bool ignore_end = false;
};

/// The positional WEIGHTS and all options above.
void add_inference_options(CLI::App& command, InferenceOptions& options);

/// One text to go on from.
struct Prompt {
    std::string text;         ///< empty where tokens were given
    std::vector<int> tokens;  ///< empty: `text` goes through the model's tokenizer
};
/// JSON Lines, {"prompt": "..."} each; a path, or the name of a set in data/models/prompts.
[[nodiscard]] model::Expected<std::vector<Prompt>> read_prompts(const std::string& path, const std::string& data_directory);
/// Token ids, separated by spaces, a sequence a line.
[[nodiscard]] model::Expected<std::vector<Prompt>> read_token_lines(const std::string& path);

/// A folder as given, or one of data/models.
[[nodiscard]] model::Expected<std::string> find_model(const std::string& name_or_path, const std::string& data_directory);

/// Loads the model with room for the longest of `prompts`, and turns text into tokens: prompts[i].tokens are filled.
[[nodiscard]] model::Expected<backend::Inference> open_inference(const InferenceOptions& options,
                                                                 std::vector<Prompt>& prompts,
                                                                 const std::string& data_directory);
/// A request for each prompt.
[[nodiscard]] backend::Request request_of(const InferenceOptions& options, const Prompt& prompt,
                                          const backend::Inference& inference);

}  // namespace draftboard::cli
