// SPDX-License-Identifier: Apache-2.0
#pragma once
// A row of a sweep's result: its number, the varied values, and what was predicted, as one line of CSV (RFC 4180). Numbers are
// written with the fewest digits that give the same double again. What is done with lines is result_log.h.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/error.h"
#include "planning/axis.h"
#include "sim/prediction.h"

namespace draftboard::planning {

/// "row", the axes' paths, then the results: `status` is ok, does_not_fit or refused; the last column says why.
[[nodiscard]] std::vector<std::string> column_names(const std::vector<Axis>& axes);

/// Where the results begin in a row of so many axes: 0 is status, 1 tok/s. Both are columns behind the axes'.
[[nodiscard]] constexpr std::size_t status_column(std::size_t axes) { return 1 + axes; }
[[nodiscard]] constexpr std::size_t rate_column(std::size_t axes) { return 2 + axes; }

/// With its final newline.
[[nodiscard]] std::string row_line(std::uint64_t row, const std::vector<std::string>& values, const sim::Prediction& prediction);
[[nodiscard]] std::string refused_line(std::uint64_t row, const std::vector<std::string>& values, const model::Error& error);
[[nodiscard]] std::string header_line(const std::vector<std::string>& columns);

/// The number at a line's begin; none where it does not begin with one.
[[nodiscard]] std::optional<std::uint64_t> row_number(std::string_view line);
/// Fields of one line without its newline; none where a quote stays open.
[[nodiscard]] std::optional<std::vector<std::string>> split_line(std::string_view line);

}  // namespace draftboard::planning
