// SPDX-License-Identifier: Apache-2.0
#include "model/speculation.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "model/layout.h"

namespace draftboard::model {

namespace {

constexpr std::array<std::pair<SpeculationMethod, std::string_view>, 5> kNames{{
    {SpeculationMethod::none, "none"},
    {SpeculationMethod::eagle3, "eagle3"},
    {SpeculationMethod::mtp, "mtp"},
    {SpeculationMethod::ngram, "ngram"},
    {SpeculationMethod::draft_model, "draft_model"},
}};

constexpr int kMaxTopK = 1024;

void check_head(const Speculation& speculation, const Architecture& target, std::vector<Problem>& problems) {
    if (!speculation.head) {
        problems.push_back({"/speculation/head", "eagle3 needs a head"});
        return;
    }
    const Eagle3Head& head = *speculation.head;
    const auto positive = [&](const char* key, std::int64_t value, std::int64_t limit) {
        if (value >= 1 && value <= limit) return;
        problems.push_back({std::string("/speculation/head/") + key,
                            fmt::format("{} is outside 1 .. {}", value, limit)});
    };
    positive("hidden", head.hidden, 1 << 20);
    positive("layers", head.layers, 1024);
    positive("aux_layers", head.aux_layers, 1024);
    positive("intermediate", head.intermediate, 1 << 24);
    positive("draft_vocabulary", head.draft_vocabulary, std::int64_t{1} << 31);
    if (std::holds_alternative<DeltaNetShape>(head.mixer)) {
        problems.push_back({"/speculation/head/mixer", "an EAGLE-3 head attends; a delta net is no choice"});
    }
    if (head.draft_vocabulary > target.vocabulary) {
        problems.push_back({"/speculation/head/draft_vocabulary",
                            fmt::format("{} is more than the target's vocabulary of {}",
                                        head.draft_vocabulary, target.vocabulary)});
    }
}

}  // namespace

std::string_view to_name(SpeculationMethod method) {
    for (const auto& [value, name] : kNames) {
        if (value == method) return name;
    }
    return "?";
}

std::optional<SpeculationMethod> speculation_method_from_name(std::string_view name) {
    for (const auto& [value, known] : kNames) {
        if (known == name) return value;
    }
    return std::nullopt;
}

int Speculation::verify_tokens() const {
    if (method == SpeculationMethod::none) return 1;
    const int chain = std::clamp(steps, 0, kMaxDraftTokens - 1) + 1;
    const bool drafted = method != SpeculationMethod::ngram;
    if (draft_tokens <= 0 || (drafted && top_k <= 1)) return chain;
    return std::min(draft_tokens, kMaxDraftTokens);
}

int Speculation::depth() const {
    return std::min(std::clamp(steps, 0, kMaxDraftTokens), std::max(0, verify_tokens() - 1));
}

double Speculation::acceptance_length() const {
    if (method == SpeculationMethod::none) return 1.0;
    if (top_k <= 1 || method == SpeculationMethod::ngram) return chain_acceptance_length(acceptance, depth());
    if (acceptance.tree_length > 0) return std::min(acceptance.tree_length, depth() + 1.0);
    return build_draft_tree(acceptance, steps, top_k, verify_tokens(), sibling_decay).acceptance_length();
}

std::vector<Problem> Speculation::validate(const Architecture& target) const {
    std::vector<Problem> problems;
    if (method == SpeculationMethod::none) return problems;
    const auto within = [&](const char* key, int value, int low, int high) {
        if (value >= low && value <= high) return;
        problems.push_back({std::string("/speculation/") + key,
                            fmt::format("{} is outside {} .. {}", value, low, high)});
    };
    within("steps", steps, 1, kMaxDraftTokens - 1);
    within("top_k", top_k, 1, kMaxTopK);
    within("draft_tokens", draft_tokens, 0, kMaxDraftTokens);
    within("draft_tensor", draft_tensor, 0, kMaxParallelDegree);
    if (draft_tokens == 1) {
        problems.push_back({"/speculation/draft_tokens",
                            "1 leaves only the root, and nothing to verify; it counts the root too"});
    }
    if (!(sibling_decay >= 0 && sibling_decay <= 1)) {
        problems.push_back({"/speculation/sibling_decay", fmt::format("{} is outside 0 .. 1", sibling_decay)});
    }
    for (auto& problem : acceptance.validate()) {
        problems.push_back({"/speculation/acceptance" + problem.place, std::move(problem.message)});
    }
    if (method == SpeculationMethod::eagle3) check_head(*this, target, problems);
    if (method == SpeculationMethod::mtp && target.mtp.empty()) {
        problems.push_back({"/speculation/method",
                            target.name + " has no MTP module; use eagle3, a draft model or n-gram"});
    }
    if (method == SpeculationMethod::draft_model) {
        if (!draft_architecture) {
            problems.push_back({"/speculation/draft_model", "the draft model's architecture is not known"});
        } else if (draft_architecture->vocabulary != target.vocabulary) {
            problems.push_back({"/speculation/draft_model",
                                fmt::format("its vocabulary of {} is not the target's of {}",
                                            draft_architecture->vocabulary, target.vocabulary)});
        }
        if (top_k > 1) problems.push_back({"/speculation/top_k", "a draft model drafts a chain; use 1"});
    }
    return problems;
}

std::vector<std::string> Speculation::notes() const {
    std::vector<std::string> out;
    if (method == SpeculationMethod::none) return out;
    const int verified = verify_tokens();
    if (method != SpeculationMethod::ngram && top_k <= 1 && draft_tokens > 0 && draft_tokens != verified) {
        out.push_back(fmt::format(
            "top_k 1 drafts a chain, so {} steps verify {} tokens; draft_tokens {} has no effect (as in SGLang)",
            steps, verified, draft_tokens));
    }
    if (method != SpeculationMethod::ngram && top_k > 1 && verified - 1 < steps) {
        out.push_back(fmt::format("{} draft tokens cut the tree above its depth of {}", verified, steps));
    }
    if (method == SpeculationMethod::ngram && verified - 1 < steps) {
        out.push_back(fmt::format("{} draft tokens cut the lookup's {} steps", verified, steps));
    }
    if (method == SpeculationMethod::ngram && acceptance.hit >= 1) {
        out.push_back("every n-gram lookup is taken to hit; give acceptance.hit for the share that does");
    }
    if (method != SpeculationMethod::ngram && acceptance.hit < 1) {
        out.push_back("acceptance.hit below 1 scales all acceptance, though this drafter always drafts");
    }
    if (acceptance.per_position.empty()) out.push_back("no acceptance is known; 0 is taken");
    return out;
}

}  // namespace draftboard::model
