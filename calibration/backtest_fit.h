// SPDX-License-Identifier: Apache-2.0
#pragma once
// Fits the engines' shared terms (engine_terms.h) on a published grid, openly: on the rows of even lines, checked
// on those of odd lines. A coordinate search in the logarithm of each term; no term belongs to a model, a page
// or a cell. The result is a calibration file whose provenance states both halves' errors.
//
//   objective = mean over cells of min(|log(predicted / measured)|, kLargestMiss)
// A miss beyond kLargestMiss counts no more than that: it is another engine's bug or a row misread.

#include <string>
#include <vector>

#include "calibration/backtest.h"

namespace draftboard::calibration {

inline constexpr double kLargestMiss = 0.5;

/// A fitted term, its bounds, and what it stands for.
struct FitTerm {
    std::string name;  ///< as find_term() knows it
    double low = 0;
    double high = 0;
    std::string meaning;
};
[[nodiscard]] const std::vector<FitTerm>& fit_terms();

struct BacktestFit {
    EngineTerms terms;
    BacktestSummary fitted;   ///< even lines, before and after
    BacktestSummary fitted_before;
    BacktestSummary checked;  ///< odd lines
    BacktestSummary checked_before;
    int evaluations = 0;
};

/// `sweeps`: how often each term is searched in turn. `progress` is told of each sweep.
[[nodiscard]] model::Expected<BacktestFit> fit_backtest(const Backtest& backtest, const EngineTerms& start,
                                                        int sweeps,
                                                        const std::function<void(const std::string&)>& progress);

/// The shipped calibration `engines` with the fit's terms and provenance in place of its own.
[[nodiscard]] Calibration fitted_calibration(Calibration engines, const BacktestFit& fit,
                                             const std::string& table);

}  // namespace draftboard::calibration
