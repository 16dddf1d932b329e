// SPDX-License-Identifier: Apache-2.0
#include "backend/sequence_table.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace draftboard::backend {

using model::ErrorCode;
using model::Pass;

SequenceTable::SequenceTable(int sequences, std::int64_t max_length, int max_uncommitted)
    : sequences_(static_cast<std::size_t>(sequences)), max_length_(max_length), max_uncommitted_(max_uncommitted) {}

model::Expected<void> SequenceTable::check(const Batch& batch, std::span<const int> logits_rows, std::int64_t tokens,
                                           int feature_width) const {
    const auto refuse = [](std::string message, std::string hint) {
        return model::fail(ErrorCode::invalid_input, std::move(message), "engine", std::move(hint));
    };
    const std::size_t count = batch.sequences.size() * static_cast<std::size_t>(std::max(batch.tokens, 0));
    if (count == 0 || batch.token_ids.size() != count || (!batch.parents.empty() && batch.parents.size() != count)) {
        return refuse("a batch's tokens or parents are not sequences x tokens", "give one token for each row");
    }
    if (!logits_rows.empty() && logits_rows.size() != batch.sequences.size()) {
        return refuse("the rows whose logits are wanted are not one a sequence", "give one row a sequence, or none");
    }
    for (const int row : logits_rows) {
        if (row < 0 || row >= batch.tokens) return refuse("a row whose logits are wanted is not there", "count from 0");
    }
    const auto width = static_cast<std::size_t>(feature_width);
    if (batch.features.size() != count * width) {
        return refuse(fmt::format("a batch brings {} feature numbers, {} are needed", batch.features.size(), count * width),
                      "give one row of features for each token");
    }
    for (const int token : batch.token_ids) {
        if (token < 0 || token >= tokens) {
            return refuse(fmt::format("token {} is outside of the vocabulary", token),
                          fmt::format("tokens go from 0 to {}", tokens - 1));
        }
    }
    std::vector<bool> seen(sequences_.size());
    for (std::size_t s = 0; s < batch.sequences.size(); ++s) {
        const int slot = batch.sequences[s];
        if (slot < 0 || slot >= capacity() || seen[static_cast<std::size_t>(slot)]) {
            return refuse(fmt::format("sequence {} is not there or given twice", slot),
                          fmt::format("sequences go from 0 to {}", capacity() - 1));
        }
        seen[static_cast<std::size_t>(slot)] = true;
        const Sequence& state = sequences_[static_cast<std::size_t>(slot)];
        const auto rows = static_cast<std::int64_t>(state.parents.size());
        if (state.committed + rows + batch.tokens > max_length_) {
            return model::fail(ErrorCode::too_large,
                               fmt::format("sequence {} would grow to {} tokens, room is for {}", slot,
                                           state.committed + rows + batch.tokens, max_length_),
                               "engine", "raise the maximum length, or stop earlier");
        }
        if (max_uncommitted_ > 0 && rows + batch.tokens > max_uncommitted_) {
            return model::fail(ErrorCode::too_large,
                               fmt::format("sequence {} would have {} uncommitted rows, the engine keeps {}", slot,
                                           rows + batch.tokens, max_uncommitted_),
                               "engine", "draft fewer steps or branches, or prefill in shorter chunks");
        }
        if (commits_at_once(batch.pass) && (rows > 0 || !batch.parents.empty())) {
            return refuse("a pass that commits its rows follows uncommitted ones", "commit or discard them first");
        }
        for (int t = 0; t < batch.tokens && !batch.parents.empty(); ++t) {
            const int parent = batch.parents[s * static_cast<std::size_t>(batch.tokens) + static_cast<std::size_t>(t)];
            if (parent < -1 || parent >= rows + t) return refuse("a row's parent does not come before it", "order rows by depth");
        }
    }
    return {};
}

const PassRows& SequenceTable::lay_out(const Batch& batch, std::span<const int> logits_rows) {
    rows_.pass = batch.pass;
    rows_.sequences = static_cast<int>(batch.sequences.size());
    rows_.tokens = batch.tokens;
    rows_.slots = batch.sequences;
    rows_.token_ids = batch.token_ids;
    rows_.features = batch.features.empty() ? nullptr : batch.features.data();
    rows_.committed.clear();
    rows_.first_row.clear();
    rows_.parents.clear();
    rows_.positions.clear();
    rows_.logits_rows.clear();
    const bool all_logits = batch.pass == Pass::decode || batch.pass == Pass::verify || batch.pass == Pass::draft;
    for (std::size_t s = 0; s < batch.sequences.size(); ++s) {
        Sequence& state = sequences_[static_cast<std::size_t>(batch.sequences[s])];
        const auto first = static_cast<int>(state.parents.size());
        const int base = static_cast<int>(s) * batch.tokens;
        for (int t = 0; t < batch.tokens; ++t) {
            const std::int32_t parent = batch.parents.empty() ? first + t - 1 : batch.parents[static_cast<std::size_t>(base + t)];
            const std::int32_t depth = parent < 0 ? 0 : state.depths[static_cast<std::size_t>(parent)] + 1;
            state.parents.push_back(parent);
            state.depths.push_back(depth);
            rows_.positions.push_back(state.committed + depth);
            if (all_logits) rows_.logits_rows.push_back(base + t);
        }
        if (!all_logits) rows_.logits_rows.push_back(base + (logits_rows.empty() ? batch.tokens - 1 : logits_rows[s]));
        rows_.committed.push_back(state.committed);
        rows_.first_row.push_back(first);
        rows_.parents.push_back(state.parents.data());
    }
    return rows_;
}

void SequenceTable::ran(const Batch& batch) {
    if (!commits_at_once(batch.pass)) return;
    for (const int slot : batch.sequences) {
        sequences_[static_cast<std::size_t>(slot)].committed += batch.tokens;
        discard(slot);
    }
}

void SequenceTable::discard(int sequence) {
    Sequence& state = sequences_[static_cast<std::size_t>(sequence)];
    state.parents.clear();
    state.depths.clear();
}

void SequenceTable::clear(int sequence) {
    discard(sequence);
    sequences_[static_cast<std::size_t>(sequence)].committed = 0;
    std::erase_if(pending_, [&](const PendingCommit& pending) { return pending.slot == sequence; });
}

void SequenceTable::commit(int sequence, std::span<const int> path) {
    Sequence& state = sequences_[static_cast<std::size_t>(sequence)];
    if (!path.empty()) pending_.push_back({sequence, state.committed, {path.begin(), path.end()}});
    state.committed += static_cast<std::int64_t>(path.size());
    discard(sequence);
}

}  // namespace draftboard::backend
