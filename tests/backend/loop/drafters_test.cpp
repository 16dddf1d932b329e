// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include <gtest/gtest.h>

#include "backend/draft_beam.h"
#include "backend/model_drafter.h"
#include "backend/ngram_drafter.h"
#include "backend/scripted_drafter.h"
#include "tests/backend/loop/toy_model.h"

namespace draftboard::backend {
namespace {

std::vector<float> logs(const std::vector<double>& p) {
    std::vector<float> out;
    for (const double x : p) out.push_back(static_cast<float>(std::log(x)));
    return out;
}

TEST(DraftBeam, Keeps_the_likeliest_paths_with_parents_before_children) {
    // Root: 0 with 0.6, 1 with 0.31. Below 0: 2 with 0.5 (0.3), 0 with 0.4 (0.24); below 1: 1 with 0.9 (0.279), 0 with 0.05.
    DraftBeam beam;
    beam.start(2);
    ASSERT_TRUE(beam.grow(logs({0.6, 0.31, 0.09}), 3));
    EXPECT_EQ(beam.frontier(), (std::vector<int>{0, 1}));
    ASSERT_TRUE(beam.grow(logs({0.4, 0.1, 0.5, 0.05, 0.9, 0.05}), 3));
    ASSERT_EQ(beam.nodes().size(), 6U);
    EXPECT_EQ(static_cast<std::int64_t>(beam.nodes().size()), DraftBeam::node_count(2, 2));
    // By score: node 0 (0.6), node 1 (0.31), node 2 (0.3), node 4 (0.279), node 3 (0.24), node 5
    EXPECT_EQ(beam.best(4), (std::vector<int>{0, 1, 2, 4}));
    EXPECT_EQ(beam.frontier(), (std::vector<int>{2, 4}));
    EXPECT_EQ(beam.origins(), (std::vector<int>{0, 1}));
    EXPECT_EQ(beam.best(100).size(), 6U);
}

TEST(DraftBeam, Equal_tokens_rank_by_id_and_certain_children_stay_behind_their_parent) {
    DraftBeam beam;
    beam.start(1);
    ASSERT_TRUE(beam.grow(std::vector<float>{1, 1, 1}, 3));
    EXPECT_EQ(beam.nodes()[0].token, 0);
    ASSERT_TRUE(beam.grow(std::vector<float>{-INFINITY, 0, -INFINITY}, 3));  // probability 1: the parent's score
    EXPECT_EQ(beam.best(2), (std::vector<int>{0, 1}));
    EXPECT_FALSE(beam.grow(std::vector<float>{NAN, 0, 0}, 3));
}

TEST(NgramDrafter, Finds_the_longest_suffix_and_of_equals_the_earliest) {
    //                             0  1  2  3  4  5  6  7  8
    const std::vector<int> tokens{1, 2, 9, 7, 2, 8, 1, 2, 5};
    const auto at = [&](std::vector<int> more, int min_n, int max_n) {
        std::vector<int> text = tokens;
        text.insert(text.end(), more.begin(), more.end());
        return find_continuation(text, min_n, max_n);
    };
    EXPECT_EQ(at({1, 2}, 1, 3), 2U);     // "1 2" at 0 and 6: the earliest
    EXPECT_EQ(at({8, 1, 2}, 1, 3), 8U);  // "8 1 2" at 5 beats "1 2" at 0
    EXPECT_EQ(at({8, 1, 2}, 1, 2), 2U);  // not with two tokens at most
    EXPECT_EQ(at({4, 2}, 1, 3), 2U);     // "2" at 1
    EXPECT_EQ(at({4, 2}, 2, 3), 11U);    // too short: a miss
    EXPECT_EQ(at({3}, 1, 3), 10U);       // never seen
    EXPECT_EQ(find_continuation(std::vector<int>{4}, 1, 3), 1U);
    EXPECT_EQ(find_continuation(std::vector<int>{}, 1, 3), 0U);
}

TEST(NgramDrafter, A_match_may_overlap_the_suffix) {
    // "a a a": the suffix "a a" stands at 0, one token follows.
    EXPECT_EQ(find_continuation(std::vector<int>{5, 5, 5}, 1, 4), 2U);
}

TEST(NgramDrafter, Pads_a_miss_or_steps_plainly_as_it_is_told) {
    const std::vector<int> hit{1, 2, 3, 1};
    const std::vector<int> miss{1, 2, 3, 4};
    const DraftSequence both[]{{0, hit, nullptr, nullptr}, {1, miss, nullptr, nullptr}};
    for (const bool pads : {true, false}) {
        auto drafter = NgramDrafter::create({4, 1, 3, pads});
        ASSERT_TRUE(drafter);
        Proposal proposal;
        ASSERT_TRUE(drafter->propose(std::span(both), 10, proposal));
        EXPECT_EQ(proposal.width, 5);
        EXPECT_EQ(proposal.drafted, (std::vector<int>{3, 0}));  // 2 3 1, then the text ends
        EXPECT_EQ(proposal.token_ids, (std::vector<int>{1, 2, 3, 1, 0, 4, 0, 0, 0, 0}));
        ASSERT_TRUE(drafter->propose(std::span(both).last(1), 10, proposal));
        EXPECT_EQ(proposal.width, pads ? 5 : 1);
    }
    EXPECT_FALSE(NgramDrafter::create({0, 1, 3, true}));
    EXPECT_FALSE(NgramDrafter::create({3, 0, 3, true}));
    EXPECT_FALSE(NgramDrafter::create({3, 4, 3, true}));
}

TEST(ScriptedDrafter, Leaves_out_end_tokens_and_covers_all_others) {
    auto drafter = ScriptedDrafter::create({0.5, 0.5}, {3, 0, 3, 250});
    ASSERT_TRUE(drafter);
    const std::vector<int> text{1};
    model::Random random(3);
    const DraftSequence sequence{0, text, nullptr, &random};
    Proposal proposal;
    std::vector<double> counts(6);
    for (int i = 0; i < 5000; ++i) {
        ASSERT_TRUE(drafter->propose(std::span(&sequence, 1), 6, proposal));
        for (int d = 1; d <= 2; ++d) ++counts[static_cast<std::size_t>(proposal.token_ids[static_cast<std::size_t>(d)])];
    }
    EXPECT_EQ(counts[0], 0);
    EXPECT_EQ(counts[3], 0);
    // Four tokens with 10000 / 4 each; four standard deviations: 4 sqrt(10000 x 0.25 x 0.75) = 173
    for (const std::size_t v : {1U, 2U, 4U, 5U}) EXPECT_NEAR(counts[v], 2500, 173);
}

TEST(ScriptedDrafter, Refuses_rates_that_are_none) {
    EXPECT_FALSE(ScriptedDrafter::create({}, {}));
    EXPECT_FALSE(ScriptedDrafter::create({0.5, 1.1}, {}));
    EXPECT_FALSE(ScriptedDrafter::create({std::nan("")}, {}));
}

TEST(ModelDrafter, Refuses_what_does_not_go_together) {
    ToyModel plain({ToyLanguage{}, ToyKind::plain, 1, 100, {}});
    ToyModel head({ToyLanguage{}, ToyKind::reads_features, 1, 100, {2, 5, 7}});
    EXPECT_TRUE(ModelDrafter::create(plain, 12, draft_model_options(3)));
    EXPECT_TRUE(ModelDrafter::create(head, 12, eagle3_options(3, 1, 0, {2, 5, 7})));
    EXPECT_FALSE(ModelDrafter::create(plain, 13, draft_model_options(3)));              // another vocabulary
    EXPECT_FALSE(ModelDrafter::create(plain, 12, draft_model_options(0)));              // no steps
    EXPECT_FALSE(ModelDrafter::create(plain, 12, mtp_options(3)));                      // reads no states
    EXPECT_FALSE(ModelDrafter::create(head, 12, eagle3_options(3, 1, 0, {2, 5})));      // a map too short
    EXPECT_FALSE(ModelDrafter::create(head, 12, eagle3_options(3, 1, 0, {2, 5, 12})));  // a map that leads outside
    EXPECT_FALSE(ModelDrafter::create(head, 12, eagle3_options(3, 4, 8, {2, 5, 7})));   // more branches than tokens
    EXPECT_FALSE(ModelDrafter::create(head, 12, eagle3_options(3, 2, 1, {2, 5, 7})));   // a tree of the root alone
}

TEST(ModelDrafter, A_tree_has_no_more_rows_than_its_beam_has_nodes) {
    ToyModel plain({ToyLanguage{}, ToyKind::plain, 1, 100, {}});
    // top_k 2, steps 2: 2 + 4 nodes and the root
    EXPECT_EQ(ModelDrafter::create(plain, 12, draft_model_options(2, 2, 50))->width(), 7);
    EXPECT_EQ(ModelDrafter::create(plain, 12, draft_model_options(2, 2, 5))->width(), 5);
    EXPECT_EQ(ModelDrafter::create(plain, 12, draft_model_options(4, 1, 9))->width(), 5);  // a chain: steps + 1
}

}  // namespace
}  // namespace draftboard::backend
