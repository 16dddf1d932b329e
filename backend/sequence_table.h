// SPDX-License-Identifier: Apache-2.0
#pragma once
// The host's half of an engine, the same on every device: which rows each sequence has committed, which uncommitted rows hang on
// which, and how the rows of a pass are laid out for the ranks. It checks what callers give and holds no cache: the ranks move
// theirs by the pending commits that it hands out.

#include <cstdint>
#include <span>
#include <vector>

#include "backend/language_model.h"
#include "model/error.h"
#include "model/plan.h"

namespace draftboard::backend {

/// The rows of one pass, read by all ranks.
struct PassRows {
    model::Pass pass = model::Pass::decode;
    int sequences = 1;
    int tokens = 1;                            ///< a sequence
    std::vector<int> slots;                    ///< by sequence
    std::vector<std::int64_t> committed;       ///< by sequence
    std::vector<int> first_row;                ///< by sequence: uncommitted rows before this pass
    std::vector<const std::int32_t*> parents;  ///< by sequence: of all uncommitted rows, those of this pass included
    std::vector<int> token_ids;                ///< by row
    std::vector<std::int64_t> positions;       ///< by row
    const float* features = nullptr;           ///< by row
    std::vector<int> logits_rows;              ///< rows whose logits are wanted, ascending
};

/// Rows that the loop has accepted, still to be moved in the caches.
struct PendingCommit {
    int slot = 0;
    std::int64_t committed = 0;
    std::vector<int> path;
};

/// Rows of these passes are committed as they come.
[[nodiscard]] constexpr bool commits_at_once(model::Pass pass) {
    return pass == model::Pass::prefill || pass == model::Pass::decode;
}

class SequenceTable {
   public:
    /// `max_uncommitted`: rows of a sequence that are not committed, those of the pass included; 0: no limit.
    SequenceTable(int sequences, std::int64_t max_length, int max_uncommitted = 0);

    [[nodiscard]] int capacity() const { return static_cast<int>(sequences_.size()); }
    [[nodiscard]] std::int64_t max_length() const { return max_length_; }
    [[nodiscard]] std::int64_t length(int sequence) const { return sequences_[static_cast<std::size_t>(sequence)].committed; }
    [[nodiscard]] int uncommitted(int sequence) const {
        return static_cast<int>(sequences_[static_cast<std::size_t>(sequence)].parents.size());
    }

    /// What is wrong with a batch, before anything runs. `tokens`: the vocabulary; `feature_width`: of a row.
    [[nodiscard]] model::Expected<void> check(const Batch& batch, std::span<const int> logits_rows, std::int64_t tokens,
                                              int feature_width) const;
    /// Appends the rows of a checked batch; the result is valid until the next change of the table.
    const PassRows& lay_out(const Batch& batch, std::span<const int> logits_rows);
    /// To be called once the pass has run: rows of passes that commit at once become committed.
    void ran(const Batch& batch);

    void commit(int sequence, std::span<const int> path);
    /// Rows that a device has committed, or taken back, by itself. Precondition: none uncommitted, none pending.
    void set_length(int sequence, std::int64_t tokens) { sequences_[static_cast<std::size_t>(sequence)].committed = tokens; }
    void discard(int sequence);
    void clear(int sequence);
    /// Commits since the ranks last took them.
    [[nodiscard]] std::span<const PendingCommit> pending() const { return pending_; }
    void pending_taken() { pending_.clear(); }

   private:
    struct Sequence {
        std::int64_t committed = 0;
        std::vector<std::int32_t> parents;  // of uncommitted rows
        std::vector<std::int32_t> depths;   // ancestors of uncommitted rows
    };
    std::vector<Sequence> sequences_;
    std::vector<PendingCommit> pending_;
    std::int64_t max_length_;
    int max_uncommitted_;
    PassRows rows_;
};

}  // namespace draftboard::backend
