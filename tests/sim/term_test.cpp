// SPDX-License-Identifier: Apache-2.0
#include "sim/term.h"

#include <cmath>

#include <gtest/gtest.h>

namespace draftboard::sim {
namespace {

TEST(Term, Errors_of_one_kind_add_and_kinds_combine_in_quadrature) {
    // cycle: wait 60 (r 0.3), experts 40 (r 0.1); plain: experts 100 (r 0.1)
    const std::vector<Term> cycle{{"verify.collectives.wait", 60, 0, 18, Coverage::datasheet},
                                  {"verify.experts", 40, 0, 4, Coverage::measured}};
    const std::vector<Term> plain{{"plain.experts", 100, 0, 10, Coverage::measured}};
    const TimeUncertainty sigma = combine(cycle, plain);
    EXPECT_NEAR(sigma.cycle, std::hypot(0.6 * 0.3, 0.4 * 0.1), 1e-12);
    EXPECT_NEAR(sigma.plain, 0.1, 1e-12);
    // experts: (0.4 - 1.0) x 0.1, wait: 0.6 x 0.3
    EXPECT_NEAR(sigma.ratio, std::hypot(0.18, 0.06), 1e-12);
}

TEST(Term, A_cycle_equal_to_the_plain_step_has_a_certain_ratio) {
    const std::vector<Term> a{{"verify.experts", 5, 0, 2, Coverage::measured}, {"host", 1, 0, 1, Coverage::datasheet}};
    const std::vector<Term> b{{"plain.experts", 5, 0, 2, Coverage::measured}, {"host", 1, 0, 1, Coverage::datasheet}};
    EXPECT_NEAR(combine(a, b).ratio, 0, 1e-12);
}

TEST(Term, Intervals_and_log_sigmas_are_inverse) {
    EXPECT_NEAR(log_sigma_of(interval_around(7, 0.21)), 0.21, 1e-12);
    EXPECT_EQ(log_sigma_of({1, 1, 1}), 0);
}

TEST(Term, Coverage_is_the_worst_that_carries_a_tenth_of_the_time) {
    const auto of = [](double datasheet_ms) {
        return overall_coverage({{"a", 100 - datasheet_ms, 0, 0, Coverage::measured},
                                 {"b", datasheet_ms, 0, 0, Coverage::datasheet}});
    };
    EXPECT_EQ(of(9), Coverage::measured);
    EXPECT_EQ(of(11), Coverage::datasheet);
}

TEST(Term, Shares_sum_to_one) {
    std::vector<Term> terms{{"a", 3, 0, 0, Coverage::measured}, {"b", 1, 0, 0, Coverage::measured}};
    EXPECT_DOUBLE_EQ(set_shares(terms), 4);
    EXPECT_DOUBLE_EQ(terms[0].share, 0.75);
}

}  // namespace
}  // namespace draftboard::sim
