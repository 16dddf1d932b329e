// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include <gtest/gtest.h>

#include "backend/acceptance_counter.h"
#include "backend/loop_report.h"
#include "backend/throughput.h"
#include "model/acceptance_json.h"

namespace draftboard::backend {
namespace {

TEST(AcceptanceCounter, Counts_rates_and_length_as_they_are_defined) {
    // Accepted 0, 1, 2, 2: m = 3/4, 2/4; a = 3/4, 2/3; L = 1 + 5/4
    AcceptanceCounter counter(2);
    for (const int accepted : {0, 1, 2, 2}) counter.count(2, accepted);
    EXPECT_DOUBLE_EQ(counter.unconditional(1).value, 0.75);
    EXPECT_DOUBLE_EQ(counter.unconditional(2).value, 0.5);
    EXPECT_DOUBLE_EQ(counter.conditional(1).value, 0.75);
    EXPECT_DOUBLE_EQ(counter.conditional(2).value, 2.0 / 3);
    EXPECT_DOUBLE_EQ(counter.acceptance_length().value, 2.25);
    EXPECT_EQ(counter.histogram(), (std::vector<std::int64_t>{1, 1, 2}));
    // sd^2 = (1.25^2 + 0.25^2 + 2 x 0.75^2) / 3 = 2.75 / 3; half = 1.645 sqrt(2.75 / 3 / 4) = 0.7875
    EXPECT_NEAR(counter.acceptance_length().low, 2.25 - 1.645 * std::sqrt(2.75 / 12), 1e-12);
    EXPECT_DOUBLE_EQ(counter.acceptance_length().high, 3.0);  // never beyond k + 1
}

TEST(AcceptanceCounter, Shares_have_the_exact_intervals_of_Clopper_and_Pearson) {
    // 0 of n: high = 1 - 0.05^(1/n); n of n: low = 0.05^(1/n); 5 of 10: 0.2224 .. 0.7776 (tables)
    EXPECT_NEAR(share_interval(0, 10).high, 1 - std::pow(0.05, 0.1), 1e-12);
    EXPECT_EQ(share_interval(0, 10).low, 0);
    EXPECT_NEAR(share_interval(10, 10).low, std::pow(0.05, 0.1), 1e-12);
    EXPECT_EQ(share_interval(10, 10).high, 1);
    EXPECT_NEAR(share_interval(5, 10).low, 0.2224, 5e-5);
    EXPECT_NEAR(share_interval(5, 10).high, 0.7776, 5e-5);
    EXPECT_EQ(share_interval(0, 0).high, 1);
}

TEST(AcceptanceCounter, Missed_lookups_lower_the_hit_rate_and_the_length_but_not_the_rates) {
    // 6 misses, 4 hits of (3, 3, 0, 2): hit 0.4, m_1 = 3/4, L = 1 + 8/10
    AcceptanceCounter counter(3);
    for (int i = 0; i < 6; ++i) counter.count(0, 0);
    for (const int accepted : {3, 3, 0, 2}) counter.count(3, accepted);
    EXPECT_DOUBLE_EQ(counter.hit_rate().value, 0.4);
    EXPECT_DOUBLE_EQ(counter.unconditional(1).value, 0.75);
    EXPECT_DOUBLE_EQ(counter.acceptance_length().value, 1.8);
    EXPECT_EQ(counter.synthetic_acceptance_rates(), (std::vector<double>{0.3, 0.3, 0.2}));
    EXPECT_NEAR(model::chain_acceptance_length(counter.acceptance("x"), 3), 1.8, 1e-12);
}

TEST(AcceptanceCounter, Counters_add_up_whatever_their_depths) {
    AcceptanceCounter sum(1);
    AcceptanceCounter deep(3);
    sum.count(1, 1);
    deep.count(3, 3);
    deep.count(0, 0);
    sum.add(deep);
    EXPECT_EQ(sum.depth(), 3);
    EXPECT_EQ(sum.cycles(), 3);
    EXPECT_EQ(sum.hits(), 2);
    EXPECT_EQ(sum.accepted(), 4);
    EXPECT_EQ(sum.drafted(), 4);
    EXPECT_EQ(sum.histogram(), (std::vector<std::int64_t>{0, 1, 0, 1}));
}

TEST(AcceptanceCounter, Its_document_is_read_back_by_the_model) {
    AcceptanceCounter counter(3);
    for (int i = 0; i < 40; ++i) counter.count(i % 5 == 0 ? 0 : 3, i % 4);
    const model::Json json = counter.to_json("toy");
    std::vector<model::Problem> problems;
    const model::Acceptance read = model::acceptance_from_json(model::JsonReader(json.at("acceptance"), problems), 3);
    ASSERT_TRUE(problems.empty()) << problems.front().place << problems.front().message;
    EXPECT_EQ(read.per_position, counter.acceptance("toy").per_position);
    EXPECT_DOUBLE_EQ(read.hit, 0.8);
    EXPECT_EQ(read.observed_cycles, 40);
    EXPECT_EQ(read.source, "toy");
    // vLLM's list is read as a form of its own and gives the same length without the hit rate.
    const model::Json rates{{"synthetic_acceptance_rates", json.at("vllm").at("synthetic_acceptance_rates")}};
    const model::Acceptance vllm = model::acceptance_from_json(model::JsonReader(rates, problems), 3);
    ASSERT_TRUE(problems.empty());
    EXPECT_NEAR(model::chain_acceptance_length(vllm, 3), counter.acceptance_length().value, 1e-12);
}

TEST(AcceptanceCounter, A_document_of_several_sets_can_stand_where_a_scenarios_acceptance_does) {
    // Lengths 1 + 3/2 and 1 + 1/2: mean 2, standard deviation sqrt(0.5), as a share of the mean 0.3536
    AcceptanceCounter code(2);
    AcceptanceCounter prose(2);
    for (const int accepted : {2, 1}) code.count(2, accepted);
    for (const int accepted : {0, 1}) prose.count(2, accepted);
    const model::Json document = acceptance_document({{"code", 1, code}, {"prose", 1, prose}}, "toy");
    std::vector<model::Problem> problems;
    const model::Acceptance read = model::acceptance_from_json(model::JsonReader(document, problems), 2);
    ASSERT_TRUE(problems.empty()) << problems.front().place << problems.front().message;
    EXPECT_EQ(read.per_position, (std::vector<double>{0.75, 0.25}));
    EXPECT_NEAR(read.relative_spread, std::sqrt(0.5) / 2, 1e-12);
    EXPECT_EQ(document.at("sets").at(1).at("name"), "prose");
    EXPECT_EQ(document.at("together").at("histogram"), (std::vector<int>{1, 2, 1}));
    EXPECT_EQ(acceptance_document({{"code", 1, code}}, "toy").at("relative_spread"), 0.0);  // one set shows no spread
}

TEST(AcceptanceCounter, Nothing_counted_claims_nothing) {
    const AcceptanceCounter counter(2);
    EXPECT_EQ(counter.acceptance_length().low, 1);
    EXPECT_EQ(counter.acceptance_length().high, 3);
    EXPECT_EQ(counter.conditional(1).high, 1);
    EXPECT_TRUE(counter.acceptance("").validate().empty());
}

TEST(Throughput, Is_the_ratio_of_means_with_the_deviation_of_its_residuals) {
    // (2, 1 s), (2, 3 s): R = 1, sd = sqrt((1 + 1) / (2 x 1)) / 2 = 0.5
    Throughput throughput;
    throughput.count(2, 1);
    throughput.count(2, 3);
    const model::Interval rate = throughput.tokens_per_second();
    EXPECT_DOUBLE_EQ(rate.value, 1);
    EXPECT_NEAR(rate.low, 1 - 1.645 * 0.5, 1e-12);
    EXPECT_NEAR(rate.high, 1 + 1.645 * 0.5, 1e-12);
    EXPECT_EQ(Throughput().tokens_per_second().value, 0);
}

TEST(LoopReport, Terms_are_parts_of_the_mean_cycle_and_sum_to_it) {
    LoopTotals totals;
    totals.cycles = 4;
    totals.draft_ms = 2;
    totals.verify_ms = 12;
    totals.host_ms = 2;
    const std::vector<CycleTerm> terms = cycle_terms(totals);
    ASSERT_EQ(terms.size(), 3U);
    EXPECT_EQ(terms[1].name, "verify");
    EXPECT_DOUBLE_EQ(terms[1].ms, 3);
    EXPECT_DOUBLE_EQ(terms[1].share, 0.75);
    EXPECT_DOUBLE_EQ(terms[0].ms + terms[1].ms + terms[2].ms, 16.0 / 4);
    EXPECT_DOUBLE_EQ(cycle_terms(LoopTotals{})[0].share, 0);
}

TEST(Throughput, Tokens_in_proportion_to_time_leave_no_doubt) {
    Throughput throughput;
    for (const double x : {1.0, 2.0, 5.0}) throughput.count(3 * x, x);
    EXPECT_NEAR(throughput.tokens_per_second().low, 3, 1e-6);
    EXPECT_NEAR(throughput.tokens_per_second().high, 3, 1e-6);
}

}  // namespace
}  // namespace draftboard::backend
