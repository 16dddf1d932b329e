// SPDX-License-Identifier: Apache-2.0
#pragma once
// The lossless part of speculative decoding: which drafts of one sequence are kept, given the target's logits at every
// row, so that the text is distributed exactly as the target alone would write it. It runs no model and holds no cache.
//
//   greedy       a child is accepted if it is the argmax at its parent; the bonus token is the argmax where the path ends.
//   drawn draft  x ~ q at a row with target distribution p (Leviathan et al. 2023): accept with min(1, p(x)/q(x)), else the
//                last token is drawn from max(0, p - q), normalised.
//   proposal without chance (trees, lookups, greedy drafts): children one after the other; x is accepted with p(x), else
//                p(x) = 0 and p is normalised again (q is all on x). What is left after all children gives the last token.
//                Siblings are therefore never accepted with more than their share: sum over children = sum of p.
//   scripted     the given number of drafts is accepted; the text then means nothing. The last token is the target's.
//
// Worked example: p = (0.5, 0.3, 0.2), children (0, 1): 0 accepted with 0.5; else p = (0, 0.6, 0.4), 1 accepted with 0.6:
// P(1) = 0.5 x 0.6 = 0.3, P(2) = 0.5 x 0.4 = 0.2, as without drafts.

#include <span>
#include <vector>

#include "backend/drafter.h"
#include "backend/sampling.h"
#include "model/random.h"

namespace draftboard::backend {

struct Verdict {
    std::vector<int> path;       ///< rows to commit: the root's row 0, then the accepted drafts'
    std::vector<int> tokens;     ///< the accepted drafts, then the target's own (bonus) token: as many as the path
    std::vector<int> near_ties;  ///< greedy: which of `tokens` were chosen by a gap below the tolerance
    [[nodiscard]] int accepted() const { return static_cast<int>(path.size()) - 1; }
};

class Verifier {
   public:
    /// `output`: its rows `first_row` .. + width are this sequence's; where it holds choices alone, sampling has to be greedy.
    /// False: logits on the path are NaN or infinite.
    [[nodiscard]] bool verify(const Proposal& proposal, std::size_t sequence, const ForwardOutput& output, std::size_t first_row,
                              const Sampling& sampling, model::Random& random, Verdict& verdict);

   private:
    struct Step {
        int child = -1;       ///< the accepted one; -1: the path ends with `token`
        int token = -1;       ///< -1: the logits are not usable
        bool near_tie = false;
    };
    [[nodiscard]] Step greedy_step(const Proposal& proposal, std::size_t sequence, int row, const GreedyChoice& choice,
                                   double tie_tolerance);
    [[nodiscard]] Step sampled_step(const Proposal& proposal, std::size_t sequence, int row, std::span<const float> logits,
                                    const Sampling& sampling, model::Random& random);

    DistributionMaker maker_;
    std::vector<float> target_;  ///< p at the current row
};

}  // namespace draftboard::backend
