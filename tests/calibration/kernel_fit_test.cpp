// SPDX-License-Identifier: Apache-2.0
#include "calibration/kernel_fit.h"

#include <cmath>
#include <filesystem>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "calibration/fit_report.h"
#include "calibration/gpu_datasheet.h"

namespace draftboard::calibration {
namespace {

using testing::HasSubstr;

model::GpuSpec gpu() {
    model::GpuSpec spec;
    spec.name = "test GPU";
    spec.memory_gb_s = 2000;
    spec.l2_bytes = 100e6;
    spec.bf16_tflops = 500;
    spec.fp8_tflops = 1000;
    return spec;
}

FitRow row(double megabytes, double us, double m = 1) {
    FitRow one;
    one.work.m = m;
    one.work.bytes = megabytes * 1e6;
    one.resident_bytes = one.work.bytes;
    one.us = us;
    return one;
}

TEST(KernelFit, A_line_of_bytes_gives_back_its_bandwidth_and_fixed_time) {
    std::vector<FitRow> rows;
    // t = 5 us + bytes / 1000 GB/s, all far beyond an L2 of 100 MB
    for (int i = 0; i < 30; ++i) rows.push_back(row(200.0 + 50 * i, 5 + 200.0 + 50 * i));
    const auto fit = fit_kernel(rows, {}, gpu(), 0);
    ASSERT_TRUE(fit) << fit.error().to_text();
    EXPECT_NEAR(fit->constants.bandwidth_gb_s, 1000, 1);
    EXPECT_NEAR(fit->constants.fixed_us, 5, 0.5);
    EXPECT_LT(summarize(fit->left_out_error).worst, 0.01);
    EXPECT_EQ(fit->constants.coverage, sim::Coverage::interpolated);
}

TEST(KernelFit, Warm_rows_do_not_raise_the_cold_bandwidth) {
    std::vector<FitRow> rows;
    // below 80 MB from L2 at 8000 GB/s, above 120 MB from memory at 1000 GB/s, both after 4 us
    for (int i = 1; i <= 20; ++i) rows.push_back(row(4.0 * i, 4 + 4.0 * i / 8));
    for (int i = 1; i <= 20; ++i) rows.push_back(row(120.0 + 20 * i, 4 + 120.0 + 20 * i));
    const auto fit = fit_kernel(rows, {}, gpu(), 0);
    ASSERT_TRUE(fit);
    EXPECT_NEAR(fit->constants.bandwidth_gb_s, 1000, 10);
    EXPECT_NEAR(fit->constants.warm_bandwidth_gb_s, 8000, 400);
    EXPECT_NEAR(fit->constants.fixed_us, 4, 0.2);
    EXPECT_EQ(fit->residence[0], Residence::warm);
    EXPECT_EQ(fit->residence[39], Residence::cold);
}

TEST(KernelFit, The_number_of_rotated_operands_is_found) {
    std::vector<FitRow> rows;
    // four operands in turn: L2 holds them up to 25 MB each
    for (int i = 1; i <= 60; ++i) {
        const double megabytes = 2.0 * i;
        rows.push_back(row(megabytes, 3 + (megabytes < 25 ? megabytes / 6 : megabytes)));
    }
    FitShape shape;
    shape.copies = {1, 2, 4, 8};
    const auto fit = fit_kernel(rows, shape, gpu(), 0);
    ASSERT_TRUE(fit);
    EXPECT_EQ(fit->copies, 4);
    EXPECT_NEAR(fit->constants.bandwidth_gb_s, 1000, 50);
}

TEST(KernelFit, The_loop_and_its_limit_are_found) {
    std::vector<FitRow> rows;
    for (int i = 1; i <= 20; ++i) {
        for (int j = 0; j < 3; ++j) {
            FitRow one = row(200.0 * (j + 1), 0);
            one.work.length = 512.0 * i;
            // 8 us per 1024 up to 4096, and 1000 GB/s
            const double loop = 8 * std::min(one.work.length, 4096.0) / 1024;
            one.us = 3 + std::hypot(10 * loop, 200.0 * (j + 1));
            rows.push_back(one);
        }
    }
    FitShape shape;
    shape.serial = true;
    shape.serial_limits = {0, 2048, 4096, 8192};
    const auto fit = fit_kernel(rows, shape, gpu(), 0);
    ASSERT_TRUE(fit);
    EXPECT_EQ(fit->constants.serial_limit, 4096);
    EXPECT_NEAR(fit->constants.serial_us, 80, 2);
}

TEST(KernelFit, A_tenth_of_wild_outliers_moves_the_bandwidth_little) {
    std::vector<FitRow> rows;
    for (int i = 0; i < 50; ++i) {
        const double megabytes = 200.0 + 20 * i;
        rows.push_back(row(megabytes, (4 + megabytes) * (i % 10 == 3 ? 5 : 1)));
    }
    const auto fit = fit_kernel(rows, {}, gpu(), 0);
    ASSERT_TRUE(fit);
    EXPECT_NEAR(fit->constants.bandwidth_gb_s, 1000, 50);
}

TEST(KernelFit, No_bandwidth_beyond_the_datasheet_comes_out) {
    std::vector<FitRow> rows;
    // 10 TB/s "measured" beyond L2 on a GPU of 2 TB/s
    for (int i = 0; i < 30; ++i) rows.push_back(row(200.0 + 50 * i, 5 + (200.0 + 50 * i) / 10));
    const auto fit = fit_kernel(rows, {}, gpu(), 0);
    ASSERT_TRUE(fit);
    EXPECT_LE(fit->constants.bandwidth_gb_s, 2000 * (1 + 1e-9));
}

TEST(KernelFit, Too_few_rows_and_broken_figures_are_refused) {
    EXPECT_FALSE(fit_kernel(std::vector<FitRow>(11, row(200, 5)), {}, gpu(), 0));
    std::vector<FitRow> rows(20, row(200, 5));
    rows[7].us = 0;
    EXPECT_FALSE(fit_kernel(rows, {}, gpu(), 0));
    rows[7].us = std::numeric_limits<double>::quiet_NaN();
    EXPECT_FALSE(fit_kernel(rows, {}, gpu(), 0));
    rows[7].us = 5;
    EXPECT_TRUE(fit_kernel(rows, {}, gpu(), 0));
    auto blind = gpu();
    blind.l2_bytes = 0;
    EXPECT_FALSE(fit_kernel(rows, {}, blind, 0));
}

RC_GTEST_PROP(KernelFit, Any_positive_rows_give_finite_constants, ()) {
    const auto sizes = *rc::gen::container<std::vector<int>>(24, rc::gen::inRange(1, 1000));
    const auto times = *rc::gen::container<std::vector<int>>(24, rc::gen::inRange(1, 100000));
    std::vector<FitRow> rows;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        rows.push_back(row(150.0 + sizes[i], times[i], 1.0 + static_cast<double>(i % 4)));
        rows.back().work.length = sizes[i];
        rows.back().work.items = times[i] % 7;
    }
    FitShape shape;
    shape.items = true;
    shape.serial = true;
    const auto fit = fit_kernel(rows, shape, gpu(), 500);
    RC_ASSERT(fit.has_value());
    for (const double value : {fit->constants.fixed_us, fit->constants.per_item_us,
                               fit->constants.serial_us, fit->constants.bandwidth_gb_s}) {
        RC_ASSERT(std::isfinite(value) && value >= 0);
    }
    RC_ASSERT(fit->constants.bandwidth_gb_s > 0);
    // Determinism: the same rows give the same constants.
    RC_ASSERT(fit_kernel(rows, shape, gpu(), 500)->constants.fixed_us == fit->constants.fixed_us);
}

std::string gemm_table(const std::string& kernel, double fixed) {
    std::string text;
    for (int n = 1; n <= 40; ++n) {
        const double bytes = 2.0 * 8192 * 1024 * n;
        text += kernel + ",bfloat16,4," + std::to_string(1024 * n) + ",8192," +
                std::to_string(fixed + bytes / 1e6) + "\n";
    }
    return "kernel,dtype,m,n,k,latency_us\n" + text;
}

TEST(KernelFit, Engines_that_agree_are_pooled_and_engines_that_differ_are_kept_apart) {
    const auto join = [](double first, double second) {
        auto one = parse_kernel_measurements(gemm_table("sglang_torch", first), "a.csv", {"x"});
        const auto two = parse_kernel_measurements(gemm_table("vllm_torch", second), "b.csv", {"x"});
        one->rows.insert(one->rows.end(), two->rows.begin(), two->rows.end());
        return fit_kernel_measurements(*one, gpu());
    };
    const auto same = join(5, 5);
    ASSERT_TRUE(same) << same.error().to_text();
    EXPECT_TRUE(same->kernels.entries.count("gemm/bf16/torch"));
    EXPECT_TRUE(same->tables.at(0).pooled);
    const auto apart = join(5, 500);
    ASSERT_TRUE(apart);
    EXPECT_TRUE(apart->kernels.entries.count("gemm/bf16/torch@sglang"));
    EXPECT_TRUE(apart->kernels.entries.count("gemm/bf16/torch@vllm"));
    EXPECT_THAT(to_text(*apart), HasSubstr("a.csv sglang_torch bfloat16"));
}

TEST(KernelFit, What_is_moved_to_another_gpu_scales_by_the_datasheet_and_says_so) {
    sim::KernelTable from;
    sim::KernelConstants constants;
    constants.fixed_us = 4;
    constants.bandwidth_gb_s = 1500;
    constants.rate_tflops = 300;
    constants.relative_error = 0.1;
    constants.coverage = sim::Coverage::interpolated;
    from.entries["gemm/bf16/torch"] = constants;
    from.entries["gemm/nvfp4_g16/cutlass"] = constants;
    from.entries["experts/bf16/triton"] = constants;
    auto slower = gpu();
    slower.memory_gb_s = 1000;
    slower.bf16_tflops = 250;
    sim::KernelTable own;
    own.entries["experts/bf16/cutlass"] = constants;
    // NVFP4 needs FP4 units, which `slower` lacks; experts/bf16 are measured there already.
    EXPECT_EQ(add_scaled_kernels(own, from, gpu(), slower), 1);
    const auto& moved = own.entries.at("gemm/bf16/torch");
    EXPECT_DOUBLE_EQ(moved.bandwidth_gb_s, 750);
    EXPECT_DOUBLE_EQ(moved.rate_tflops, 150);
    EXPECT_DOUBLE_EQ(moved.fixed_us, 4);
    EXPECT_DOUBLE_EQ(moved.relative_error, std::hypot(0.1, 0.3));
    EXPECT_EQ(moved.coverage, sim::Coverage::datasheet);
}

// The published tables that the shipped calibrations were made from, where they lie beside the repository.
class PublishedTables : public testing::Test {
   protected:
    void SetUp() override {
        folder_ = std::string(DRAFTBOARD_SHARED_DIR) + "/measurements/";
        if (!std::filesystem::exists(folder_)) GTEST_SKIP() << "no shared measurements here";
    }
    std::string folder_;
};

TEST_F(PublishedTables, Rows_that_the_fit_did_not_see_are_met_within_a_tenth_in_the_median) {
    for (const char* name : {"rtx-pro-6000", "h200"}) {
        const auto report = fit_kernel_tables({folder_ + "moe_us.csv"}, *gpu_datasheet(name), gpu_aliases(name));
        ASSERT_TRUE(report) << report.error().to_text();
        EXPECT_GE(report->tables.size(), 9u);
        for (const auto& table : report->tables) {
            EXPECT_LE(table.all_errors.median, 0.10) << name << " " << table.table;
            EXPECT_LE(table.cold_errors.median, 0.10) << name << " " << table.table;
            EXPECT_LE(std::abs(table.cold_errors.bias), 0.03) << name << " " << table.table;
            for (const auto& bucket : table.cold_by_m) {
                if (bucket.errors.rows < 8 || bucket.m > 64) continue;
                EXPECT_LE(std::abs(bucket.errors.bias), 0.10) << table.table << " m = " << bucket.m;
            }
        }
    }
}

TEST_F(PublishedTables, Attention_and_delta_nets_are_met_within_a_tenth_in_the_median) {
    const auto report = fit_kernel_tables({folder_ + "mla_gen_us.csv", folder_ + "gdn_us.csv"},
                                          *gpu_datasheet("rtx-pro-6000"), gpu_aliases("rtx-pro-6000"));
    ASSERT_TRUE(report) << report.error().to_text();
    ASSERT_EQ(report->tables.size(), 2u);
    for (const auto& table : report->tables) EXPECT_LE(table.all_errors.median, 0.10) << table.table;
}

}  // namespace
}  // namespace draftboard::calibration
