// SPDX-License-Identifier: Apache-2.0
#pragma once
// Predictions against published measurements: every row that backtest_scenario.h can tell is predicted with
// the same constants, and the errors are reported by group. Nothing is fitted here: where a residual shows
// missing physics, it goes into the simulator as a named term.
//
//   error of a cell            predicted / measured - 1                         of tok/s, all users together
//   median absolute error      median over cells of |error|
//   speed-up of a pair         tok/s with speculation / tok/s without, of two rows that are else equal
//   speedup_error              median over pairs of |predicted / measured - 1|
//   sign_right                 share of pairs on the predicted side of 1, of those that differ: measured speed-up
//                              outside 1 / (1 + kNoise) .. 1 + kNoise
//   repeat noise               cells of which nothing that a scenario holds differs are repeats of one measurement;
//                              sigma = median over pairs of repeats of |log(a / b)| / (sqrt(2) 0.6745), for plain and
//                              for speculating cells, of a group where it has kLeastRepeats pairs of both, else of all
//   sign_right_beyond_repeats  the same share of the pairs with |log speed-up| > kNormal90 hypot(sigma_plain,
//                              sigma_speculating): what repeats differ by in nine cases of ten says nothing
//   coverage_90                share of cells whose 90 % interval holds the measurement
//
// Worked example: 100 tok/s measured, 90 predicted, interval 80 .. 101: error -0.10, held.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "calibration/backtest_scenario.h"
#include "calibration/engine_terms.h"
#include "calibration/published_grid.h"
#include "model/json_reader.h"
#include "sim/prediction.h"

namespace draftboard::calibration {

/// A measured speed-up closer to 1 than this is no gain and no loss.
inline constexpr double kNoise = 0.05;
inline constexpr std::size_t kLeastRepeats = 10;

/// Standard deviation of log(tok/s) between repeats of one measurement.
struct RepeatNoise {
    double plain = 0;
    double speculating = 0;
    std::size_t plain_pairs = 0;
    std::size_t speculating_pairs = 0;
    /// The |log| of a speed-up beyond which its side of 1 is told, at 90 %; at least kNoise's.
    [[nodiscard]] double limit() const;
};

struct BacktestCell {
    PublishedRow row;
    std::string group;
    std::string twin;
    bool speculates = false;
    model::Interval predicted;  ///< tok/s
    double measured = 0;
    double cycle_ms = 0;
    bool fits_memory = true;
    std::vector<sim::Term> terms;  ///< of the predicted cycle, by share

    [[nodiscard]] double error() const { return predicted.value / measured - 1; }
    [[nodiscard]] bool held() const { return measured >= predicted.low && measured <= predicted.high; }
};

/// Two rows that are equal but for speculation.
struct BacktestPair {
    std::size_t plain = 0;  ///< indices of cells
    std::size_t speculative = 0;
    double measured = 1;    ///< speed-up
    double predicted = 1;
    [[nodiscard]] bool beyond_noise() const { return measured > 1 + kNoise || measured < 1 / (1 + kNoise); }
    [[nodiscard]] bool sign_right() const { return (measured > 1) == (predicted > 1); }
};

struct BacktestSummary {
    std::string name;
    std::size_t cells = 0;
    double median_absolute_error = 0;
    double median_error = 0;  ///< signed: the bias
    std::size_t pairs = 0;
    double speedup_error = 0;
    std::size_t sign_pairs = 0;  ///< pairs beyond the noise
    double sign_right = 1;       ///< 1 where there are none
    RepeatNoise noise;
    std::size_t repeat_pairs = 0;  ///< pairs beyond the repeats' noise
    double repeat_right = 1;
    double coverage_90 = 0;
};

struct BacktestReport {
    std::vector<BacktestCell> cells;  ///< in the file's order
    std::vector<BacktestPair> pairs;
    RepeatNoise noise;  ///< of all cells
    BacktestSummary overall;
    std::vector<BacktestSummary> groups;  ///< by name
    std::map<std::string, std::size_t> skipped;  ///< reason -> rows
    std::size_t rows = 0;
};

/// Rows made ready once, to be predicted with one set of terms or, in a fit, with many.
class Backtest {
   public:
    /// Errors: a calibration, model or machine file that can't be read. Rows that can't be told are skipped.
    [[nodiscard]] static model::Expected<Backtest> prepare(const std::vector<PublishedRow>& rows,
                                                           const std::string& data_directory);

    /// The shipped terms of the machines' kernel calibration; the first machine's stands for all.
    [[nodiscard]] const EngineTerms& shipped_terms() const { return shipped_; }
    /// Predicts the rows whose line `take` accepts.
    [[nodiscard]] model::Expected<BacktestReport> run(const EngineTerms& terms,
                                                      const std::function<bool(int line)>& take) const;

   private:
    struct Case {
        PublishedRow row;
        BacktestCase known;
    };
    std::vector<Case> cases_;
    std::map<std::string, sim::CostConstants> constants_;  ///< by machine, without the engines' terms
    EngineTerms shipped_;
    std::map<std::string, std::size_t> skipped_;
    std::size_t rows_ = 0;
};

/// All rows, with the shipped terms.
[[nodiscard]] model::Expected<BacktestReport> backtest(const std::vector<PublishedRow>& rows,
                                                       const std::string& data_directory);

[[nodiscard]] RepeatNoise repeat_noise(const std::vector<BacktestCell>& cells,
                                       const std::function<bool(const BacktestCell&)>& take);

/// Over the cells (and the pairs of which both are) for which `take` holds.
[[nodiscard]] BacktestSummary summarise(const BacktestReport& report, const std::string& name,
                                        const std::function<bool(const BacktestCell&)>& take);

/// The contract's object: median_absolute_error, groups, overall_coverage_90, sign_right, skipped.
[[nodiscard]] model::Json backtest_json(const BacktestReport& report);
/// A table of groups, then the `worst` cells.
[[nodiscard]] std::string backtest_text(const BacktestReport& report, std::size_t worst);
/// One line a cell: id, group, the row's knobs, measured, predicted, low, high, error, cycle_ms, terms.
[[nodiscard]] std::string backtest_csv(const BacktestReport& report);

}  // namespace draftboard::calibration
