// SPDX-License-Identifier: Apache-2.0
#pragma once
// All that varies from pass to pass, as one block of 32-bit words that a single copy takes to the device: tokens, positions,
// lengths, parents and masks of the rows (pass_view.h), and the commits that wait (delta_net.h). Where each array lies depends on
// the shape of the pass alone, so that a captured graph keeps its pointers. Pure host code: no CUDA call.

#include <cstdint>
#include <span>

#include "backend/cuda/delta_net.h"
#include "backend/cuda/pass_view.h"
#include "backend/sequence_table.h"

namespace draftboard::backend::cuda {

class PassBlock {
   public:
    /// `capacity`: sequences of the engine, each of which may have a commit waiting.
    PassBlock(int sequences, int tokens, int logits_count, int capacity);

    [[nodiscard]] std::int64_t words() const { return words_; }
    /// Words that no pass of an engine exceeds.
    [[nodiscard]] static std::int64_t most_words(int max_rows, int capacity);
    /// Writes words() words. Precondition: rows of this shape; no sequence has more than kMaxUncommitted uncommitted rows.
    void fill(const PassRows& rows, std::span<const PendingCommit> pending, std::int32_t* words) const;
    /// The same block where the device has it.
    [[nodiscard]] PassView view(const std::int32_t* words, bool keeps_uncommitted) const;
    [[nodiscard]] PassWords writable(std::int32_t* words) const;
    [[nodiscard]] CommitView commits(const std::int32_t* words) const;

   private:
    int sequences_;
    int tokens_;
    int logits_count_;
    int capacity_;
    std::int64_t token_ids_ = 0;
    std::int64_t positions_ = 0;
    std::int64_t slots_ = 0;
    std::int64_t committed_ = 0;
    std::int64_t first_row_ = 0;
    std::int64_t parents_ = 0;
    std::int64_t masks_ = 0;
    std::int64_t logits_rows_ = 0;
    std::int64_t commit_slots_ = 0;
    std::int64_t commit_committed_ = 0;
    std::int64_t commit_lengths_ = 0;
    std::int64_t commit_paths_ = 0;
    std::int64_t words_ = 0;
};

/// Most positions that a row of the pass sees, itself included.
[[nodiscard]] std::int64_t most_visible(const PassRows& rows);
/// The bucket of contexts that one captured graph serves: the next power of two from `smallest` on, at most `most`.
[[nodiscard]] std::int64_t visible_bucket(std::int64_t visible, std::int64_t smallest, std::int64_t most);

}  // namespace draftboard::backend::cuda
