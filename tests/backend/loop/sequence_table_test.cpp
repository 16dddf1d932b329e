// SPDX-License-Identifier: Apache-2.0
// The host's half of an engine: which rows are where.
#include "backend/sequence_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace draftboard::backend {
namespace {

Batch batch_of(model::Pass pass, std::vector<int> sequences, int tokens, std::vector<int> parents = {}) {
    Batch batch;
    batch.pass = pass;
    batch.sequences = std::move(sequences);
    batch.tokens = tokens;
    batch.token_ids.resize(batch.sequences.size() * static_cast<std::size_t>(tokens));
    std::iota(batch.token_ids.begin(), batch.token_ids.end(), 0);
    batch.parents = std::move(parents);
    return batch;
}

TEST(SequenceTable, Places_a_tree_behind_what_is_committed) {
    SequenceTable table(3, 32);
    const Batch prompt = batch_of(model::Pass::prefill, {1}, 5);
    ASSERT_TRUE(table.check(prompt, {}, 100, 0));
    (void)table.lay_out(prompt, {});
    table.ran(prompt);
    EXPECT_EQ(table.length(1), 5);
    const PassRows& rows = table.lay_out(batch_of(model::Pass::verify, {1}, 4, {-1, 0, 0, 2}), {});
    EXPECT_EQ(rows.positions, (std::vector<std::int64_t>{5, 6, 6, 7}));  // committed + ancestors
    EXPECT_EQ(rows.logits_rows, (std::vector<int>{0, 1, 2, 3}));
    EXPECT_EQ(table.uncommitted(1), 4);
    table.commit(1, std::vector<int>{0, 2, 3});
    EXPECT_EQ(table.length(1), 8);
    EXPECT_EQ(table.uncommitted(1), 0);
    ASSERT_EQ(table.pending().size(), 1U);
    EXPECT_EQ(table.pending()[0].committed, 5);
    table.clear(1);
    EXPECT_TRUE(table.pending().empty());
    EXPECT_EQ(table.length(1), 0);
}

TEST(SequenceTable, Refuses_more_uncommitted_rows_than_an_engine_keeps) {
    SequenceTable table(1, 1000, 8);
    EXPECT_TRUE(table.check(batch_of(model::Pass::verify, {0}, 8), {}, 100, 0));
    (void)table.lay_out(batch_of(model::Pass::verify, {0}, 6), {});
    const auto refused = table.check(batch_of(model::Pass::draft, {0}, 3), {}, 100, 0);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, model::ErrorCode::too_large);
    EXPECT_THAT(refused.error().message, testing::HasSubstr("9 uncommitted rows"));
}

TEST(SequenceTable, Takes_lengths_from_a_device_that_commits_by_itself) {
    SequenceTable table(1, 100);
    table.set_length(0, 40);
    const PassRows& rows = table.lay_out(batch_of(model::Pass::decode, {0}, 1), {});
    EXPECT_EQ(rows.positions, std::vector<std::int64_t>{40});
    EXPECT_EQ(rows.committed, std::vector<std::int64_t>{40});
}

}  // namespace
}  // namespace draftboard::backend
