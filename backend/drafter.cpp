// SPDX-License-Identifier: Apache-2.0
#include "backend/drafter.h"

namespace draftboard::backend {

void Proposal::reset(std::span<const DraftSequence> sequences, int rows, int vocabulary_size) {
    width = rows;
    vocabulary = vocabulary_size;
    const std::size_t count = sequences.size();
    const auto per_sequence = static_cast<std::size_t>(rows);
    token_ids.assign(count * per_sequence, 0);
    parents.resize(count * per_sequence);
    for (std::size_t s = 0; s < count; ++s) {
        token_ids[s * per_sequence] = sequences[s].tokens.back();
        for (std::size_t r = 0; r < per_sequence; ++r) parents[s * per_sequence + r] = static_cast<int>(r) - 1;
    }
    drafted.assign(count, 0);
    sampled.assign(count, 0);
    distributions.clear();
    scripted.assign(count, -1);
}

std::span<float> Proposal::distribution(std::size_t sequence, int draft) {
    const auto drafts = static_cast<std::size_t>(width - 1);
    const auto size = static_cast<std::size_t>(vocabulary);
    if (distributions.empty()) distributions.assign(drafted.size() * drafts * size, 0.0F);
    return std::span(distributions).subspan((sequence * drafts + static_cast<std::size_t>(draft)) * size, size);
}

}  // namespace draftboard::backend
