// SPDX-License-Identifier: Apache-2.0
#include "sim/pass_cost.h"

#include <gtest/gtest.h>

namespace draftboard::sim {
namespace {

/// A pass by hand: two kernels of different terms and a collective.
PricedPass small_pass() {
    PricedPass pass;
    const auto add = [&pass](model::OperationKind kind, TermKind term, double us, double relative) {
        model::Operation operation;
        operation.kind = kind;
        operation.role = "test";
        pass.plan.operations.push_back(operation);
        PricedOperation priced;
        priced.collective = model::is_collective(kind);
        if (priced.collective) {
            priced.latency = from_us(us / 2);
            priced.transport = from_us(us / 2);
        } else {
            priced.kernel = from_us(us);
        }
        pass.operations.push_back(priced);
        pass.info.push_back({term, Coverage::measured, relative, relative});
    };
    add(model::OperationKind::gemm, TermKind::dense, 30, 0.1);
    add(model::OperationKind::experts, TermKind::experts, 50, 0.2);
    add(model::OperationKind::all_reduce, TermKind::latency, 20, 0.05);
    return pass;
}

TEST(PassCost, Terms_sum_to_the_total_in_every_launch_mode) {
    const PricedPass pass = small_pass();
    const HostConstants host;
    for (const auto mode :
         {model::LaunchMode::eager, model::LaunchMode::piecewise, model::LaunchMode::graph}) {
        const PassTimes times = simulate_pass(pass.operations, 8, mode, host, Random(5));
        const PassCost cost = pass_cost(pass, times, host);
        double sum = 0;
        for (const PassTerm& term : cost.terms) sum += term.ms;
        EXPECT_NEAR(sum, cost.total_ms, 1e-9);
    }
}

TEST(PassCost, Terms_sum_to_the_total_over_two_streams_and_the_hidden_one_is_in_none) {
    // dense 30 us, then experts 50 beside dense 20 on the side stream: experts hide it; the memory needs 65 us for both
    PricedPass pass = small_pass();
    pass.operations.insert(pass.operations.begin() + 2, pass.operations[0]);
    pass.info.insert(pass.info.begin() + 2, pass.info[0]);
    pass.plan.operations.insert(pass.plan.operations.begin() + 2, pass.plan.operations[0]);
    pass.operations[2].kernel = from_us(20);
    pass.operations[2].stream = 1;
    pass.operations[2].after = 0;
    pass.operations[3].join = true;
    pass.operations[3].after = 2;
    pass.operations[3].fork = 0;
    pass.operations[3].joint = from_us(65);
    HostConstants host;
    host.kernel_jitter = 0;
    host.rank_spread = 0;
    const PassTimes times = simulate_pass(pass.operations, 4, model::LaunchMode::graph, host, Random(5));
    const PassCost cost = pass_cost(pass, times, host);
    double sum = 0;
    for (const PassTerm& term : cost.terms) sum += term.ms;
    EXPECT_NEAR(sum, cost.total_ms, 1e-9);
    EXPECT_NEAR(cost.terms[static_cast<int>(TermKind::dense)].ms, 0.030, 1e-9);
    EXPECT_NEAR(cost.terms[static_cast<int>(TermKind::experts)].ms, 0.050, 1e-9);
    EXPECT_NEAR(cost.terms[static_cast<int>(TermKind::contention)].ms, (65 - 50 - host.kernel_gap_us) * 1e-3, 1e-9);
}

TEST(PassCost, Each_term_has_its_own_time_and_uncertainty) {
    const PricedPass pass = small_pass();
    HostConstants host;
    host.kernel_jitter = 0;
    host.rank_spread = 0;
    const PassTimes times = simulate_pass(pass.operations, 2, model::LaunchMode::graph, host, Random(5));
    const PassCost cost = pass_cost(pass, times, host);
    const auto term = [&cost](TermKind kind) { return cost.terms[static_cast<int>(kind)]; };
    EXPECT_NEAR(term(TermKind::dense).ms, 0.030, 1e-9);
    EXPECT_NEAR(term(TermKind::experts).ms, 0.050, 1e-9);
    EXPECT_NEAR(term(TermKind::experts).sigma_ms, 0.010, 1e-9);
    EXPECT_NEAR(term(TermKind::latency).ms, 0.010, 1e-9);
    EXPECT_NEAR(term(TermKind::transport).ms, 0.010, 1e-9);
    EXPECT_NEAR(term(TermKind::wait).ms, 0, 1e-9);
    EXPECT_EQ(cost.collectives, 1);
    EXPECT_EQ(cost.kernels, 2);
}

TEST(PassCost, A_shared_context_is_read_from_memory_once_and_from_L2_by_the_others) {
    // 4 sequences x 1 MB at 1 GB/ms: 4 us; shared 1 + 3 x 0.24 = 1.72 us; if a layer's context exceeds L2, 4 again
    KernelConstants constants;
    constants.bandwidth_gb_s = 1000;
    KernelTable table;
    table.entries["attention_gqa/bf16/any"] = constants;
    const KernelModel kernels(model::GpuSpec{}, table, {});
    model::Plan plan;
    model::Operation operation;
    operation.role = "attention.gqa";
    operation.kind = model::OperationKind::attention;
    operation.m = operation.batch = 4;
    operation.cache_bytes = 4e6;
    plan.operations.push_back(operation);
    PassPricer pricer;
    pricer.kernels = &kernels;
    const auto us_of = [&pricer, &plan] {
        return to_ms(pricer.price(plan, model::LaunchMode::graph)->operations[0].kernel) * 1e3;
    };
    EXPECT_NEAR(us_of(), 4, 1e-6);
    pricer.shared_context = true;
    pricer.l2_bytes = 2e6;
    EXPECT_NEAR(us_of(), 1.72, 1e-6);
    pricer.l2_bytes = 0.5e6;
    EXPECT_NEAR(us_of(), 4, 1e-6);
}

TEST(PassCost, The_rank_that_others_wait_for_waits_least) {
    const PricedPass pass = small_pass();
    HostConstants host;
    host.kernel_jitter = 0.2;
    const PassTimes times = simulate_pass(pass.operations, 8, model::LaunchMode::graph, host, Random(5));
    const PassCost cost = pass_cost(pass, times, host);
    EXPECT_NEAR(cost.fastest_wait_ms, 0, 1e-9);
    EXPECT_GT(cost.slowest_wait_ms, 0);
}

}  // namespace
}  // namespace draftboard::sim
