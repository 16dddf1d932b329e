// SPDX-License-Identifier: Apache-2.0
#pragma once
// Non-negative least squares: the one solver behind every fit, because bandwidths, rates and times can't be
// negative. Robustness and weights are the caller's affair (kernel_fit.h).
//
//   minimise |A x - b|^2  subject to  x >= 0                      A: rows x columns, row-major
//
// The active-set method of Lawson and Hanson (Solving Least Squares Problems, 1974, ch. 23). At the
// solution the Karush-Kuhn-Tucker conditions hold, with g = A^T (b - A x):
//   x_j >= 0,   g_j <= 0,   x_j g_j = 0     (a positive x_j has no slope left, a zero one would fall)
// Worked example: A = I, b = (1, -2): x = (1, 0).

#include <cstddef>
#include <vector>

#include "model/error.h"

namespace draftboard::calibration {

inline constexpr std::size_t kMaxNnlsColumns = 64;

/// Errors: sizes that don't agree, no rows or columns, more than kMaxNnlsColumns columns, non-finite entries.
[[nodiscard]] model::Expected<std::vector<double>> solve_nnls(const std::vector<double>& a,
                                                              const std::vector<double>& b,
                                                              std::size_t columns);

}  // namespace draftboard::calibration
