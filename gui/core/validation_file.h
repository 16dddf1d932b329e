// SPDX-License-Identifier: Apache-2.0
#pragma once
// What `draftboard validate --json` wrote, read back for looking at: configurations with measured and predicted rates, and
// operations with their errors. It judges nothing; calibration/validation.h did.

#include <string>
#include <string_view>
#include <vector>

#include "model/acceptance.h"
#include "model/error.h"

namespace draftboard::gui {

inline constexpr std::size_t kMaxValidationRows = 100000;

struct ValidatedConfiguration {
    std::string name;
    std::string group;
    bool unseen = false;
    double measured = 0;  ///< tok/s
    model::Interval predicted;
    double measured_length = 1;
    double predicted_length = 1;
    [[nodiscard]] double error() const { return predicted.value / measured - 1; }
};

struct ValidatedOperation {
    std::string key;
    int count = 0;
    double measured_us = 0;
    double predicted_us = 0;
    double median_error = 0;
    double bias = 0;
    double share = 0;
};

struct ValidationFile {
    std::string suite;
    std::string description;  ///< where it was measured, if anyone wrote it down
    std::string calibration;
    double bound = 0;
    bool within_bound = false;
    double median_error = 0;
    double coverage_90 = 0;
    std::vector<ValidatedConfiguration> configurations;  ///< worst first
    std::vector<ValidatedOperation> operations;          ///< worst first, weighted by time
};

[[nodiscard]] model::Expected<ValidationFile> parse_validation_file(std::string_view text, const std::string& source);

}  // namespace draftboard::gui
