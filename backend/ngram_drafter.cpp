// SPDX-License-Identifier: Apache-2.0
#include "backend/ngram_drafter.h"

#include <algorithm>

#include "model/acceptance.h"

namespace draftboard::backend {

std::size_t find_continuation(std::span<const int> tokens, int min_n, int max_n) {
    const std::size_t size = tokens.size();
    std::size_t found = size;
    std::size_t longest = 0;
    const auto limit = static_cast<std::size_t>(std::max(max_n, 0));
    for (std::size_t end = 1; end < size && longest < limit; ++end) {
        std::size_t match = 0;  // of the suffix with what ends before `end`
        while (match < limit && match < end && tokens[end - 1 - match] == tokens[size - 1 - match]) ++match;
        if (match > longest) {
            longest = match;
            found = end;
        }
    }
    return longest >= static_cast<std::size_t>(std::max(min_n, 1)) ? found : size;
}

model::Expected<NgramDrafter> NgramDrafter::create(const NgramOptions& options) {
    if (options.steps < 1 || options.steps >= model::kMaxDraftTokens) {
        return model::fail(model::ErrorCode::invalid_input, "n-gram lookup needs at least one step, and fewer than 4096",
                           "steps");
    }
    if (options.min_n < 1 || options.max_n < options.min_n || options.max_n > model::kMaxDraftTokens) {
        return model::fail(model::ErrorCode::invalid_input, "the lengths of n-grams must satisfy 1 <= min_n <= max_n",
                           "ngram");
    }
    return NgramDrafter(options);
}

model::Expected<void> NgramDrafter::propose(std::span<const DraftSequence> sequences, int vocabulary, Proposal& proposal) {
    std::vector<std::size_t> places;
    bool hit = options_.pad_misses;
    for (const DraftSequence& sequence : sequences) {
        places.push_back(find_continuation(sequence.tokens, options_.min_n, options_.max_n));
        hit = hit || places.back() < sequence.tokens.size();
    }
    proposal.reset(sequences, hit ? width() : 1, vocabulary);
    if (!hit) return {};
    for (std::size_t s = 0; s < sequences.size(); ++s) {
        const auto drafts = sequences[s].tokens.subspan(places[s]);
        const std::size_t count = std::min(drafts.size(), static_cast<std::size_t>(options_.steps));
        std::copy_n(drafts.begin(), count,
                    proposal.token_ids.begin() + static_cast<std::ptrdiff_t>(s * static_cast<std::size_t>(width()) + 1));
        proposal.drafted[s] = static_cast<int>(count);
    }
    return {};
}

}  // namespace draftboard::backend
