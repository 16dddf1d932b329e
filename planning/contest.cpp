// SPDX-License-Identifier: Apache-2.0
#include "planning/contest.h"

#include <algorithm>
#include <cmath>

namespace draftboard::planning {

namespace {

double normal_cdf(double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); }

/// One drafter on the same texts: its acceptance is wrong by the same share in both.
bool same_drafter(const model::Speculation& a, const model::Speculation& b) {
    return a.method == b.method && a.acceptance.source == b.acceptance.source && a.draft_model == b.draft_model;
}

/// log(length / length of the chain that the acceptance was measured on).
double unmeasured(const model::Speculation& speculation, double length) {
    if (speculation.method == model::SpeculationMethod::none) return 0;
    const auto& assumptions = speculation.acceptance.assumptions;
    const bool computed = std::find(assumptions.begin(), assumptions.end(), kComputedTree) != assumptions.end();
    if (speculation.acceptance.tree_length > 0 && !computed) return 0;
    const int measured = std::min(speculation.depth(), static_cast<int>(speculation.acceptance.per_position.size()));
    const double chain = model::chain_acceptance_length(speculation.acceptance, measured);
    return length > 0 && chain > 0 ? std::log(length / chain) : 0;
}

}  // namespace

Contest contest(const model::Scenario& scenario_a, const sim::Prediction& a, const model::Scenario& scenario_b,
                const sim::Prediction& b) {
    Contest result;
    const double gain = b.tokens_per_second.value / a.tokens_per_second.value;
    result.sigma_times = sim::combine(b.terms, a.terms).ratio;
    const double length_a = sim::log_sigma_of(a.acceptance_length);
    const double length_b = sim::log_sigma_of(b.acceptance_length);
    result.sigma_length = same_drafter(scenario_a.speculation, scenario_b.speculation) ? std::abs(length_a - length_b)
                                                                                       : std::hypot(length_a, length_b);
    result.sigma_shape = kShapeError * std::abs(unmeasured(scenario_a.speculation, a.acceptance_length.value) -
                                                unmeasured(scenario_b.speculation, b.acceptance_length.value));
    const bool same_box = scenario_a.machine.name == scenario_b.machine.name && scenario_a.engine.name == scenario_b.engine.name;
    result.sigma_run = same_box ? 0 : sim::kRunSigma * std::sqrt(2.0);
    result.sigma =
        std::hypot(std::hypot(result.sigma_times, result.sigma_length), std::hypot(result.sigma_shape, result.sigma_run));
    result.gain = sim::interval_around(gain, result.sigma);
    const double g = std::log(gain);
    if (result.sigma > 0) {
        result.confidence = normal_cdf(g / result.sigma);
    } else {
        result.confidence = g > 0 ? 1 : g < 0 ? 0 : 0.5;
    }
    return result;
}

std::string_view confidence_word(double confidence) {
    if (confidence >= 0.99) return "certainly faster";
    if (confidence >= 0.9) return "very likely faster";
    if (confidence >= 0.7) return "likely faster";
    if (confidence > 0.3) return "a toss-up";
    if (confidence > 0.1) return "likely slower";
    if (confidence > 0.01) return "very likely slower";
    return "certainly slower";
}

}  // namespace draftboard::planning
