// SPDX-License-Identifier: Apache-2.0
#include "model/import/hf_config.h"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <set>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "model/architecture_library.h"
#include "model/data_library.h"
#include "model/parameter_count.h"

namespace draftboard::model {
namespace {

namespace fs = std::filesystem;

const std::string kSource = DRAFTBOARD_SOURCE_DIR;
const std::string kShared = std::string(DRAFTBOARD_SHARED_DIR) + "/configs/";

Json shipped(const std::string& name) {
    const auto json = load_json(kSource + "/data/architectures/" + name + ".json");
    EXPECT_TRUE(json) << json.error().to_text();
    return json ? *json : Json::object();
}

Expected<Architecture> from(const Json& config) {
    return architecture_from_config(config, std::nullopt, "config.json");
}

/// Expects success.
Architecture architecture(const Json& config) {
    const auto result = from(config);
    EXPECT_TRUE(result) << result.error().to_text();
    return result ? *result : Architecture{};
}

/// Expects a failure and returns "context: message (hint)".
std::string failure(const Json& config) {
    const auto result = from(config);
    EXPECT_FALSE(result);
    return result ? "" : result.error().to_text();
}

Json tiny_llama() {
    return Json::parse(
        R"({"model_type": "llama", "hidden_size": 64, "vocab_size": 100, "num_hidden_layers": 2, "max_position_embeddings": 128,
      "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96, "torch_dtype": "float16"})");
}

const GqaShape& gqa_of(const Layer& layer) { return std::get<GqaShape>(layer.mixer); }

TEST(HfConfig, A_minimal_llama_is_read_with_its_head_size_derived) {
    const Architecture llama = architecture(tiny_llama());
    ASSERT_EQ(llama.layers.size(), 2u);
    EXPECT_EQ(gqa_of(llama.layers[0]).head_dim, 16);
    EXPECT_EQ(gqa_of(llama.layers[0]).rotary_dim, 16);
    EXPECT_EQ(llama.activation_format, NumberFormat::fp16);
    EXPECT_EQ(llama.kv_format, NumberFormat::fp16);
    // embedding and head 2*100*64, layers 2*(64*64 + 2*32*64 + 64*64 + 3*64*96 + 2*64), norm 64
    EXPECT_EQ(count_parameters(llama).total,
              2 * 6400 + 2 * (4096 + 4096 + 4096 + 18432 + 128) + 64);
}

TEST(HfConfig, Biases_follow_the_family) {
    Json config = tiny_llama();
    config["attention_bias"] = true;
    EXPECT_TRUE(gqa_of(architecture(config).layers[0]).qkv_bias);
    EXPECT_TRUE(gqa_of(architecture(config).layers[0]).output_bias);
    config = tiny_llama();
    config["model_type"] = "qwen2";  // always biased, never on the output
    EXPECT_TRUE(gqa_of(architecture(config).layers[0]).qkv_bias);
    EXPECT_FALSE(gqa_of(architecture(config).layers[0]).output_bias);
    config["model_type"] = "qwen3";
    EXPECT_EQ(gqa_of(architecture(config).layers[0]).qk_norm, QkNorm::per_head);
    EXPECT_FALSE(gqa_of(architecture(config).layers[0]).qkv_bias);
    const Architecture oss = architecture(shipped("gpt-oss-120b"));
    EXPECT_TRUE(gqa_of(oss.layers[0]).qkv_bias && gqa_of(oss.layers[0]).output_bias &&
                gqa_of(oss.layers[0]).sinks);
    EXPECT_TRUE(moe_of(oss.layers[0])->biases);
    const GqaShape glm = gqa_of(architecture(shipped("glm-4.5")).layers[0]);
    EXPECT_TRUE(glm.qkv_bias);
    EXPECT_FALSE(glm.output_bias);
    EXPECT_EQ(glm.qk_norm, QkNorm::per_head);
    EXPECT_EQ(glm.rotary_dim, 64);
}

TEST(HfConfig, Dense_first_layers_and_the_moe_grid_follow_the_deepseek_rule) {
    Json config = shipped("deepseek-v3");
    config["num_hidden_layers"] = 8;
    config["moe_layer_freq"] = 2;
    const Architecture model = architecture(config);
    for (std::size_t i = 0; i < 8; ++i) {  // MoE from layer 3 on, where the index divides by 2
        EXPECT_EQ(moe_of(model.layers[i]) != nullptr, i >= 3 && i % 2 == 0) << i;
    }
    ASSERT_EQ(model.mtp.size(), 1u);
    EXPECT_NE(moe_of(model.mtp[0].layer), nullptr);
    EXPECT_FALSE(model.mtp[0].own_embedding);
    EXPECT_EQ(model.mtp[0].projection.name(), "bf16");
}

TEST(HfConfig, Sparse_steps_and_dense_only_layers_follow_the_qwen_rule) {
    Json config = shipped("qwen3-30b");
    config["num_hidden_layers"] = 6;
    config["decoder_sparse_step"] = 2;
    config["mlp_only_layers"] = {3};
    const Architecture model = architecture(config);
    const bool expected[] = {false, true, false, false, false, true};  // (i+1) % 2 == 0, and not 3
    for (std::size_t i = 0; i < 6; ++i)
        EXPECT_EQ(moe_of(model.layers[i]) != nullptr, expected[i]) << i;
}

TEST(HfConfig, Full_attention_is_every_fourth_layer_or_what_layer_types_says) {
    Json config = shipped("qwen3.5-35b");
    config["num_hidden_layers"] = 4;
    Architecture model = architecture(config);
    EXPECT_TRUE(std::holds_alternative<DeltaNetShape>(model.layers[2].mixer));
    ASSERT_TRUE(std::holds_alternative<GqaShape>(model.layers[3].mixer));
    EXPECT_TRUE(gqa_of(model.layers[3]).output_gate);
    EXPECT_EQ(gqa_of(model.layers[3]).rotary_dim, 64);  // a quarter of 256
    ASSERT_EQ(model.mtp.size(), 1u);
    EXPECT_TRUE(std::holds_alternative<GqaShape>(model.mtp[0].layer.mixer));
    config["layer_types"] = {"full_attention", "linear_attention", "linear_attention",
                             "linear_attention"};
    EXPECT_TRUE(std::holds_alternative<GqaShape>(architecture(config).layers[0].mixer));
    config["layer_types"] = {"full_attention"};
    EXPECT_NE(failure(config).find("/layer_types"), std::string::npos);
}

TEST(HfConfig, Sliding_windows_alternate_in_gpt_oss) {
    const Architecture oss = architecture(shipped("gpt-oss-120b"));
    EXPECT_EQ(gqa_of(oss.layers[0]).sliding_window, 128);
    EXPECT_EQ(gqa_of(oss.layers[1]).sliding_window, 0);
}

TEST(HfConfig, MiniMax_declares_mtp_modules_that_nobody_published) {
    const Architecture minimax = architecture(shipped("minimax-m2.5"));
    EXPECT_TRUE(minimax.mtp.empty());
    EXPECT_NE(minimax.notes[0].find("no usable MTP"), std::string::npos);
    EXPECT_EQ(gqa_of(minimax.layers[0]).qk_norm, QkNorm::per_layer);
    EXPECT_EQ(minimax.layers[0].formats.router.name(), "bf16");
    EXPECT_EQ(minimax.layers[0].formats.routed_experts.name(), "fp8_b128");
}

TEST(HfConfig, Kimis_int4_edition_quantizes_routed_experts_and_nvidias_more) {
    const Architecture int4 = architecture(shipped("kimi-k2.5"));
    EXPECT_EQ(int4.layers[0].formats.feed_forward.name(), "bf16");
    EXPECT_EQ(int4.layers[1].formats.mixer.name(), "bf16");
    EXPECT_EQ(int4.layers[1].formats.shared_expert.name(), "bf16");
    EXPECT_EQ(int4.layers[1].formats.routed_experts.name(), "int4_g32");
    const Architecture nvfp4 = architecture(shipped("kimi-k2.5-nvfp4"));
    EXPECT_EQ(nvfp4.layers[0].formats.feed_forward.name(), "nvfp4_g16");
    EXPECT_EQ(nvfp4.layers[1].formats.mixer.name(), "bf16");
    EXPECT_EQ(nvfp4.layers[1].formats.shared_expert.name(), "nvfp4_g16");
    EXPECT_EQ(nvfp4.layers[1].formats.router.name(), "bf16");
    EXPECT_EQ(nvfp4.lm_head_format.name(), "bf16");
    EXPECT_EQ(nvfp4.kv_format, NumberFormat::fp8_e4m3);
}

TEST(HfConfig, A_part_of_mixed_formats_takes_the_bulks_and_says_so) {
    Json config = tiny_llama();
    config["quantization_config"] =
        Json::parse(R"({"quant_method": "fp8", "modules_to_not_convert": ["k_proj"]})");
    const Architecture model = architecture(config);
    EXPECT_EQ(model.layers[0].formats.mixer.name(), "fp8");
    ASSERT_FALSE(model.notes.empty());
    EXPECT_EQ(
        model.notes.back(),
        "attention projections are counted as fp8, though some of them are fp16, in 2 layers");
}

TEST(HfConfig, A_directory_and_its_separate_quantization_file_are_read) {
    const auto model = read_hf_config(kSource + "/tests/fixtures/configs/tiny-moe-nvfp4");
    ASSERT_TRUE(model) << model.error().to_text();
    EXPECT_EQ(model->name, "tiny-moe-nvfp4");
    EXPECT_EQ(model->kv_format, NumberFormat::fp8_e4m3);
    EXPECT_EQ(model->layers[0].formats.feed_forward.name(), "nvfp4_g16");
    EXPECT_EQ(model->layers[1].formats.routed_experts.name(), "nvfp4_g16");
    EXPECT_EQ(model->layers[1].formats.mixer.name(), "bf16");
    EXPECT_EQ(model->layers[1].formats.router.name(), "bf16");
    EXPECT_TRUE(model->tied_embeddings);
    const auto same =
        find_architecture("tiny-moe-nvfp4", kSource + "/data", kSource + "/tests/fixtures/configs");
    ASSERT_TRUE(same) << same.error().to_text();
    EXPECT_EQ(count_parameters(*same).total, count_parameters(*model).total);
}

TEST(HfConfig, A_wrapper_is_read_through_its_text_config) {
    Json config = Json::object();
    config["model_type"] = "kimi_k25";
    config["text_config"] = shipped("kimi-k2.5");
    config["text_config"]["num_hidden_layers"] = 2;
    config["vision_config"] = Json::object();
    const Architecture model = architecture(config);
    EXPECT_EQ(model.model_type, "kimi_k25");
    EXPECT_EQ(model.layers[1].formats.routed_experts.name(), "int4_g32");
    EXPECT_EQ(model.notes[0], "the vision tower is left out: text model only");
    config["text_config"].erase("kv_lora_rank");
    EXPECT_EQ(failure(config), "config.json: /text_config/kv_lora_rank: required field is missing");
    config["text_config"]["model_type"] = "mamba";
    EXPECT_NE(failure(config).find("/text_config/model_type"), std::string::npos);
}

TEST(HfConfig, An_unknown_family_is_named_with_the_supported_ones) {
    Json config = tiny_llama();
    config["model_type"] = "rwkv";
    const auto result = from(config);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::unsupported);
    EXPECT_EQ(result.error().context, "config.json: /model_type");
    for (const char* type :
         {"deepseek_v3", "kimi_k25", "qwen3_5_moe", "gpt_oss", "minimax_m2", "mixtral"}) {
        EXPECT_NE(result.error().hint.find(type), std::string::npos) << type;
    }
}

TEST(HfConfig, Every_required_field_is_missed_by_its_pointer) {
    for (const char* field :
         {"model_type", "hidden_size", "vocab_size", "num_hidden_layers", "max_position_embeddings",
          "num_attention_heads", "q_lora_rank", "kv_lora_rank", "intermediate_size",
          "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size"}) {
        Json config = shipped("deepseek-v3");
        config.erase(field);
        if (std::string(field) ==
            "q_lora_rank") {  // optional: DeepSeek-V2-Lite has one full q_proj
            EXPECT_EQ(mixer_matrices(architecture(config).layers[0].mixer, 7168)[0].name, "q_proj");
            continue;
        }
        EXPECT_NE(failure(config).find(std::string("config.json: /") + field +
                                       ": required field is missing"),
                  std::string::npos)
            << field;
    }
}

TEST(HfConfig, Absurd_values_are_refused_with_their_pointer) {
    const Json absurd[] = {
        -1, 0, 1'000'000'000'000, 1.5, 1e300, "61", Json::array(), Json::object(), true};
    for (const char* field :
         {"hidden_size", "vocab_size", "num_hidden_layers", "num_attention_heads",
          "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "kv_lora_rank"}) {
        for (const Json& value : absurd) {
            Json config = shipped("deepseek-v3");
            config[field] = value;
            EXPECT_NE(failure(config).find(std::string("/") + field), std::string::npos)
                << field << " = " << value;
        }
    }
}

TEST(HfConfig, Contradictions_are_refused_where_they_stand) {
    Json config = shipped("qwen3-30b");
    config["num_experts_per_tok"] = 129;
    EXPECT_EQ(failure(config),
              "config.json: /num_experts_per_tok: 129 experts a token of 128 experts");
    config = shipped("qwen3-30b");
    config["num_key_value_heads"] = 5;
    EXPECT_NE(failure(config).find("config.json: /num_key_value_heads: 32 heads"),
              std::string::npos);
    config = tiny_llama();
    config["num_attention_heads"] = 6;
    EXPECT_NE(failure(config).find("/num_attention_heads: 6 heads don't divide hidden_size 64"),
              std::string::npos);
    config = shipped("deepseek-v3");
    config["topk_group"] = 9;
    EXPECT_FALSE(from(config));
}

TEST(HfConfig, Hostile_exclusion_lists_end_in_an_error_or_in_good_time) {
    const auto seconds = [](const Json& list, int layers) {
        Json config = tiny_llama();
        config["num_hidden_layers"] = layers;
        config["quantization_config"] = {{"quant_method", "awq"}, {"bits", 4}};
        config["quantization_config"]["modules_to_not_convert"] = list;
        const auto start = std::chrono::steady_clock::now();
        const auto result = from(config);
        if (!result) {
            EXPECT_EQ(result.error().code, ErrorCode::too_large) << result.error().to_text();
        }
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    Json wildcards = Json::array();
    for (int i = 0; i < 4000; ++i) wildcards.push_back("*m*o*d*e*l*.*l*a*y*e*r*s*." + std::to_string(i) + "*x");
    EXPECT_LT(seconds(wildcards, 1000), 5);  // refused
    EXPECT_LT(seconds(wildcards, 25), 5);    // tried
    Json regexes = Json::array();
    for (int i = 0; i < 90; ++i) regexes.push_back("re:(.*[a-z]){20}.*[mnop]{30}.{250}" + std::to_string(i));
    EXPECT_LT(seconds(regexes, 270), 20);
}

TEST(HfConfig, Documents_that_are_no_objects_are_refused) {
    for (const char* text : {"null", "[]", "3", "\"x\"", "[{\"model_type\": \"llama\"}]"}) {
        EXPECT_FALSE(from(Json::parse(text))) << text;
    }
}

// A fault anywhere in a shipped config ends in an error or in a sound architecture, never in a
// crash.
RC_GTEST_PROP(HfConfig, Any_mutation_gives_an_error_or_a_sound_architecture, ()) {
    static const std::vector<std::string> names = shipped_names("architectures", kSource + "/data");
    Json config = shipped(*rc::gen::elementOf(names));
    std::vector<Json::json_pointer> places;
    const Json flat = config.flatten();
    for (const auto& item : flat.items()) places.emplace_back(item.key());
    for (int edits = *rc::gen::inRange(1, 4); edits > 0; --edits) {
        const auto place = places[*rc::gen::inRange<std::size_t>(0, places.size())];
        const Json values[] = {
            nullptr,    -1,  0,     1,  2,      7,   1000, 1 << 24,       1'000'000'000, INT64_MIN,
            UINT64_MAX, 0.5, 1e308, "", "re:(", "*", true, Json::array(), Json::object()};
        config[place] = values[*rc::gen::inRange<std::size_t>(0, std::size(values))];
    }
    const auto result = from(config);
    if (result) {
        RC_ASSERT(result->validate().empty());
        RC_ASSERT(count_parameters(*result).total > 0);
    } else {
        RC_ASSERT(!result.error().message.empty());
        RC_ASSERT(result.error().context.rfind("config.json", 0) == 0u);
    }
}

// ---- publishers' own files, where they are at hand

struct Edition {
    const char* published;
    const char* shipped;
};
constexpr Edition kEditions[] = {
    {"MiniMaxAI--MiniMax-M2.5", "minimax-m2.5"},
    {"Qwen--Qwen3-235B-A22B", "qwen3-235b"},
    {"Qwen--Qwen3-30B-A3B", "qwen3-30b"},
    {"Qwen--Qwen3.5-122B-A10B", "qwen3.5-122b"},
    {"Qwen--Qwen3.5-35B-A3B", "qwen3.5-35b"},
    {"Qwen--Qwen3.5-397B-A17B", "qwen3.5-397b"},
    {"deepseek-ai--DeepSeek-V3", "deepseek-v3"},
    {"moonshotai--Kimi-K2-Instruct", "kimi-k2-instruct"},
    {"moonshotai--Kimi-K2.5", "kimi-k2.5"},
    {"nvidia--Kimi-K2.5-NVFP4", "kimi-k2.5-nvfp4"},
    {"nvidia--Qwen3.5-397B-A17B-NVFP4", "qwen3.5-397b-nvfp4"},
    {"openai--gpt-oss-120b", "gpt-oss-120b"},
    {"zai-org--GLM-5", "glm-5"},
};

TEST(PublishedConfigs, Each_reads_to_what_the_shipped_excerpt_reads_to) {
    if (!fs::is_directory(kShared)) GTEST_SKIP() << "publishers' configs are not at hand";
    for (const Edition& edition : kEditions) {
        const auto full = read_hf_config(kShared + edition.published + "_config.json");
        ASSERT_TRUE(full) << full.error().to_text();
        const auto excerpt = find_architecture(edition.shipped, kSource + "/data");
        ASSERT_TRUE(excerpt) << excerpt.error().to_text();
        const ParameterCount a = count_parameters(*full);
        const ParameterCount b = count_parameters(*excerpt);
        EXPECT_EQ(a.total, b.total) << edition.published;
        EXPECT_EQ(a.active, b.active) << edition.published;
        EXPECT_EQ(a.mtp, b.mtp) << edition.published;
        EXPECT_DOUBLE_EQ(a.bytes, b.bytes) << edition.published;
        EXPECT_DOUBLE_EQ(a.mtp_bytes, b.mtp_bytes) << edition.published;
        EXPECT_EQ(full->kv_format, excerpt->kv_format) << edition.published;
        EXPECT_EQ(full->max_context, excerpt->max_context) << edition.published;
        ASSERT_EQ(full->layers.size(), excerpt->layers.size());
        for (std::size_t i = 0; i < full->layers.size(); ++i) {
            const Layer& x = full->layers[i];
            const Layer& y = excerpt->layers[i];
            EXPECT_EQ(x.mixer.index(), y.mixer.index()) << edition.published << " " << i;
            EXPECT_EQ(x.formats.mixer, y.formats.mixer) << edition.published << " " << i;
            EXPECT_EQ(x.formats.feed_forward, y.formats.feed_forward)
                << edition.published << " " << i;
            EXPECT_EQ(x.formats.shared_expert, y.formats.shared_expert)
                << edition.published << " " << i;
            EXPECT_EQ(x.formats.routed_experts, y.formats.routed_experts)
                << edition.published << " " << i;
            EXPECT_EQ(x.formats.router, y.formats.router) << edition.published << " " << i;
            if (const auto* gqa = std::get_if<GqaShape>(&x.mixer)) {
                EXPECT_EQ(gqa->sliding_window, gqa_of(y).sliding_window)
                    << edition.published << " " << i;
                EXPECT_EQ(gqa->rotary_dim, gqa_of(y).rotary_dim) << edition.published << " " << i;
            }
        }
    }
}

TEST(PublishedConfigs, NVIDIAs_Qwen_keeps_attention_shared_expert_and_mtp_in_bf16) {
    if (!fs::is_directory(kShared)) GTEST_SKIP() << "publishers' configs are not at hand";
    const auto model = read_hf_config(kShared + "nvidia--Qwen3.5-397B-A17B-NVFP4_config.json");
    ASSERT_TRUE(model) << model.error().to_text();
    for (const Layer& layer : model->layers) {
        EXPECT_EQ(layer.formats.mixer.name(), "bf16");
        EXPECT_EQ(layer.formats.shared_expert.name(), "bf16");
        EXPECT_EQ(layer.formats.router.name(), "bf16");
        EXPECT_EQ(layer.formats.routed_experts.name(), "nvfp4_g16");
    }
    EXPECT_EQ(model->mtp.at(0).layer.formats.routed_experts.name(), "bf16");
    // The file's own hf_quant_config.json alone says the same.
    auto config = load_json(kShared + "nvidia--Qwen3.5-397B-A17B-NVFP4_config.json");
    const auto separate =
        load_json(kShared + "nvidia--Qwen3.5-397B-A17B-NVFP4_hf_quant_config.json");
    ASSERT_TRUE(config && separate);
    config->erase("quantization_config");
    const auto alone = architecture_from_config(*config, *separate, "config.json");
    ASSERT_TRUE(alone) << alone.error().to_text();
    EXPECT_DOUBLE_EQ(count_parameters(*alone).bytes, count_parameters(*model).bytes);
    EXPECT_EQ(alone->kv_format, model->kv_format);
}

}  // namespace
}  // namespace draftboard::model
