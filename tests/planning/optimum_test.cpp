// SPDX-License-Identifier: Apache-2.0
#include "planning/optimum.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace draftboard::planning {
namespace {

const std::string kData = std::string(DRAFTBOARD_SOURCE_DIR) + "/data";
constexpr const char* kScenario = "kimi-k2.5-eagle3-founding";

model::Acceptance conditional(const std::vector<double>& rates) { return model::acceptance_from_conditional(rates).value(); }

TEST(SequoiaTree, The_worked_example_of_the_header) {
    const auto trees = best_trees(conditional({0.6, 0.5}), 2, 4, 3, 1);
    EXPECT_NEAR(trees[0].length, 1, 1e-12);
    EXPECT_NEAR(trees[1].length, 1.6, 1e-12);
    EXPECT_NEAR(trees[2].length, 1.9, 1e-12);
    EXPECT_EQ(trees[2].widest, 1);
    EXPECT_EQ(trees[2].by_depth, (std::vector<int>{1, 1}));
}

TEST(SequoiaTree, A_doubtful_second_step_makes_siblings_pay) {
    // a = (0.5, 0.1): chain 1 + 0.5 + 0.05, siblings 1 + 0.5 + 0.25
    const auto trees = best_trees(conditional({0.5, 0.1}), 2, 4, 3, 1);
    EXPECT_NEAR(trees[2].length, 1.75, 1e-12);
    EXPECT_EQ(trees[2].widest, 2);
}

/// Best length over all trees of n nodes, by trying every split.
double brute_force(const std::function<double(int, int)>& p, int n, int d, int deepest) {
    if (n <= 1 || d == deepest) return 1;
    const std::function<double(int, int)> children = [&](int left, int j) -> double {
        double best = 0;
        for (int i = 1; i <= left && j <= 4; ++i) {
            best = std::max(best, p(d + 1, j) * brute_force(p, i, d + 1, deepest) + children(left - i, j + 1));
        }
        return best;
    };
    return 1 + children(n - 1, 1);
}

RC_GTEST_PROP(SequoiaTree, Is_as_good_as_trying_every_tree, ()) {
    std::vector<double> rates;
    for (int i = 0; i < 3; ++i) rates.push_back(*rc::gen::inRange(1, 99) * 0.01);
    const double decay = *rc::gen::inRange(0, 101) * 0.01;
    const auto acceptance = conditional(rates);
    const auto used = acceptance.conditional(3);
    const auto p = [&](int d, int j) {
        const double a = used[static_cast<std::size_t>(d - 1)];
        return a * std::pow((1 - a) * decay, j - 1);
    };
    const auto trees = best_trees(acceptance, 3, 4, 7, decay);
    for (int n = 1; n <= 7; ++n)
        RC_ASSERT(std::abs(trees[static_cast<std::size_t>(n - 1)].length - brute_force(p, n, 0, 3)) < 1e-12);
}

RC_GTEST_PROP(SequoiaTree, Is_never_worse_than_a_beam_of_the_same_size, ()) {
    std::vector<double> rates;
    for (int i = 0; i < 5; ++i) rates.push_back(*rc::gen::inRange(1, 99) * 0.01);
    const auto acceptance = conditional(rates);
    const auto trees = best_trees(acceptance, 5, 8, 24, 1);
    double before = 0;
    for (int n = 2; n <= 24; ++n) {
        const TreeShape& tree = trees[static_cast<std::size_t>(n - 1)];
        RC_ASSERT(tree.length >= model::build_draft_tree(acceptance, 5, 4, n).acceptance_length() - 1e-12);
        RC_ASSERT(tree.length >= before);
        RC_ASSERT(static_cast<int>(tree.parents.size()) + 1 == tree.tokens);
        RC_ASSERT(tree.tokens <= n);
        for (std::size_t i = 0; i < tree.parents.size(); ++i) RC_ASSERT(tree.parents[i] < static_cast<int>(i));
        before = tree.length;
    }
}

Optimum best_of(const model::Edits& edits, const OptimizeOptions& options = {}) {
    auto optimum = optimize(kScenario, edits, options, kData);
    EXPECT_TRUE(optimum) << (optimum ? "" : optimum.error().to_text());
    return optimum ? std::move(*optimum) : Optimum{};
}

TEST(Optimum, Is_the_best_of_what_it_lists_and_its_edits_give_its_rate) {
    const Optimum optimum = best_of({});
    ASSERT_EQ(optimum.best.size(), 10U);
    for (std::size_t i = 1; i < optimum.best.size(); ++i) {
        EXPECT_LE(optimum.best[i].prediction.tokens_per_second.value, optimum.best[i - 1].prediction.tokens_per_second.value);
        EXPECT_GE(optimum.against_best[i].confidence, 0.5);
        EXPECT_TRUE(optimum.best[i].prediction.memory.fits);
    }
    EXPECT_GT(optimum.against_base->gain.value, 1.5);
    BaseDocument base = load_base(kScenario, kData, {}).value();
    (void)pin_acceptance(base, kData);
    Variants variants(std::make_shared<SharedConstants>(kData), base);
    EXPECT_EQ(variants.predict(optimum.best.front().edits)->tokens_per_second.value,
              optimum.best.front().prediction.tokens_per_second.value);
}

TEST(Optimum, Does_not_depend_on_the_number_of_threads) {
    OptimizeOptions one;
    one.threads = 1;
    OptimizeOptions three;
    three.threads = 3;
    EXPECT_EQ(optimum_json(best_of({}, one)).dump(), optimum_json(best_of({}, three)).dump());
}

TEST(Optimum, Keeps_to_the_latency_asked_for_and_says_when_nothing_does) {
    OptimizeOptions options;
    options.max_ms_per_token = 12;
    const Optimum limited = best_of({"workload.concurrency=16"}, options);
    for (const Candidate& one : limited.best) EXPECT_LE(1e3 / one.prediction.per_user_tokens_per_second.value, 12);
    EXPECT_GT(limited.too_slow, 0U);
    options.max_ms_per_token = 0.01;
    const Optimum none = best_of({}, options);
    EXPECT_TRUE(none.best.empty());
    EXPECT_NE(to_text(optimum_document(none)).find("Nothing meets the constraints"), std::string::npos);
}

TEST(Optimum, Takes_nothing_that_is_known_to_fail_here) {
    OptimizeOptions proven;
    proven.unproven = false;
    for (const Candidate& one : best_of({}, proven).best) {
        EXPECT_EQ(one.scenario.collective.implementation, model::Implementation::nccl);
        EXPECT_EQ(one.scenario.layout.decode_context, 1);  // SGLang: nobody has published it on this GPU
    }
    bool told = false;
    for (const std::string& line : best_of({}).left_out) told = told || line.starts_with("one_shot");
    EXPECT_TRUE(told);
}

TEST(Optimum, Stops_speculating_where_plain_decoding_is_faster) {
    // A drafter that is right one time in a hundred pays nowhere; there is no other drafter for this model's name.
    const model::Edits edits = {
        "architecture=deepseek-v3", "speculation.acceptance={\"per_position\":[0.01],\"source\":\"made up\"}",
        "speculation.steps=1",      "speculation.draft_tokens=2",
        "machine=8x-h200-nvlink",   "calibration=h200"};
    const Optimum optimum = best_of(edits);
    ASSERT_FALSE(optimum.schedule.empty());
    for (const ScheduleEntry& entry : optimum.schedule) {
        EXPECT_EQ(entry.depth, 0) << entry.batch;
        EXPECT_GE(entry.confidence, 0.5);
    }
    EXPECT_NE(vllm_flags(optimum).find("plain decoding"), std::string::npos);
    EXPECT_EQ(sglang_flags(optimum), "# 1 users and more\n(no speculative flags)\n");
}

TEST(Optimum, The_schedule_covers_every_batch_size_once) {
    Optimum optimum;
    optimum.scenario.speculation.method = model::SpeculationMethod::mtp;
    optimum.schedule = {{1, 5, 0, 0, 1, true}, {2, 5, 0, 0, 1, true}, {4, 3, 0, 0, 1, true}, {8, 0, 0, 0, 1, true}};
    EXPECT_EQ(
        vllm_flags(optimum),
        "--speculative-config '{\"method\":\"mtp\",\"num_speculative_tokens\":5,"
              "\"num_speculative_tokens_per_batch_size\":[[1,3,5],[4,7,3],[8,1048576,0]]}'");
}

}  // namespace
}  // namespace draftboard::planning
