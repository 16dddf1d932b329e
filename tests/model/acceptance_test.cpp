// SPDX-License-Identifier: Apache-2.0
#include "model/acceptance.h"

#include <cmath>
#include <numeric>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "model/acceptance_json.h"

namespace draftboard::model {
namespace {

Acceptance kimi() {
    Acceptance out;
    out.per_position = {0.645, 0.393, 0.240};
    return out;
}

Acceptance read(const char* text, int k, std::vector<Problem>& problems) {
    const Json json = Json::parse(text);
    return acceptance_from_json(JsonReader(json, problems, "/acceptance"), k);
}

TEST(Acceptance, A_chain_is_worth_one_plus_the_sum_of_its_rates) {
    EXPECT_NEAR(chain_acceptance_length(kimi(), 3), 2.278, 1e-12);  // 1 + 0.645 + 0.393 + 0.240
    EXPECT_NEAR(chain_acceptance_length(kimi(), 1), 1.645, 1e-12);
    EXPECT_NEAR(chain_acceptance_length(kimi(), 4), 2.278 + 0.240 * 0.240 / 0.393, 1e-12);  // geometric tail
    EXPECT_EQ(chain_acceptance_length(Acceptance{}, 3), 1.0);
}

TEST(Acceptance, One_conditional_rate_gives_the_geometric_sum) {
    Acceptance iid;
    iid.per_position = {0.7};
    // (1 - 0.7^6) / (1 - 0.7)
    EXPECT_NEAR(chain_acceptance_length(iid, 5), (1 - std::pow(0.7, 6)) / 0.3, 1e-12);
    for (const double a : iid.conditional(5)) EXPECT_NEAR(a, 0.7, 1e-12);
}

TEST(Acceptance, One_run_prints_as_42_7_per_cent_in_vllm_and_0_57_in_sglang) {
    EXPECT_NEAR(to_engine_rate(2.28, RateDefinition::vllm, 3), 0.427, 5e-4);      // (2.28 - 1) / 3
    EXPECT_NEAR(to_engine_rate(2.28, RateDefinition::sglang_log, 3), 0.57, 1e-12);  // 2.28 / 4
    EXPECT_NEAR(to_engine_rate(2.28, RateDefinition::llama_cpp, 3), 0.427, 5e-4);
    for (const auto definition : {RateDefinition::vllm, RateDefinition::sglang_log, RateDefinition::sglang_request}) {
        const auto back = acceptance_from_rate(to_engine_rate(2.28, definition, 3), definition, 3);
        ASSERT_TRUE(back);
        EXPECT_NEAR(chain_acceptance_length(*back, 3), 2.28, 1e-9);
        EXPECT_FALSE(back->assumptions.empty());
    }
}

TEST(Acceptance, Impossible_scalars_are_refused) {
    EXPECT_FALSE(acceptance_from_length(4.5, 3));
    EXPECT_FALSE(acceptance_from_length(0.5, 3));
    EXPECT_FALSE(acceptance_from_length(std::nan(""), 3));
    EXPECT_FALSE(acceptance_from_length(2, 0));
    EXPECT_FALSE(acceptance_from_length(2, 1 << 30));
    EXPECT_FALSE(acceptance_from_rate(0.1, RateDefinition::sglang_log, 3));  // below 1/4: the bonus alone
    EXPECT_FALSE(acceptance_from_rate(42.7, RateDefinition::vllm, 3));       // per cent
    EXPECT_DOUBLE_EQ(acceptance_from_length(4, 3)->per_position.back(), 1.0);
    EXPECT_DOUBLE_EQ(acceptance_from_length(1, 3)->per_position.front(), 0.0);
}

TEST(Acceptance, A_histogram_gives_rates_and_cycles) {
    // 10 cycles: 2 accepted none, 3 one, 5 two: m_1 = 8/10, m_2 = 5/10
    const auto out = acceptance_from_histogram({2, 3, 5});
    ASSERT_TRUE(out);
    EXPECT_DOUBLE_EQ(out->per_position[0], 0.8);
    EXPECT_DOUBLE_EQ(out->per_position[1], 0.5);
    EXPECT_DOUBLE_EQ(out->observed_cycles, 10);
    EXPECT_FALSE(acceptance_from_histogram({5}));
    EXPECT_FALSE(acceptance_from_histogram({0, 0}));
    EXPECT_FALSE(acceptance_from_histogram({1, -1}));
    EXPECT_FALSE(acceptance_from_histogram({1, std::nan("")}));
}

TEST(Acceptance, The_distribution_is_the_differences_of_the_rates) {
    Acceptance out = kimi();
    const auto p = accepted_distribution(out, 3);
    EXPECT_NEAR(p[0], 1 - 0.645, 1e-12);
    EXPECT_NEAR(p[1], 0.645 - 0.393, 1e-12);
    EXPECT_NEAR(p[3], 0.240, 1e-12);
    out.hit = 0.5;  // half of the lookups draft nothing
    EXPECT_NEAR(accepted_distribution(out, 3)[0], 0.5 + 0.5 * (1 - 0.645), 1e-12);
    EXPECT_NEAR(chain_acceptance_length(out, 3), 1 + 0.5 * 1.278, 1e-12);
}

TEST(Acceptance, The_interval_follows_from_cycles_and_spread) {
    Acceptance coin;
    coin.per_position = {0.5};
    coin.observed_cycles = 100;
    // sd of the mean sqrt(0.25 / 100) = 0.05; 1.645 of them
    auto interval = acceptance_length_interval(coin, 1.5, 1);
    EXPECT_NEAR(interval.low, 1.5 - 1.645 * 0.05, 1e-12);
    EXPECT_NEAR(interval.high, 1.5 + 1.645 * 0.05, 1e-12);
    coin.relative_spread = 0.1;  // sd 0.15 beside 0.05
    interval = acceptance_length_interval(coin, 1.5, 1);
    EXPECT_NEAR(interval.low, 1.5 - 1.645 * std::hypot(0.05, 0.15), 1e-12);
    coin.observed_cycles = 1;  // wide, but never below 1 or above k + 1
    interval = acceptance_length_interval(coin, 1.5, 1);
    EXPECT_EQ(interval.low, 1.0);
    EXPECT_EQ(interval.high, 2.0);
}

TEST(DraftTree, A_tree_of_one_branch_is_the_chain) {
    const auto tree = build_draft_tree(kimi(), 3, 1, 4);
    ASSERT_EQ(tree.nodes.size(), 3u);
    EXPECT_NEAR(tree.acceptance_length(), 2.278, 1e-12);
}

TEST(DraftTree, A_second_sibling_adds_what_the_first_one_missed) {
    Acceptance out;
    out.per_position = {0.6};
    // One step, two branches: 1 + 0.6 + 0.6 x 0.4
    EXPECT_NEAR(build_draft_tree(out, 1, 2, 3).acceptance_length(), 1.84, 1e-12);
    // Siblings half as good as chance: 1 + 0.6 + 0.6 x 0.4 x 0.5
    EXPECT_NEAR(build_draft_tree(out, 1, 2, 3, 0.5).acceptance_length(), 1.72, 1e-12);
}

TEST(DraftTree, The_likeliest_nodes_are_kept) {
    Acceptance out;
    out.per_position = {0.6};
    // Candidates: 0.6, 0.36, 0.24 (sibling), 0.216, 0.144 (child of sibling, sibling of child): three best of them.
    const auto tree = build_draft_tree(out, 3, 2, 4);
    ASSERT_EQ(tree.nodes.size(), 3u);
    EXPECT_NEAR(tree.acceptance_length(), 1 + 0.6 + 0.36 + 0.24, 1e-12);
    EXPECT_EQ(tree.nodes[2].rank, 2);
    EXPECT_EQ(tree.nodes[2].parent, -1);
}

TEST(DraftTree, Hostile_sizes_end) {
    EXPECT_EQ(build_draft_tree(kimi(), 0, 5, 10).nodes.size(), 0u);
    EXPECT_EQ(build_draft_tree(kimi(), 3, 1, 1 << 30).nodes.size(), 3u);
    EXPECT_LE(build_draft_tree(kimi(), 1 << 30, 1 << 30, 1 << 30).nodes.size(), 4095u);
    EXPECT_EQ(build_draft_tree(Acceptance{}, 3, 2, 4).acceptance_length(), 1.0);
}

Acceptance any_acceptance() {
    Acceptance out;
    double m = 1;
    const int count = *rc::gen::inRange(1, 9);
    for (int i = 0; i < count; ++i) out.per_position.push_back(m *= *rc::gen::inRange(0, 1001) / 1000.0);
    out.hit = *rc::gen::inRange(0, 101) / 100.0;
    return out;
}

RC_GTEST_PROP(Acceptance, Conditional_rates_multiply_back_to_the_positions, (void)) {
    const Acceptance acceptance = any_acceptance();
    const auto m = acceptance.positions(8);
    const auto back = acceptance_from_conditional(acceptance.conditional(8));
    RC_ASSERT(back.has_value());
    for (std::size_t i = 0; i < m.size(); ++i) RC_ASSERT(std::abs(back->per_position[i] - m[i]) < 1e-12);
}

RC_GTEST_PROP(Acceptance, Lengths_grow_with_depth_and_stay_within_one_and_k_plus_one, (void)) {
    const Acceptance acceptance = any_acceptance();
    const int k = *rc::gen::inRange(0, 20);
    const double now = chain_acceptance_length(acceptance, k);
    RC_ASSERT(chain_acceptance_length(acceptance, k + 1) >= now);
    RC_ASSERT(now >= 1.0 && now <= k + 1.0 + 1e-9);
    const auto p = accepted_distribution(acceptance, k);
    RC_ASSERT(std::abs(std::accumulate(p.begin(), p.end(), 0.0) - 1.0) < 1e-12);
    double mean = 1;
    for (std::size_t i = 0; i < p.size(); ++i) mean += p[i] * static_cast<double>(i);
    RC_ASSERT(std::abs(mean - now) < 1e-9);
}

RC_GTEST_PROP(Acceptance, A_length_comes_back_from_every_definition, (void)) {
    const int k = *rc::gen::inRange(1, 16);
    const double length = 1.0 + k * (*rc::gen::inRange(0, 1001)) / 1000.0;
    const auto direct = acceptance_from_length(length, k);
    RC_ASSERT(direct.has_value());
    RC_ASSERT(direct->validate().empty());
    RC_ASSERT(std::abs(chain_acceptance_length(*direct, k) - length) < 1e-8);
    for (const auto definition : {RateDefinition::vllm, RateDefinition::sglang_log}) {
        const auto back = acceptance_from_rate(to_engine_rate(length, definition, k), definition, k);
        RC_ASSERT(back.has_value());
        RC_ASSERT(std::abs(chain_acceptance_length(*back, k) - length) < 1e-8);
    }
}

RC_GTEST_PROP(DraftTree, A_tree_is_never_worth_less_than_the_chain_of_its_depth, (void)) {
    const Acceptance acceptance = any_acceptance();
    const int steps = *rc::gen::inRange(1, 7);
    const int top_k = *rc::gen::inRange(1, 6);
    const int tokens = steps + 1 + *rc::gen::inRange(0, 20);
    const auto tree = build_draft_tree(acceptance, steps, top_k, tokens);
    RC_ASSERT(tree.acceptance_length() >= chain_acceptance_length(acceptance, steps) - 1e-12);
    RC_ASSERT(tree.acceptance_length() <= steps + 1.0 + 1e-9);
    RC_ASSERT(build_draft_tree(acceptance, steps, top_k, tokens + 1).acceptance_length() >= tree.acceptance_length());
    for (std::size_t i = 0; i < tree.nodes.size(); ++i) {
        RC_ASSERT(tree.nodes[i].parent < static_cast<int>(i));
        if (i > 0) RC_ASSERT(tree.nodes[i].path_probability <= tree.nodes[i - 1].path_probability);
    }
}

TEST(AcceptanceJson, Every_form_reads_into_the_native_one) {
    std::vector<Problem> problems;
    EXPECT_NEAR(chain_acceptance_length(read(R"({"per_position":[0.645,0.393,0.240]})", 3, problems), 3), 2.278, 1e-12);
    EXPECT_NEAR(chain_acceptance_length(read(R"({"synthetic_acceptance_rates":[0.645,0.393,0.240]})", 3, problems), 3),
                2.278, 1e-12);
    EXPECT_NEAR(chain_acceptance_length(read(R"({"conditional":[0.5,0.5]})", 2, problems), 2), 1.75, 1e-12);
    EXPECT_NEAR(chain_acceptance_length(read(R"({"acceptance_length":2.28})", 3, problems), 3), 2.28, 1e-9);
    EXPECT_NEAR(chain_acceptance_length(read(R"({"rate":0.57,"definition":"sglang_log"})", 3, problems), 3), 2.28, 1e-9);
    EXPECT_NEAR(chain_acceptance_length(read(R"({"histogram":[2,3,5]})", 2, problems), 2), 2.3, 1e-12);
    EXPECT_TRUE(problems.empty());
}

TEST(AcceptanceJson, A_scalar_length_counts_the_misses) {
    std::vector<Problem> problems;
    const auto out = read(R"({"acceptance_length":1.27,"hit":0.3})", 4, problems);
    EXPECT_TRUE(problems.empty());
    EXPECT_NEAR(chain_acceptance_length(out, 4), 1.27, 1e-9);
    EXPECT_NEAR(std::accumulate(out.per_position.begin(), out.per_position.end(), 0.0), 0.9, 1e-9);  // 0.27 / 0.3
    static_cast<void>(read(R"({"acceptance_length":3,"hit":0.3})", 4, problems));  // 2 / 0.3 > 4
    EXPECT_EQ(problems.size(), 1u);
}

TEST(AcceptanceJson, An_unknown_spread_is_assumed_and_said) {
    std::vector<Problem> problems;
    const auto assumed = read(R"({"per_position":[0.5]})", 1, problems);
    EXPECT_EQ(assumed.relative_spread, kDefaultRelativeSpread);
    ASSERT_FALSE(assumed.assumptions.empty());
    EXPECT_EQ(read(R"({"per_position":[0.5],"observed_cycles":1000})", 1, problems).relative_spread, 0);
    EXPECT_EQ(read(R"({"per_position":[0.5],"relative_spread":0})", 1, problems).relative_spread, 0);
}

TEST(AcceptanceJson, Contradictions_name_their_place) {
    const std::vector<std::pair<const char*, const char*>> cases{
        {R"({})", "/acceptance"},
        {R"({"per_position":[0.5],"rate":0.5})", "/acceptance"},
        {R"({"per_position":[0.3,0.6]})", "/acceptance/per_position"},
        {R"({"per_position":[1.3]})", "/acceptance/per_position/0"},
        {R"({"rate":0.5,"definition":"tensorrt"})", "/acceptance/definition"},
        {R"({"rate":0.5})", "/acceptance/definition"},
        {R"({"acceptance_length":9})", "/acceptance/acceptance_length"},
        {R"({"per_position":[0.5],"hit":2})", "/acceptance/hit"},
        {R"({"histogram":[1,2],"hit":0.5})", "/acceptance/hit"},
        {R"([1])", "/acceptance"},
    };
    for (const auto& [text, place] : cases) {
        std::vector<Problem> problems;
        static_cast<void>(read(text, 3, problems));
        ASSERT_FALSE(problems.empty()) << text;
        EXPECT_EQ(problems.front().place, place) << text;
    }
}

RC_GTEST_PROP(AcceptanceJson, What_is_written_is_read_back, (void)) {
    Acceptance acceptance = any_acceptance();
    acceptance.observed_cycles = *rc::gen::inRange(0, 1000);
    acceptance.relative_spread = *rc::gen::inRange(0, 100) / 100.0;
    acceptance.source = "measured";
    acceptance.assumptions = {"none"};
    const Json json = Json::parse(acceptance_to_json(acceptance).dump());
    std::vector<Problem> problems;
    const auto back = acceptance_from_json(JsonReader(json, problems), 3);
    RC_ASSERT(problems.empty());
    RC_ASSERT(back.per_position == acceptance.per_position);
    RC_ASSERT(back.hit == acceptance.hit && back.relative_spread == acceptance.relative_spread);
    RC_ASSERT(back.observed_cycles == acceptance.observed_cycles && back.source == acceptance.source);
    RC_ASSERT(back.assumptions == acceptance.assumptions);
}

}  // namespace
}  // namespace draftboard::model
