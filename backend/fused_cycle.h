// SPDX-License-Identifier: Apache-2.0
#pragma once
// Whole greedy cycles on the device: verify, accept, and the drafts of the next cycle follow one another there, without the host
// in between. The host reads a cycle's tokens while the next one runs. cuda/chain_cycle.h implements it; a loop without one
// decodes as ever.
//
//   begin   takes over sequences whose proposal is made, launches the first cycle
//   step    waits for the cycle in flight, launches the next unless told otherwise, gives the tokens of the one that is done
//   leave   hands sequences back as they would stand after a cycle of the loop's own: the target's rows committed, the drafter
//           yet to observe the rows of the last one. Only when nothing is in flight.
//
// Between begin and leave nobody else may run or commit these sequences; clearing one that is finished is allowed.
// Chains only, greedy only: the tokens are those that the loop would choose.

#include <span>
#include <vector>

#include "backend/drafter.h"
#include "backend/language_model.h"
#include "model/error.h"

namespace draftboard::backend {

/// One sequence's part of a cycle.
struct CycleOutcome {
    std::vector<GreedyChoice> choices;  ///< the accepted drafts, then the target's own token; a token of -1: logits not usable
    [[nodiscard]] int accepted() const { return static_cast<int>(choices.size()) - 1; }
};

struct CycleTimes {
    double verify_ms = 0;  ///< on the device
    double draft_ms = 0;
};

class FusedCycle {
   public:
    virtual ~FusedCycle() = default;
    [[nodiscard]] virtual int width() const = 0;  ///< rows a sequence; 1: plain decoding
    [[nodiscard]] virtual int most_sequences() const = 0;
    /// `proposal`: of exactly these sequences, a full chain each; width 1 without a drafter.
    [[nodiscard]] virtual model::Expected<void> begin(std::span<const DraftSequence> sequences, const Proposal& proposal) = 0;
    [[nodiscard]] virtual bool running() const = 0;
    /// Outcomes in the order of begin().
    [[nodiscard]] virtual model::Expected<std::span<const CycleOutcome>> step(bool launch_next, CycleTimes& times) = 0;
    /// `slots`: those that go on. `output`: what the target's last verify pass would have given a drafter to observe: row t of
    /// the s-th sequence of begin() is row s * width() + t.
    [[nodiscard]] virtual model::Expected<void> leave(std::span<const int> slots, ForwardOutput& output) = 0;
};

}  // namespace draftboard::backend
