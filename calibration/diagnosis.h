// SPDX-License-Identifier: Apache-2.0
#pragma once
// Why a measurement differs from a prediction: candidates (diagnosis_candidates.h), each a single change of the scenario, are
// predicted (diagnosis_outcome.h) and weighed by what was measured; then what is worth measuring next. It proposes causes, it
// fits nothing: a calibration does that. diagnosis_report.h prints it, docs/diagnosis.md works an example.
//
//   y_i = log of measurement i,  mu_i(h) = log of its prediction under hypothesis h (a candidate c and a factor f of its grid)
//   y_i - mu_i = sum_k g_ik e_k + n_i        e_k standard normal, one for each kind of term, the acceptance length, the run
//   C_ij = sum_k g_ik g_jk + [i = j] (noise^2 + (resolution / value)^2 + unknown(h)^2)
//          g_ik = sigma of term kind k as a share of i;  unknown: 0, but of the candidate none_of_these
//   p(h | y) ~ prior_c / |grid_c| * N(y; mu(h), C(h)),       share of c = sum over its factors
//   bits of a further measurement q = h(q) - sum_c share_c h(q | c), h the entropies of mixtures of p(q | h, y)
// Because errors are common to what contains the same term, "verify 30 ms" and "60 tok/s" are not counted twice.
// Worked example: prediction 12 ms (sigma 20 %), measured 30 ms (3 %), a candidate that predicts 30 ms (20 %): the squared
// distance is (ln 2.5 / 0.202)^2 = 20.6 against 0, so with priors 0.3 and 0.1 the shares are 1e-4 and 0.9999.

#include <string>
#include <vector>

#include "calibration/diagnosis_outcome.h"
#include "calibration/measured_reader.h"
#include "sim/prediction.h"

namespace draftboard::calibration {

struct ComparedValue {
    std::string name;
    double measured = 0;
    double predicted = 0;
    double sigmas = 0;  ///< log(measured / predicted) in standard deviations of both
};

struct TermChange {
    std::string name;
    double from_ms = 0;
    double to_ms = 0;
};

struct WeighedCandidate {
    std::string name;
    std::string meaning;
    std::string edit;                 ///< how to ask `predict` for it, or the term that is scaled
    std::string fix;                  ///< where to look, what to do
    double prior = 0;                 ///< normalised over those that apply
    double share = 0;                 ///< posterior
    double factor = 1;                ///< the likeliest of its grid
    double distance = 0;              ///< squared, of the measurements from its prediction at that factor
    std::vector<double> predicted;    ///< at that factor, parallel to Diagnosis::compared
    std::vector<TermChange> changes;  ///< of the cycle against the prediction, the largest first; at most three
};

struct NextMeasurement {
    std::string name;
    double bits = 0;  ///< expected drop of the entropy of the shares
    std::string how;
};

struct Diagnosis {
    std::string scenario;
    Measured measured;
    std::vector<ComparedValue> compared;
    std::vector<WeighedCandidate> candidates;  ///< the likeliest first
    std::vector<std::string> left_out;         ///< candidates that do not apply here, and why
    double entropy_bits = 0;                   ///< of the shares
    /// No single cause explains what was measured. `next` then takes all named causes as open again, with their priors.
    bool unexplained = false;
    std::vector<NextMeasurement> next;     ///< the most telling first, at most three; empty: nothing is left to tell apart
    std::vector<sim::Term> largest_terms;  ///< of the predicted cycle, at most five
};

[[nodiscard]] model::Expected<Diagnosis> diagnose(const model::Scenario& scenario, const sim::CostConstants& constants,
                                                  const Measured& measured);

}  // namespace draftboard::calibration
