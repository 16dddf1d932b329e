// SPDX-License-Identifier: Apache-2.0
#include "backend/prompt_file.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "model/json_reader.h"

namespace draftboard::backend {

using model::ErrorCode;
using model::Expected;
using model::fail;

namespace {

/// Calls `use(line, place)` for each line that isn't blank, until it fails; place: "NAME:LINE".
template <class Use>
Expected<void> each_line(std::string_view text, const std::string& name, const Use& use) {
    for (int number = 1; !text.empty(); ++number) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
        if (auto ok = use(line, fmt::format("{}:{}", name, number)); !ok) return ok;
    }
    return {};
}

}  // namespace

Expected<std::vector<std::string>> parse_prompt_lines(std::string_view text, const std::string& name) {
    std::vector<std::string> prompts;
    const auto read = each_line(text, name, [&](std::string_view line, const std::string& place) -> Expected<void> {
        const auto json = model::parse_json(line, place);
        if (!json) return tl::unexpected(json.error());
        std::vector<model::Problem> problems;
        const model::JsonReader reader(*json, problems);
        std::string prompt;
        if (reader.expect_object()) prompt = reader.string("prompt");
        if (problems.empty() && prompt.empty()) reader.problem("prompt", "is empty");
        if (!problems.empty()) return tl::unexpected(model::to_error(problems, place));
        if (prompts.size() == kMaxPrompts) {
            return fail(ErrorCode::too_large, fmt::format("more than {} prompts", kMaxPrompts), place);
        }
        prompts.push_back(std::move(prompt));
        return {};
    });
    if (!read) return tl::unexpected(read.error());
    if (prompts.empty()) {
        return fail(ErrorCode::invalid_input, "holds no prompt", name, "one {\"prompt\": \"...\"} a line is expected");
    }
    return prompts;
}

Expected<std::vector<std::vector<int>>> parse_token_lines(std::string_view text, const std::string& name) {
    std::vector<std::vector<int>> sequences;
    const auto read = each_line(text, name, [&](std::string_view line, const std::string& place) -> Expected<void> {
        std::vector<int> tokens;
        const char* at = line.data();
        const char* const end = at + line.size();
        while (true) {
            while (at != end && (*at == ' ' || *at == '\t' || *at == '\r' || *at == ',')) ++at;
            if (at == end) break;
            int token = 0;
            const auto [next, error] = std::from_chars(at, end, token);
            if (error != std::errc{} || token < 0) {
                return fail(ErrorCode::invalid_input, "a token id is expected: a whole number from 0", place);
            }
            tokens.push_back(token);
            at = next;
        }
        if (sequences.size() == kMaxPrompts) {
            return fail(ErrorCode::too_large, fmt::format("more than {} sequences", kMaxPrompts), name);
        }
        if (!tokens.empty()) sequences.push_back(std::move(tokens));
        return {};
    });
    if (!read) return tl::unexpected(read.error());
    if (sequences.empty()) {
        return fail(ErrorCode::invalid_input, "holds no token", name, "token ids separated by spaces are expected");
    }
    return sequences;
}

}  // namespace draftboard::backend
