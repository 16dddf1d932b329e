// SPDX-License-Identifier: Apache-2.0
#include "backend/scripted_drafter.h"

#include <algorithm>

#include <fmt/format.h>

#include "model/acceptance.h"

namespace draftboard::backend {

model::Expected<ScriptedDrafter> ScriptedDrafter::create(std::vector<double> conditional, std::vector<int> end_tokens) {
    if (conditional.empty() || conditional.size() >= static_cast<std::size_t>(model::kMaxDraftTokens)) {
        return model::fail(model::ErrorCode::invalid_input, "scripted acceptance needs one rate a draft position",
                           "acceptance");
    }
    for (std::size_t i = 0; i < conditional.size(); ++i) {
        if (!(conditional[i] >= 0 && conditional[i] <= 1)) {
            return model::fail(model::ErrorCode::invalid_input, fmt::format("rate {} must lie in 0 .. 1", i + 1),
                               "acceptance");
        }
    }
    std::sort(end_tokens.begin(), end_tokens.end());
    end_tokens.erase(std::unique(end_tokens.begin(), end_tokens.end()), end_tokens.end());
    return ScriptedDrafter(std::move(conditional), std::move(end_tokens));
}

int ScriptedDrafter::arbitrary_token(int vocabulary, model::Random& random) const {
    // The r-th token that ends nothing: step over the end tokens at or below it, in rising order.
    const auto in_range = std::lower_bound(end_tokens_.begin(), end_tokens_.end(), vocabulary) -
                          std::lower_bound(end_tokens_.begin(), end_tokens_.end(), 0);
    const int others = vocabulary - static_cast<int>(in_range);
    if (others <= 0) return 0;
    int token = static_cast<int>(random.below(static_cast<std::uint32_t>(others)));
    for (auto end = std::lower_bound(end_tokens_.begin(), end_tokens_.end(), 0); end != end_tokens_.end() && *end <= token;
         ++end)
        ++token;
    return token;
}

model::Expected<void> ScriptedDrafter::propose(std::span<const DraftSequence> sequences, int vocabulary,
                                               Proposal& proposal) {
    proposal.reset(sequences, width(), vocabulary);
    for (std::size_t s = 0; s < sequences.size(); ++s) {
        model::Random& random = *sequences[s].random;
        for (int d = 0; d < depth(); ++d) {
            proposal.token_ids[s * static_cast<std::size_t>(width()) + static_cast<std::size_t>(d) + 1] =
                arbitrary_token(vocabulary, random);
        }
        int accepted = 0;
        while (accepted < depth() && random.uniform() <= conditional_[static_cast<std::size_t>(accepted)]) ++accepted;
        proposal.drafted[s] = depth();
        proposal.scripted[s] = accepted;
    }
    return {};
}

}  // namespace draftboard::backend
