// SPDX-License-Identifier: Apache-2.0
#pragma once
// From logits to a token: greedy choice, or a distribution and a draw from it. Temperature comes first, then the nucleus
// (top-p), as in the engines. Nothing here knows drafts: verification.h does.
//
//   q_v = exp((l_v - max l) / T) / sum         T: temperature
//   nucleus: tokens by falling q (ties: lower id first) until their sum reaches top_p; p_v = q_v / sum over the nucleus
//
// Logits may be -inf (a masked token); NaN, +inf, or no finite logit at all is refused.
// Worked example: logits (0, ln 2, ln 5), T = 1: q = (1/8, 2/8, 5/8). top_p = 0.8 keeps tokens 2 and 1: p = (0, 2/7, 5/7).

#include <span>
#include <vector>

#include "model/error.h"
#include "model/random.h"

namespace draftboard::backend {

struct Sampling {
    double temperature = 0;      ///< 0: greedy
    double top_p = 1;            ///< in (0, 1]
    double tie_tolerance = 1e-3; ///< greedy choices whose gap in logits is below this are reported as near-ties

    [[nodiscard]] bool greedy() const { return temperature == 0; }
    [[nodiscard]] std::vector<model::Problem> validate() const;
};

struct GreedyChoice {
    int token = -1;  ///< the largest logit, the lowest id of equals; -1: the logits are not usable
    double gap = 0;  ///< to the second largest; infinite where there is none
};
[[nodiscard]] GreedyChoice greedy_choice(std::span<const float> logits);

/// Holds the scratch memory of the nucleus, so that nothing is allocated in the loop.
class DistributionMaker {
   public:
    /// `probabilities` has as many entries as `logits`. False: the logits are not usable.
    /// Precondition: sampling.temperature > 0.
    [[nodiscard]] bool make(std::span<const float> logits, const Sampling& sampling, std::span<float> probabilities);

   private:
    void keep_nucleus(std::span<float> probabilities, double top_p);
    std::vector<int> order_;
};

/// Draws an index in proportion to `weights` (not negative, not all zero); one number of `random` a draw, the ids walked in
/// rising order. An entry of weight zero is never drawn. -1: all weights are zero.
[[nodiscard]] int draw(std::span<const float> weights, model::Random& random);

}  // namespace draftboard::backend
