// SPDX-License-Identifier: Apache-2.0
#pragma once
// Host constants as sections of calibration files hold them: {"host.kernel_gap_us": 0.5, ...}, by the names and within the ranges of
// sim/host_constants.h. Which sections there are is cuda_terms.h's and imported_terms.h's.

#include <map>
#include <string>
#include <string_view>

#include "model/json_reader.h"

namespace draftboard::calibration {

inline constexpr std::string_view kRunSigma = "host.run_sigma";

/// Unknown names and values out of range become problems of the reader. with_run_sigma: kRunSigma, which is no cost, may stand there.
/// `beside`: a member that is something else.
[[nodiscard]] std::map<std::string, double> read_host_terms(const model::JsonReader& reader, bool with_run_sigma,
                                                            std::string_view beside = {});

}  // namespace draftboard::calibration
