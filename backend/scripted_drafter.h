// SPDX-License-Identifier: Apache-2.0
#pragma once
// Acceptance by script, for timing runs: drafts are arbitrary tokens, and how many of them are accepted is drawn from given
// conditional rates, as vLLM's synthetic rejection sampling does. The cost of a cycle at a chosen acceptance can so be
// measured without a drafter that reaches it. THE TEXT IS MEANINGLESS: accepted tokens are the arbitrary ones, only the
// last of each cycle is the target's own choice.
//
//   P(at least i accepted) = a_1 a_2 ... a_i,   L = 1 + sum over i of that product
//
// Drafts are uniform over the vocabulary, so that verified rows touch as many experts as unrelated tokens do (more
// than real text would; a plan's routing overlap says how much). They take no pass of a drafter: draft time is zero.

#include <vector>

#include "backend/drafter.h"

namespace draftboard::backend {

class ScriptedDrafter final : public Drafter {
 public:
    /// `conditional`: a_1 .. a_k, each in [0, 1]; k is the depth. Tokens that end a text are left out of the drafts.
    [[nodiscard]] static model::Expected<ScriptedDrafter> create(std::vector<double> conditional,
                                                                 std::vector<int> end_tokens);

    [[nodiscard]] int depth() const override { return static_cast<int>(conditional_.size()); }
    [[nodiscard]] int width() const override { return depth() + 1; }
    [[nodiscard]] model::Expected<void> observe(const Observation&) override { return {}; }
    [[nodiscard]] model::Expected<void> propose(std::span<const DraftSequence> sequences, int vocabulary,
                                                Proposal& proposal) override;
    void release(int) override {}

 private:
    ScriptedDrafter(std::vector<double> conditional, std::vector<int> end_tokens)
        : conditional_(std::move(conditional)), end_tokens_(std::move(end_tokens)) {}
    [[nodiscard]] int arbitrary_token(int vocabulary, model::Random& random) const;

    std::vector<double> conditional_;
    std::vector<int> end_tokens_;  ///< sorted
};

}  // namespace draftboard::backend
