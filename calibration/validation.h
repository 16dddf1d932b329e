// SPDX-License-Identifier: Apache-2.0
#pragma once
// Predictions held against runs. Every configuration of a suite is decoded for real, round after round, all configurations
// in turn within a round, and predicted by the simulator with a calibration of this machine. The two share nothing but the
// plan: acceptance and routing behind a prediction come from the calibration half of the prompts, runs read the other half.
//
//   measured     tok/s = S L / C      S sequences, C median over rounds of a round's mean cycle, L mean tokens a cycle over all
//                                     rounds: what a limit cuts off the last cycle of a text counts, drained batches do not
//   predicted    tok/s = S L' / C'    L' from the other prompts, C' the simulator's cycle
//   sd of log L' from prompt to prompt (cycles of one text are alike): sd(log L) = sqrt(sum (x - L t)^2 / (n (n-1))) / (L t),
//                x tokens, t cycles of a text; once for the texts behind L' and once for those of the run
//   operations   predicted against the median of a run that keeps every operation's time, by the plan's keys
//   regret       of a group: 1 - measured(predicted best) / measured(measured best)
//   noise floor  |log| between the two runs of configurations that are run twice
// A validation is outside its bound where the median |error| of tok/s is above it.

#include <functional>
#include <string>
#include <vector>

#include "calibration/calibration.h"
#include "calibration/measured_model.h"
#include "calibration/validation_progress.h"
#include "calibration/validation_suite.h"
#include "sim/prediction.h"

namespace draftboard::calibration {

struct OperationComparison {
    std::string key;            ///< "verify/L03/moe.experts"
    std::string engine;         ///< "target" or "drafter"
    double predicted_us = 0;
    double measured_us = 0;
    double relative_uncertainty = 0;
    [[nodiscard]] double error() const { return predicted_us / measured_us - 1; }
    [[nodiscard]] bool inside() const;  ///< of its 90 % interval
};

/// One operation of a cycle in its place.
struct TimelineOperation {
    std::string key;
    std::string term;           ///< "experts", "collectives", ...
    double predicted_us = 0;
    double measured_us = 0;
    double measured_wait_us = 0;
};

struct ConfigurationResult {
    SuiteConfiguration configuration;
    bool unseen = false;         ///< none of its cycle's target passes is among the calibration's shapes
    double measured = 0;         ///< tok/s
    double measured_cycle_us = 0;
    double measured_length = 1;  ///< acceptance length, bonus included
    double spread = 0;           ///< sd of log cycle time between rounds
    model::Interval predicted;   ///< tok/s
    double predicted_cycle_us = 0;
    double predicted_length = 1;
    double repeated = 0;         ///< tok/s of the second run; 0: none
    double disturbed = 0;        ///< share of cycles that were left out, see disturbance.h
    std::vector<sim::Term> terms;                        ///< predicted
    std::vector<std::pair<std::string, double>> measured_terms;  ///< the same names where both have them, us a cycle
    std::vector<OperationComparison> operations;
    std::vector<TimelineOperation> timeline;  ///< of a cycle, in the order in which it runs; empty: no pass was profiled
    [[nodiscard]] double error() const { return predicted.value / measured - 1; }
    [[nodiscard]] bool inside() const { return measured >= predicted.low && measured <= predicted.high; }
};

struct GroupResult {
    std::string name;
    std::string predicted_best;
    std::string measured_best;
    double regret = 0;
};

struct ValidationSummary {
    int configurations = 0;
    int unseen = 0;
    double median_error = 0;         ///< |error| of tok/s
    double median_error_unseen = 0;
    double p90_error = 0;
    double worst_error = 0;
    double median_cycle_error = 0;   ///< |error| of cycle times: without acceptance
    double coverage_90 = 0;          ///< share of tok/s within their intervals
    int operations = 0;
    double median_operation_error = 0;
    double weighted_operation_error = 0;  ///< mean |error| weighted by measured time
    double operation_coverage_90 = 0;
    double worst_regret = 0;
    double disturbed = 0;            ///< share of cycles that were left out because a core was taken away
    double noise_floor = 0;          ///< median |log| between repeated runs; 0: none repeated
    int repeated = 0;
};

struct Validation {
    Suite suite;
    std::string calibration;
    double bound = 0.08;
    model::Json environment = model::Json::object();
    std::vector<ConfigurationResult> results;  ///< in the suite's order
    std::vector<GroupResult> groups;
    std::vector<std::string> notes;
    bool complete = true;                      ///< else it was asked to stop, or stopped after a failure
    [[nodiscard]] bool within_bound() const;
    [[nodiscard]] ValidationSummary summary() const;
};

struct ValidationOptions {
    MeasuredDevice device;        ///< with as many ranks as each configuration says
    std::string calibration;      ///< path or shipped name
    std::string data_directory;
    double bound = 0.08;
    ValidationProgress progress = {};  ///< of an earlier run with these settings, to go on from
    /// Called after everything that was measured, with all of it; false: stop.
    std::function<bool(const ValidationProgress&)> keep = {};
};

/// What a progress must have been asked for to go on from.
[[nodiscard]] std::string validation_settings(const Suite& suite);

/// Progress: share done, and what is being done.
using ValidationCallback = std::function<void(double share, const std::string& what)>;

/// The CPU's engines all run side by side, round after round. A GPU holds one model's at a time: configurations of the same
/// engines take their turns within a round. Engines that fail on a GPU may leave it unusable to this process: the next ones are still
/// tried, and where these fail too it stops and holds that failure against nobody, so that a run that goes on tries them again.
/// Errors: those of the suite and calibration; a progress of other settings or another box; on a CPU, engines that fail.
[[nodiscard]] model::Expected<Validation> validate_suite(const Suite& suite, const ValidationOptions& options,
                                                       const ValidationCallback& callback);

/// Regrets from results that are complete.
[[nodiscard]] std::vector<GroupResult> group_results(const std::vector<ConfigurationResult>& results);

}  // namespace draftboard::calibration
