// SPDX-License-Identifier: Apache-2.0
#include "calibration/cpu_texts.h"

#include <algorithm>
#include <filesystem>

#include "backend/prompt_file.h"
#include "model/json_reader.h"

namespace draftboard::calibration {

using model::Expected;

namespace {

Expected<std::vector<std::string>> read_set(const std::string& path) {
    const auto text = model::read_file(path);
    if (!text) return tl::unexpected(text.error());
    auto prompts = backend::parse_prompt_lines(*text, path);
    if (prompts && prompts->size() < 2) {
        return model::fail(model::ErrorCode::invalid_input, "holds fewer than two prompts", path,
                           "one half of them is for calibration, the other for validation");
    }
    return prompts;
}

}  // namespace

Expected<std::vector<std::vector<std::string>>> read_prompt_sets(const std::vector<std::string>& sets, PromptHalf half,
                                                                 const std::string& data_directory) {
    std::vector<std::vector<std::string>> out;
    for (const std::string& set : sets) {
        const std::filesystem::path file = std::filesystem::path(data_directory) / "models" / "prompts" / (set + ".jsonl");
        auto prompts = read_set(file.string());
        if (!prompts) return tl::unexpected(prompts.error());
        std::vector<std::string> chosen;
        for (std::size_t i = half == PromptHalf::calibration ? 0 : 1; i < prompts->size(); i += 2) {
            chosen.push_back(std::move((*prompts)[i]));
        }
        out.push_back(std::move(chosen));
    }
    if (out.empty()) {
        return model::fail(model::ErrorCode::invalid_input, "no prompt set is named", "prompts", "name at least one");
    }
    return out;
}

std::vector<std::vector<int>> texts_of_length(const std::vector<std::vector<std::string>>& sets, int length,
                                              const backend::ByteTokenizer& tokenizer) {
    std::vector<std::vector<int>> texts;
    std::size_t most = 0;
    for (const auto& set : sets) most = std::max(most, set.size());
    const bool begins = tokenizer.begin_token() >= 0;
    const auto bytes = static_cast<std::size_t>(std::max(2, length) - (begins ? 1 : 0));
    for (std::size_t i = 0; i < most; ++i) {
        for (const auto& set : sets) {
            if (i >= set.size()) continue;
            std::string text = set[i];
            for (std::size_t back = 1; text.size() < bytes; ++back) {
                text = set[(i + set.size() * back - back) % set.size()] + "\n" + text;
            }
            texts.push_back(tokenizer.encode(std::string_view(text).substr(text.size() - bytes)));
        }
    }
    return texts;
}

}  // namespace draftboard::calibration
