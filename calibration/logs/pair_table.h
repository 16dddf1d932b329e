// SPDX-License-Identifier: Apache-2.0
#pragma once
// The grid that nvbandwidth and p2pBandwidthLatencyTest print: a line of column numbers, then lines of a row number and values.
// It knows neither what the values are nor which side is the source: nvbandwidth_log.cpp and p2p_bandwidth_log.cpp do.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "calibration/logs/log_text.h"

namespace draftboard::calibration {

struct PairCell {
    int row = 0;
    int column = 0;
    PrintedNumber number;
};

class PairTable {
 public:
    /// Takes the line of column numbers; false if these words are none. Behind a corner word (D\D, GPU, CPU) if it is given.
    [[nodiscard]] bool take_header(const std::vector<std::string_view>& words, int line);
    /// Takes a line of values; false if these words are none: the grid ends above them.
    [[nodiscard]] bool take_row(const std::vector<std::string_view>& words, const LogLine& line,
                                std::vector<std::string>& warnings);
    [[nodiscard]] bool has_header() const { return !columns_.empty(); }
    [[nodiscard]] int line() const { return line_; }
    [[nodiscard]] int rows() const { return rows_; }
    [[nodiscard]] int columns() const { return static_cast<int>(columns_.size()); }
    [[nodiscard]] const std::vector<PairCell>& cells() const { return cells_; }

 private:
    std::vector<int> columns_;
    std::vector<PairCell> cells_;
    int rows_ = 0;
    int last_row_ = -1;
    int line_ = 0;
};

}  // namespace draftboard::calibration
