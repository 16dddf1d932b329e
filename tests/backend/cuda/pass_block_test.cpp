// SPDX-License-Identifier: Apache-2.0
// The block of words that a pass takes to the device, read back on the host as a kernel would read it. No GPU is needed.
#include "backend/cuda/pass_block.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "backend/cuda/device_affinity.h"

namespace draftboard::backend::cuda {
namespace {

/// The block of a pass as it would lie on the device.
struct Laid {
    std::vector<std::int32_t> words;
    PassView view;
    CommitView commits;
};

Laid lay(SequenceTable& table, const Batch& batch, int capacity) {
    const PassRows& rows = table.lay_out(batch, {});
    const PassBlock block(rows.sequences, rows.tokens, static_cast<int>(rows.logits_rows.size()), capacity);
    Laid laid;
    laid.words.assign(static_cast<std::size_t>(block.words()), -7);  // poison
    block.fill(rows, table.pending(), laid.words.data());
    laid.view = block.view(laid.words.data(), !commits_at_once(batch.pass));
    laid.commits = block.commits(laid.words.data());
    return laid;
}

Batch batch_of(model::Pass pass, std::vector<int> sequences, int tokens, std::vector<int> parents = {}) {
    Batch batch;
    batch.pass = pass;
    batch.sequences = std::move(sequences);
    batch.tokens = tokens;
    batch.token_ids.resize(batch.sequences.size() * static_cast<std::size_t>(tokens));
    std::iota(batch.token_ids.begin(), batch.token_ids.end(), 100);
    batch.parents = std::move(parents);
    return batch;
}

bool sees(const PassView& view, int row, int uncommitted) {
    return (view.masks[row * kMaskWords + uncommitted / 32] >> (uncommitted % 32) & 1u) != 0;
}

TEST(PassBlock, Shows_a_row_its_ancestors_and_itself) {
    // Tree of sequence 1 after 3 committed tokens: 0; 1 and 2 below 0; 3 below 2.
    SequenceTable table(2, 64);
    table.ran(batch_of(model::Pass::prefill, {1}, 3));
    const Laid laid = lay(table, batch_of(model::Pass::verify, {1}, 4, {-1, 0, 0, 2}), 2);
    EXPECT_EQ(laid.view.slots[0], 1);
    EXPECT_EQ(laid.view.committed[0], 3);
    EXPECT_TRUE(laid.view.keeps_uncommitted);
    const std::vector<std::vector<int>> ancestors{{0}, {0, 1}, {0, 2}, {0, 2, 3}};
    for (int row = 0; row < 4; ++row) {
        for (int u = 0; u < kMaxUncommitted; ++u) {
            const auto& mine = ancestors[static_cast<std::size_t>(row)];
            EXPECT_EQ(sees(laid.view, row, u), std::ranges::find(mine, u) != mine.end()) << row << " " << u;
        }
        EXPECT_EQ(laid.view.positions[row], 3 + static_cast<int>(ancestors[static_cast<std::size_t>(row)].size()) - 1);
        EXPECT_EQ(laid.view.token_ids[row], 100 + row);
    }
    EXPECT_EQ(laid.view.parents[3], 2);
    EXPECT_EQ(laid.view.logits_count, 4);
}

TEST(PassBlock, Goes_on_from_rows_of_earlier_passes_across_the_words_of_a_mask) {
    // 40 uncommitted rows in a chain, then one more: it sees all 41.
    SequenceTable table(1, 64);
    (void)table.lay_out(batch_of(model::Pass::verify, {0}, 40), {});
    const Laid laid = lay(table, batch_of(model::Pass::draft, {0}, 1), 1);
    EXPECT_EQ(laid.view.first_row[0], 40);
    for (int u = 0; u < kMaxUncommitted; ++u) EXPECT_EQ(sees(laid.view, 0, u), u <= 40) << u;
    EXPECT_EQ(laid.view.positions[0], 40);
}

TEST(PassBlock, Hands_over_the_commits_that_wait_and_no_others) {
    SequenceTable table(3, 64);
    (void)table.lay_out(batch_of(model::Pass::verify, {2}, 4, {-1, 0, 0, 2}), {});
    table.commit(2, std::vector<int>{0, 2, 3});
    const Laid laid = lay(table, batch_of(model::Pass::decode, {0}, 1), 3);
    ASSERT_EQ(laid.commits.count, 3);
    EXPECT_EQ(laid.commits.slots[0], 2);
    EXPECT_EQ(laid.commits.lengths[0], 3);
    EXPECT_EQ(laid.commits.committed[0], 0);
    EXPECT_EQ(std::vector<int>(laid.commits.paths, laid.commits.paths + 3), (std::vector<int>{0, 2, 3}));
    EXPECT_EQ(laid.commits.lengths[1], 0);
    EXPECT_EQ(laid.commits.lengths[2], 0);
}

TEST(PassBlock, Never_needs_more_words_than_it_says) {
    for (int capacity = 1; capacity <= 40; capacity += 3) {
        for (int rows : {1, 16, 256}) {
            for (int sequences = 1; sequences <= std::min(rows, capacity); ++sequences) {
                const int tokens = rows / sequences;
                EXPECT_LE(PassBlock(sequences, tokens, sequences * tokens, capacity).words(),
                          PassBlock::most_words(rows, capacity))
                    << sequences << " x " << tokens << " of " << capacity;
            }
        }
    }
}

TEST(PassBlock, Has_buckets_of_contexts_that_double) {
    EXPECT_EQ(visible_bucket(1, 256, 4096), 256);
    EXPECT_EQ(visible_bucket(256, 256, 4096), 256);
    EXPECT_EQ(visible_bucket(257, 256, 4096), 512);
    EXPECT_EQ(visible_bucket(3000, 256, 3500), 3500);  // never beyond what a sequence holds
}

TEST(DeviceAffinity, Reads_the_kernels_lists_of_cores) {
    const auto cores = parse_core_list("0-2,8\n");
    ASSERT_TRUE(cores.has_value());
    EXPECT_EQ(CPU_COUNT(&*cores), 4);
    EXPECT_TRUE(CPU_ISSET(8, &*cores));
    for (const char* wrong : {"", "\n", "a", "3-1", "1-", "1;2", "-4", "99999999", "1,,2"})
        EXPECT_FALSE(parse_core_list(wrong)) << wrong;
}

}  // namespace
}  // namespace draftboard::backend::cuda
