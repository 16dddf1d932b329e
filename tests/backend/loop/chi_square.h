// SPDX-License-Identifier: Apache-2.0
#pragma once
// Pearson's goodness of fit: are these counts drawn from that distribution?
//   X2 = sum over cells of (count - n p)^2 / (n p);  critical value: the 99.9 % quantile of chi-square, cells - 1 degrees
// Cells that expect fewer than 5 are put together, as the test needs. A count in a cell that can't happen fails outright.

#include <cmath>
#include <limits>
#include <vector>

#include <boost/math/distributions/chi_squared.hpp>

namespace draftboard::backend {

struct ChiSquare {
    double statistic = 0;
    double critical = 0;
    [[nodiscard]] bool fits() const { return statistic <= critical; }
};

inline ChiSquare chi_square(const std::vector<double>& counts, const std::vector<double>& probabilities) {
    double n = 0;
    for (const double count : counts) n += count;
    ChiSquare out;
    int cells = 0;
    double rare_count = 0;
    double rare_expected = 0;
    const auto add = [&](double count, double expected) {
        out.statistic += (count - expected) * (count - expected) / expected;
        ++cells;
    };
    for (std::size_t i = 0; i < counts.size(); ++i) {
        const double expected = n * probabilities[i];
        if (expected == 0 && counts[i] > 0) out.statistic = std::numeric_limits<double>::infinity();
        if (expected >= 5) {
            add(counts[i], expected);
        } else {
            rare_count += counts[i];
            rare_expected += expected;
        }
    }
    if (rare_expected >= 5) add(rare_count, rare_expected);
    out.critical = boost::math::quantile(boost::math::chi_squared(cells - 1), 0.999);
    return out;
}

}  // namespace draftboard::backend
