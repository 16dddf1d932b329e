// SPDX-License-Identifier: Apache-2.0
#pragma once
// A calibration or a validation of this machine's CPU, as `draftboard calibrate --device cpu --quick` and `draftboard validate
// SUITE` do it, with progress and a stop token. It runs on the thread that calls it, for half a minute to a few minutes.

#include <functional>
#include <optional>
#include <stop_token>
#include <string>

#include "model/error.h"

namespace draftboard::gui {

using MeasureProgress = std::function<void(double share, const std::string& what)>;

/// The calibration file's text; nullopt: stopped.
[[nodiscard]] model::Expected<std::optional<std::string>> calibrate_here(const std::string& data_directory,
                                                                         const std::stop_token& stop,
                                                                         const MeasureProgress& progress);

/// What `validate --json` would print; nullopt: stopped. `calibration`: a file.
[[nodiscard]] model::Expected<std::optional<std::string>> validate_here(const std::string& suite, const std::string& calibration,
                                                                        const std::string& data_directory,
                                                                        const std::stop_token& stop,
                                                                        const MeasureProgress& progress);

}  // namespace draftboard::gui
