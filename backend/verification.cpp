// SPDX-License-Identifier: Apache-2.0
#include "backend/verification.h"

#include <algorithm>

namespace draftboard::backend {

namespace {

/// One sequence of a proposal.
struct Rows {
    std::span<const int> tokens;
    std::span<const int> parents;
    int drafted = 0;

    /// The next child of `row` after `after`, -1: none.
    [[nodiscard]] int next_child(int row, int after) const {
        for (int r = std::max(after, row) + 1; r <= drafted; ++r) {
            if (parents[static_cast<std::size_t>(r)] == row) return r;
        }
        return -1;
    }
    [[nodiscard]] std::size_t token(int row) const {
        return static_cast<std::size_t>(tokens[static_cast<std::size_t>(row)]);
    }
};

Rows rows_of(const Proposal& proposal, std::size_t sequence) {
    const auto width = static_cast<std::size_t>(proposal.width);
    return {std::span(proposal.token_ids).subspan(sequence * width, width),
            std::span(proposal.parents).subspan(sequence * width, width),
            std::min(proposal.drafted[sequence], proposal.width - 1)};
}

int greedy_child(const Rows& rows, int row, int wanted) {
    for (int child = rows.next_child(row, row); child >= 0; child = rows.next_child(row, child)) {
        if (rows.tokens[static_cast<std::size_t>(child)] == wanted) return child;
    }
    return -1;
}

double sum_of(std::span<const float> weights) {
    double sum = 0;
    for (const float weight : weights) sum += static_cast<double>(weight);
    return sum;
}

/// Accepts the draft with min(1, p/q), else p becomes the residual.
int drawn_child(const Rows& rows, int row, std::span<float> p, std::span<const float> q, model::Random& random) {
    const int child = rows.next_child(row, row);
    if (child < 0) return -1;
    const double px = static_cast<double>(p[rows.token(child)]);
    const double qx = static_cast<double>(q[rows.token(child)]);
    if (random.uniform() * qx <= px) return child;
    for (std::size_t v = 0; v < p.size(); ++v) p[v] = std::max(0.0F, p[v] - q[v]);
    return sum_of(p) > 0 ? -1 : child;  // p = q but for rounding: nothing is left to draw from
}

/// Each child with what is left of p; a rejected one takes its share of p with it.
int proposed_child(const Rows& rows, int row, std::span<float> p, model::Random& random) {
    double left = sum_of(p);
    for (int child = rows.next_child(row, row); child >= 0; child = rows.next_child(row, child)) {
        float& share = p[rows.token(child)];
        if (!(share > 0)) continue;
        if (random.uniform() * left <= static_cast<double>(share)) return child;
        share = 0;
        left = sum_of(p);
        if (!(left > 0)) return child;  // it was all there was, whatever rounding says
    }
    return -1;
}

}  // namespace

Verifier::Step Verifier::greedy_step(const Proposal& proposal, std::size_t sequence, int row, const GreedyChoice& choice,
                                     double tie_tolerance) {
    Step step;
    step.token = choice.token;
    step.near_tie = choice.gap < tie_tolerance;
    if (proposal.scripted[sequence] < 0) step.child = greedy_child(rows_of(proposal, sequence), row, choice.token);
    return step;
}

Verifier::Step Verifier::sampled_step(const Proposal& proposal, std::size_t sequence, int row,
                                      std::span<const float> logits, const Sampling& sampling, model::Random& random) {
    Step step;
    target_.resize(logits.size());
    if (!maker_.make(logits, sampling, target_)) return step;
    const Rows rows = rows_of(proposal, sequence);
    if (proposal.scripted[sequence] < 0 && row < rows.drafted && proposal.sampled[sequence] != 0) {
        const auto draft = sequence * static_cast<std::size_t>(proposal.width - 1) + static_cast<std::size_t>(row);
        const auto q = std::span(proposal.distributions).subspan(draft * logits.size(), logits.size());
        step.child = drawn_child(rows, row, target_, q, random);
    } else if (proposal.scripted[sequence] < 0) {
        step.child = proposed_child(rows, row, target_, random);
    }
    step.token = step.child >= 0 ? rows.tokens[static_cast<std::size_t>(step.child)] : draw(target_, random);
    return step;
}

bool Verifier::verify(const Proposal& proposal, std::size_t sequence, const ForwardOutput& output, std::size_t first_row,
                      const Sampling& sampling, model::Random& random, Verdict& verdict) {
    const Rows rows = rows_of(proposal, sequence);
    const auto vocabulary = static_cast<std::size_t>(proposal.vocabulary);
    const int scripted = std::min(proposal.scripted[sequence], rows.drafted);
    verdict.path.assign(1, 0);
    verdict.tokens.clear();
    verdict.near_ties.clear();
    for (int row = 0; row >= 0;) {
        const std::size_t here = first_row + static_cast<std::size_t>(row);
        Step step;
        if (verdict.accepted() < scripted) {
            step.child = rows.next_child(row, row);
            step.token = rows.tokens[static_cast<std::size_t>(step.child)];
        } else if (sampling.greedy()) {
            step = greedy_step(proposal, sequence, row, greedy_choice(output, here, vocabulary), sampling.tie_tolerance);
        } else {
            step = sampled_step(proposal, sequence, row, std::span(output.logits).subspan(here * vocabulary, vocabulary), sampling, random);
        }
        if (step.token < 0) return false;
        if (step.near_tie) verdict.near_ties.push_back(static_cast<int>(verdict.tokens.size()));
        verdict.tokens.push_back(step.token);
        if (step.child >= 0) verdict.path.push_back(step.child);
        row = step.child;
    }
    return true;
}

}  // namespace draftboard::backend
