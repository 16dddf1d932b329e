// SPDX-License-Identifier: Apache-2.0
// The shipped models (data/models) through the whole loop: greedy text as transformers continues it, with and without
// drafters; the first draft chain; and acceptance as it was measured when they were trained.
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/backend/trained_models.h"

namespace draftboard::backend {
namespace {

struct Case {
    std::string model;
    DraftMethod method;
    int steps;
    int ranks;
    int top_k = 1;
};

class TrainedModel : public testing::TestWithParam<Case> {};

TEST_P(TrainedModel, Continues_greedily_as_transformers_does) {
    const Case& tried = GetParam();
    InferenceSettings settings = settings_of(tried.model, tried.method, tried.steps, tried.ranks);
    settings.top_k = tried.top_k;
    auto inference = Inference::open(settings);
    ASSERT_TRUE(inference.has_value()) << inference.error().to_text();
    expect_reference_continuations(*inference, tried.model);
}

std::string name_of(const testing::TestParamInfo<Case>& instance) {
    std::string name = instance.param.model + "_" + std::string(to_name(instance.param.method)) + "_steps_" +
                       std::to_string(instance.param.steps) + "_top_" + std::to_string(instance.param.top_k) + "_ranks_" +
                       std::to_string(instance.param.ranks);
    for (char& letter : name) letter = letter == '-' ? '_' : letter;
    return name;
}

INSTANTIATE_TEST_SUITE_P(Loop, TrainedModel,
                         testing::Values(Case{"tiny-kimi", DraftMethod::none, 1, 1}, Case{"tiny-kimi", DraftMethod::none, 1, 2},
                                         Case{"tiny-kimi", DraftMethod::eagle3, 4, 1}, Case{"tiny-kimi", DraftMethod::eagle3, 2, 2},
                                         Case{"tiny-kimi", DraftMethod::eagle3, 3, 1, 3}, Case{"tiny-kimi", DraftMethod::ngram, 4, 1},
                                         Case{"tiny-qwen", DraftMethod::none, 1, 1}, Case{"tiny-qwen", DraftMethod::mtp, 4, 1},
                                         Case{"tiny-qwen", DraftMethod::mtp, 2, 2}, Case{"tiny-qwen", DraftMethod::mtp, 2, 1, 2},
                                         Case{"tiny-qwen", DraftMethod::ngram, 3, 2}),
                         name_of);

/// Proposals of one request after its prompt, as the loop asks for them.
TEST(TrainedDrafter, Drafts_the_chains_of_the_reference) {
    for (const auto& [name, method] : {std::pair{"tiny-kimi", DraftMethod::eagle3}, std::pair{"tiny-qwen", DraftMethod::mtp}}) {
        const model::Json reference = read_json(kSource + "/tests/fixtures/trained/" + name + ".json");
        auto inference = Inference::open(settings_of(name, method, 4, 1));
        ASSERT_TRUE(inference.has_value()) << inference.error().to_text();
        for (const auto& entry : reference.at("cases")) {
            std::vector<int> text = inference->tokenizer()->encode(entry.at("prompt").get<std::string>());
            inference->target().clear(0);
            Batch batch;
            batch.pass = model::Pass::prefill;
            batch.sequences = {0};
            batch.tokens = static_cast<int>(text.size());
            batch.token_ids = text;
            ForwardOutput output;
            ASSERT_TRUE(inference->target().forward(batch, {}, output).has_value());
            text.push_back(entry.at("continuation")[0].get<int>());
            std::vector<int> rows(text.size() - 1);
            for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int>(i);
            Drafter& drafter = *inference->drafter();
            ASSERT_TRUE(drafter.observe({0, true, text, rows, &output}).has_value());
            const Sampling greedy;
            model::Random random(1);
            const DraftSequence sequence{0, text, &greedy, &random};
            Proposal proposal;
            ASSERT_TRUE(drafter.propose({&sequence, 1}, inference->target().vocabulary(), proposal).has_value());
            const std::vector<int> chain(proposal.token_ids.begin() + 1, proposal.token_ids.begin() + 5);
            EXPECT_EQ(chain, entry.at("draft_chain").get<std::vector<int>>()) << name;
            drafter.release(0);
        }
    }
}

TEST(TrainedDrafter, Is_accepted_as_often_as_measured_in_training) {
    // 6 prompts of code, 64 tokens each; the reference has 24 prompts of 128. Its rate lies in our 90 % interval widened by as much
    // again: prompts differ more than cycles.
    struct Reference {
        const char* model;
        DraftMethod method;
        const char* file;
    };
    for (const Reference& tried : {Reference{"tiny-kimi", DraftMethod::eagle3, "tiny-kimi-eagle3"},
                                   Reference{"tiny-qwen", DraftMethod::mtp, "tiny-qwen"}}) {
        const model::Json reference = read_json(kSource + "/data/models/" + tried.file + "/reference_acceptance.json");
        std::vector<std::string> prompts;
        std::ifstream lines(kSource + "/data/models/prompts/code.jsonl");
        for (std::string line; prompts.size() < 6 && std::getline(lines, line);) {
            prompts.push_back(model::parse_json(line, "code.jsonl")->at("prompt").get<std::string>());
        }
        ASSERT_EQ(prompts.size(), 6U);
        auto inference = Inference::open(settings_of(tried.model, tried.method, 4, 1));
        ASSERT_TRUE(inference.has_value()) << inference.error().to_text();
        AcceptanceCounter counter;
        (void)continuations(*inference, prompts, 64, &counter);
        const double expected = reference.at("domains").at("code").at("conditional")[0].get<double>();
        const model::Interval rate = counter.conditional(1);
        EXPECT_GT(expected, rate.low - (rate.high - rate.low)) << tried.model;
        EXPECT_LT(expected, rate.high + (rate.high - rate.low)) << tried.model;
    }
}

}  // namespace
}  // namespace draftboard::backend
