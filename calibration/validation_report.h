// SPDX-License-Identifier: Apache-2.0
#pragma once
// A validation for people and programs: a self-contained HTML page (no scripts, nothing is fetched, light and dark), lines for the
// terminal, and JSON. Worst first everywhere. It computes nothing that validation.h does not.

#include <string>

#include "calibration/validation.h"

namespace draftboard::calibration {

[[nodiscard]] std::string validation_html(const Validation& validation);
[[nodiscard]] std::string validation_text(const Validation& validation);
[[nodiscard]] model::Json validation_json(const Validation& validation);

/// Operations of all configurations under one key: how often, median times and error, worst weighted by time first.
struct OperationRow {
    std::string key;       ///< "target verify/moe.experts": layers of one role together
    int count = 0;
    double measured_us = 0;   ///< median
    double predicted_us = 0;  ///< median
    double median_error = 0;  ///< of |predicted / measured - 1|
    double bias = 0;          ///< median of predicted / measured - 1
    double share = 0;         ///< of all measured operation time
    double coverage_90 = 0;   ///< share of them within their intervals
};
[[nodiscard]] std::vector<OperationRow> operation_rows(const Validation& validation);

}  // namespace draftboard::calibration
