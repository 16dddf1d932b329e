// SPDX-License-Identifier: Apache-2.0
#include "model/speculation.h"

#include <gtest/gtest.h>

#include "model/acceptance_json.h"
#include "model/eagle3_head.h"
#include "model/speculation_json.h"
#include "tests/model/sample_architectures.h"

namespace draftboard::model {
namespace {

Speculation read(const char* text, std::vector<Problem>& problems, const Architecture& target = samples::kimi_k25()) {
    const Json json = Json::parse(text);
    return speculation_from_json(JsonReader(json, problems, "/speculation"), target);
}

bool names(const std::vector<Problem>& problems, std::string_view place) {
    for (const Problem& problem : problems) {
        if (problem.place == place) return true;
    }
    return false;
}

TEST(Speculation, A_chain_verifies_steps_plus_one_tokens_whatever_draft_tokens_says) {
    std::vector<Problem> problems;
    const auto out = read(R"({"method":"eagle3","steps":4,"draft_tokens":6,"acceptance":{"per_position":[0.6]}})", problems);
    ASSERT_TRUE(problems.empty());
    EXPECT_EQ(out.verify_tokens(), 5);
    EXPECT_EQ(out.depth(), 4);
    ASSERT_EQ(out.notes().size(), 1u);
    EXPECT_NE(out.notes()[0].find("draft_tokens 6 has no effect"), std::string::npos);
    EXPECT_TRUE(out.validate(samples::kimi_k25()).empty());
}

TEST(Speculation, Without_speculation_a_cycle_is_one_token) {
    const Speculation none;
    EXPECT_EQ(none.verify_tokens(), 1);
    EXPECT_EQ(none.acceptance_length(), 1.0);
    EXPECT_TRUE(none.validate(samples::kimi_k25()).empty());
}

TEST(Speculation, A_tree_verifies_draft_tokens_and_is_worth_its_paths) {
    std::vector<Problem> problems;
    const auto tree = read(R"({"method":"eagle3","steps":5,"top_k":4,"draft_tokens":8,"acceptance":{"per_position":[0.6]}})",
                           problems);
    ASSERT_TRUE(problems.empty());
    EXPECT_EQ(tree.verify_tokens(), 8);
    EXPECT_DOUBLE_EQ(tree.acceptance_length(), build_draft_tree(tree.acceptance, 5, 4, 8).acceptance_length());
}

TEST(Speculation, A_trees_length_that_was_measured_goes_before_the_one_that_rates_give) {
    std::vector<Problem> problems;
    const auto tree = read(R"({"method":"eagle3","steps":5,"top_k":4,"draft_tokens":8,
        "acceptance":{"per_position":[0.6],"tree_length":3.25}})",
                           problems);
    ASSERT_TRUE(problems.empty());
    EXPECT_DOUBLE_EQ(tree.acceptance_length(), 3.25);
    EXPECT_DOUBLE_EQ(acceptance_to_json(tree.acceptance)["tree_length"].get<double>(), 3.25);
    // a chain takes no notice of it
    auto chain = tree;
    chain.top_k = 1;
    EXPECT_DOUBLE_EQ(chain.acceptance_length(), chain_acceptance_length(chain.acceptance, 5));
    // no more can come of a cycle than its depth and the bonus token
    auto shallow = tree;
    shallow.steps = 1;
    EXPECT_DOUBLE_EQ(shallow.acceptance_length(), 2);
}

TEST(Speculation, An_ngram_lookup_verifies_what_the_engine_pads_to) {
    std::vector<Problem> problems;
    const auto out = read(
        R"({"method":"ngram","steps":5,"draft_tokens":12,"acceptance":{"per_position":[0.8,0.7],"hit":0.3}})", problems);
    ASSERT_TRUE(problems.empty());
    EXPECT_EQ(out.verify_tokens(), 12);
    EXPECT_EQ(out.depth(), 5);
    // 1 + 0.3 x (0.8 + 0.7 + 0.7 x 7/8 + ...)
    double sum = 0.8;
    double m = 0.7;
    for (int i = 0; i < 4; ++i, m *= 0.875) sum += m;
    EXPECT_NEAR(out.acceptance_length(), 1 + 0.3 * sum, 1e-12);
}

TEST(Speculation, Each_method_names_what_it_lacks) {
    const auto kimi = samples::kimi_k25();
    Speculation out;
    out.steps = 3;
    out.method = SpeculationMethod::eagle3;
    EXPECT_TRUE(names(out.validate(kimi), "/speculation/head"));
    out.method = SpeculationMethod::mtp;
    EXPECT_TRUE(names(out.validate(kimi), "/speculation/method"));
    EXPECT_TRUE(out.validate(samples::deepseek_v3()).empty());
    out.method = SpeculationMethod::draft_model;
    EXPECT_TRUE(names(out.validate(kimi), "/speculation/draft_model"));
    out.draft_architecture = std::make_shared<const Architecture>(samples::qwen3_30b());
    EXPECT_TRUE(names(out.validate(kimi), "/speculation/draft_model"));  // another vocabulary
    EXPECT_TRUE(out.validate(samples::qwen3_235b()).empty());
    out.method = SpeculationMethod::ngram;
    out.steps = 0;
    EXPECT_TRUE(names(out.validate(kimi), "/speculation/steps"));
    out.steps = 2000000000;
    EXPECT_TRUE(names(out.validate(kimi), "/speculation/steps"));
    EXPECT_LE(out.verify_tokens(), kMaxDraftTokens);
}

TEST(Eagle3Head, The_llama_style_head_of_DeepSeek_V3_has_the_published_shapes) {
    const Eagle3Head head = llama_style_eagle3_head(samples::deepseek_v3());
    const auto& gqa = std::get<GqaShape>(head.mixer);
    EXPECT_EQ(head.hidden, 7168);
    EXPECT_EQ(head.layers, 1);
    EXPECT_EQ(head.intermediate, 40960);
    EXPECT_EQ(gqa.heads, 56);
    EXPECT_EQ(gqa.kv_heads, 8);
    EXPECT_EQ(head.draft_vocabulary, 32000);
    EXPECT_EQ(head.aux_layers, 3);
    EXPECT_EQ(head.source.find("assumed"), std::string::npos);
    EXPECT_NE(llama_style_eagle3_head(samples::qwen3_30b()).source.find("assumed"), std::string::npos);
}

TEST(Eagle3Head, The_mla_style_head_of_Kimi_takes_its_shapes_and_says_so) {
    const Eagle3Head head = mla_style_eagle3_head(samples::kimi_k25());
    EXPECT_EQ(std::get<MlaShape>(head.mixer).kv_lora_rank, 512);
    EXPECT_EQ(head.intermediate, 18432);
    EXPECT_NE(head.source.find("assumed"), std::string::npos);
    EXPECT_FALSE(std::get<MlaShape>(mla_style_eagle3_head(samples::glm_5()).mixer).indexer);
    EXPECT_TRUE(std::holds_alternative<GqaShape>(mla_style_eagle3_head(samples::qwen3_30b()).mixer));
}

TEST(SpeculationJson, What_is_written_is_read_back) {
    std::vector<Problem> problems;
    const auto kimi = samples::kimi_k25();
    const auto first = read(
        R"({"method":"eagle3","steps":3,"top_k":2,"draft_tokens":6,"sibling_decay":0.8,"draft_tensor":8,
            "head":{"style":"llama_style","intermediate":16384,"draft_vocabulary":64000},
            "acceptance":{"per_position":[0.645,0.393,0.24],"observed_cycles":5000,"source":"log"}})",
        problems);
    ASSERT_TRUE(problems.empty());
    const Json json = speculation_to_json(first);
    const auto second = speculation_from_json(JsonReader(json, problems), kimi);
    ASSERT_TRUE(problems.empty()) << problems.front().place << problems.front().message;
    EXPECT_EQ(speculation_to_json(second).dump(), json.dump());
    EXPECT_EQ(second.head->intermediate, 16384);
    EXPECT_EQ(second.head->draft_vocabulary, 64000);
    EXPECT_EQ(second.top_k, 2);
}

TEST(SpeculationJson, Defaults_are_those_of_the_engines) {
    std::vector<Problem> problems;
    const auto out = read(R"({"method":"eagle3","acceptance":{"acceptance_length":2.28}})", problems);
    EXPECT_TRUE(problems.empty());
    EXPECT_EQ(out.steps, 3);
    EXPECT_EQ(out.verify_tokens(), 4);
    EXPECT_EQ(out.head->name, "mla_style");
    EXPECT_NEAR(out.acceptance_length(), 2.28, 1e-9);
    EXPECT_EQ(read(R"("none")", problems).method, SpeculationMethod::none);
    EXPECT_TRUE(problems.empty());
}

TEST(SpeculationJson, Wrong_values_name_their_place) {
    const std::vector<std::pair<const char*, const char*>> cases{
        {R"({"method":"medusa"})", "/speculation/method"},
        {R"({"method":"mtp"})", "/speculation/acceptance"},
        {R"({"method":"mtp","steps":0,"acceptance":{"per_position":[1]}})", "/speculation/steps"},
        {R"({"method":"draft_model","acceptance":{"per_position":[1]}})", "/speculation/draft_model"},
        {R"({"method":"eagle3","head":"big","acceptance":{"per_position":[1]}})", "/speculation/head"},
        {R"({"method":"eagle3","head":{"format":"int4"},"acceptance":{"per_position":[1]}})", "/speculation/head/format"},
        {R"("eagle3")", "/speculation"},
        {R"(7)", "/speculation"},
    };
    for (const auto& [text, place] : cases) {
        std::vector<Problem> problems;
        static_cast<void>(read(text, problems));
        ASSERT_FALSE(problems.empty()) << text;
        EXPECT_EQ(problems.front().place, place) << text;
    }
}

}  // namespace
}  // namespace draftboard::model
