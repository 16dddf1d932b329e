// SPDX-License-Identifier: Apache-2.0
#pragma once
// Host constants as sections of calibration files hold them: {"host.kernel_gap_us": 0.5, ...}, by the names and within the ranges of
// sim/host_constants.h, for all engines or by engine. Which sections there are is cpu_terms.h's, cuda_terms.h's and
// imported_terms.h's.

#include <map>
#include <string>
#include <string_view>

#include "model/json_reader.h"
#include "sim/host_constants.h"

namespace draftboard::calibration {

inline constexpr std::string_view kRunSigma = "host.run_sigma";

/// Unknown names and values out of range become problems of the reader. with_run_sigma: kRunSigma, which is no cost, may stand there.
/// `beside`: a member that is something else.
[[nodiscard]] std::map<std::string, double> read_host_terms(const model::JsonReader& reader, bool with_run_sigma,
                                                            std::string_view beside = {});

/// By engine: {"name": {"host.step_us": 30, ...}, ...}, 64 of them at most.
[[nodiscard]] std::map<std::string, std::map<std::string, double>> read_engine_terms(const model::JsonReader& reader);

/// Puts measured terms, kRunSigma among them, in the place of the constants.
[[nodiscard]] model::Expected<void> apply_host_terms(std::map<std::string, double> terms, sim::HostConstants& host);

}  // namespace draftboard::calibration
