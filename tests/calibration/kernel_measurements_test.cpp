// SPDX-License-Identifier: Apache-2.0
#include "calibration/kernel_measurements.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/kernel_cost.h"

namespace draftboard::calibration {
namespace {

using testing::HasSubstr;

constexpr const char* kExperts =
    "system,fw,kernel,dtype,hidden,inter,experts,topk,tp,ep,dist,tokens,latency_us\n"
    "gpu_a,sglang-0.5,sglang_marlin_moe,int4_wo,7168,2048,384,8,8,1,balanced,4,50\n"
    "gpu_b,vllm-0.2,vllm_x_flashinfer_cutlass_y,nvfp4,7168,2048,384,8,1,8,balanced,4,70\n";

TEST(KernelMeasurements, A_row_of_experts_becomes_one_ranks_operation) {
    const auto read = parse_kernel_measurements(kExperts, "moe.csv", {"gpu_a"});
    ASSERT_TRUE(read) << read.error().to_text();
    ASSERT_EQ(read->rows.size(), 1u);
    const auto& row = read->rows[0];
    EXPECT_EQ(row.engine, "sglang");
    EXPECT_EQ(row.implementation, "marlin");
    EXPECT_EQ(sim::kernel_subkind(row.operation), "experts/int4_g32");
    // 32 experts x 3 x 7168 x 256 weights x 4.5 bits
    EXPECT_DOUBLE_EQ(row.operation.weight_bytes, 32.0 * 3 * 7168 * 256 * 4.5 / 8);
    EXPECT_DOUBLE_EQ(row.operation.distinct_experts, 32);
    // as in the plan: 32 pairs x (2 x 7168 + 6 x 256) elements of bf16
    EXPECT_DOUBLE_EQ(row.operation.activation_bytes, 2.0 * 32 * (2 * 7168 + 6 * 256));
    // 2 flops x 3 matrices x 32 pairs
    EXPECT_DOUBLE_EQ(row.operation.flops, 6.0 * 32 * 7168 * 256);
    EXPECT_DOUBLE_EQ(row.us, 50);
}

TEST(KernelMeasurements, Under_expert_parallelism_experts_are_whole_and_fewer) {
    const auto read = parse_kernel_measurements(kExperts, "moe.csv", {"gpu_b"});
    ASSERT_TRUE(read);
    const auto& row = read->rows[0];
    EXPECT_EQ(row.implementation, "cutlass");
    // T = 4: one of each token's experts lies on each of the 8 ranks
    EXPECT_DOUBLE_EQ(row.operation.distinct_experts, 4);
    EXPECT_EQ(row.operation.n, 2048);
}

TEST(KernelMeasurements, A_system_that_is_not_there_is_an_error_that_names_those_that_are) {
    const auto read = parse_kernel_measurements(kExperts, "moe.csv", {"gpu_c"});
    ASSERT_FALSE(read);
    EXPECT_THAT(read.error().to_text(), HasSubstr("gpu_a, gpu_b"));
}

TEST(KernelMeasurements, Gemm_and_mla_rows_have_the_bytes_and_flops_of_the_plan) {
    const auto gemm = parse_kernel_measurements(
        "kernel,dtype,m,n,k,latency_us\nsglang_torch_linear,bfloat16,4,2112,7168,25\n", "g.csv", {"gpu"});
    ASSERT_TRUE(gemm) << gemm.error().to_text();
    EXPECT_DOUBLE_EQ(gemm->rows[0].operation.weight_bytes, 2.0 * 2112 * 7168);
    EXPECT_EQ(gemm->rows[0].implementation, "torch");
    EXPECT_THAT(gemm->notes.at(0), HasSubstr("does not say on which GPU"));

    const auto mla = parse_kernel_measurements(
        "system,fw,kernel,mla_dtype,kv_dtype,heads,bs,isl,tp,step,latency_us\n"
        "gpu,sglang-0.5,triton,bfloat16,bfloat16,8,2,1,8,1023,25\n", "m.csv", {"gpu"});
    ASSERT_TRUE(mla) << mla.error().to_text();
    // 2 sequences x 1024 tokens x (512 + 64) x 2 bytes
    EXPECT_DOUBLE_EQ(mla->rows[0].operation.cache_bytes, 2.0 * 1024 * 576 * 2);
    // 8 heads fill half a tile of 16: twice the flops are paid
    EXPECT_DOUBLE_EQ(sim::kernel_work(mla->rows[0].operation).flops, 2.0 * 2 * 16 * 1024 * 1088);
}

TEST(KernelMeasurements, A_delta_net_is_the_sum_of_its_two_kernels) {
    const auto read = parse_kernel_measurements(
        "kernel,phase,bs,seq,tokens,d_model,kh,vh,model,latency_us\n"
        "causal_conv1d_update,generation,1,1,1,4096,16,64,m,1.5\n"
        "fused_recurrent_gated_delta_rule,generation,1,1,1,4096,16,64,m,5\n"
        "fused_recurrent_gated_delta_rule,generation,2,1,2,4096,16,64,m,7\n"
        "chunk_gated_delta_rule,context,1,64,64,4096,16,64,m,30\n", "d.csv", {"gpu"});
    ASSERT_TRUE(read) << read.error().to_text();
    ASSERT_EQ(read->rows.size(), 1u);
    EXPECT_DOUBLE_EQ(read->rows[0].us, 6.5);
    // state 64 x 128 x 128 x 4 B and window (2 x 16 + 64) x 128 channels x 3 x 2 B, read and written
    EXPECT_DOUBLE_EQ(read->rows[0].operation.cache_bytes,
                     2.0 * (64 * 128 * 128 * 4 + (2 * 16 + 64) * 128 * 3 * 2));
    EXPECT_EQ(read->notes.size(), 3u);
}

TEST(KernelMeasurements, Bad_rows_are_named_with_their_line) {
    const auto with = [](const std::string& row) {
        const auto read =
            parse_kernel_measurements("kernel,dtype,m,n,k,latency_us\n" + row, "g.csv", {"gpu"});
        return read ? std::string("accepted") : read.error().to_text();
    };
    EXPECT_THAT(with("x,bfloat16,0,1,1,1\n"), HasSubstr("g.csv:2"));
    EXPECT_THAT(with("x,bfloat16,1,1,1,-1\n"), HasSubstr("latency_us"));
    EXPECT_THAT(with("x,bfloat16,1,1,99999999999,1\n"), HasSubstr("outside"));
    EXPECT_THAT(with("x,float7,1,1,1,1\n"), HasSubstr("float7"));
    EXPECT_FALSE(parse_kernel_measurements("kernel,latency_us\nx,1\n", "g.csv", {"gpu"}));
    EXPECT_FALSE(parse_kernel_measurements("m,n,k\n1,1,1\n", "g.csv", {"gpu"}));
}

}  // namespace
}  // namespace draftboard::calibration
