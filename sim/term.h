// SPDX-License-Identifier: Apache-2.0
#pragma once
// The terms that an answer is made of, and how their uncertainties combine. A term is named by its pass
// and its kind ("verify.experts"); terms of one kind err together, in every pass, kinds independently.
//
//   sigma(log T)       = sqrt( sum_kinds (share_k r_k)^2 )           share_k = t_k / T, r_k relative error
//   sigma(log T1 / T2) = sqrt( sum_kinds ((share1_k - share2_k) r_k)^2 )      what both share cancels
// Worked example: T1 is 60 % wait (r 0.3) and 40 % experts (r 0.1), T2 100 % experts:
// sigma(log T1/T2) = sqrt(0.18^2 + 0.06^2) = 0.19.

#include <string>
#include <vector>

#include "model/acceptance.h"
#include "sim/pass_cost.h"

namespace draftboard::sim {

struct Term {
    std::string name;
    double ms = 0;
    double share = 0;     ///< of the cycle
    double sigma_ms = 0;  ///< one standard deviation
    Coverage coverage = Coverage::datasheet;
};

/// Adds a pass's terms under `prefix`, `repeat` times over; equal names are summed.
void append_terms(std::vector<Term>& terms, const std::string& prefix, const PassCost& cost,
                  double repeat);

/// Fills Term::share; returns the sum of all ms.
double set_shares(std::vector<Term>& terms);

/// The worst coverage that carries at least a tenth of the time.
[[nodiscard]] Coverage overall_coverage(const std::vector<Term>& terms);

/// One-sigma uncertainties of the logarithm.
struct TimeUncertainty {
    double cycle = 0;
    double plain = 0;
    double ratio = 0;  ///< of cycle / plain
};
[[nodiscard]] TimeUncertainty combine(const std::vector<Term>& cycle,
                                      const std::vector<Term>& plain);

inline constexpr double kNormal90 = 1.6448536269514722;  ///< standard normal, two-sided 90 %

/// The 90 % interval around `value` for a standard deviation of its logarithm.
[[nodiscard]] model::Interval interval_around(double value, double log_sigma);
/// The inverse: log standard deviation of a 90 % interval; 0 for an interval without width.
[[nodiscard]] double log_sigma_of(const model::Interval& interval);

}  // namespace draftboard::sim
