// SPDX-License-Identifier: Apache-2.0
#include "model/import/quantization_config.h"

#include <chrono>

#include <gtest/gtest.h>

namespace draftboard::model {
namespace {

Expected<QuantizationScheme> read(const char* text) {
    const Json config = Json::parse(text);
    return read_quantization(&config, "/quantization_config", nullptr, NumberFormat::bf16,
                             "config.json");
}

/// Short name of the format of a module, or the error's text.
std::string format_of(const char* config, const std::string& module,
                      ModuleClass kind = ModuleClass::linear) {
    const auto scheme = read(config);
    return scheme ? scheme->format_of(module, kind).name() : scheme.error().to_text();
}

TEST(WildcardMatch, Follows_fnmatch) {
    EXPECT_TRUE(wildcard_match("model.layers.*.self_attn*", "model.layers.12.self_attn.q_proj"));
    EXPECT_FALSE(wildcard_match("model.layers.*.self_attn", "model.layers.12.self_attn.q_proj"));
    EXPECT_TRUE(wildcard_match("layers.[0-2].x", "layers.1.x"));
    EXPECT_FALSE(wildcard_match("layers.[!0-2].x", "layers.1.x"));
    EXPECT_TRUE(wildcard_match("a?c", "abc"));
    EXPECT_TRUE(wildcard_match("a[", "a["));  // an unclosed set stands for itself
    EXPECT_TRUE(wildcard_match("", ""));
    EXPECT_TRUE(wildcard_match("***", ""));
    EXPECT_FALSE(wildcard_match("?", ""));
}

TEST(WildcardMatch, Many_stars_end_in_polynomial_time) {
    std::string pattern;
    for (int i = 0; i < 100; ++i) pattern += "*a";
    pattern += "b";
    const auto start = std::chrono::steady_clock::now();
    EXPECT_FALSE(wildcard_match(pattern, std::string(500, 'a')));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
}

TEST(ModulePatterns, A_component_name_is_no_prefix) {
    ModulePatterns patterns(NameRule::component);
    EXPECT_EQ(patterns.add("gate"), "");
    EXPECT_TRUE(patterns.matches("model.layers.3.mlp.gate"));
    EXPECT_FALSE(patterns.matches("model.layers.3.mlp.gate_proj"));
    EXPECT_EQ(patterns.add("model.layers.1."), "");
    EXPECT_TRUE(patterns.matches("model.layers.1.self_attn.q_proj"));
    EXPECT_FALSE(patterns.matches("model.layers.11.self_attn.q_proj"));
}

TEST(ModulePatterns, The_prefixes_of_multimodal_checkpoints_are_tried) {
    for (const char* entry : {"model.layers.3.mlp.gate", "model.language_model.layers.3.mlp.gate",
                              "language_model.model.layers.3.mlp.gate"}) {
        ModulePatterns patterns;
        EXPECT_EQ(patterns.add(entry), "");
        EXPECT_TRUE(patterns.matches("model.layers.3.mlp.gate")) << entry;
        EXPECT_FALSE(patterns.matches("model.layers.4.mlp.gate")) << entry;
    }
}

TEST(ModulePatterns, Regexes_match_at_the_start_and_not_to_the_end_like_Pythons) {
    ModulePatterns patterns;
    EXPECT_EQ(patterns.add("re:layers"), "");
    EXPECT_FALSE(patterns.matches("model.layers.3"));
    EXPECT_TRUE(patterns.matches("layers.3.mlp"));
    EXPECT_NE(patterns.add("re:(unclosed"), "");
    EXPECT_NE(patterns.add("re:(?!ahead)x"), "");
}

constexpr const char* kKimiInt4 =
    R"({"quant_method": "compressed-tensors", "format": "pack-quantized",
  "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": true}}},
  "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"]})";

TEST(CompressedTensors, Kimis_patterns_leave_only_routed_experts_in_int4) {
    EXPECT_EQ(format_of(kKimiInt4, "model.layers.5.mlp.experts.0.gate_proj", ModuleClass::expert),
              "int4_g32");
    EXPECT_EQ(format_of(kKimiInt4, "model.layers.5.self_attn.q_a_proj"), "bf16");
    EXPECT_EQ(format_of(kKimiInt4, "model.layers.5.mlp.shared_experts.up_proj"), "bf16");
    EXPECT_EQ(format_of(kKimiInt4, "model.layers.0.mlp.down_proj"),
              "bf16");  // the dense first layer
    EXPECT_EQ(format_of(kKimiInt4, "model.layers.5.mlp.gate", ModuleClass::router_parameter),
              "bf16");
    EXPECT_EQ(format_of(kKimiInt4, "lm_head", ModuleClass::lm_head), "bf16");
    // 4 + 16/32 bits a weight
    EXPECT_DOUBLE_EQ(read(kKimiInt4)->format_of("x", ModuleClass::expert).bytes(2048, 7168),
                     2048.0 * 7168 * 4.5 / 8);
}

TEST(CompressedTensors, Groups_by_name_go_before_groups_by_class) {
    constexpr const char* kConfig = R"({"quant_method": "compressed-tensors", "config_groups": {
      "group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "float", "group_size": 16}},
      "group_1": {"targets": ["re:.*self_attn.*"], "weights": {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]}},
      "group_2": {"targets": ["re:.*down_proj"], "weights": {"num_bits": 4, "type": "int", "group_size": 128, "symmetric": false}}}})";
    EXPECT_EQ(format_of(kConfig, "model.layers.0.self_attn.o_proj"), "fp8_b128");
    EXPECT_EQ(format_of(kConfig, "model.layers.0.mlp.up_proj"), "nvfp4_g16");
    EXPECT_EQ(format_of(kConfig, "model.layers.0.mlp.down_proj"), "int4_g128");
    EXPECT_EQ(
        read(kConfig)->format_of("model.layers.0.mlp.down_proj", ModuleClass::linear).zero_bits, 4);
    EXPECT_EQ(format_of(kConfig, "lm_head", ModuleClass::lm_head),
              "nvfp4_g16");  // nothing excludes it here
}

TEST(CompressedTensors, An_ignored_class_name_ignores_everything) {
    EXPECT_EQ(
        format_of(R"({"quant_method": "compressed-tensors", "ignore": ["Linear"], "config_groups":
      {"g": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "int"}}}})",
                  "model.layers.0.mlp.up_proj"),
        "bf16");
}

TEST(CompressedTensors, Unsupported_widths_and_missing_parts_name_their_pointer) {
    EXPECT_NE(
        format_of(
            R"({"quant_method": "compressed-tensors", "config_groups": {"g": {"targets": ["Linear"], "weights": {"num_bits": 3}}}})",
            "x")
            .find("config.json: /quantization_config/config_groups/g/weights/num_bits"),
        std::string::npos);
    EXPECT_NE(format_of(R"({"quant_method": "compressed-tensors"})", "x")
                  .find("/quantization_config/config_groups"),
              std::string::npos);
    EXPECT_NE(
        format_of(R"({"quant_method": "compressed-tensors", "config_groups": {"g": null}})", "x")
            .find("/config_groups/g"),
        std::string::npos);
}

TEST(Fp8, Blocks_carry_a_32_bit_scale_and_per_tensor_scales_are_not_counted) {
    const auto block =
        read(R"({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]})");
    ASSERT_TRUE(block);
    // 256 x 256 bytes and 2 x 2 scales of 4 bytes
    EXPECT_DOUBLE_EQ(
        block->format_of("model.layers.0.mlp.up_proj", ModuleClass::linear).bytes(256, 256),
        65536 + 16);
    EXPECT_EQ(block->format_of("lm_head", ModuleClass::lm_head).name(), "bf16");
    EXPECT_EQ(format_of(R"({"quant_method": "fp8"})", "model.layers.0.mlp.up_proj"), "fp8");
}

TEST(Fp8, MiniMaxs_gate_is_left_out_and_its_experts_are_not) {
    constexpr const char* kConfig =
        R"({"quant_method": "fp8", "fmt": "float8_e4m3fn", "weight_block_size": [128, 128],
      "modules_to_not_convert": ["gate", "e_score_correction_bias", "lm_head"]})";
    EXPECT_EQ(
        format_of(kConfig, "model.layers.0.block_sparse_moe.gate", ModuleClass::router_linear),
        "bf16");
    EXPECT_EQ(
        format_of(kConfig, "model.layers.0.block_sparse_moe.experts.0.w1", ModuleClass::expert),
        "fp8_b128");
}

TEST(Modelopt, Wildcards_and_the_cache_format_are_read) {
    constexpr const char* kConfig = R"({"quant_method": "modelopt", "quant_algo": "NVFP4",
      "ignore": ["language_model.lm_head", "language_model.model.layers.0.self_attn*"],
      "kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": false}})";
    EXPECT_EQ(format_of(kConfig, "model.layers.0.self_attn.o_proj"), "bf16");
    EXPECT_EQ(format_of(kConfig, "model.layers.1.self_attn.o_proj"), "nvfp4_g16");
    EXPECT_EQ(format_of(kConfig, "lm_head", ModuleClass::lm_head), "bf16");
    EXPECT_EQ(read(kConfig)->kv_format(), NumberFormat::fp8_e4m3);
}

TEST(Modelopt, The_separate_file_serves_alone_and_completes_the_config) {
    const Json separate = Json::parse(
        R"({"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}})");
    const auto alone = read_quantization(nullptr, "", &separate, NumberFormat::bf16, "config.json");
    ASSERT_TRUE(alone);
    EXPECT_EQ(alone->format_of("model.layers.0.mlp.up_proj", ModuleClass::linear).name(), "fp8");
    const Json config =
        Json::parse(R"({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": []})");
    const auto both = read_quantization(&config, "/quantization_config", &separate,
                                        NumberFormat::bf16, "config.json");
    ASSERT_TRUE(both);
    EXPECT_EQ(both->format_of("model.layers.0.mlp.up_proj", ModuleClass::linear).name(),
              "nvfp4_g16");
    EXPECT_EQ(both->kv_format(), NumberFormat::fp8_e4m3);
}

TEST(Modelopt, An_unknown_algorithm_names_the_supported_ones) {
    const std::string text =
        format_of(R"({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"})", "x");
    EXPECT_NE(text.find("/quantization_config/quant_algo"), std::string::npos) << text;
    EXPECT_NE(text.find("NVFP4, FP8"), std::string::npos) << text;
}

TEST(Awq, Zero_points_cost_four_bits_a_group_and_listed_modules_stay) {
    constexpr const char* kConfig =
        R"({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": true,
      "modules_to_not_convert": ["self_attn", "model.layers.0."]})";
    const auto scheme = read(kConfig);
    ASSERT_TRUE(scheme);
    // 4 + 20/128 bits a weight
    EXPECT_DOUBLE_EQ(scheme->format_of("model.layers.1.mlp.experts.0.up_proj", ModuleClass::expert)
                         .bytes(128, 128),
                     128.0 * 128 * (4 + 20.0 / 128) / 8);
    EXPECT_EQ(format_of(kConfig, "model.layers.1.self_attn.q_proj"), "bf16");
    EXPECT_EQ(format_of(kConfig, "model.layers.0.mlp.up_proj"), "bf16");
    EXPECT_EQ(format_of(kConfig, "model.layers.1.mlp.gate", ModuleClass::router_linear), "bf16");
    EXPECT_NE(format_of(R"({"quant_method": "awq", "bits": 3})", "x").find("/bits"),
              std::string::npos);
}

TEST(Gptq, Dynamic_patterns_leave_out_and_override) {
    constexpr const char* kConfig =
        R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": true,
      "dynamic": {"-:.*shared_expert.*": {}, "+:.*down_proj": {"bits": 8, "group_size": 64}, "lm_head": {}}})";
    EXPECT_EQ(format_of(kConfig, "model.layers.0.mlp.experts.0.up_proj", ModuleClass::expert),
              "int4_g128");
    EXPECT_EQ(format_of(kConfig, "model.layers.0.mlp.experts.0.down_proj", ModuleClass::expert),
              "int8_g64");
    EXPECT_EQ(format_of(kConfig, "model.layers.0.mlp.shared_expert.down_proj"), "bf16");
}

TEST(Mxfp4, Only_experts_are_converted) {
    constexpr const char* kConfig =
        R"({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]})";
    EXPECT_EQ(format_of(kConfig, "model.layers.0.mlp.experts.gate_up_proj", ModuleClass::expert),
              "mxfp4_g32");
    EXPECT_EQ(format_of(kConfig, "model.layers.0.self_attn.q_proj"), "bf16");
    EXPECT_EQ(format_of(kConfig, "model.layers.0.mlp.up_proj"), "bf16");
}

TEST(Quantization, An_unknown_method_names_the_supported_ones) {
    for (const char* config : {R"({"quant_method": "bitsandbytes"})", R"({})"}) {
        const auto scheme = read(config);
        ASSERT_FALSE(scheme);
        EXPECT_EQ(scheme.error().code, ErrorCode::unsupported);
        EXPECT_EQ(scheme.error().context, "config.json: /quantization_config/quant_method");
        EXPECT_NE(scheme.error().hint.find("compressed-tensors"), std::string::npos);
    }
}

TEST(Quantization, None_stores_everything_in_the_dtype) {
    const auto scheme = read_quantization(nullptr, "", nullptr, NumberFormat::fp16, "config.json");
    ASSERT_TRUE(scheme);
    EXPECT_EQ(scheme->format_of("model.layers.0.mlp.up_proj", ModuleClass::linear).name(), "fp16");
    EXPECT_FALSE(scheme->kv_format());
}

}  // namespace
}  // namespace draftboard::model
