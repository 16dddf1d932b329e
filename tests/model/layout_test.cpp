// SPDX-License-Identifier: Apache-2.0
#include "model/layout.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "model/layout_json.h"
#include "model/sharding.h"
#include "tests/model/sample_architectures.h"

namespace draftboard::model {
namespace {

using samples::tensor_parallel;

bool names(const std::vector<Problem>& problems, std::string_view place, std::string_view words) {
    for (const Problem& problem : problems) {
        if (problem.place == place && problem.message.find(words) != std::string::npos) return true;
    }
    return false;
}

TEST(Layout, The_usual_layouts_of_the_sample_models_are_sound) {
    for (const int ranks : {1, 2, 4, 8}) {
        EXPECT_TRUE(tensor_parallel(ranks).validate(samples::kimi_k25()).empty()) << ranks;
        EXPECT_TRUE(tensor_parallel(ranks).validate(samples::deepseek_v3()).empty()) << ranks;
        EXPECT_TRUE(tensor_parallel(ranks).validate(samples::qwen35_397b()).empty()) << ranks;
        EXPECT_TRUE(tensor_parallel(ranks).validate(samples::gpt_oss_120b()).empty()) << ranks;
    }
}

TEST(Layout, Heads_that_do_not_divide_are_refused_once_and_not_once_a_layer) {
    const auto problems = tensor_parallel(3).validate(samples::kimi_k25());
    EXPECT_TRUE(names(problems, "/layout/tensor", "64 attention heads of layer 0 do not divide by 3"));
    EXPECT_LT(problems.size(), 8u);
}

TEST(Layout, Few_kv_heads_are_replicated_if_the_ranks_divide_by_them) {
    EXPECT_TRUE(tensor_parallel(8).validate(samples::qwen3_30b()).empty());  // 4 KV heads on 8 ranks
    Architecture odd = samples::qwen3_30b();
    for (Layer& layer : odd.layers) std::get<GqaShape>(layer.mixer).kv_heads = 3;
    EXPECT_TRUE(names(tensor_parallel(8).validate(odd), "/layout/tensor", "replicated"));
}

TEST(Layout, A_shard_that_cuts_a_quantization_block_is_refused) {
    // fp8 b128: 1536 / 8 = 192 features of an expert cut a 128-wide block (vLLM refuses this too).
    Architecture qwen = samples::qwen3_235b();
    for (Layer& layer : qwen.layers) layer.formats.routed_experts = {NumberFormat::fp8_e4m3, 128, 128, 32, 0};
    EXPECT_TRUE(names(tensor_parallel(8).validate(qwen), "/layout/tensor", "192 expert features"));
    EXPECT_TRUE(tensor_parallel(4).validate(qwen).empty());  // 384 = 3 blocks
    Layout expert = tensor_parallel(8);
    expert.expert = 8;  // whole experts are not cut
    EXPECT_TRUE(expert.validate(qwen).empty());
    // int4 g32 with 2048 / 128 = 16 features
    EXPECT_FALSE(tensor_parallel(128).validate(samples::kimi_k25()).empty());
}

TEST(Layout, Contradictory_degrees_are_refused) {
    const auto kimi = samples::kimi_k25();
    Layout layout = tensor_parallel(8);
    layout.expert = 4;
    EXPECT_TRUE(names(layout.validate(kimi), "/layout/expert", "neither 1 nor"));
    layout = tensor_parallel(8);
    layout.all_to_all = true;
    EXPECT_TRUE(names(layout.validate(kimi), "/layout/all_to_all", "expert parallelism"));
    layout = tensor_parallel(8);
    layout.attention_data = 3;
    EXPECT_TRUE(names(layout.validate(kimi), "/layout/attention_data", "does not divide"));
    layout = tensor_parallel(8);
    layout.decode_context = 16;
    EXPECT_TRUE(names(layout.validate(kimi), "/layout/decode_context", "does not divide"));
    layout = tensor_parallel(8);
    layout.pipeline = 62;
    EXPECT_TRUE(names(layout.validate(kimi), "/layout/pipeline", "62 stages for 61 layers"));
    for (const int bad : {0, -1, 5000}) EXPECT_FALSE(tensor_parallel(bad).validate(kimi).empty());
}

TEST(Layout, Decode_context_needs_ranks_with_the_same_kv_head) {
    // 4 KV heads on 8 ranks: pairs share a head, so a context splits in 2 and not in 4.
    Layout layout = tensor_parallel(8);
    layout.decode_context = 2;
    EXPECT_TRUE(layout.validate(samples::qwen3_30b()).empty());
    layout.decode_context = 4;
    EXPECT_FALSE(layout.validate(samples::qwen3_30b()).empty());
    EXPECT_TRUE(layout.validate(samples::kimi_k25()).empty());
}

TEST(Layout, Attention_data_parallelism_shards_heads_over_fewer_ranks) {
    Layout layout = tensor_parallel(16);
    layout.attention_data = 2;  // 32 heads over 8 ranks; 4 KV heads replicated twice
    EXPECT_TRUE(layout.validate(samples::qwen3_30b()).empty());
}

TEST(Layout, Pipeline_stages_are_even_and_in_order) {
    // 61 layers in 4 stages: 16 15 15 15
    std::vector<int> sizes(4, 0);
    int before = 0;
    for (int layer = 0; layer < 61; ++layer) {
        const int stage = pipeline_stage(layer, 61, 4);
        EXPECT_GE(stage, before);
        before = stage;
        ++sizes[static_cast<std::size_t>(stage)];
    }
    EXPECT_EQ(sizes, (std::vector<int>{16, 15, 15, 15}));
}

TEST(Layout, Json_names_the_place_of_a_wrong_degree) {
    const Json json = Json::parse(R"({"tensor": 0, "all_to_all": 1})");
    std::vector<Problem> problems;
    static_cast<void>(layout_from_json(JsonReader(json, problems, "/layout")));
    ASSERT_EQ(problems.size(), 2u);
    EXPECT_EQ(problems[0].place, "/layout/tensor");
    EXPECT_EQ(problems[1].place, "/layout/all_to_all");
}

RC_GTEST_PROP(Layout, Json_gives_back_what_was_written, (void)) {
    Layout layout;
    const auto degree = [] { return *rc::gen::inRange(1, kMaxParallelDegree + 1); };
    layout.tensor = degree();
    layout.expert = degree();
    layout.all_to_all = *rc::gen::arbitrary<bool>();
    layout.pipeline = degree();
    layout.attention_data = degree();
    layout.decode_context = degree();
    layout.replicas = degree();
    std::vector<Problem> problems;
    const Json json = layout_to_json(layout);
    RC_ASSERT(layout_from_json(JsonReader(json, problems)) == layout);
    RC_ASSERT(problems.empty());
}

}  // namespace
}  // namespace draftboard::model
