// SPDX-License-Identifier: Apache-2.0
#pragma once
// `draftboard validate --log LOG --scenario SCENARIO`: a serving engine's own log held against a prediction. The other half of
// `validate`, which runs a suite here, is validate_command.cpp; what is compared is calibration/logs/serving_validation.h.

#include <optional>
#include <string>

#include "cli/command.h"
#include "cli/question.h"

namespace draftboard::cli {

struct LogOptions {
    std::string log;
    Question question;
};

/// --log, --scenario and --set.
void add_log_options(CLI::App& command, LogOptions& options);

/// `bound` empty: the library's.
void validate_log(const LogOptions& options, std::optional<double> bound, CommandContext& context);

}  // namespace draftboard::cli
