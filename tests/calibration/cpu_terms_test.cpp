// SPDX-License-Identifier: Apache-2.0
#include "calibration/cpu_terms.h"

#include <gtest/gtest.h>

#include "calibration/cost_constants.h"
#include "calibration/cpu_machine.h"
#include "sim/collective.h"

namespace draftboard::calibration {
namespace {

sim::KernelConstants kernel(double bandwidth, double fixed) {
    sim::KernelConstants constants;
    constants.bandwidth_gb_s = bandwidth;
    constants.fixed_us = fixed;
    constants.coverage = sim::Coverage::measured;
    constants.head_tile = 1;
    constants.near_bytes = 1 << 20;
    constants.far_factor = 4;
    constants.common_error = 0.03;
    constants.source = "a test";
    return constants;
}

Calibration calibration_of_two_rank_counts() {
    Calibration calibration;
    calibration.name = "cpu";
    calibration.gpu.name = "CPU core";
    calibration.kernels.entries["gemm/bf16/cpu@1"] = kernel(10, 1);
    calibration.kernels.entries["gemm/bf16/cpu@3"] = kernel(6, 2);
    calibration.kernels.entries["elementwise@moe.combine/fp32/cpu@1"] = kernel(20, 0.5);
    CpuTerms terms;
    terms.host = {{1, {{"host.cycle_us", 8}, {"host.run_sigma", 0.02}}}, {3, {{"host.cycle_us", 12}, {"host.run_sigma", 0.04}}}};
    sim::SharedMemoryConstants two;
    two.barrier_us = 0.4;
    two.points = 20;
    two.bytes_low = 256;
    two.bytes_high = 1 << 20;
    terms.collectives = {two};
    set_cpu_terms(calibration, terms);
    return calibration;
}

TEST(CpuTerms, Come_back_from_a_calibration_file_as_they_were_written) {
    const auto written = to_text(calibration_of_two_rank_counts());
    const auto read = parse_calibration(written, "cpu.json");
    ASSERT_TRUE(read) << read.error().to_text();
    EXPECT_EQ(to_text(*read), written);
    const sim::KernelConstants& gemm = read->kernels.entries.at("gemm/bf16/cpu@1");
    EXPECT_EQ(gemm.head_tile, 1);
    EXPECT_EQ(gemm.far_factor, 4);
    EXPECT_EQ(gemm.common_error, 0.03);
    const auto terms = cpu_terms(*read);
    ASSERT_TRUE(terms) << terms.error().to_text();
    ASSERT_EQ(terms->host.size(), 2u);
    EXPECT_EQ(terms->host[1].values.at("host.cycle_us"), 12);
    ASSERT_EQ(terms->collectives.size(), 1u);
    EXPECT_EQ(terms->collectives[0].barrier_us, 0.4);
}

TEST(CpuTerms, Take_the_mean_of_one_and_three_ranks_for_two) {
    const auto calibration = calibration_of_two_rank_counts();
    sim::CostConstants constants;
    constants.kernels = calibration.kernels;
    ASSERT_TRUE(apply(*cpu_terms(calibration), 2, constants));
    const auto& gemm = constants.kernels.entries.at("gemm/bf16/cpu");
    // (10 + 6) / 2 GB/s, (1 + 2) / 2 us, (8 + 12) / 2 us
    EXPECT_DOUBLE_EQ(gemm.bandwidth_gb_s, 8);
    EXPECT_DOUBLE_EQ(gemm.fixed_us, 1.5);
    EXPECT_EQ(gemm.coverage, sim::Coverage::interpolated);
    EXPECT_DOUBLE_EQ(constants.host.cycle_us, 10);
    EXPECT_DOUBLE_EQ(constants.host.run_sigma, 0.03);
    EXPECT_EQ(constants.host.coverage, sim::Coverage::measured);
    // Measured with one rank alone: the nearest, and said so.
    EXPECT_EQ(constants.kernels.entries.at("elementwise@moe.combine/fp32/cpu").coverage, sim::Coverage::extrapolated);
}

TEST(CpuTerms, Refuse_constants_that_nobody_knows_and_ranks_that_fall) {
    auto calibration = calibration_of_two_rank_counts();
    calibration.unknown["host"][0]["host.coffee_us"] = 3;
    EXPECT_FALSE(cpu_terms(calibration));
    calibration = calibration_of_two_rank_counts();
    calibration.unknown["host"][1]["ranks"] = 1;
    EXPECT_FALSE(cpu_terms(calibration));
    calibration = calibration_of_two_rank_counts();
    calibration.unknown["collectives"][0]["one_shot_gb_s"] = 0;
    EXPECT_FALSE(cpu_terms(calibration));
}

TEST(CpuTerms, Bytes_beyond_the_near_cache_cost_their_factor) {
    const sim::KernelConstants constants = kernel(10, 0);
    EXPECT_DOUBLE_EQ(sim::priced_bytes(constants, 1 << 20), 1 << 20);
    // 1 MiB near, 1 MiB far at four times the price
    EXPECT_DOUBLE_EQ(sim::priced_bytes(constants, 2 << 20), 5 << 20);
}

TEST(CpuTerms, A_role_is_priced_by_its_own_entry_and_others_by_their_kind) {
    sim::KernelTable table;
    table.entries["elementwise@moe.combine/fp32/cpu"] = kernel(1, 5);
    table.entries["elementwise/fp32/cpu"] = kernel(1, 2);
    const sim::KernelModel model({}, table, {});
    model::Operation operation;
    operation.kind = model::OperationKind::elementwise;
    operation.weight_format = model::WeightFormat::plain(model::NumberFormat::fp32);
    operation.role = "moe.combine";
    EXPECT_DOUBLE_EQ(model.time(operation).us, 5);
    operation.role = "mlp.activation";
    EXPECT_DOUBLE_EQ(model.time(operation).us, 2);
}

TEST(CpuTerms, A_drafters_further_steps_have_their_own_kernels_where_they_were_measured) {
    Calibration calibration = calibration_of_two_rank_counts();
    calibration.kernels.entries["gemm/bf16/cpu.draft@1"] = kernel(40, 1);
    calibration.kernels.entries["gemm/bf16/cpu.draft@3"] = kernel(20, 1);
    sim::CostConstants constants;
    constants.kernels = calibration.kernels;
    ASSERT_TRUE(apply(*cpu_terms(calibration), 2, constants));
    EXPECT_EQ(constants.pass_kernels.size(), 1u) << "plain steps were not told apart";
    const auto& draft = constants.pass_kernels.at(model::Pass::draft).entries;
    // (40 + 20) / 2 in place of (10 + 6) / 2; what was not told apart is there as it is for all
    EXPECT_DOUBLE_EQ(draft.at("gemm/bf16/cpu.draft").bandwidth_gb_s, 30);
    EXPECT_FALSE(draft.contains("gemm/bf16/cpu"));
    EXPECT_TRUE(draft.contains("elementwise@moe.combine/fp32/cpu"));
    EXPECT_DOUBLE_EQ(constants.kernels.entries.at("gemm/bf16/cpu").bandwidth_gb_s, 8);
    EXPECT_FALSE(constants.kernels.entries.contains("gemm/bf16/cpu.draft"));
}

TEST(CpuMachine, Has_a_core_for_each_rank_and_is_sound) {
    CpuFacts facts;
    facts.cores = 4;
    facts.numa_nodes = 2;
    facts.memory_bytes = 8e9;
    facts.l2_bytes = 1 << 20;
    const CpuCeilings ceilings{12, 30, 80, 4, 20, 90, 300};
    const auto machine = cpu_machine(facts, ceilings);
    ASSERT_TRUE(machine) << machine.error().to_text();
    EXPECT_EQ(machine->gpus().size(), 4u);
    EXPECT_TRUE(machine->validate().empty());
    EXPECT_TRUE(model::is_cpu(machine->gpu));
    EXPECT_DOUBLE_EQ(machine->gpu.memory_bytes, 2e9);
    EXPECT_DOUBLE_EQ(machine->gpu.bf16_tflops, 0.08);
}

TEST(CpuMachine, Prices_an_all_reduce_by_shared_memory_and_not_by_links) {
    CpuFacts facts;
    facts.cores = 2;
    const auto machine = cpu_machine(facts, {12, 30, 80, 2, 20, 60, 160});
    ASSERT_TRUE(machine);
    sim::CollectiveConstants constants;
    sim::SharedMemoryConstants two;
    two.call_us = 0.1;
    two.barrier_us = 0.2;
    two.one_shot_gb_s = 10;
    two.skew_us = 0.7;
    two.points = 12;
    two.bytes_low = 256;
    two.bytes_high = 1 << 20;
    constants.shared_memory = {two};
    sim::CollectiveModel model(*machine, {}, constants);
    const auto time = model.time({model::OperationKind::all_reduce, {0, 1}, 1024, true});
    ASSERT_TRUE(time) << time.error().to_text();
    // 0.1 + 2 x 0.2 us of latency, 1024 B / 10 GB/s = 0.1024 us of transport; the skew is neither
    EXPECT_EQ(time->latency, sim::from_us(0.5));
    EXPECT_EQ(time->transport, sim::from_us(0.1024));
    EXPECT_EQ(time->skew, sim::from_us(0.7));
    EXPECT_EQ(time->coverage, sim::Coverage::measured);
    EXPECT_FALSE(model.time({model::OperationKind::all_to_all, {0, 1}, 1024, true}));
}

}  // namespace
}  // namespace draftboard::calibration
