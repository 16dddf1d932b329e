// SPDX-License-Identifier: Apache-2.0
// Real engines under the loop: the small random models of tests/fixtures/reference, put together by Inference. Random weights
// draft badly, so drafts are rejected all the time: rollback of caches and recurrent states is what this exercises.

#include "backend/inference.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "backend/decode_loop.h"
#include "model/routing.h"

namespace draftboard::backend {
namespace {

const std::string kModels = std::string(DRAFTBOARD_SOURCE_DIR) + "/tests/fixtures/reference/";

InferenceSettings settings_of(const std::string& model, DraftMethod method) {
    InferenceSettings settings;
    settings.model = kModels + model;
    settings.method = method;
    settings.text_length = 96;
    settings.batch = 2;
    settings.ngram_min = 1;
    return settings;
}

struct Outcome {
    std::vector<Result> results;
    AcceptanceCounter acceptance;
};

/// Three texts over two slots, so that one joins late; the prompts repeat themselves, so that lookups hit.
Outcome generate(const InferenceSettings& settings, const Sampling& sampling = {}) {
    Outcome out;
    auto inference = Inference::open(settings);
    EXPECT_TRUE(inference) << (inference ? "" : inference.error().to_text());
    if (!inference) return out;
    DecodeLoop loop(inference->target(), inference->drafter(), {.prefill_rows = 7});
    for (int i = 0; i < 3; ++i) {
        Request request;
        for (int t = 0; t < 9 + 4 * i; ++t) request.prompt.push_back(3 + (t % 4) + i);
        request.sampling = sampling;
        request.max_tokens = 24 + 6 * i;
        EXPECT_TRUE(loop.submit(request));
    }
    const auto done = loop.run();
    EXPECT_TRUE(done) << (done ? "" : done.error().to_text());
    for (int i = 0; i < 3; ++i) out.results.push_back(loop.result(i));
    out.acceptance = loop.acceptance();
    return out;
}

/// The same tokens up to the first choice that plain decoding made by less than the tolerance.
void expect_lossless(const Outcome& plain, const Outcome& drafted, bool exact) {
    ASSERT_EQ(plain.results.size(), drafted.results.size());
    for (std::size_t i = 0; i < plain.results.size(); ++i) {
        const Result& expected = plain.results[i];
        std::size_t sure = expected.tokens.size();
        if (!exact && !expected.near_ties.empty()) sure = static_cast<std::size_t>(expected.near_ties.front());
        ASSERT_EQ(drafted.results[i].tokens.size(), expected.tokens.size());
        for (std::size_t t = 0; t < sure; ++t)
            ASSERT_EQ(drafted.results[i].tokens[t], expected.tokens[t]) << "token " << t << " of text " << i;
    }
}

struct Case {
    std::string model;
    DraftMethod method = DraftMethod::none;
    std::string draft_model;
    int top_k = 1;
    int draft_tokens = 0;
};

TEST(Inference, Greedy_text_of_real_engines_is_that_of_plain_decoding_with_every_drafter) {
    const std::vector<Case> cases{{"deepseek_v3", DraftMethod::eagle3, kModels + "deepseek_v3/eagle3"},
                                  {"deepseek_v3", DraftMethod::eagle3, kModels + "deepseek_v3/eagle3", 3, 9},
                                  {"deepseek_v3", DraftMethod::ngram, ""},
                                  {"qwen3_5_moe", DraftMethod::mtp, ""},
                                  {"qwen3_5_moe", DraftMethod::mtp, "", 2, 6},
                                  {"qwen3_5_moe", DraftMethod::ngram, ""},
                                  {"qwen3_5_moe", DraftMethod::draft, kModels + "qwen3_5_moe"},
                                  {"qwen3_moe", DraftMethod::draft, kModels + "qwen3_moe"}};
    for (const int ranks : {1, 2}) {
        for (const Case& one : cases) {
            SCOPED_TRACE(one.model + ", " + std::string(to_name(one.method)) + ", top_k " + std::to_string(one.top_k) +
                         ", ranks " + std::to_string(ranks));
            InferenceSettings settings = settings_of(one.model, DraftMethod::none);
            settings.ranks = ranks;
            const Outcome plain = generate(settings);
            settings.method = one.method;
            settings.draft_model = one.draft_model;
            settings.top_k = one.top_k;
            settings.draft_tokens = one.draft_tokens;
            const Outcome drafted = generate(settings);
            expect_lossless(plain, drafted, one.top_k == 1);
            EXPECT_GT(drafted.acceptance.hits(), 0);
            // A target that drafts for itself is always right.
            if (one.draft_model == settings.model) {
                EXPECT_DOUBLE_EQ(drafted.acceptance.acceptance_length().value, 1.0 + settings.steps);
            }
        }
    }
}

TEST(Inference, A_target_that_drafts_for_itself_is_always_accepted_under_sampling_too) {
    // p = q: min(1, p/q) = 1. Rounding of a draft pass and a verify pass may differ in the last bits of p.
    InferenceSettings settings = settings_of("qwen3_moe", DraftMethod::draft);
    settings.draft_model = settings.model;
    const Outcome outcome = generate(settings, {.temperature = 1.0, .top_p = 0.9});
    EXPECT_GT(outcome.acceptance.acceptance_length().value, 3.9);
}

TEST(Inference, A_routing_trace_holds_the_experts_of_every_token_and_is_read_back) {
    auto inference = Inference::open(settings_of("deepseek_v3", DraftMethod::none));
    ASSERT_TRUE(inference) << inference.error().to_text();
    const std::vector<std::vector<int>> texts{{1, 2, 3, 4, 5}, {5, 4, 3}};
    const auto both = inference->routing_trace(texts);
    ASSERT_TRUE(both) << both.error().to_text();
    EXPECT_EQ(both->tokens(), 8U);
    EXPECT_TRUE(both->validate().empty());
    const auto read = model::parse_routing_trace(to_text(*both), "trace");
    ASSERT_TRUE(read) << read.error().to_text();
    EXPECT_EQ(read->choices, both->choices);
    EXPECT_EQ(read->layers, both->layers);
    // A causal model: the first three tokens of a text go to the same experts without what follows.
    const auto begin = inference->routing_trace({{1, 2, 3}});
    ASSERT_TRUE(begin);
    EXPECT_TRUE(std::equal(begin->choices.begin(), begin->choices.end(), both->choices.begin()));
}

TEST(Inference, A_profile_has_the_plans_operations_of_target_and_drafter) {
    auto inference = Inference::open(settings_of("qwen3_5_moe", DraftMethod::mtp));
    ASSERT_TRUE(inference) << inference.error().to_text();
    inference->start_profile();
    DecodeLoop loop(inference->target(), inference->drafter(), {});
    ASSERT_TRUE(loop.submit({{3, 4, 5, 3, 4}, {}, 12, {}}));
    ASSERT_TRUE(loop.run());
    const auto profile = inference->profile();
    ASSERT_TRUE(profile) << profile.error().to_text();
    std::vector<std::string> passes;
    for (const auto& pass : profile->at("passes")) {
        passes.push_back(pass.at("model").get<std::string>() + "/" + pass.at("pass").get<std::string>());
        EXPECT_FALSE(pass.at("operations").empty());
        EXPECT_GT(pass.at("total_us").get<double>(), 0);
    }
    for (const char* wanted : {"target/verify", "target/prefill", "drafter/draft_extend", "drafter/draft"}) {
        EXPECT_NE(std::find(passes.begin(), passes.end(), wanted), passes.end()) << wanted;
    }
}

TEST(Inference, Says_what_is_missing_before_it_runs_anything) {
    EXPECT_FALSE(Inference::open(settings_of("no_such_model", DraftMethod::none)));
    EXPECT_FALSE(Inference::open(settings_of("qwen3_moe", DraftMethod::mtp)));       // no module
    EXPECT_FALSE(Inference::open(settings_of("qwen3_moe", DraftMethod::draft)));     // no folder
    EXPECT_FALSE(Inference::open(settings_of("qwen3_moe", DraftMethod::eagle3)));    // no head beside it
    EXPECT_FALSE(Inference::open(settings_of("qwen3_moe", DraftMethod::scripted)));  // no rates
    InferenceSettings settings = settings_of("qwen3_moe", DraftMethod::none);
    settings.ranks = 0;
    EXPECT_FALSE(Inference::open(settings));
    settings.ranks = 1;
    settings.text_length = std::int64_t{1} << 40;
    EXPECT_FALSE(Inference::open(settings));
}

}  // namespace
}  // namespace draftboard::backend
