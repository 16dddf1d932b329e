// SPDX-License-Identifier: Apache-2.0
#pragma once
// Measured points to lay over a curve: a CSV with the columns `x` and `value` (the knob's value, the curve's quantity).

#include <string>
#include <utility>
#include <vector>

#include "model/error.h"

namespace draftboard::gui {

[[nodiscard]] model::Expected<std::vector<std::pair<double, double>>> parse_points(std::string_view text,
                                                                                   const std::string& name);
[[nodiscard]] model::Expected<std::vector<std::pair<double, double>>> read_points_file(const std::string& path);

}  // namespace draftboard::gui
