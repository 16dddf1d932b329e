// SPDX-License-Identifier: Apache-2.0
#include "backend/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace draftboard::backend {

std::vector<model::Problem> Sampling::validate() const {
    std::vector<model::Problem> problems;
    if (!std::isfinite(temperature) || temperature < 0) problems.push_back({"/temperature", "must be 0 (greedy) or above"});
    if (!(top_p > 0 && top_p <= 1)) problems.push_back({"/top_p", "must be above 0 and at most 1"});
    if (!std::isfinite(tie_tolerance) || tie_tolerance < 0) problems.push_back({"/tie_tolerance", "must be 0 or above"});
    return problems;
}

GreedyChoice greedy_choice(std::span<const float> logits) {
    constexpr double kNone = -std::numeric_limits<double>::infinity();
    GreedyChoice choice;
    double best = kNone;
    double second = kNone;
    for (std::size_t v = 0; v < logits.size(); ++v) {
        const double logit = static_cast<double>(logits[v]);
        if (std::isnan(logit) || logit == std::numeric_limits<double>::infinity()) return {};
        if (logit > best) {
            second = best;
            best = logit;
            choice.token = static_cast<int>(v);
        } else {
            second = std::max(second, logit);
        }
    }
    choice.gap = best - second;
    return choice;
}

bool DistributionMaker::make(std::span<const float> logits, const Sampling& sampling, std::span<float> probabilities) {
    const GreedyChoice best = greedy_choice(logits);
    if (best.token < 0 || probabilities.size() != logits.size()) return false;
    const double largest = static_cast<double>(logits[static_cast<std::size_t>(best.token)]);
    double sum = 0;
    for (std::size_t v = 0; v < logits.size(); ++v) {
        const double weight = std::exp((static_cast<double>(logits[v]) - largest) / sampling.temperature);
        probabilities[v] = static_cast<float>(weight);
        sum += weight;
    }
    for (float& p : probabilities) p = static_cast<float>(static_cast<double>(p) / sum);
    if (sampling.top_p < 1) keep_nucleus(probabilities, sampling.top_p);
    return true;
}

void DistributionMaker::keep_nucleus(std::span<float> probabilities, double top_p) {
    order_.resize(probabilities.size());
    std::iota(order_.begin(), order_.end(), 0);
    const auto later = [&](int a, int b) {
        const float pa = probabilities[static_cast<std::size_t>(a)];
        const float pb = probabilities[static_cast<std::size_t>(b)];
        return pa != pb ? pa < pb : a > b;
    };
    // A heap yields the nucleus, usually few tokens, without sorting the vocabulary: O(V + nucleus log V).
    std::make_heap(order_.begin(), order_.end(), later);
    auto end = order_.end();
    double mass = 0;
    while (end != order_.begin() && mass < top_p) {
        std::pop_heap(order_.begin(), end, later);
        --end;
        mass += static_cast<double>(probabilities[static_cast<std::size_t>(*end)]);
    }
    for (auto it = order_.begin(); it != end; ++it) probabilities[static_cast<std::size_t>(*it)] = 0;
    for (auto it = end; it != order_.end(); ++it) {
        float& p = probabilities[static_cast<std::size_t>(*it)];
        p = static_cast<float>(static_cast<double>(p) / mass);
    }
}

int draw(std::span<const float> weights, model::Random& random) {
    double total = 0;
    for (const float weight : weights) total += static_cast<double>(weight);
    const double target = random.uniform() * total;
    int last = -1;  // rounding may leave the walk short of the target: then the last possible token is it
    double sum = 0;
    for (std::size_t v = 0; v < weights.size(); ++v) {
        if (!(weights[v] > 0)) continue;
        last = static_cast<int>(v);
        sum += static_cast<double>(weights[v]);
        if (sum >= target) break;
    }
    return last;
}

}  // namespace draftboard::backend
