// SPDX-License-Identifier: Apache-2.0
#pragma once
// The rows of a fused cycle's passes as the host lays them out once, at begin(): a chain of the same length for every sequence.
// What changes from cycle to cycle is then chain_layout.h's; slots, first rows, parents and masks stay as they are here. Host
// code, without CUDA: chain_cycle.cpp takes the words to the devices.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/cuda/pass_block.h"
#include "backend/sequence_table.h"

namespace draftboard::backend::cuda {

struct ChainRows {
    /// `first_row`: uncommitted rows of the sequence before this pass. Logits of all rows, or of one a sequence.
    ChainRows(model::Pass pass, const std::vector<int>& slots, int tokens, int first_row, bool all_logits) {
        rows.pass = pass;
        rows.sequences = static_cast<int>(slots.size());
        rows.tokens = tokens;
        rows.slots = slots;
        rows.committed.assign(slots.size(), 0);
        rows.first_row.assign(slots.size(), first_row);
        parents.resize(static_cast<std::size_t>(first_row + tokens));
        for (std::size_t u = 0; u < parents.size(); ++u) parents[u] = static_cast<std::int32_t>(u) - 1;
        rows.parents.assign(slots.size(), parents.data());
        rows.token_ids.assign(slots.size() * static_cast<std::size_t>(tokens), 0);
        rows.positions.assign(rows.token_ids.size(), 0);
        for (int s = 0; s < rows.sequences; ++s) {
            for (int t = 0; t < tokens; ++t) {
                if (all_logits || t + 1 == tokens) rows.logits_rows.push_back(s * tokens + t);
            }
        }
    }
    ChainRows(const ChainRows&) = delete;  // rows point into parents
    ChainRows& operator=(const ChainRows&) = delete;
    PassRows rows;
    std::vector<std::int32_t> parents;

    /// The words of the pass, with the commits that wait.
    [[nodiscard]] PassBlock block(int capacity) const {
        return {rows.sequences, rows.tokens, static_cast<int>(rows.logits_rows.size()), capacity};
    }
    [[nodiscard]] std::vector<std::int32_t> words(std::span<const PendingCommit> pending, int capacity) const {
        const PassBlock of_pass = block(capacity);
        std::vector<std::int32_t> out(static_cast<std::size_t>(of_pass.words()));
        of_pass.fill(rows, pending, out.data());
        return out;
    }
};

/// The verify pass of a cycle that begins: `committed` rows by sequence, and root and drafts of each.
class VerifyRows : public ChainRows {
   public:
    VerifyRows(const std::vector<int>& slots, const std::vector<std::int64_t>& committed, const std::vector<int>& token_ids,
               int width)
        : ChainRows(width > 1 ? model::Pass::verify : model::Pass::decode, slots, width, 0, true) {
        rows.token_ids = token_ids;
        rows.committed = committed;
        const auto tokens = static_cast<std::size_t>(width);
        for (std::size_t row = 0; row < rows.positions.size(); ++row)
            rows.positions[row] = committed[row / tokens] + static_cast<std::int64_t>(row % tokens);
    }
};

/// Where the drafter's cache stands when a cycle begins, as chain_layout.h has it: `length` rows, the last of which wait to be
/// committed by the drafter's next pass, the first extend pass here.
[[nodiscard]] inline std::int32_t rows_that_wait(std::span<const PendingCommit> pending, int slot) {
    for (const PendingCommit& commit : pending) {
        if (commit.slot == slot) return static_cast<std::int32_t>(commit.path.size());
    }
    return 0;
}

}  // namespace draftboard::backend::cuda
