// SPDX-License-Identifier: Apache-2.0
#pragma once
// Does A really beat B? Two predictions of one box by one set of constants are wrong together: a calibration that has experts
// 10 % too slow has them too slow in both. What both share cancels in their ratio, and only the rest makes it uncertain.
//
//   g       = log(rate_B / rate_A)
//   sigma^2 = sigma_times^2 + sigma_length^2 + sigma_shape^2 + sigma_run^2
//   times   = sum over kinds of terms ((share_A - share_B) r_k)^2       as for a speed-up (sim/term.h): kinds err together
//   length  0 for one drafter (same method and acceptance source): |s_A - s_B|, its error moves both; else s_A, s_B in quadrature
//   shape   what a scenario's acceptance does not measure: siblings of a tree, positions beyond its vector.
//           d = log(length / length of the measured chain), sigma = kShapeError |d_A - d_B|
//   run     0 on one machine under one engine: host and build are the same; else kRunSigma each
//   P(B beats A) = Phi(g / sigma)                                       interval of the gain: exp(g -+ 1.645 sigma)
//
// Worked example: A is 60 % wait (r 0.3) and 40 % experts (r 0.1), B experts alone, twice as fast: sigma_times 0.19,
// g = 0.69, P = Phi(3.6) = 0.9998; B only 10 % faster: g = 0.095, P = Phi(0.5) = 0.69.
// What this can't hold is an error of the model that is B's alone (a kernel that nobody measured): its term's own interval is
// all that speaks for it.

#include "model/scenario.h"
#include "sim/prediction.h"

namespace draftboard::planning {

/// Assumed: half of what unmeasured drafts are said to bring may be wrong, one sigma.
inline constexpr double kShapeError = 0.5;

/// Stands among the assumptions of an acceptance whose tree_length was computed and not measured.
inline constexpr const char* kComputedTree = "length of the tree: computed from the chain's rates and the sibling decay";

struct Contest {
    model::Interval gain;  ///< rate_B / rate_A, 90 %
    double sigma = 0;      ///< of its logarithm
    double sigma_times = 0;
    double sigma_length = 0;
    double sigma_shape = 0;
    double sigma_run = 0;
    double confidence = 0.5;  ///< P(B beats A)
};

/// Rates are tokens per second of all sequences.
[[nodiscard]] Contest contest(const model::Scenario& scenario_a, const sim::Prediction& a, const model::Scenario& scenario_b,
                              const sim::Prediction& b);

/// "certainly", "very likely", "likely", "a toss-up", ...: words for P.
[[nodiscard]] std::string_view confidence_word(double confidence);

}  // namespace draftboard::planning
