// SPDX-License-Identifier: Apache-2.0
#include "model/routing.h"

#include <chrono>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "model/json_reader.h"
#include "model/routing_json.h"

namespace draftboard::model {
namespace {

DistinctExperts uniform(int experts, int per_token, int sequences, int tokens, int ranks = 1) {
    return distinct_experts(Routing{}, experts, per_token, sequences, tokens, ranks, 1);
}

TEST(Routing, Uniform_experts_follow_the_closed_form) {
    // E (1 - (1 - k/E)^T), the table of published shapes at T = 1, 2, 4, 8, 16, 32, 64, to one decimal
    const std::vector<std::pair<int, double>> kimi{{1, 8}, {2, 15.8}, {4, 31.0}, {8, 59.5}, {16, 109.8}, {32, 188}, {64, 284}};
    for (const auto& [tokens, expected] : kimi) {
        EXPECT_NEAR(uniform(384, 8, 1, tokens).total, expected, 0.6) << tokens;
        EXPECT_NEAR(uniform(384, 8, 1, tokens).total, 384 * (1 - std::pow(1 - 8.0 / 384, tokens)), 1e-9);
    }
    EXPECT_NEAR(uniform(512, 10, 1, 8).total, 74.7, 0.05);
    EXPECT_NEAR(uniform(128, 4, 1, 16).total, 51, 0.05);
}

TEST(Routing, Independent_sequences_count_like_tokens) {
    EXPECT_DOUBLE_EQ(uniform(384, 8, 4, 1).total, uniform(384, 8, 1, 4).total);
}

TEST(Routing, Overlap_pulls_one_sequence_towards_its_first_token) {
    Routing routing;
    routing.draft_overlap = 0.38;
    // k + (D(4) - k) (1 - 0.38) with D(4) = 31.0
    const double independent = 384 * (1 - std::pow(1 - 8.0 / 384, 4));
    EXPECT_NEAR(distinct_experts(routing, 384, 8, 1, 4, 1, 1).total, 8 + (independent - 8) * 0.62, 1e-6);
    routing.draft_overlap = 1;
    EXPECT_DOUBLE_EQ(distinct_experts(routing, 384, 8, 1, 7, 1, 1).total, 8);
    // Full overlap, three sequences: three independent tokens.
    EXPECT_NEAR(distinct_experts(routing, 384, 8, 3, 7, 1, 1).total, uniform(384, 8, 3, 1).total, 1e-9);
}

TEST(Routing, Power_law_probabilities_sum_to_k_and_never_exceed_one) {
    for (const double alpha : {0.0, 1.01, 1.2, 4.0, 16.0}) {
        const auto p = power_law_probabilities(128, 8, alpha);
        EXPECT_NEAR(std::accumulate(p.begin(), p.end(), 0.0), 8.0, 1e-9) << alpha;
        for (std::size_t e = 0; e < p.size(); ++e) {
            EXPECT_LE(p[e], 1.0);
            EXPECT_LE(p[e], e > 0 ? p[e - 1] : 1.0);
        }
    }
    // alpha 0 is uniform.
    EXPECT_DOUBLE_EQ(power_law_probabilities(128, 8, 0.0)[77], 8.0 / 128);
}

TEST(Routing, Skew_touches_fewer_experts) {
    Routing skewed;
    skewed.kind = RoutingKind::power_law;
    EXPECT_LT(distinct_experts(skewed, 384, 8, 1, 16, 1, 1).total, uniform(384, 8, 1, 16).total);
    EXPECT_NEAR(distinct_experts(skewed, 384, 8, 1, 1, 1, 1).total, 8, 1e-9);
}

/// E[max rank load] of one token: k balls without replacement into R urns of E / R places, by counting
/// P(all loads <= x) = ways / C(E, k) with a convolution over ranks.
double exact_one_token_maximum(int experts, int k, int ranks) {
    const int places = experts / ranks;
    const auto choose = [](int n, int r) { return std::exp(std::lgamma(n + 1.0) - std::lgamma(r + 1.0) - std::lgamma(n - r + 1.0)); };
    double expected = 0;
    for (int x = 0; x < k; ++x) {  // E[max] = sum over x of P(max > x)
        std::vector<double> ways(static_cast<std::size_t>(k) + 1, 0.0);
        ways[0] = 1;
        for (int rank = 0; rank < ranks; ++rank) {
            std::vector<double> next(ways.size(), 0.0);
            for (int used = 0; used <= k; ++used) {
                for (int here = 0; here <= std::min(x, k - used); ++here) {
                    next[static_cast<std::size_t>(used + here)] += ways[static_cast<std::size_t>(used)] * choose(places, here);
                }
            }
            ways = next;
        }
        expected += 1 - ways.back() / choose(experts, k);
    }
    return expected;
}

TEST(Routing, The_busiest_rank_of_one_token_agrees_with_counting) {
    const double exact = exact_one_token_maximum(384, 8, 8);
    const auto drawn = uniform(384, 8, 1, 1, 8);
    EXPECT_NEAR(drawn.busiest_rank, exact, 0.15) << exact;  // 128 draws, sd about 0.7 / sqrt(128)
    EXPECT_DOUBLE_EQ(drawn.mean_rank, 1.0);
    EXPECT_DOUBLE_EQ(drawn.busiest_rank, drawn.busiest_rank_tokens);  // one token: pairs are experts
}

TEST(Routing, One_rank_is_its_own_busiest) {
    const auto one = uniform(384, 8, 2, 4, 1);
    EXPECT_DOUBLE_EQ(one.busiest_rank, one.total);
    EXPECT_DOUBLE_EQ(one.busiest_rank_tokens, 64);
}

TEST(Routing, The_same_seed_gives_the_same_answer) {
    Routing skewed;
    skewed.kind = RoutingKind::power_law;
    const auto a = distinct_experts(skewed, 384, 8, 2, 4, 8, 7);
    const auto b = distinct_experts(skewed, 384, 8, 2, 4, 8, 7);
    EXPECT_EQ(a.busiest_rank, b.busiest_rank);
    EXPECT_EQ(a.busiest_rank_tokens, b.busiest_rank_tokens);
}

TEST(Routing, A_saturated_step_touches_all_experts_of_every_rank) {
    const auto many = uniform(128, 8, 64, 64, 8);
    EXPECT_NEAR(many.total, 128, 1e-6);
    EXPECT_NEAR(many.busiest_rank, 16, 1e-6);
    EXPECT_GT(many.busiest_rank_tokens, 4096.0);  // the mean is 64 x 64 x 8 / 8
    EXPECT_LT(many.busiest_rank_tokens, 4500.0);
}

TEST(Routing, Draws_stay_within_five_milliseconds) {
    double best = 1e9;
    for (int i = 0; i < 5; ++i) {
        const auto start = std::chrono::steady_clock::now();
        EXPECT_GT(uniform(384, 8, 64, 4, 8).busiest_rank, 0);
        best = std::min(best, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
    }
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__)
    EXPECT_LT(best, 5.0);
#else
    EXPECT_LT(best, 500.0);
#endif
}

TEST(Routing, Impossible_counts_give_zeros) {
    EXPECT_EQ(uniform(0, 8, 1, 1).total, 0);
    EXPECT_EQ(uniform(4, 8, 1, 1).total, 0);
    EXPECT_EQ(uniform(384, 8, 0, 1).total, 0);
    EXPECT_EQ(uniform(384, 8, 1, -3, 8).busiest_rank, 0);
    EXPECT_GT(uniform(65535, 65535, 1, 1, 1000000).busiest_rank, 0);
}

RC_GTEST_PROP(Routing, Distinct_experts_are_bounded_and_grow_with_tokens, (void)) {
    const int experts = *rc::gen::inRange(2, 512);
    const int k = *rc::gen::inRange(1, std::min(experts, 16) + 1);
    const int sequences = *rc::gen::inRange(1, 6);
    const int tokens = *rc::gen::inRange(1, 40);
    const int ranks = *rc::gen::element(1, 2, 8);
    Routing routing;
    routing.kind = *rc::gen::element(RoutingKind::uniform, RoutingKind::power_law);
    routing.draft_overlap = *rc::gen::element(0.0, 0.31, 1.0);
    const auto now = distinct_experts(routing, experts, k, sequences, tokens, ranks, 3);
    const auto next = distinct_experts(routing, experts, k, sequences, tokens + 1, ranks, 3);
    RC_ASSERT(now.total >= k - 1e-9);
    RC_ASSERT(now.total <= std::min<double>(experts, double(k) * tokens * sequences) + 1e-9);
    RC_ASSERT(next.total >= now.total - 1e-9);
    RC_ASSERT(next.busiest_rank >= now.busiest_rank - 1e-6);
    RC_ASSERT(now.busiest_rank >= now.mean_rank - 1e-9);
    RC_ASSERT(now.busiest_rank <= now.total + 1e-9);
    RC_ASSERT(now.busiest_rank_tokens <= double(k) * tokens * sequences + 1e-9);
    RC_ASSERT(now.busiest_rank_tokens >= double(k) * tokens * sequences / std::min(ranks, experts) - 1e-9);
}

RoutingTrace small_trace() {  // 4 tokens, 2 layers, 2 of 8 experts
    return {8, 2, 2, {0, 1, 4, 5, 0, 1, 6, 7, 2, 3, 4, 5, 2, 3, 6, 7}};
}

TEST(RoutingTrace, Windows_are_counted_per_layer) {
    Routing routing;
    routing.kind = RoutingKind::trace;
    routing.trace = small_trace();
    // Layer 0 holds {01}{01}{23}{23}: windows of 2 (the last wraps) touch 2, 4, 2, 4: mean 3.
    // Layer 1 holds {45}{67}{45}{67}: always 4. Over both layers 3.5.
    EXPECT_DOUBLE_EQ(distinct_experts(routing, 8, 2, 1, 2, 1, 1).total, 3.5);
    EXPECT_DOUBLE_EQ(distinct_experts(routing, 8, 2, 1, 1, 1, 1).total, 2);
    EXPECT_DOUBLE_EQ(distinct_experts(routing, 8, 2, 1, 4, 1, 1).total, 4);
    // Two ranks of four experts: all of a layer's experts lie on one rank.
    EXPECT_DOUBLE_EQ(distinct_experts(routing, 8, 2, 1, 2, 2, 1).busiest_rank, 3.5);
    EXPECT_DOUBLE_EQ(distinct_experts(routing, 8, 2, 1, 2, 2, 1).busiest_rank_tokens, 4);
    // Far more tokens than were recorded neither hang nor find new experts.
    EXPECT_DOUBLE_EQ(distinct_experts(routing, 8, 2, 1 << 20, 1 << 20, 1, 1).total, 4);
}

TEST(RoutingTrace, Text_is_read_with_its_places) {
    const auto good = parse_routing_trace(
        R"({"format":"draftboard.routing_trace","version":1,"experts":8,"experts_per_token":2,"layers":1,)"
        R"("tokens":[[[0,7]],[[3,1]]]})", "t");
    ASSERT_TRUE(good) << good.error().to_text();
    EXPECT_EQ(good->tokens(), 2u);
    EXPECT_EQ(good->choices, (std::vector<std::uint16_t>{0, 7, 3, 1}));
    for (const char* tokens : {"[[[0,8]]]", "[[[0,-1]]]", "[[[0]]]", "[[[0,1],[2,3]]]", "[[[1,1]]]", "[]", "7", "[[[0.5,1]]]"}) {
        const auto bad = parse_routing_trace(
            std::string(R"({"format":"draftboard.routing_trace","version":1,"experts":8,"experts_per_token":2,"layers":1,"tokens":)") +
                tokens + "}", "t");
        ASSERT_FALSE(bad) << tokens;
        EXPECT_NE(bad.error().to_text().find("/tokens"), std::string::npos) << bad.error().to_text();
    }
    EXPECT_FALSE(read_routing_trace("does/not/exist.json"));
}

TEST(Routing, Json_gives_back_what_was_written) {
    Routing routing;
    routing.kind = RoutingKind::power_law;
    routing.alpha = 1.01;
    routing.draft_overlap = 0.31;
    std::vector<Problem> problems;
    const Json json = routing_to_json(routing);
    const Routing read = routing_from_json(JsonReader(json, problems));
    EXPECT_TRUE(problems.empty());
    EXPECT_EQ(read.kind, routing.kind);
    EXPECT_EQ(read.alpha, routing.alpha);
    EXPECT_EQ(read.draft_overlap, routing.draft_overlap);
    const Json wrong = Json::parse(R"({"kind":"trace","draft_overlap":2})");
    static_cast<void>(routing_from_json(JsonReader(wrong, problems, "/routing")));
    ASSERT_EQ(problems.size(), 2u);
    EXPECT_EQ(problems[0].place, "/routing/draft_overlap");
    EXPECT_EQ(problems[1].place, "/routing/trace_file");
}

}  // namespace
}  // namespace draftboard::model
