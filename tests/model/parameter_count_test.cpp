// SPDX-License-Identifier: Apache-2.0
#include "model/parameter_count.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "model/architecture_library.h"

namespace draftboard::model {
namespace {

const std::string kData = std::string(DRAFTBOARD_SOURCE_DIR) + "/data";

ParameterCount count_of(const std::string& name) {
    const auto architecture = find_architecture(name, kData);
    EXPECT_TRUE(architecture) << architecture.error().to_text();
    return architecture ? count_parameters(*architecture) : ParameterCount{};
}

struct Published {
    const char* name;
    double total;   ///< 1e9 parameters, without MTP
    double active;  ///< 1e9 parameters
};

// Publishers' cards. GLM-4.5 and Mixtral are published to three digits only (355, 46.7).
constexpr Published kPublished[] = {
    {"kimi-k2.5", 1026.4, 32},   {"kimi-k2-instruct", 1026.4, 32}, {"deepseek-v3", 671.0, 37},
    {"qwen3.5-397b", 396.3, 17}, {"qwen3-235b", 235.1, 22},        {"gpt-oss-120b", 116.8, 5.13},
    {"minimax-m2.5", 228.7, 10}, {"qwen3-30b", 30.5, 3.3},         {"qwen3.5-122b", 122, 10},
    {"glm-5", 744, 40},          {"mixtral-8x7b", 46.7, 12.9},
};

TEST(ParameterCount, Totals_are_within_half_a_percent_of_the_published_ones) {
    for (const Published& published : kPublished) {
        EXPECT_NEAR(static_cast<double>(count_of(published.name).total) / 1e9, published.total,
                    0.005 * published.total)
            << published.name;
    }
}

TEST(ParameterCount, Totals_published_to_two_digits_agree_within_their_rounding) {
    // "35B" is 34.5 .. 35.5; GLM-4.5's "355B" lies between the count without and with its MTP
    // module.
    EXPECT_NEAR(static_cast<double>(count_of("qwen3.5-35b").total) / 1e9, 35, 0.5);
    const ParameterCount glm = count_of("glm-4.5");
    EXPECT_LT(glm.total, 355'000'000'000);
    EXPECT_GT(glm.total + glm.mtp, 355'000'000'000);
}

TEST(ParameterCount, Active_parameters_leave_the_embedding_out_as_stated_to_three_digits) {
    // OpenAI's card: 5.13 B, the unembedding counted, the embedding not. DeepSeek-V3's weight
    // documentation: 36.6 B with 0.9 B for the output head.
    EXPECT_NEAR(static_cast<double>(count_of("gpt-oss-120b").active) / 1e9, 5.13, 0.005 * 5.13);
    EXPECT_NEAR(static_cast<double>(count_of("deepseek-v3").active) / 1e9, 36.6, 0.005 * 36.6);
}

TEST(ParameterCount, The_chosen_convention_fits_the_published_active_figures_best) {
    double without = 0;
    double with = 0;
    for (const Published& published : kPublished) {
        const ParameterCount count = count_of(published.name);
        without += std::abs(static_cast<double>(count.active) / 1e9 / published.active - 1);
        with +=
            std::abs(static_cast<double>(count.active_with_embedding) / 1e9 / published.active - 1);
    }
    EXPECT_LT(without, with);
}

TEST(ParameterCount, DeepSeek_V3s_mtp_module_has_11_5_billion_parameters_of_its_own) {
    // Published: 11.5 B without the shared embedding and head. One MoE layer and 2 x 7168 x
    // 7168: 11.61 B, 1 % above.
    EXPECT_NEAR(static_cast<double>(count_of("deepseek-v3").mtp) / 1e9, 11.5, 0.01 * 11.5);
}

TEST(ParameterCount, Kimis_latent_attention_follows_its_closed_form) {
    MlaShape mla;
    mla.heads = 64;
    mla.q_lora_rank = 1536;
    mla.kv_lora_rank = 512;
    mla.qk_nope_head_dim = 128;
    mla.qk_rope_head_dim = 64;
    mla.v_head_dim = 128;
    // q_a 7168*1536, q_b 1536*64*192, kv_a 7168*576, kv_b 512*64*256, o 64*128*7168, norms 1536 +
    // 512
    EXPECT_EQ(mixer_parameters(mla, 7168),
              11'010'048 + 18'874'368 + 4'128'768 + 8'388'608 + 58'720'256 + 2'048);
}

TEST(ParameterCount, A_sparse_indexer_adds_three_matrices_and_a_layer_norm) {
    MlaShape mla;
    mla.heads = 64;
    mla.q_lora_rank = 2048;
    mla.kv_lora_rank = 512;
    mla.qk_nope_head_dim = 192;
    mla.qk_rope_head_dim = 64;
    mla.v_head_dim = 256;
    const std::int64_t dense = mixer_parameters(mla, 6144);
    mla.indexer = SparseIndexer{32, 128, 2048};
    // wq_b 2048*32*128, wk 6144*128, weights_proj 6144*32, k_norm 2*128
    EXPECT_EQ(mixer_parameters(mla, 6144) - dense, 8'388'608 + 786'432 + 196'608 + 256);
}

TEST(ParameterCount, Fused_and_split_delta_net_projections_have_equal_sizes) {
    DeltaNetShape net;
    net.key_heads = 16;
    net.value_heads = 32;
    net.key_head_dim = net.value_head_dim = 128;
    net.conv_kernel = 4;
    const std::int64_t split = mixer_parameters(net, 2048);
    net.fused_projections = true;
    EXPECT_EQ(mixer_parameters(net, 2048), split);
    // qkvz 2048*(2*2048 + 2*4096), b and a 2*32*2048, out 4096*2048, conv 8192*4, A_log and dt_bias
    // 2*32, norm 128
    EXPECT_EQ(split, 25'165'824 + 131'072 + 8'388'608 + 32'768 + 64 + 128);
}

TEST(ParameterCount, Gates_biases_sinks_and_norms_of_grouped_query_attention_are_counted) {
    GqaShape gqa;
    gqa.heads = 4;
    gqa.kv_heads = 2;
    gqa.head_dim = 8;
    const std::int64_t base = mixer_parameters(gqa, 16);
    EXPECT_EQ(base, 16 * 32 + 2 * 16 * 16 + 32 * 16);
    gqa.output_gate = true;
    EXPECT_EQ(mixer_parameters(gqa, 16), base + 16 * 32);
    gqa.qkv_bias = true;  // q is doubled: 64 + 16 + 16
    EXPECT_EQ(mixer_parameters(gqa, 16), base + 16 * 32 + 96);
    gqa = GqaShape{4, 2, 8, 8, QkNorm::per_head, false, false, true, true, 0};
    EXPECT_EQ(mixer_parameters(gqa, 16), base + 2 * 8 + 16 + 4);  // norms, output bias, sinks
    gqa = GqaShape{4, 2, 8, 8, QkNorm::per_layer, false, false, false, false, 0};
    EXPECT_EQ(mixer_parameters(gqa, 16), base + 32 + 16);
}

TEST(ParameterCount, Published_checkpoint_sizes_are_met) {
    // Kimi-K2.5's int4 experts: 4.5 bits each (4 + 16/32): 1014.7e9 * 4.5/8 = 570.8 GB, the rest in
    // bf16.
    const ParameterCount kimi = count_of("kimi-k2.5");
    EXPECT_NEAR(kimi.part("routed_experts")->bytes / 1e9, 570.76, 0.01);
    EXPECT_NEAR(kimi.bytes / 1e9, 570.76 + 2.0 * (1026.408 - 1014.686), 0.01);
    // gpt-oss-120b's card states a 60.8 GiB checkpoint.
    EXPECT_NEAR(count_of("gpt-oss-120b").bytes / (1u << 30), 60.8, 0.005 * 60.8);
}

TEST(ParameterCount, Tied_embeddings_are_stored_once_and_used_as_the_head) {
    auto tied = find_architecture("qwen3-30b", kData);
    ASSERT_TRUE(tied);
    const ParameterCount untied = count_parameters(*tied);
    tied->tied_embeddings = true;
    const ParameterCount count = count_parameters(*tied);
    EXPECT_EQ(count.total, untied.total - std::int64_t{151936} * 2048);
    EXPECT_EQ(count.active, untied.active);
    EXPECT_EQ(count.active_with_embedding, count.active);
}

TEST(ParameterCount, Kimis_forward_has_122_all_reduces_in_its_decoder) {
    const auto kimi = find_architecture("kimi-k2.5", kData);
    ASSERT_TRUE(kimi);
    EXPECT_EQ(count_collectives(*kimi).decoder_all_reduces, 2 * 61);
}

RC_GTEST_PROP(ParameterCount, Active_grows_with_experts_per_token_by_whole_experts, ()) {
    Architecture architecture;
    architecture.hidden = *rc::gen::inRange(1, 4096);
    architecture.vocabulary = *rc::gen::inRange(1, 100000);
    architecture.max_context = 1;
    MoeFeedForward moe;
    moe.experts = *rc::gen::inRange(2, 512);
    moe.experts_per_token = *rc::gen::inRange(1, moe.experts);
    moe.intermediate = *rc::gen::inRange(1, 4096);
    GqaShape gqa;
    gqa.heads = gqa.kv_heads = 1;
    gqa.head_dim = *rc::gen::inRange(1, 256);
    architecture.layers.assign(*rc::gen::inRange<std::size_t>(1, 8), Layer{gqa, moe, {}});
    RC_ASSERT(architecture.validate().empty());
    const ParameterCount before = count_parameters(architecture);
    for (Layer& layer : architecture.layers)
        ++std::get<MoeFeedForward>(layer.feed_forward).experts_per_token;
    const ParameterCount after = count_parameters(architecture);
    RC_ASSERT(after.total == before.total);
    RC_ASSERT(after.active - before.active ==
              std::int64_t{3} * architecture.hidden * moe.intermediate *
                  static_cast<std::int64_t>(architecture.layers.size()));
    RC_ASSERT(after.active <= after.total);
}

}  // namespace
}  // namespace draftboard::model
