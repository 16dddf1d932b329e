// SPDX-License-Identifier: Apache-2.0
#pragma once
// A CSV file with a header line, its columns found by name. Fields may be quoted ("" inside is a quote);
// lines beginning with '#' and empty lines are skipped. What the columns mean is the caller's affair.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/error.h"

namespace draftboard::calibration {

inline constexpr std::size_t kMaxCsvRows = 2'000'000;
inline constexpr std::size_t kMaxCsvColumns = 256;

class CsvTable {
   public:
    /// Errors name the line: no header, a repeated column, a row with another number of fields, an open quote.
    [[nodiscard]] static model::Expected<CsvTable> parse(std::string_view text, const std::string& name);
    [[nodiscard]] static model::Expected<CsvTable> load(const std::string& path);

    [[nodiscard]] const std::string& name() const { return name_; }
    [[nodiscard]] std::size_t rows() const { return lines_.size(); }
    [[nodiscard]] int line(std::size_t row) const { return lines_[row]; }  ///< 1-based, in the file
    [[nodiscard]] bool has(std::string_view column) const { return find(column) >= 0; }
    /// The first of `columns` that is missing is named in the error.
    [[nodiscard]] model::Expected<void> require(const std::vector<std::string>& columns) const;

    /// Precondition for all three: row < rows(). A missing column is an error like a malformed field.
    [[nodiscard]] model::Expected<std::string> text(std::size_t row, std::string_view column) const;
    [[nodiscard]] model::Expected<double> number(std::size_t row, std::string_view column, double low,
                                                 double high) const;
    [[nodiscard]] model::Expected<std::int64_t> integer(std::size_t row, std::string_view column,
                                                        std::int64_t low, std::int64_t high) const;

   private:
    [[nodiscard]] int find(std::string_view column) const;
    [[nodiscard]] std::string place(std::size_t row) const;
    std::string name_;
    std::vector<std::string> header_;
    std::vector<std::string> fields_;  // rows() x header_.size()
    std::vector<int> lines_;
};

}  // namespace draftboard::calibration
