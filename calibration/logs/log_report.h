// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a log said, for people (a head, one table, remarks) and as JSON. Formulas and units stand before the numbers. It shows a
// LinkLog as it is and computes nothing.

#include <string>

#include "calibration/logs/link_log.h"
#include "model/json_reader.h"

namespace draftboard::calibration {

[[nodiscard]] std::string to_text(const LinkLog& log, const std::string& name);

/// "file", "tool", "format", "version", "ranks", "nodes" (null: unknown), "gpus", "facts", "rows", "matrices", "tuning",
/// "choices", "warnings", "findings"; a timing that was not measured and errors that were not checked are null.
[[nodiscard]] model::Json to_json(const LinkLog& log, const std::string& name);

}  // namespace draftboard::calibration
