// SPDX-License-Identifier: Apache-2.0
#include "backend/numerics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/eagle3_config.h"
#include "model/import/hf_config.h"

namespace draftboard::backend {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using model::ErrorCode;
using model::Json;

/// A small DeepSeek-V3.
Json deepseek() {
    return Json::parse(R"({"model_type": "deepseek_v3", "dtype": "bfloat16", "hidden_size": 64, "vocab_size": 96,
        "num_hidden_layers": 6, "first_k_dense_replace": 1, "intermediate_size": 96, "num_attention_heads": 4,
        "q_lora_rank": 32, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8,
        "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_shared_experts": 1,
        "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "routed_scaling_factor": 2.5, "hidden_act": "silu",
        "eos_token_id": 7, "bos_token_id": 3})");
}

Json qwen() {
    return Json::parse(R"({"model_type": "qwen3_5_moe", "text_config": {"model_type": "qwen3_5_moe_text", "dtype": "bfloat16",
        "hidden_size": 64, "vocab_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 16, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32, "max_position_embeddings": 512, "linear_num_key_heads": 2,
        "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25,
                            "mrope_section": [1, 1, 0]}, "eos_token_id": [5, 6]}})");
}

model::Expected<Numerics> read(const Json& config) {
    const auto architecture = model::architecture_from_config(config, std::nullopt, "config.json");
    EXPECT_TRUE(architecture) << architecture.error().to_text();
    return read_numerics(config.dump(), "config.json", architecture.value_or(model::Architecture{}));
}

Numerics numerics(const Json& config) {
    const auto result = read(config);
    EXPECT_TRUE(result) << result.error().to_text();
    return result.value_or(Numerics{});
}

TEST(Numerics, DeepSeek_rotates_interleaved_pairs_and_scales_its_experts) {
    const Numerics n = numerics(deepseek());
    EXPECT_DOUBLE_EQ(n.norm_epsilon, 1e-5);
    EXPECT_DOUBLE_EQ(n.latent_norm_epsilon, 1e-6);
    EXPECT_FALSE(n.norm_plus_one);
    EXPECT_TRUE(n.rope_interleaved);
    EXPECT_DOUBLE_EQ(n.rope_theta, 10000);
    EXPECT_FALSE(n.yarn);
    EXPECT_DOUBLE_EQ(n.routed_scaling, 2.5);
    EXPECT_TRUE(n.normalise_top_k);
    EXPECT_THAT(n.end_tokens, ElementsAre(7));
    EXPECT_EQ(n.begin_token, 3);
    Json half = deepseek();
    half["rope_interleave"] = false;
    EXPECT_FALSE(numerics(half).rope_interleaved);
}

TEST(Numerics, Qwen35_stores_norms_as_their_difference_from_one_and_always_normalises) {
    Json config = qwen();
    config["text_config"]["norm_topk_prob"] = false;  // the family has no such switch
    const Numerics n = numerics(config);
    EXPECT_TRUE(n.norm_plus_one);
    EXPECT_FALSE(n.rope_interleaved);
    EXPECT_DOUBLE_EQ(n.rope_theta, 1e7);
    EXPECT_TRUE(n.normalise_top_k);
    EXPECT_THAT(n.end_tokens, ElementsAre(5, 6));
    EXPECT_EQ(n.begin_token, -1);
}

TEST(Numerics, YaRN_is_read_where_it_was_published_and_where_transformers_5_writes_it) {
    const Json yarn = Json::parse(R"({"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32,
                                      "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 0.7})");
    Json published = deepseek();
    published["rope_theta"] = 50000.0;
    published["rope_scaling"] = yarn;
    Json current = deepseek();
    current["rope_parameters"] = yarn;
    current["rope_parameters"]["rope_type"] = "yarn";
    current["rope_parameters"]["rope_theta"] = 50000.0;
    for (const Json& config : {published, current}) {
        const Numerics n = numerics(config);
        EXPECT_DOUBLE_EQ(n.rope_theta, 50000);
        ASSERT_TRUE(n.yarn);
        EXPECT_DOUBLE_EQ(n.yarn->factor, 40);
        EXPECT_DOUBLE_EQ(n.yarn->original_max_position, 4096);
        EXPECT_DOUBLE_EQ(n.yarn->mscale, 1);
        EXPECT_DOUBLE_EQ(n.yarn->mscale_all_dim, 0.7);
    }
}

TEST(Numerics, YaRN_without_mscale_scales_by_m_of_one_as_everyone_does) {
    Json config = deepseek();
    config["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4.0}};
    const Numerics n = numerics(config);
    ASSERT_TRUE(n.yarn);
    EXPECT_DOUBLE_EQ(n.yarn->mscale, 1);
    EXPECT_DOUBLE_EQ(n.yarn->mscale_all_dim, 0);
    EXPECT_DOUBLE_EQ(n.yarn->original_max_position, 512);  // max_position_embeddings where the field is absent
}

TEST(Numerics, What_the_engine_does_not_compute_is_refused_by_name) {
    struct Row {
        const char* change;
        const char* place;
    };
    for (const Row& row : {Row{R"({"hidden_act": "gelu"})", "/hidden_act"},
                           Row{R"({"rope_scaling": {"rope_type": "llama3", "factor": 8}})", "/rope_scaling/rope_type"},
                           Row{R"({"rope_scaling": {"type": "linear", "factor": 8}})", "/rope_scaling/type"},
                           Row{R"({"rope_scaling": {"type": "yarn", "factor": 8, "truncate": false}})", "/rope_scaling/truncate"},
                           Row{R"({"rope_scaling": {"type": "yarn", "factor": 8, "attention_factor": 2}})", "/rope_scaling/attention_factor"},
                           Row{R"({"rope_scaling": {"type": "yarn", "factor": 8, "mscale_all_dim": 1}})", "/rope_scaling/mscale_all_dim"},
                           Row{R"({"rope_scaling": {"type": "yarn", "factor": 8, "mscale": 2}})", "/rope_scaling/mscale"},
                           Row{R"({"attention_bias": true})", "/attention_bias"}, Row{R"({"mlp_bias": true})", "/mlp_bias"}}) {
        SCOPED_TRACE(row.change);
        Json config = deepseek();
        config.update(Json::parse(row.change));
        const auto result = read(config);
        ASSERT_FALSE(result);
        EXPECT_EQ(result.error().code, ErrorCode::unsupported);
        EXPECT_THAT(result.error().to_text(), HasSubstr(row.place));
    }
}

TEST(Numerics, Wrong_types_and_ranges_are_errors_with_their_pointer) {
    struct Row {
        const char* change;
        const char* place;
    };
    for (const Row& row : {Row{R"({"rms_norm_eps": -1})", "/rms_norm_eps"}, Row{R"({"rope_theta": 0})", "/rope_theta"},
                           Row{R"({"rope_scaling": [1]})", "/rope_scaling"},
                           Row{R"({"rope_scaling": {"type": "yarn"}})", "/rope_scaling/factor"},
                           Row{R"({"rope_parameters": "default"})", "/rope_parameters"},
                           Row{R"({"eos_token_id": "end"})", "/eos_token_id"}, Row{R"({"eos_token_id": [1, 2.5]})", "/eos_token_id"},
                           Row{R"({"norm_topk_prob": 1})", "/norm_topk_prob"}}) {
        SCOPED_TRACE(row.change);
        Json config = deepseek();
        config.update(Json::parse(row.change));
        const auto architecture = model::architecture_from_config(deepseek(), std::nullopt, "config.json");
        const auto result = read_numerics(config.dump(), "config.json", *architecture);
        ASSERT_FALSE(result);
        EXPECT_EQ(result.error().code, ErrorCode::invalid_input);
        EXPECT_THAT(result.error().to_text(), HasSubstr(row.place));
    }
}

Json eagle3_head() {
    return Json::parse(R"({"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": 64,
        "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "vocab_size": 96, "draft_vocab_size": 32, "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 5000})");
}

model::Expected<Eagle3Description> read_head(const Json& config) {
    const auto target = model::architecture_from_config(deepseek(), std::nullopt, "config.json");
    return read_eagle3_config(config.dump(), "/models/head/config.json", *target);
}

TEST(Eagle3Config, Ids_in_eagle_config_name_outputs_and_become_the_inputs_of_the_next_layers) {
    Json config = eagle3_head();
    config["eagle_config"] = {{"eagle_aux_hidden_state_layer_ids", {3, 0, 1}}};
    const auto head = read_head(config);
    ASSERT_TRUE(head) << head.error().to_text();
    EXPECT_THAT(head->aux_layers, ElementsAre(1, 2, 4));
    EXPECT_EQ(head->head.aux_layers, 3);
    EXPECT_EQ(head->head.draft_vocabulary, 32);
    EXPECT_EQ(head->head.name, "head");
    EXPECT_EQ(std::get<model::GqaShape>(head->head.mixer).kv_heads, 2);
    EXPECT_DOUBLE_EQ(head->numerics.rope_theta, 5000);
    EXPECT_FALSE(head->numerics.rope_interleaved);
    config.erase("eagle_config");
    config["eagle_aux_hidden_state_layer_ids"] = {1, 2, 5};
    EXPECT_THAT(read_head(config)->aux_layers, ElementsAre(1, 2, 5));
}

TEST(Eagle3Config, Without_ids_the_usual_layers_are_taken_where_they_differ) {
    // L = 6: 2, L/2 = 3, L - 3 = 3: not different, so the head has to say.
    EXPECT_FALSE(read_head(eagle3_head()));
    Json deeper = deepseek();
    deeper["num_hidden_layers"] = 10;
    const auto target = model::architecture_from_config(deeper, std::nullopt, "config.json");
    const auto head = read_eagle3_config(eagle3_head().dump(), "config.json", *target);
    ASSERT_TRUE(head) << head.error().to_text();
    EXPECT_THAT(head->aux_layers, ElementsAre(2, 5, 7));
}

TEST(Eagle3Config, A_head_of_another_target_or_another_kind_is_refused) {
    struct Row {
        const char* change;
        const char* place;
    };
    Json good = eagle3_head();
    good["eagle_config"] = {{"eagle_aux_hidden_state_layer_ids", {0, 1, 2}}};
    ASSERT_TRUE(read_head(good));
    for (const Row& row : {Row{R"({"vocab_size": 97})", "/vocab_size"}, Row{R"({"draft_vocab_size": 97})", "/draft_vocab_size"},
                           Row{R"({"target_hidden_size": 65})", "/target_hidden_size"},
                           Row{R"({"num_hidden_layers": 2})", "/num_hidden_layers"},
                           Row{R"({"norm_before_residual": true})", "/norm_before_residual"},
                           Row{R"({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 5]}})", "/eagle_config"},
                           Row{R"({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 0, 1]}})", "/eagle_config"},
                           Row{R"({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 2], "use_aux_hidden_state": false}})", "use_aux_hidden_state"},
                           Row{R"({"architectures": ["LlamaForCausalLM"]})", "/architectures"},
                           Row{R"({"hidden_act": "gelu"})", "/hidden_act"}}) {
        SCOPED_TRACE(row.change);
        Json config = good;
        config.update(Json::parse(row.change));
        const auto head = read_head(config);
        ASSERT_FALSE(head);
        EXPECT_THAT(head.error().to_text(), HasSubstr(row.place));
    }
}

}  // namespace
}  // namespace draftboard::backend
