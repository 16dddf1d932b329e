// SPDX-License-Identifier: Apache-2.0
#include "calibration/nnls.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace draftboard::calibration {
namespace {

TEST(Nnls, A_negative_target_gives_zero) {
    // A = I, b = (1, -2): x = (1, 0)
    const auto x = solve_nnls({1, 0, 0, 1}, {1, -2}, 2);
    ASSERT_TRUE(x);
    EXPECT_NEAR((*x)[0], 1, 1e-12);
    EXPECT_EQ((*x)[1], 0);
}

TEST(Nnls, A_positive_solution_is_the_ordinary_least_squares_one) {
    // y = 1 + 2 t at t = 0, 1, 2, 3, exactly
    const auto x = solve_nnls({1, 0, 1, 1, 1, 2, 1, 3}, {1, 3, 5, 7}, 2);
    ASSERT_TRUE(x);
    EXPECT_NEAR((*x)[0], 1, 1e-10);
    EXPECT_NEAR((*x)[1], 2, 1e-10);
}

TEST(Nnls, A_falling_line_becomes_its_mean) {
    // y = 3 - t at t = 0, 1, 2: the slope may not be negative, so the constant is the mean, 2
    const auto x = solve_nnls({1, 0, 1, 1, 1, 2}, {3, 2, 1}, 2);
    ASSERT_TRUE(x);
    EXPECT_NEAR((*x)[0], 2, 1e-10);
    EXPECT_EQ((*x)[1], 0);
}

TEST(Nnls, Equal_columns_and_empty_columns_still_end) {
    const auto x = solve_nnls({1, 1, 0, 2, 2, 0, 3, 3, 0}, {1, 2, 3}, 3);
    ASSERT_TRUE(x);
    // Any split of 1 between the equal columns is a solution.
    EXPECT_NEAR((*x)[0] + (*x)[1], 1, 1e-9);
    EXPECT_EQ((*x)[2], 0);
}

TEST(Nnls, Malformed_problems_are_refused) {
    EXPECT_FALSE(solve_nnls({}, {}, 0));
    EXPECT_FALSE(solve_nnls({1, 2, 3}, {1, 2}, 2));
    EXPECT_FALSE(solve_nnls({std::numeric_limits<double>::quiet_NaN()}, {1}, 1));
    EXPECT_FALSE(solve_nnls({1}, {std::numeric_limits<double>::infinity()}, 1));
    EXPECT_FALSE(solve_nnls(std::vector<double>(65), {1}, 65));
}

// The KKT conditions of the header, with g = A^T (b - A x), relative to the size of the problem.
RC_GTEST_PROP(Nnls, The_solution_meets_the_kkt_conditions, ()) {
    const auto columns = *rc::gen::inRange<std::size_t>(1, 8);
    const auto rows = *rc::gen::inRange<std::size_t>(1, 30);
    const auto numbers = *rc::gen::container<std::vector<int>>(
        rows * (columns + 1), rc::gen::inRange(-1000, 1000));
    std::vector<double> a;
    std::vector<double> b;
    for (std::size_t i = 0; i < rows * columns; ++i) a.push_back(numbers[i] / 100.0);
    for (std::size_t i = rows * columns; i < numbers.size(); ++i) b.push_back(numbers[i] / 10.0);
    const auto x = solve_nnls(a, b, columns);
    RC_ASSERT(x.has_value());

    double norm_a = 1e-300;
    double norm_b = 1e-300;
    for (const double value : a) norm_a += value * value;
    for (const double value : b) norm_b += value * value;
    const double tolerance = 1e-8 * std::sqrt(norm_a) * std::sqrt(norm_b);
    std::vector<double> residual = b;
    for (std::size_t i = 0; i < rows; ++i) {
        for (std::size_t j = 0; j < columns; ++j) residual[i] -= a[i * columns + j] * (*x)[j];
    }
    for (std::size_t j = 0; j < columns; ++j) {
        double slope = 0;
        for (std::size_t i = 0; i < rows; ++i) slope += a[i * columns + j] * residual[i];
        RC_ASSERT((*x)[j] >= 0);
        RC_ASSERT(slope <= tolerance);
        if ((*x)[j] > 1e-9) RC_ASSERT(std::abs(slope) <= tolerance);
    }
}

}  // namespace
}  // namespace draftboard::calibration
