// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/pass_block.h"

#include <algorithm>
#include <numeric>

namespace draftboard::backend::cuda {

namespace {

constexpr std::int64_t kAlignment = 32;  // words: every array starts at a multiple of 128 bytes

}  // namespace

PassBlock::PassBlock(int sequences, int tokens, int logits_count, int capacity)
    : sequences_(sequences), tokens_(tokens), logits_count_(logits_count), capacity_(capacity) {
    const auto take = [&](std::int64_t count) {
        const std::int64_t at = words_;
        words_ += (count + kAlignment - 1) / kAlignment * kAlignment;
        return at;
    };
    const std::int64_t rows = std::int64_t{sequences} * tokens;
    token_ids_ = take(rows);
    positions_ = take(rows);
    slots_ = take(sequences);
    committed_ = take(sequences);
    first_row_ = take(sequences);
    parents_ = take(std::int64_t{sequences} * kMaxUncommitted);
    masks_ = take(rows * kMaskWords);
    logits_rows_ = take(logits_count);
    commit_slots_ = take(capacity);
    commit_committed_ = take(capacity);
    commit_lengths_ = take(capacity);
    commit_paths_ = take(std::int64_t{capacity} * kMaxUncommitted);
}

std::int64_t PassBlock::most_words(int max_rows, int capacity) {
    // Each array of the widest pass, all its rows with logits, and the slack of its alignment.
    const PassBlock one_row_each(std::min(max_rows, capacity), 1, 0, capacity);
    return one_row_each.words() + std::int64_t{max_rows} * (3 + kMaskWords) + 4 * kAlignment;
}

void PassBlock::fill(const PassRows& rows, std::span<const PendingCommit> pending, std::int32_t* words) const {
    std::copy(rows.token_ids.begin(), rows.token_ids.end(), words + token_ids_);
    std::transform(rows.positions.begin(), rows.positions.end(), words + positions_,
                   [](std::int64_t p) { return static_cast<std::int32_t>(p); });
    std::copy(rows.slots.begin(), rows.slots.end(), words + slots_);
    std::transform(rows.committed.begin(), rows.committed.end(), words + committed_,
                   [](std::int64_t c) { return static_cast<std::int32_t>(c); });
    std::copy(rows.first_row.begin(), rows.first_row.end(), words + first_row_);
    std::copy(rows.logits_rows.begin(), rows.logits_rows.end(), words + logits_rows_);
    for (int s = 0; s < sequences_; ++s) {
        const auto index = static_cast<std::size_t>(s);
        const std::int32_t* parents = rows.parents[index];
        const int first = rows.first_row[index];
        std::copy(parents, parents + first + tokens_, words + parents_ + std::int64_t{s} * kMaxUncommitted);
        for (int t = 0; t < tokens_; ++t) {
            std::int32_t* mask = words + masks_ + (std::int64_t{s} * tokens_ + t) * kMaskWords;
            std::fill(mask, mask + kMaskWords, 0);
            for (std::int32_t u = first + t; u >= 0; u = parents[u]) {
                mask[u / 32] = static_cast<std::int32_t>(static_cast<std::uint32_t>(mask[u / 32]) | std::uint32_t{1} << (u % 32));
            }
        }
    }
    std::fill(words + commit_slots_, words + commit_paths_, 0);
    for (std::int64_t c = 0; c < capacity_; ++c) {  // a chain, unless said otherwise: chain_kernels.h sets lengths alone
        std::iota(words + commit_paths_ + c * kMaxUncommitted, words + commit_paths_ + (c + 1) * kMaxUncommitted, 0);
    }
    for (std::size_t c = 0; c < pending.size(); ++c) {
        const auto at = static_cast<std::int64_t>(c);
        words[commit_slots_ + at] = pending[c].slot;
        words[commit_committed_ + at] = static_cast<std::int32_t>(pending[c].committed);
        words[commit_lengths_ + at] = static_cast<std::int32_t>(pending[c].path.size());
        std::copy(pending[c].path.begin(), pending[c].path.end(), words + commit_paths_ + at * kMaxUncommitted);
    }
}

PassView PassBlock::view(const std::int32_t* words, bool keeps_uncommitted) const {
    PassView view;
    view.sequences = sequences_;
    view.tokens = tokens_;
    view.token_ids = words + token_ids_;
    view.positions = words + positions_;
    view.slots = words + slots_;
    view.committed = words + committed_;
    view.first_row = words + first_row_;
    view.parents = words + parents_;
    view.masks = reinterpret_cast<const std::uint32_t*>(words + masks_);
    view.logits_rows = words + logits_rows_;
    view.logits_count = logits_count_;
    view.keeps_uncommitted = keeps_uncommitted;
    return view;
}

PassWords PassBlock::writable(std::int32_t* words) const {
    return {words + token_ids_,    words + positions_,        words + slots_,          words + committed_, words + logits_rows_,
            words + commit_slots_, words + commit_committed_, words + commit_lengths_, capacity_};
}

CommitView PassBlock::commits(const std::int32_t* words) const {
    return {capacity_, words + commit_slots_, words + commit_committed_, words + commit_lengths_, words + commit_paths_};
}

std::int64_t most_visible(const PassRows& rows) {
    return rows.positions.empty() ? 0 : *std::ranges::max_element(rows.positions) + 1;
}

std::int64_t visible_bucket(std::int64_t visible, std::int64_t smallest, std::int64_t most) {
    std::int64_t bucket = smallest;
    while (bucket < visible) bucket *= 2;
    return std::min(bucket, std::max(most, visible));
}

}  // namespace draftboard::backend::cuda
