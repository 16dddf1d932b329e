// SPDX-License-Identifier: Apache-2.0
#pragma once
// The steady part of a serving log, by batch size. A window counts if as many requests ran at its beginning as at its end, no
// prompt was read in it, and it is not among the first kWarmUpWindows of its rank. A batch size with fewer than kFewWindows of
// those takes windows with prompts too and says so (`prefill_inside`): its tok/s are then too low by the time that prefill takes,
// and, at few requests, by pauses between them.
//
//   tok/s         median over windows; 90 % interval: the order statistics 1.645 sqrt(n)/2 about the middle (n < 6: all)
//   acceptance    with counts: m_i = sum c m_i / sum c, L = 1 + sum of m_i, c drafts of a window; else the mean of the lengths
//   its interval  the larger of sampling error, from the counts, and scatter between windows, sd(L) / sqrt(n)
//   context       median of cached tokens / requests
// Worked example: 16 windows: order statistics 8 -+ 3.3, so the 5th and the 12th.

#include "calibration/logs/serving_log.h"
#include "model/acceptance.h"

namespace draftboard::calibration {

inline constexpr int kFewWindows = 3;

struct BatchSummary {
    int running = 0;                      ///< requests of one rank
    int windows = 0;
    bool prefill_inside = false;
    model::Interval tokens_per_second;    ///< of one rank
    double acceptance_length = 0;         ///< bonus included; 0: no speculation
    model::Interval acceptance_interval;  ///< of the length
    std::vector<double> per_position;     ///< empty: not printed
    double cycles = 0;                    ///< drafts counted; 0: not known
    double relative_error = 0;            ///< of the length, beyond the counts' sampling error; 0 for a single window
    double context_tokens = 0;            ///< of one request; 0: not known
    std::optional<bool> graph;            ///< nothing where windows differ or don't say
    double graph_share = 0;               ///< of the windows that say
};

struct ServingSummary {
    std::vector<BatchSummary> batches;  ///< by running requests
    std::int64_t steady = 0;            ///< windows that count
    std::int64_t changed = 0;           ///< left out: the batch changed
    std::int64_t warm_up = 0;           ///< left out: the first ones
    std::int64_t prefill = 0;           ///< prompts were read
};

[[nodiscard]] ServingSummary summarize_serving_log(const ServingLog& log);

/// Median with its order-statistic interval. Precondition: values is not empty.
[[nodiscard]] model::Interval median_interval(std::vector<double> values);

}  // namespace draftboard::calibration
