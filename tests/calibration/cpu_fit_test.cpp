// SPDX-License-Identifier: Apache-2.0
#include "calibration/cpu_fit.h"

#include <cmath>

#include <gtest/gtest.h>

namespace draftboard::calibration {
namespace {

constexpr double kLaunchUs = 4;

model::Operation gemm(std::string_view role, int m, int n, int k) {
    model::Operation operation;
    operation.role = role;
    operation.kind = model::OperationKind::gemm;
    operation.m = m;
    operation.n = n;
    operation.k = k;
    operation.weight_format = model::WeightFormat::plain(model::NumberFormat::bf16);
    operation.weight_bytes = 2.0 * n * k;
    operation.activation_bytes = 4.0 * m * (n + k);
    operation.flops = 2.0 * m * n * k;
    return operation;
}

model::Operation elementwise(std::string_view role, int m, int n) {
    model::Operation operation;
    operation.role = role;
    operation.kind = model::OperationKind::elementwise;
    operation.m = m;
    operation.n = n;
    operation.weight_format = model::WeightFormat::plain(model::NumberFormat::fp32);
    operation.activation_bytes = 12.0 * m * n;
    return operation;
}

model::Operation all_reduce(int m, int n) {
    model::Operation operation;
    operation.role = "mixer.all_reduce";
    operation.kind = model::OperationKind::all_reduce;
    operation.m = m;
    operation.n = n;
    operation.group = 2;
    operation.message_bytes = 4LL * m * n;
    return operation;
}

/// A machine whose kernels follow the formula exactly: 20 GB/s, 50 GFLOP/s, 0.3 us a call; the combine costs twice as much a byte.
double true_us(const model::Operation& operation) {
    if (operation.kind == model::OperationKind::all_reduce) {
        return 0.1 + 2 * 0.25 + static_cast<double>(operation.message_bytes) / 5e3;
    }
    const auto work = sim::kernel_work(operation, 1);
    if (operation.kind == model::OperationKind::gemm) return 0.3 + std::hypot(work.bytes / 20e3, work.flops / 50e3);
    return operation.role == "moe.combine" ? 0.6 + work.bytes / 8e3 : 0.2 + work.bytes / 16e3;
}

std::vector<EngineMeasuredPass> synthetic_passes(int ranks, double skew_us) {
    std::vector<EngineMeasuredPass> passes;
    for (const int m : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 40, 48, 64}) {
        EngineMeasuredPass pass;
        pass.key = {"synthetic", ranks, model::Pass::verify, 1, m, 64};
        pass.plan.pass = model::Pass::verify;
        for (const int width : {64, 256, 512}) {
            if (width == 512 && passes.size() % 2 == 1) continue;  // passes differ in their number of collectives
            pass.plan.operations.push_back(gemm("attention.o_proj", m, width, 256));
            pass.plan.operations.push_back(elementwise("mlp.activation", m, width));
            pass.plan.operations.push_back(elementwise("moe.combine", m, width));
            if (ranks > 1) pass.plan.operations.push_back(all_reduce(m, width));
        }
        pass.total_us = kLaunchUs;
        for (const model::Operation& operation : pass.plan.operations) {
            pass.us.push_back(true_us(operation));
            pass.wait_us.push_back(0);
            pass.total_us += pass.us.back() + (operation.kind == model::OperationKind::all_reduce ? skew_us : 0.0);
        }
        passes.push_back(std::move(pass));
    }
    return passes;
}

model::GpuSpec core() {
    model::GpuSpec gpu;
    gpu.name = "CPU core";
    gpu.compute_capability = "cpu";
    gpu.memory_gb_s = 20;
    gpu.l2_bytes = 1 << 20;
    gpu.bf16_tflops = 0.08;
    return gpu;
}

TEST(CpuFit, Recovers_the_constants_of_a_machine_that_follows_the_formula) {
    auto passes = synthetic_passes(1, 0);
    const auto two = synthetic_passes(2, 0.8);
    passes.insert(passes.end(), two.begin(), two.end());
    EngineMeasurements measurements;
    for (std::int64_t bytes = 256; bytes <= 1 << 20; bytes *= 4) {
        const double kb = static_cast<double>(bytes) * 1e-3;
        measurements.collectives.push_back({model::OperationKind::all_reduce, false, 2, bytes, 0.1 + 2 * 0.25 + kb / 5});
        measurements.collectives.push_back({model::OperationKind::all_reduce, true, 2, bytes, 0.1 + 3 * 0.25 + kb / 4});
        measurements.collectives.push_back({model::OperationKind::all_gather, false, 2, bytes, 0.1 + 2 * 0.25 + kb / 2});
    }
    // cycle = 5 + 3 a call + 2 a sequence, plain step = 4 + 2 a sequence
    measurements.hosts = {{"plain", 1, 1, false, 0, 6, 100},  {"plain", 1, 4, false, 0, 12, 100},
                          {"three", 1, 1, true, 3, 16, 100},  {"five", 1, 1, true, 5, 22, 100},
                          {"batch", 1, 4, true, 3, 22, 100}};
    const auto fit = fit_cpu(passes, measurements, core());
    ASSERT_TRUE(fit) << fit.error().to_text();
    const sim::KernelModel model(core(), kernels_for_ranks(fit->kernels, 1), {});
    const std::vector<EngineMeasuredPass> alone = synthetic_passes(1, 0);
    for (const model::Operation& operation : alone[7].plan.operations) {
        EXPECT_NEAR(model.time(operation).us / true_us(operation), 1, 0.03) << operation.role << " " << operation.n;
    }
    EXPECT_TRUE(fit->kernels.entries.contains("elementwise@moe.combine/fp32/cpu@1")) << "two roles differ by a factor of two a byte";
    ASSERT_EQ(fit->terms.collectives.size(), 1u);
    const auto& shared = fit->terms.collectives.front();
    EXPECT_NEAR(shared.barrier_us, 0.25, 0.01);
    EXPECT_NEAR(shared.call_us, 0.1, 0.02);
    EXPECT_NEAR(shared.one_shot_gb_s, 5, 0.1);
    EXPECT_NEAR(shared.ring_gb_s, 4, 0.1);
    EXPECT_NEAR(shared.gather_gb_s, 2, 0.05);
    EXPECT_NEAR(shared.skew_us, 0.8, 0.02);
    ASSERT_EQ(fit->terms.host.size(), 2u);
    EXPECT_NEAR(fit->terms.host[0].values.at("host.launch_latency_us"), kLaunchUs, 0.05);
    EXPECT_NEAR(fit->terms.host[0].values.at("host.cycle_us"), 5, 0.1);
    EXPECT_NEAR(fit->terms.host[0].values.at("host.draft_call_us"), 3, 0.1);
    EXPECT_NEAR(fit->terms.host[0].values.at("host.sequence_us"), 2, 0.1);
    EXPECT_NEAR(fit->terms.host[0].values.at("host.step_us"), 4, 0.1);
}

/// The same passes as a drafter's further steps would have them: weights at twice the bandwidth.
std::vector<EngineMeasuredPass> warm_passes(model::Pass pass) {
    std::vector<EngineMeasuredPass> passes;
    for (const int m : {1, 4, 16}) {
        EngineMeasuredPass one;
        one.key = {"synthetic/drafter", 1, pass, 1, m, 64};
        one.plan.pass = pass;
        for (const int width : {64, 256, 512}) {
            one.plan.operations.push_back(gemm("attention.o_proj", m, width, 256));
            const auto work = sim::kernel_work(one.plan.operations.back(), 1);
            one.us.push_back(0.3 + std::hypot(work.bytes / 40e3, work.flops / 50e3));
            one.wait_us.push_back(0);
            one.total_us += one.us.back();
        }
        passes.push_back(std::move(one));
    }
    return passes;
}

TEST(CpuFit, Prices_a_drafters_further_steps_by_entries_of_their_own_and_leaves_the_others_as_they_were) {
    auto passes = synthetic_passes(1, 0);
    const auto without = fit_cpu(passes, {}, core());
    const auto warm = warm_passes(model::Pass::draft);
    passes.insert(passes.end(), warm.begin(), warm.end());
    const auto fit = fit_cpu(passes, {}, core());
    ASSERT_TRUE(without && fit);
    ASSERT_TRUE(fit->kernels.entries.contains("gemm@attention.o_proj/bf16/cpu.draft@1"));
    EXPECT_FALSE(fit->kernels.entries.contains("gemm@attention.o_proj/bf16/cpu.decode@1")) << "nothing of it was measured";
    const sim::KernelModel cold_without(core(), kernels_for_ranks(without->kernels, 1), {});
    const sim::KernelModel cold(core(), kernels_for_ranks(fit->kernels, 1), {});
    const sim::KernelModel near(core(), kernels_for_ranks(fit->kernels, 1, model::Pass::draft), {});
    for (const EngineMeasuredPass& pass : warm) {
        const model::Operation& operation = pass.plan.operations[1];
        EXPECT_DOUBLE_EQ(cold.time(operation).us, cold_without.time(operation).us);
        EXPECT_NEAR(near.time(operation, sim::near_share(pass.plan, core().l2_bytes)).us / pass.us[1], 1, 0.05) << operation.m;
        EXPECT_GT(cold.time(operation).us, pass.us[1]);
    }
}

TEST(CpuFit, Finds_the_near_bandwidth_of_plain_steps_that_fit_a_near_cache_to_different_shares) {
    // 20 GB/s far, 60 GB/s near; passes of one row over 1 to 4 MB, the cache holds 1 MiB: shares 1 to 0.02.
    auto passes = synthetic_passes(1, 0);
    const double cache = core().l2_bytes;
    std::vector<EngineMeasuredPass> plain;
    for (const int copies : {4, 5, 6, 8, 12, 16}) {
        EngineMeasuredPass one;
        one.key = {"synthetic", 1, model::Pass::decode, 1, 1, 64};
        one.plan.pass = model::Pass::decode;
        for (int i = 0; i < copies; ++i) one.plan.operations.push_back(gemm("attention.o_proj", 1, 512, 256));
        const double h = sim::near_share(one.plan, cache);
        for (const model::Operation& operation : one.plan.operations) {
            const auto work = sim::kernel_work(operation, 1);
            one.us.push_back(0.3 + std::hypot(work.bytes * ((1 - h) / 20e3 + h / 60e3), work.flops / 50e3));
            one.wait_us.push_back(0);
            one.total_us += one.us.back();
        }
        plain.push_back(one);
    }
    passes.insert(passes.end(), plain.begin(), plain.end());
    const auto fit = fit_cpu(passes, {}, core());
    ASSERT_TRUE(fit);
    const sim::KernelModel near(core(), kernels_for_ranks(fit->kernels, 1, model::Pass::decode), {});
    for (const EngineMeasuredPass& pass : plain) {
        const double predicted = near.time(pass.plan.operations[0], sim::near_share(pass.plan, cache)).us;
        EXPECT_NEAR(predicted / pass.us[0], 1, 0.04) << pass.plan.operations.size();
    }
    EXPECT_GT(plain.back().us[0], 1.9 * plain.front().us[0]);
}

TEST(CpuFit, An_operations_interval_holds_what_its_corrections_miss_and_what_another_run_differs) {
    // Equal sizes: corrections by m meet every row, so what is left of the error is the noise of 10 %.
    auto passes = synthetic_passes(1, 0);
    for (EngineMeasuredPass& pass : passes) pass.noise.assign(pass.us.size(), 0.1);
    const auto fit = fit_cpu(passes, {}, core());
    ASSERT_TRUE(fit);
    const auto quiet = fit_cpu(synthetic_passes(1, 0), {}, core());
    ASSERT_TRUE(quiet);
    for (const auto& [key, constants] : fit->kernels.entries) {
        const double before = quiet->kernels.entries.at(key).relative_error;
        EXPECT_GE(constants.relative_error, 0.1) << key;
        EXPECT_LE(constants.relative_error, std::hypot(before, 0.1) + 1e-9) << key;
    }
}

TEST(CpuFit, The_noise_of_an_operation_is_what_its_later_samples_differ_from_its_earlier_ones) {
    model::Plan plan;
    plan.operations = {gemm("attention.o_proj", 1, 64, 64)};
    EnginePassSamples samples;
    samples.operation_us = {{10, 10, 10, 11, 11, 11}};
    samples.wait_us = {{}};
    const auto pass = measured_pass({}, samples, plan);
    ASSERT_EQ(pass.noise.size(), 1u);
    // log(11 / 10) / sqrt 2
    EXPECT_NEAR(pass.noise[0], std::log(1.1) / std::sqrt(2.0), 1e-6);
}

TEST(CpuFit, Run_noise_is_what_one_median_differs_from_the_next) {
    auto passes = synthetic_passes(1, 0);
    for (EngineMeasuredPass& pass : passes) {
        pass.early_us = 100;
        pass.late_us = 110;
    }
    // log(1.1) / sqrt 2
    EXPECT_NEAR(run_sigma_of(passes), std::log(1.1) / std::sqrt(2.0), 1e-12);
}

TEST(CpuFit, Experts_that_were_counted_replace_those_that_were_expected) {
    model::Plan plan;
    model::Operation experts;
    experts.role = "moe.experts";
    experts.kind = model::OperationKind::experts;
    experts.distinct_experts = 10;
    experts.weight_bytes = 1000;
    plan.operations = {experts};
    EnginePassSamples samples;
    samples.total_us = {5, 4, 6};
    samples.operation_us = {{3, 1, 2}};
    samples.wait_us = {{}};
    samples.distinct_experts = {24};
    samples.expert_rounds = 3;
    const auto pass = measured_pass({}, samples, plan);
    // 24 / 3 = 8 experts of 100 bytes
    EXPECT_DOUBLE_EQ(pass.plan.operations[0].distinct_experts, 8);
    EXPECT_DOUBLE_EQ(pass.plan.operations[0].weight_bytes, 800);
    EXPECT_DOUBLE_EQ(pass.total_us, 5);
    EXPECT_DOUBLE_EQ(pass.us[0], 2);
}

TEST(CpuFit, Refuses_to_fit_nothing) { EXPECT_FALSE(fit_cpu({}, {}, core())); }

TEST(EngineProgress, Comes_back_from_its_file_with_all_that_was_done) {
    EngineProgress progress;
    progress.settings = "models tiny ranks 1,2";
    progress.done = {"machine", "round 1"};
    progress.measurements.facts.cores = 2;
    progress.measurements.ceilings = {10, 20, 30, 2, 15, 25, 55};
    progress.measurements.clock_us = 0.02;
    progress.measurements.team_start_us = {{1, 0.1}, {2, 1.5}};
    EnginePassSamples& samples = progress.measurements.passes[{"tiny/drafter", 2, model::Pass::draft_extend, 4, 3, 64}];
    samples.total_us = {12.5, 13};
    samples.context = {64, 66};
    samples.operation_us = {{1, 2}, {3, 4}};
    samples.wait_us = {{}, {0.5, 0.25}};
    samples.distinct_experts = {7};
    samples.expert_rounds = 1;
    progress.measurements.collectives = {{model::OperationKind::all_gather, false, 2, 4096, 1.25}};
    progress.measurements.hosts = {{"tiny eagle3 x3 b1", 2, 1, true, 3, 7.5, 900}};
    const std::string text = to_json(progress).dump();
    const auto read = parse_engine_progress(text, "here.json.partial");
    ASSERT_TRUE(read) << read.error().to_text();
    EXPECT_EQ(to_json(*read).dump(), text);
    EXPECT_TRUE(read->is_done("round 1"));
    EXPECT_FALSE(read->is_done("round 2"));
}

TEST(EngineProgress, Refuses_files_that_lie) {
    EXPECT_FALSE(parse_engine_progress("{}", "x"));
    EXPECT_FALSE(parse_engine_progress(R"({"format": "draftboard.engine_measurements", "version": 1, "settings": "", "done": [],
        "machine": {"cores": 0}, "ceilings": {}, "clock_us": -1, "team_start_us": [], "passes": [], "collectives": [], "hosts": []})", "x"));
}

}  // namespace
}  // namespace draftboard::calibration
