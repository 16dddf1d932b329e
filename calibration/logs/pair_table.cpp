// SPDX-License-Identifier: Apache-2.0
#include "calibration/logs/pair_table.h"

#include <fmt/format.h>

namespace draftboard::calibration {

bool PairTable::take_header(const std::vector<std::string_view>& words, int line) {
    std::vector<int> columns;
    const bool corner = !words.empty() && (words[0] == "D\\D" || words[0] == "GPU" || words[0] == "CPU");
    for (std::size_t i = corner ? 1 : 0; i < words.size(); ++i) {
        const auto column = whole_number(words[i]);
        const int previous = columns.empty() ? -1 : columns.back();
        if (!column || *column <= previous || *column >= kMaxLogDevices) return false;
        columns.push_back(static_cast<int>(*column));
    }
    if (columns.empty()) return false;
    columns_ = std::move(columns);
    line_ = line;
    return true;
}

bool PairTable::take_row(const std::vector<std::string_view>& words, const LogLine& line, std::vector<std::string>& warnings) {
    if (words.size() < 2) return false;
    const auto row = whole_number(words[0]);
    if (!row || *row <= last_row_ || *row >= kMaxLogDevices) return false;
    for (std::size_t i = 1; i < words.size(); ++i) {
        if (!printed_number(words[i]) && words[i] != "N/A") return false;
    }
    last_row_ = static_cast<int>(*row);
    ++rows_;
    std::size_t values = words.size() - 1;
    if (values > columns_.size()) {
        remark(warnings, fmt::format("line {}: {} values under {} columns; those past the columns are left out", line.number,
                                     values, columns_.size()));
        values = columns_.size();
    } else if (values < columns_.size()) {
        // The last number of a text that ends in it may have lost digits.
        values -= line.last ? 1 : 0;
        remark(warnings, fmt::format("line {}: the row is cut: {} of {} values are read", line.number, values, columns_.size()));
    }
    for (std::size_t i = 0; i < values; ++i) {
        if (const auto number = printed_number(words[i + 1])) cells_.push_back({last_row_, columns_[i], *number});
    }
    return true;
}

}  // namespace draftboard::calibration
