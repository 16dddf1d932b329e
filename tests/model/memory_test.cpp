// SPDX-License-Identifier: Apache-2.0
#include "model/memory.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "model/eagle3_head.h"
#include "model/parameter_count.h"
#include "tests/model/sample_architectures.h"

namespace draftboard::model {
namespace {

using samples::tensor_parallel;

double part(const MemoryFit& fit, std::string_view name) {
    for (const MemoryPart& each : fit.parts) {
        if (each.name == name) return each.bytes;
    }
    return 0;
}

MemoryDemand rtx_pro_6000(int sequences, std::int64_t context) {
    MemoryDemand demand;
    demand.sequences = sequences;
    demand.context = context;
    demand.capacity_bytes = 97887.0 * 1024 * 1024;  // nvidia-smi's 97 887 MiB
    return demand;
}

TEST(Memory, Weights_of_Kimi_over_eight_gpus_follow_the_closed_form) {
    const auto fit = memory_fit(samples::kimi_k25(), tensor_parallel(8), {}, rtx_pro_6000(1, 4096));
    // 60 layers x 384 experts x 3 x 7168 x 2048 weights of 4.5 bits, an eighth each
    EXPECT_NEAR(part(fit, "routed_experts"), 60 * 384.0 * 3 * 7168 * 2048 * 4.5 / 8 / 8, 1e3);
    EXPECT_NEAR(part(fit, "shared_experts"), 60 * 3.0 * 7168 * 2048 * 2 / 8, 1);
    EXPECT_NEAR(part(fit, "dense_mlp"), 3.0 * 7168 * 18432 * 2 / 8, 1);
    EXPECT_NEAR(part(fit, "embedding"), 163840.0 * 7168 * 2 / 8, 1);
    EXPECT_NEAR(part(fit, "lm_head"), 163840.0 * 7168 * 2 / 8, 1);
    EXPECT_NEAR(part(fit, "router"), 60 * 384.0 * 7168 * 2, 1);
    // sharded q_b, kv_b, o; replicated q_a, kv_a
    EXPECT_NEAR(part(fit, "attention"),
                61 * 2.0 * ((64.0 * 192 * 1536 + 64.0 * 256 * 512 + 7168.0 * 8192) / 8 + 2112.0 * 7168), 1);
    EXPECT_TRUE(fit.fits) << fit.verdict;
    double sum = 0;
    for (const MemoryPart& each : fit.parts) sum += each.bytes;
    EXPECT_DOUBLE_EQ(sum, fit.total_bytes);
}

TEST(Memory, On_one_gpu_the_parts_weigh_what_the_parameter_count_says) {
    for (const auto& architecture : {samples::kimi_k25(), samples::deepseek_v3(), samples::qwen35_397b(),
                                     samples::qwen3_235b(), samples::gpt_oss_120b(), samples::glm_5()}) {
        const auto fit = memory_fit(architecture, tensor_parallel(1), {}, rtx_pro_6000(1, 1000));
        const ParameterCount count = count_parameters(architecture);
        double weights = 0;
        for (const PartCount& counted : count.parts) {
            weights += part(fit, counted.name);
            if (counted.name == "norms" || counted.name == "attention") continue;  // q/k norms may be in either
            EXPECT_NEAR(part(fit, counted.name), counted.bytes, 2e-3 * counted.bytes)
                << architecture.name << " " << counted.name;
        }
        EXPECT_NEAR(weights, count.bytes, 1e-4 * count.bytes) << architecture.name;
    }
}

TEST(Memory, Experts_weigh_the_same_under_expert_parallelism) {
    Layout expert = tensor_parallel(8);
    expert.expert = 8;
    const auto demand = rtx_pro_6000(1, 4096);
    EXPECT_NEAR(part(memory_fit(samples::kimi_k25(), expert, {}, demand), "routed_experts"),
                part(memory_fit(samples::kimi_k25(), tensor_parallel(8), {}, demand), "routed_experts"), 1e4);
}

TEST(Memory, The_latent_cache_is_replicated_unless_the_context_or_the_batch_is_divided) {
    const auto kimi = samples::kimi_k25();
    // 61 layers x (512 + 64) x 2 bytes
    EXPECT_DOUBLE_EQ(kv_bytes_per_token(kimi, tensor_parallel(1), NumberFormat::bf16), 70272);
    EXPECT_DOUBLE_EQ(kv_bytes_per_token(kimi, tensor_parallel(8), NumberFormat::bf16), 70272);
    EXPECT_DOUBLE_EQ(kv_bytes_per_token(kimi, tensor_parallel(8), NumberFormat::fp8_e4m3), 35136);
    Layout split = tensor_parallel(8);
    split.decode_context = 8;
    EXPECT_DOUBLE_EQ(kv_bytes_per_token(kimi, split, NumberFormat::bf16), 70272 / 8.0);
    EXPECT_DOUBLE_EQ(part(memory_fit(kimi, tensor_parallel(8), {}, rtx_pro_6000(16, 1000)), "kv_cache"), 16.0 * 1000 * 70272);
    Layout data = tensor_parallel(8);
    data.attention_data = 8;
    EXPECT_DOUBLE_EQ(part(memory_fit(kimi, data, {}, rtx_pro_6000(16, 1000)), "kv_cache"), 2.0 * 1000 * 70272);
}

TEST(Memory, Kv_heads_are_sharded_and_windows_stop_growing) {
    // 94 layers x 2 x 128 x 2 bytes x KV heads a rank: 4, 1, and 1 replicated
    EXPECT_DOUBLE_EQ(kv_bytes_per_token(samples::qwen3_235b(), tensor_parallel(1), NumberFormat::bf16), 94.0 * 4 * 512);
    EXPECT_DOUBLE_EQ(kv_bytes_per_token(samples::qwen3_235b(), tensor_parallel(4), NumberFormat::bf16), 94.0 * 512);
    EXPECT_DOUBLE_EQ(kv_bytes_per_token(samples::qwen3_235b(), tensor_parallel(8), NumberFormat::bf16), 94.0 * 512);
    // gpt-oss: 18 layers hold 128 tokens, 18 all; TP1: 8 KV heads of 64
    const auto fit = memory_fit(samples::gpt_oss_120b(), tensor_parallel(1), {}, rtx_pro_6000(1, 10000));
    EXPECT_DOUBLE_EQ(part(fit, "kv_cache"), 18.0 * (128 + 10000) * 2 * 8 * 64 * 2);
}

TEST(Memory, Recurrent_state_is_held_once_and_once_more_for_each_verified_token) {
    const auto qwen = samples::qwen35_397b();
    // 45 layers x (64 x 128 x 128 x 4 + 3 x (2 x 2048 + 8192) x 2) bytes
    const double one = 45.0 * (64.0 * 128 * 128 * 4 + 3.0 * 12288 * 2);
    EXPECT_DOUBLE_EQ(recurrent_state_bytes_per_sequence(qwen, tensor_parallel(1)), one);
    EXPECT_DOUBLE_EQ(recurrent_state_bytes_per_sequence(qwen, tensor_parallel(8)), one / 8);
    EXPECT_DOUBLE_EQ(part(memory_fit(qwen, tensor_parallel(8), {}, rtx_pro_6000(4, 100)), "recurrent_state"), 4 * one / 8);
    Speculation mtp;
    mtp.method = SpeculationMethod::mtp;
    mtp.steps = 3;
    EXPECT_DOUBLE_EQ(part(memory_fit(qwen, tensor_parallel(8), mtp, rtx_pro_6000(4, 100)), "recurrent_state"),
                     4 * one / 8 * (1 + 4));
}

TEST(Memory, A_drafter_brings_its_weights_and_its_cache) {
    const auto kimi = samples::kimi_k25();
    Speculation eagle;
    eagle.method = SpeculationMethod::eagle3;
    eagle.steps = 3;
    eagle.head = llama_style_eagle3_head(kimi);
    const auto fit = memory_fit(kimi, tensor_parallel(8), eagle, rtx_pro_6000(2, 1000));
    // fc on every rank; qkv over 2 hidden, o, MLP and head sharded; norms: 2 x 7168, 7168, final 7168
    const double fc = 7168.0 * 3 * 7168;
    const double layer = (72.0 * 128 * 14336 + 7168.0 * 7168 + 3.0 * 7168 * 40960) / 8;
    const double head = 32000.0 * 7168 / 8;
    EXPECT_NEAR(part(fit, "drafter"), 2 * (fc + layer + head + 4 * 7168.0), 1);
    // one KV head of 128 twice, 2 sequences x 1000 tokens
    EXPECT_DOUBLE_EQ(part(fit, "drafter_kv_cache"), 2.0 * 1000 * 2 * 128 * 2);
    eagle.head->own_embedding = true;
    EXPECT_NEAR(part(memory_fit(kimi, tensor_parallel(8), eagle, rtx_pro_6000(2, 1000)), "drafter") - part(fit, "drafter"),
                163840.0 * 7168 * 2 / 8, 1);
}

TEST(Memory, What_does_not_fit_says_what_would) {
    const auto kimi = samples::kimi_k25();
    const auto small = memory_fit(kimi, tensor_parallel(4), {}, rtx_pro_6000(1, 4096));
    EXPECT_FALSE(small.fits);
    EXPECT_EQ(small.max_context, 0);
    EXPECT_EQ(small.max_sequences, 0);
    EXPECT_NE(small.verdict.find("weights and buffers alone"), std::string::npos) << small.verdict;
    const auto deep = memory_fit(kimi, tensor_parallel(8), {}, rtx_pro_6000(8, 200000));
    EXPECT_FALSE(deep.fits);
    EXPECT_GT(deep.max_context, 0);
    EXPECT_LT(deep.max_context, 200000);
    EXPECT_LT(deep.max_sequences, 8);
    // The limits are sharp: they fit, one more does not.
    EXPECT_TRUE(memory_fit(kimi, tensor_parallel(8), {}, rtx_pro_6000(8, deep.max_context)).fits);
    EXPECT_FALSE(memory_fit(kimi, tensor_parallel(8), {}, rtx_pro_6000(8, deep.max_context + 1)).fits);
    EXPECT_FALSE(memory_fit(kimi, tensor_parallel(8), {}, rtx_pro_6000(deep.max_sequences + 1, 200000)).fits);
}

TEST(Memory, Nccl_buffers_follow_the_group) {
    const auto qwen = samples::qwen3_30b();
    EXPECT_EQ(part(memory_fit(qwen, tensor_parallel(1), {}, rtx_pro_6000(1, 10)), "nccl_buffers"), 0);
    EXPECT_EQ(part(memory_fit(qwen, tensor_parallel(2), {}, rtx_pro_6000(1, 10)), "nccl_buffers"), 342.0 * 1024 * 1024);
    EXPECT_EQ(part(memory_fit(qwen, tensor_parallel(8), {}, rtx_pro_6000(1, 10)), "nccl_buffers"), 392.0 * 1024 * 1024);
}

TEST(Memory, The_fullest_stage_of_a_pipeline_counts) {
    Layout layout = tensor_parallel(4);
    layout.pipeline = 2;
    const auto half = memory_fit(samples::kimi_k25(), layout, {}, rtx_pro_6000(1, 1000));
    // 31 and 30 layers, the dense one in the first stage: 30 MoE layers in either
    EXPECT_NEAR(part(half, "routed_experts"), 30 * 384.0 * 3 * 7168 * 2048 * 4.5 / 8 / 4, 1e3);
    EXPECT_EQ(part(half, "embedding") > 0, part(half, "lm_head") == 0);  // one of both, not both
}

TEST(Memory, A_layout_that_is_refused_does_not_fit_and_says_why) {
    const auto fit = memory_fit(samples::kimi_k25(), tensor_parallel(3), {}, rtx_pro_6000(1, 1000));
    EXPECT_FALSE(fit.fits);
    EXPECT_NE(fit.verdict.find("64 attention heads"), std::string::npos) << fit.verdict;
    MemoryDemand broken = rtx_pro_6000(0, -1);
    EXPECT_FALSE(memory_fit(samples::kimi_k25(), tensor_parallel(8), {}, broken).fits);
    EXPECT_FALSE(memory_fit(Architecture{}, tensor_parallel(8), {}, rtx_pro_6000(1, 1)).fits);
}

RC_GTEST_PROP(Memory, Demand_grows_with_batch_and_context, (void)) {
    const auto qwen = samples::qwen35_397b();
    const int sequences = *rc::gen::inRange(1, 200);
    const int context = *rc::gen::inRange(0, 100000);
    const auto a = memory_fit(qwen, tensor_parallel(8), {}, rtx_pro_6000(sequences, context));
    RC_ASSERT(memory_fit(qwen, tensor_parallel(8), {}, rtx_pro_6000(sequences + 1, context)).total_bytes >= a.total_bytes);
    RC_ASSERT(memory_fit(qwen, tensor_parallel(8), {}, rtx_pro_6000(sequences, context + 1)).total_bytes >= a.total_bytes);
}

}  // namespace
}  // namespace draftboard::model
