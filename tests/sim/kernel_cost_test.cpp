// SPDX-License-Identifier: Apache-2.0
#include "sim/kernel_cost.h"

#include <chrono>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace draftboard::sim {
namespace {

model::GpuSpec rtx_pro_6000() {
    model::GpuSpec gpu;
    gpu.name = "RTX PRO 6000";
    gpu.memory_gb_s = 1792;
    gpu.l2_bytes = 128e6;
    gpu.bf16_tflops = 468;
    gpu.fp8_tflops = 936;
    gpu.fp4_tflops = 1871;
    return gpu;
}

model::WeightFormat grouped(model::NumberFormat format, std::int64_t width) {
    return {format, 1, width, 16, 0};
}

model::Operation gemm(std::int64_t m, std::int64_t n, std::int64_t k) {
    model::Operation operation;
    operation.role = "attention.o_proj";
    operation.kind = model::OperationKind::gemm;
    operation.m = m;
    operation.n = n;
    operation.k = k;
    operation.weight_bytes = 2.0 * static_cast<double>(n) * static_cast<double>(k);
    operation.flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
    return operation;
}

KernelTable table_of(const KernelKey& key, const KernelConstants& constants) {
    KernelTable table;
    table.name = "test";
    table.entries[key] = constants;
    return table;
}

TEST(KernelCost, The_worked_example_of_the_header_holds) {
    KernelConstants constants;
    constants.fixed_us = 2.3;
    constants.serial_us = 0.5;
    constants.bandwidth_gb_s = 1530;
    const KernelModel kernels(rtx_pro_6000(), table_of("gemm/bf16/torch", constants), {});
    // s = 0.5 * 7168/1024 = 3.5; b = 2 * 7168 * 2112 / 1530e3 = 19.79; 2.3 + sqrt(3.5^2 + 19.79^2) = 22.40
    EXPECT_NEAR(kernels.time(gemm(1, 2112, 7168)).us, 22.40, 0.01);
}

TEST(KernelCost, A_calibrated_floor_survives_when_there_is_little_to_read) {
    KernelConstants constants;
    constants.floor_us = 80;
    constants.fixed_us = 2;
    constants.bandwidth_gb_s = 1000;
    KernelWork work;
    work.bytes = 25e6;
    // 2 + 25e6 / 1e6 = 27 < 80
    EXPECT_DOUBLE_EQ(kernel_us(constants, work), 80);
    work.bytes = 100e6;
    // 2 + 100 = 102 > 80
    EXPECT_DOUBLE_EQ(kernel_us(constants, work), 102);
}

TEST(KernelCost, The_loop_stops_growing_at_its_limit) {
    KernelConstants constants;
    constants.serial_us = 7;
    constants.serial_limit = 8192;
    KernelWork work;
    work.length = 4096;
    // 7 * 4096 / 1024 = 28
    EXPECT_DOUBLE_EQ(kernel_us(constants, work), 28);
    work.length = 1 << 20;
    // 7 * 8192 / 1024 = 56
    EXPECT_DOUBLE_EQ(kernel_us(constants, work), 56);
}

TEST(KernelCost, Verified_rows_walk_the_whole_context_where_the_kernel_does_not_split_it_for_them) {
    KernelConstants constants;
    constants.fixed_us = 10;
    constants.serial_us = 1;
    constants.serial_limit = 2048;
    constants.verify_serial_us = 20;
    constants.bandwidth_gb_s = 1e9;
    const KernelModel kernels(rtx_pro_6000(), table_of("attention_gqa/bf16/flash", constants), {});
    model::Operation operation;
    operation.role = "attention.gqa";
    operation.kind = model::OperationKind::attention;
    operation.k = 8192;
    operation.n = 8;
    operation.batch = 2;
    // one row a sequence: 10 + 1 x 2048 / 1024; three rows: 10 + 20 x 8192 / 1024
    operation.m = 2;
    EXPECT_NEAR(kernels.time(operation).us, 12, 1e-6);
    operation.m = 6;
    EXPECT_NEAR(kernels.time(operation).us, 170, 1e-6);
}

TEST(KernelCost, Residuals_are_linear_in_log2_m_and_constant_outside) {
    const std::vector<ResidualPoint> residuals = {{0, 1.2}, {2, 1.0}, {4, 0.8}};
    EXPECT_DOUBLE_EQ(residual_factor(residuals, 1), 1.2);
    // m = 2 is half way from m = 1 to m = 4 in log2
    EXPECT_DOUBLE_EQ(residual_factor(residuals, 2), 1.1);
    EXPECT_DOUBLE_EQ(residual_factor(residuals, 4), 1.0);
    EXPECT_DOUBLE_EQ(residual_factor(residuals, 1024), 0.8);
    EXPECT_DOUBLE_EQ(residual_factor({}, 7), 1.0);
}

TEST(KernelCost, Warm_bandwidth_never_prices_a_plan) {
    KernelConstants constants;
    constants.bandwidth_gb_s = 1500;
    constants.warm_bandwidth_gb_s = 5000;
    KernelWork work;
    work.bytes = 15e6;
    // 15e6 / 1500e3 = 10 us cold, 15e6 / 5000e3 = 3 us warm
    EXPECT_DOUBLE_EQ(kernel_us(constants, work), 10);
    EXPECT_DOUBLE_EQ(kernel_us(constants, work, true), 3);
    const KernelModel kernels(rtx_pro_6000(), table_of("gemm/bf16/torch", constants), {});
    auto operation = gemm(1, 1, 1);
    operation.weight_bytes = 15e6;
    EXPECT_NEAR(kernels.time(operation).us, 10, 1e-6);
}

TEST(KernelCost, The_chosen_implementation_is_priced_and_an_unmeasured_one_falls_to_the_datasheet) {
    KernelTable table;
    KernelConstants marlin;
    marlin.fixed_us = 16;
    marlin.coverage = Coverage::interpolated;
    KernelConstants marlin_vllm = marlin;
    marlin_vllm.fixed_us = 27;
    table.entries["experts/int4_g32/marlin@sglang"] = marlin;
    table.entries["experts/int4_g32/marlin@vllm"] = marlin_vllm;
    model::Operation experts;
    experts.role = "moe.experts";
    experts.kind = model::OperationKind::experts;
    experts.m = 1;
    experts.weight_format = grouped(model::NumberFormat::int4, 32);

    EXPECT_DOUBLE_EQ(KernelModel(rtx_pro_6000(), table, {}).time(experts).us, 16);
    EXPECT_DOUBLE_EQ(
        KernelModel(rtx_pro_6000(), table, {{"experts/int4_g32", "marlin"}}).time(experts).us, 16);
    EXPECT_DOUBLE_EQ(
        KernelModel(rtx_pro_6000(), table, {{"experts", "marlin@vllm"}}).time(experts).us, 27);
    const auto other = KernelModel(rtx_pro_6000(), table, {{"experts", "trtllm"}}).time(experts);
    EXPECT_EQ(other.coverage, Coverage::datasheet);
    EXPECT_EQ(other.key, "experts/any/any");
}

TEST(KernelCost, Another_grouping_of_a_measured_format_is_extrapolated) {
    KernelConstants constants;
    constants.fixed_us = 5;
    constants.relative_error = 0.05;
    constants.coverage = Coverage::interpolated;
    const KernelModel kernels(rtx_pro_6000(), table_of("gemm/fp8/sgl", constants), {});
    auto operation = gemm(1, 128, 128);
    operation.weight_format = {model::NumberFormat::fp8_e4m3, 128, 128, 32, 0};
    const auto blocks = kernels.time(operation);
    EXPECT_EQ(blocks.key, "gemm/fp8/sgl");
    EXPECT_EQ(blocks.coverage, Coverage::extrapolated);
    EXPECT_GT(blocks.relative_uncertainty, 0.2);
    operation.weight_format = model::WeightFormat::plain(model::NumberFormat::fp8_e4m3);
    EXPECT_EQ(kernels.time(operation).coverage, Coverage::interpolated);
    operation.weight_format = model::WeightFormat::plain(model::NumberFormat::bf16);
    EXPECT_EQ(kernels.time(operation).coverage, Coverage::datasheet);
}

TEST(KernelCost, Outside_the_fitted_range_of_m_the_answer_is_extrapolated_and_less_sure) {
    KernelConstants constants;
    constants.fixed_us = 5;
    constants.relative_error = 0.05;
    constants.m_low = 1;
    constants.m_high = 64;
    constants.coverage = Coverage::interpolated;
    const KernelModel kernels(rtx_pro_6000(), table_of("gemm/bf16/torch", constants), {});
    EXPECT_EQ(kernels.time(gemm(64, 8, 8)).coverage, Coverage::interpolated);
    const auto far = kernels.time(gemm(512, 8, 8));
    EXPECT_EQ(far.coverage, Coverage::extrapolated);
    // three octaves outside: sqrt(0.05^2 + 0.3^2)
    EXPECT_NEAR(far.relative_uncertainty, std::hypot(0.05, 0.3), 1e-12);
}

TEST(KernelCost, The_datasheet_prices_every_kind_of_kernel) {
    const KernelModel kernels(rtx_pro_6000(), {}, {});
    using model::OperationKind;
    for (const auto kind :
         {OperationKind::embedding, OperationKind::gemm, OperationKind::batched_gemm,
          OperationKind::norm, OperationKind::elementwise, OperationKind::attention,
          OperationKind::indexer, OperationKind::delta_net, OperationKind::router,
          OperationKind::experts, OperationKind::sample, OperationKind::accept,
          OperationKind::copy}) {
        auto operation = gemm(1, 64, 64);
        operation.kind = kind;
        const auto time = kernels.time(operation);
        EXPECT_GE(time.us, 3.0) << kernel_subkind(operation);
        EXPECT_EQ(time.coverage, Coverage::datasheet);
        EXPECT_FALSE(time.key.empty());
    }
}

TEST(KernelCost, The_datasheet_reads_at_four_fifths_of_the_peak) {
    const KernelModel kernels(rtx_pro_6000(), {}, {});
    auto operation = gemm(1, 1, 1);
    operation.weight_bytes = 1433.6e6;
    operation.flops = 0;
    // 3 us + 1433.6e6 B / (0.8 * 1792 GB/s) = 3 + 1000 us
    EXPECT_NEAR(kernels.time(operation).us, 1003, 1e-6);
}

TEST(KernelCost, A_gpu_without_fp4_units_multiplies_nvfp4_in_bf16) {
    auto gpu = rtx_pro_6000();
    gpu.fp4_tflops = 0;
    const auto table = datasheet_kernels(gpu);
    EXPECT_DOUBLE_EQ(table.entries.at("gemm/nvfp4_g16/any").rate_tflops,
                     table.entries.at("gemm/any/any").rate_tflops);
}

TEST(KernelCost, Keys_are_checked) {
    EXPECT_TRUE(parse_kernel_key("experts/int4_g32/marlin"));
    EXPECT_TRUE(parse_kernel_key("gemm/fp8_b128/cutlass@vllm"));
    EXPECT_TRUE(parse_kernel_key("norm/any/any"));
    for (const char* bad : {"", "experts", "experts/bf16", "experts/bf16/", "nonsense/bf16/x",
                            "gemm/bf17/x", "gemm/int4_g/x", "gemm/int4_g0/x", "gemm/int4_x32/x",
                            "gemm/int4_g99999999999999999999/x", "gemm/bf16/a/b"}) {
        EXPECT_FALSE(parse_kernel_key(bad)) << bad;
    }
}

TEST(KernelCost, Explain_shows_the_numbers_and_agrees_with_time) {
    const KernelModel kernels(rtx_pro_6000(), {}, {});
    const auto operation = gemm(4, 2112, 7168);
    const auto explained = kernels.explain(operation);
    EXPECT_DOUBLE_EQ(explained.us, kernels.time(operation).us);
    EXPECT_NE(explained.formula.find("1434 GB/s"), std::string::npos) << explained.formula;
    EXPECT_TRUE(kernels.time(operation).formula.empty());
}

TEST(KernelCost, Hostile_numbers_end_in_finite_times) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const double inf = std::numeric_limits<double>::infinity();
    model::GpuSpec broken;
    broken.memory_gb_s = nan;
    broken.bf16_tflops = -inf;
    const KernelModel kernels(broken, {}, {});
    for (const double bytes : {nan, inf, -inf, -1.0, 1e300}) {
        auto operation = gemm(std::numeric_limits<std::int64_t>::max(),
                              std::numeric_limits<std::int64_t>::min(), -5);
        operation.weight_bytes = bytes;
        operation.flops = bytes;
        EXPECT_TRUE(std::isfinite(kernels.time(operation).us));
        EXPECT_GE(kernels.time(operation).us, 0);
    }
}

RC_GTEST_PROP(KernelCost, More_bytes_never_take_less_time, (std::uint32_t a, std::uint32_t b)) {
    KernelConstants constants;
    constants.floor_us = 3;
    constants.fixed_us = 1;
    constants.serial_us = 1;
    constants.bandwidth_gb_s = 1000;
    KernelWork less;
    less.length = 1000;
    less.bytes = a;
    KernelWork more = less;
    more.bytes = static_cast<double>(a) + b;
    RC_ASSERT(kernel_us(constants, less) <= kernel_us(constants, more));
}

RC_GTEST_PROP(KernelCost, The_round_corner_lies_between_the_largest_term_and_root_three_of_it,
              (std::uint16_t s, std::uint16_t b, std::uint16_t f)) {
    KernelConstants constants;
    constants.serial_us = 1;
    constants.bandwidth_gb_s = 1;
    constants.rate_tflops = 1;
    KernelWork work;
    work.length = 1024.0 * s;
    work.bytes = 1e3 * b;
    work.flops = 1e6 * f;
    const double largest = std::max({s, b, f});
    const double us = kernel_us(constants, work);
    RC_ASSERT(us >= largest * (1 - 1e-12));
    RC_ASSERT(us <= largest * std::sqrt(3.0) * (1 + 1e-12));
}

TEST(KernelCost, A_thousand_operations_cost_well_under_a_millisecond) {
    const KernelModel kernels(rtx_pro_6000(), datasheet_kernels(rtx_pro_6000()), {});
    const auto operation = gemm(4, 2112, 7168);
    double best = 1e9;
    double sum = 0;
    for (int round = 0; round < 20; ++round) {
        const auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < 1000; ++i) sum += kernels.time(operation).us;
        const std::chrono::duration<double, std::micro> took =
            std::chrono::steady_clock::now() - start;
        best = std::min(best, took.count());
    }
    EXPECT_GT(sum, 0);
    // The best of twenty rounds, so that a loaded machine (or a sanitizer) does not fail it.
    EXPECT_LT(best, 5000.0);
    RecordProperty("best_us_per_thousand", std::to_string(best));
}

TEST(NearShare, Is_what_random_replacement_leaves_of_a_walk_that_is_repeated) {
    EXPECT_DOUBLE_EQ(near_share(1 << 20, 0), 0) << "no cache";
    EXPECT_DOUBLE_EQ(near_share(1 << 20, 1 << 20), 1);
    for (const double ratio : {1.1, 1.5, 2.0, 3.0, 10.0}) {
        const double h = near_share(ratio * 1e6, 1e6);
        EXPECT_NEAR(h, std::exp(-ratio * (1 - h)), 1e-6) << ratio;
        EXPECT_LT(h, 1) << ratio;
    }
    EXPECT_NEAR(near_share(1.5e6, 1e6), 0.417, 1e-3);
}

TEST(NearShare, Is_of_passes_that_follow_their_like_alone) {
    model::Plan plan;
    plan.operations.resize(1);
    plan.operations[0].kind = model::OperationKind::gemm;
    plan.operations[0].weight_bytes = 1.5e6;
    for (const auto pass : {model::Pass::decode, model::Pass::draft}) {
        plan.pass = pass;
        EXPECT_NEAR(near_share(plan, 1e6), 0.417, 1e-3);
    }
    for (const auto pass : {model::Pass::verify, model::Pass::draft_extend, model::Pass::prefill}) {
        plan.pass = pass;
        EXPECT_DOUBLE_EQ(near_share(plan, 1e6), 0);
    }
}

TEST(NearShare, Bytes_that_are_near_have_the_warm_bandwidth) {
    KernelConstants constants;
    constants.bandwidth_gb_s = 10;
    constants.warm_bandwidth_gb_s = 40;
    KernelWork work;
    work.bytes = 1e6;
    EXPECT_DOUBLE_EQ(kernel_us(constants, work), 100);
    // 0.4 MB at 40, 0.6 MB at 10 GB/s
    work.near_share = 0.4;
    EXPECT_DOUBLE_EQ(kernel_us(constants, work), 70);
    constants.warm_bandwidth_gb_s = 0;
    EXPECT_DOUBLE_EQ(kernel_us(constants, work), 100) << "not known";
}

}  // namespace
}  // namespace draftboard::sim
