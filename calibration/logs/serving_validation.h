// SPDX-License-Identifier: Apache-2.0
#pragma once
// A scenario held against a serving log. For each batch size that the log has steady windows of, the scenario is predicted with
// what the log measured and a prediction can't know: how many requests, how many cached tokens, how long the draft chain, which
// share of it was accepted, graph or no graph. What is left to compare is the cycle: kernels, collectives, launches, host.
//
//   edits      as `--set` takes them: workload.concurrency, workload.context_tokens, speculation.*, engine.launch.*; the
//              caller's own come after them and win
//   measured   median tok/s of a rank's steady windows x ranks
//   error      predicted / measured - 1
//   cycle      sequences L / tok/s, of both
// A validation is outside its bound where the median |error| of its batch sizes is above it.

#include <string>
#include <vector>

#include "calibration/logs/serving_summary.h"
#include "model/scenario.h"
#include "sim/prediction.h"

namespace draftboard::calibration {

inline constexpr std::size_t kMaxComparedBatches = 64;  ///< those with most windows

struct ServingComparison {
    BatchSummary measured;
    int sequences = 0;              ///< of all ranks
    model::Interval tokens_per_second;  ///< measured, of all ranks
    model::Interval predicted;
    double measured_cycle_ms = 0;
    double predicted_cycle_ms = 0;
    double predicted_length = 1;
    double context_tokens = 0;      ///< of a request, as predicted
    sim::Coverage coverage = sim::Coverage::datasheet;
    model::Edits edits;             ///< that make the scenario the batch's
    [[nodiscard]] double error() const { return predicted.value / tokens_per_second.value - 1; }
    [[nodiscard]] bool inside() const {
        return tokens_per_second.value >= predicted.low && tokens_per_second.value <= predicted.high;
    }
};

struct ServingValidation {
    ServingLog log;            ///< without its samples
    ServingSummary summary;
    std::size_t samples = 0;
    std::string scenario;
    std::vector<ServingComparison> comparisons;  ///< by batch size
    std::vector<std::string> assumptions;
    std::vector<std::string> warnings;   ///< what was left out, and what the predictions warn of
    double bound = 0;
    [[nodiscard]] double median_error() const;   ///< of |error|
    [[nodiscard]] double interval_coverage() const;  ///< share of batch sizes whose measured tok/s lies in the predicted interval
    [[nodiscard]] bool within_bound() const { return median_error() <= bound; }
};

struct ServingValidationOptions {
    std::string scenario;      ///< path or shipped name
    model::Edits edits;
    std::string data_directory;
    double bound = 0.15;
    const sim::CostConstants* constants = nullptr;  ///< in place of those that the scenario names
};

/// Errors: no batch size with kFewWindows windows; a log that speculates and a scenario that does not; those of the scenario.
[[nodiscard]] model::Expected<ServingValidation> validate_serving_log(ServingLog log, const ServingValidationOptions& options);

[[nodiscard]] std::string serving_validation_text(const ServingValidation& validation);
[[nodiscard]] model::Json serving_validation_json(const ServingValidation& validation);

}  // namespace draftboard::calibration
