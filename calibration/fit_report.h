// SPDX-License-Identifier: Apache-2.0
#pragma once
// How well kernels were fitted, as text: one line a table, the worst first, then what was assumed.

#include <string>

#include "calibration/kernel_fit.h"

namespace draftboard::calibration {

[[nodiscard]] std::string to_text(const FitReport& report);

}  // namespace draftboard::calibration
