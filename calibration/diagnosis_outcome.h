// SPDX-License-Identifier: Apache-2.0
#pragma once
// A prediction as measurements see it: terms that a candidate cause may change, and each measurable quantity as a function of
// them, with how it moves with the causes of error. Whether a cause is likely is diagnosis.h.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/prediction.h"

namespace draftboard::calibration {

/// What a candidate changes and what follows from it.
struct Outcome {
    std::vector<sim::Term> terms;        ///< of the cycle
    std::vector<sim::Term> plain_terms;  ///< of the plain step
    double length = 1;                   ///< acceptance length
    double length_sigma = 0;             ///< of its logarithm
    double max_length = 1;               ///< what the draft's depth allows
    double run_sigma = 0;
    double sequences = 1;
    int collectives = 0;  ///< of a verify pass; without speculation of a plain step
    bool speculates = false;
    double unknown_sigma = 0;  ///< further error of each quantity's logarithm by itself
};
[[nodiscard]] Outcome outcome_of(const model::Scenario& scenario, const sim::Prediction& prediction, double run_sigma);

/// A quantity as an outcome has it: its value, and how its logarithm moves with one standard deviation of each cause of error.
struct Observable {
    double value = 0;
    std::map<std::string, double> gradient;
};
/// `name`: as in Measured::values. Errors: a quantity that the outcome does not have, with those that it has.
[[nodiscard]] model::Expected<Observable> observe(const Outcome& outcome, const std::string& name);
/// The same where an absent quantity is no error.
[[nodiscard]] std::optional<Observable> find_observable(const Outcome& outcome, const std::string& name);

/// Times below this cannot be told from nothing: a profiler's own cost, the clock, rounding of what people report.
inline constexpr double kResolutionMs = 0.02;

}  // namespace draftboard::calibration
