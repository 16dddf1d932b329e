// SPDX-License-Identifier: Apache-2.0
#include "backend/verification.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/backend/loop/chi_square.h"

namespace draftboard::backend {
namespace {

/// A proposal for one sequence with root token 0: drafts and their parent rows.
Proposal propose(const std::vector<int>& tokens, const std::vector<int>& parents, int vocabulary) {
    static const std::vector<int> text{0};
    const DraftSequence sequence{0, text, nullptr, nullptr};
    Proposal out;
    out.reset(std::span(&sequence, 1), static_cast<int>(tokens.size()) + 1, vocabulary);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        out.token_ids[i + 1] = tokens[i];
        out.parents[i + 1] = parents[i];
    }
    out.drafted[0] = static_cast<int>(tokens.size());
    return out;
}

/// Logits that make `best[row]` the argmax of each row by a gap of 5.
std::vector<float> peaks(const std::vector<int>& best, int vocabulary) {
    std::vector<float> out(best.size() * static_cast<std::size_t>(vocabulary), 0.0F);
    for (std::size_t row = 0; row < best.size(); ++row)
        out[row * static_cast<std::size_t>(vocabulary) + static_cast<std::size_t>(best[row])] = 5;
    return out;
}

std::vector<float> logs(const std::vector<double>& p) {
    std::vector<float> out;
    for (const double x : p) out.push_back(static_cast<float>(std::log(x)));
    return out;
}

ForwardOutput rows_of(const std::vector<float>& logits) {
    ForwardOutput output;
    output.logits = logits;
    return output;
}

Verdict verify(const Proposal& proposal, const std::vector<float>& logits, const Sampling& sampling,
               model::Random& random) {
    Verifier verifier;
    Verdict verdict;
    EXPECT_TRUE(verifier.verify(proposal, 0, rows_of(logits), 0, sampling, random, verdict));
    return verdict;
}

TEST(Verification, A_greedy_chain_is_kept_up_to_the_first_difference_and_the_target_has_the_last_word) {
    // Root says 3, draft 3 says 1, draft 1 says 2; drafts 3, 1, 0: two accepted, then 2.
    model::Random random(1);
    const Verdict verdict = verify(propose({3, 1, 0}, {0, 1, 2}, 5), peaks({3, 1, 2, 4}, 5), {}, random);
    EXPECT_EQ(verdict.path, (std::vector<int>{0, 1, 2}));
    EXPECT_EQ(verdict.tokens, (std::vector<int>{3, 1, 2}));
}

TEST(Verification, A_greedy_tree_is_walked_through_whichever_sibling_is_right) {
    //      root -> 1 (row 1), 2 (row 2); row 2 -> 4 (row 3), 3 (row 4); the target says 2, then 3 at row 2, then 0 at row 4.
    model::Random random(1);
    const Verdict verdict = verify(propose({1, 2, 4, 3}, {0, 0, 2, 2}, 5), peaks({2, 0, 3, 0, 0}, 5), {}, random);
    EXPECT_EQ(verdict.path, (std::vector<int>{0, 2, 4}));
    EXPECT_EQ(verdict.tokens, (std::vector<int>{2, 3, 0}));
}

TEST(Verification, All_drafts_accepted_bring_one_token_more) {
    model::Random random(1);
    const Verdict verdict = verify(propose({3, 1}, {0, 1}, 5), peaks({3, 1, 4}, 5), {}, random);
    EXPECT_EQ(verdict.tokens, (std::vector<int>{3, 1, 4}));
    EXPECT_EQ(verdict.accepted(), 2);
}

TEST(Verification, Padding_is_never_accepted_even_where_it_is_right) {
    model::Random random(1);
    Proposal proposal = propose({3, 1}, {0, 1}, 5);
    proposal.drafted[0] = 1;
    EXPECT_EQ(verify(proposal, peaks({3, 1, 4}, 5), {}, random).tokens, (std::vector<int>{3, 1}));
    proposal.drafted[0] = 0;
    EXPECT_EQ(verify(proposal, peaks({3, 1, 4}, 5), {}, random).tokens, (std::vector<int>{3}));
    for (int i = 0; i < 200; ++i)
        EXPECT_EQ(verify(proposal, peaks({3, 1, 4}, 5), {.temperature = 1}, random).accepted(), 0);
}

TEST(Verification, Near_ties_name_the_tokens_that_they_decided) {
    std::vector<float> logits = peaks({3, 1}, 5);
    logits[5 + 2] = 5 - 1e-4F;  // second row: token 2 is 0.0001 behind token 1
    model::Random random(1);
    EXPECT_EQ(verify(propose({3}, {0}, 5), logits, {.tie_tolerance = 1e-3}, random).near_ties, (std::vector<int>{1}));
    EXPECT_TRUE(verify(propose({3}, {0}, 5), logits, {.tie_tolerance = 1e-5}, random).near_ties.empty());
}

TEST(Verification, Logits_that_are_not_finite_on_the_path_are_refused_and_elsewhere_ignored) {
    Verifier verifier;
    Verdict verdict;
    model::Random random(1);
    const Proposal proposal = propose({3, 1}, {0, 1}, 5);
    std::vector<float> logits = peaks({2, 1, 4}, 5);
    logits[6] = NAN;  // row 1 is not reached: 3 is rejected
    EXPECT_TRUE(verifier.verify(proposal, 0, rows_of(logits), 0, {}, random, verdict));
    logits[0] = NAN;
    EXPECT_FALSE(verifier.verify(proposal, 0, rows_of(logits), 0, {}, random, verdict));
    EXPECT_FALSE(verifier.verify(proposal, 0, rows_of(logits), 0, {.temperature = 1}, random, verdict));
}

TEST(Verification, A_script_accepts_what_it_says_and_ends_with_the_targets_own_token) {
    model::Random random(1);
    Proposal proposal = propose({0, 0, 0}, {0, 1, 2}, 5);
    for (int accepted = 0; accepted <= 3; ++accepted) {
        proposal.scripted[0] = accepted;
        const Verdict verdict = verify(proposal, peaks({1, 2, 3, 4}, 5), {}, random);
        EXPECT_EQ(verdict.accepted(), accepted);
        EXPECT_EQ(verdict.tokens.back(), accepted + 1);
    }
    proposal.scripted[0] = 9;  // more than was drafted
    EXPECT_EQ(verify(proposal, peaks({1, 2, 3, 4}, 5), {}, random).accepted(), 3);
}

TEST(Verification, Siblings_one_after_the_other_leave_the_targets_distribution) {
    // p = (0.5, 0.3, 0.15, 0.05), children 1, 0, 1 (twice the same): the first token is still drawn from p.
    const std::vector<double> p{0.5, 0.3, 0.15, 0.05};
    const Proposal proposal = propose({1, 0, 1}, {0, 0, 0}, 4);
    std::vector<float> logits = logs(p);
    logits.resize(16, 0.0F);
    std::vector<double> counts(4);
    model::Random random(5);
    int accepted = 0;
    for (int i = 0; i < 40000; ++i) {
        const Verdict verdict = verify(proposal, logits, {.temperature = 1}, random);
        ++counts[static_cast<std::size_t>(verdict.tokens.front())];
        accepted += verdict.accepted();
    }
    const ChiSquare test = chi_square(counts, p);
    EXPECT_NEAR(test.critical, 16.266, 0.001);  // 3 degrees of freedom
    EXPECT_TRUE(test.fits()) << test.statistic;
    // Accepted with p(1) + p(0) = 0.8; four standard deviations of the mean: 4 sqrt(0.8 x 0.2 / 40000) = 0.008
    EXPECT_NEAR(accepted / 40000.0, 0.8, 0.008);
}

TEST(Verification, A_drawn_draft_leaves_the_targets_distribution_and_is_accepted_with_the_overlap) {
    // sum min(p, q) = 0.2 + 0.3 + 0.1 + 0.05 = 0.65
    const std::vector<double> p{0.5, 0.3, 0.15, 0.05};
    const std::vector<float> q{0.2F, 0.4F, 0.1F, 0.3F};
    std::vector<float> logits = logs(p);
    logits.resize(8, 0.0F);
    std::vector<double> counts(4);
    model::Random random(6);
    int accepted = 0;
    for (int i = 0; i < 40000; ++i) {
        Proposal proposal = propose({draw(q, random)}, {0}, 4);
        proposal.sampled[0] = 1;
        std::copy(q.begin(), q.end(), proposal.distribution(0, 0).begin());
        const Verdict verdict = verify(proposal, logits, {.temperature = 1}, random);
        ++counts[static_cast<std::size_t>(verdict.tokens.front())];
        accepted += verdict.accepted();
    }
    const ChiSquare test = chi_square(counts, p);
    EXPECT_TRUE(test.fits()) << test.statistic;
    EXPECT_NEAR(accepted / 40000.0, 0.65, 4 * std::sqrt(0.65 * 0.35 / 40000));
    // The same counts do not pass for q: the test can tell.
    EXPECT_FALSE(chi_square(counts, {0.2, 0.4, 0.1, 0.3}).fits());
}

TEST(Verification, A_certain_token_is_accepted_for_certain) {
    std::vector<float> logits(6, -INFINITY);
    logits[2] = 0;
    logits[3] = 0;
    model::Random random(3);
    for (int i = 0; i < 1000; ++i)
        EXPECT_EQ(verify(propose({2}, {0}, 3), logits, {.temperature = 1}, random).tokens, (std::vector<int>{2, 0}));
}

}  // namespace
}  // namespace draftboard::backend
