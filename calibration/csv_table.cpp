// SPDX-License-Identifier: Apache-2.0
#include "calibration/csv_table.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "model/json_reader.h"

namespace draftboard::calibration {

namespace {

using model::ErrorCode;
using model::fail;

// One line into fields. False: a quote is not closed.
bool split(std::string_view line, std::vector<std::string>& fields) {
    fields.clear();
    std::string field;
    bool quoted = false;
    for (std::size_t i = 0; i < line.size(); ++i) {
        const char c = line[i];
        if (quoted) {
            if (c != '"') {
                field += c;
            } else if (i + 1 < line.size() && line[i + 1] == '"') {
                field += '"';
                ++i;
            } else {
                quoted = false;
            }
        } else if (c == '"' && field.empty()) {
            quoted = true;
        } else if (c == ',') {
            fields.push_back(std::move(field));
            field.clear();
            if (fields.size() > kMaxCsvColumns) return true;
        } else {
            field += c;
        }
    }
    fields.push_back(std::move(field));
    return !quoted;
}

}  // namespace

model::Expected<CsvTable> CsvTable::parse(std::string_view text, const std::string& name) {
    CsvTable table;
    table.name_ = name;
    std::vector<std::string> fields;
    int number = 0;
    if (text.substr(0, 3) == "\xef\xbb\xbf") text.remove_prefix(3);
    while (!text.empty()) {
        const auto end = text.find('\n');
        std::string_view line = text.substr(0, end);
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
        ++number;
        if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
        if (line.empty() || line.front() == '#') continue;
        const auto place = [&] { return fmt::format("{}:{}", name, number); };
        if (!split(line, fields)) {
            return fail(ErrorCode::invalid_input, "a quoted field is not closed", place(),
                        "close the quote on the same line");
        }
        if (fields.size() > kMaxCsvColumns) {
            return fail(ErrorCode::too_large, fmt::format("a line has more than {} fields", kMaxCsvColumns),
                        place());
        }
        if (table.header_.empty()) {
            table.header_ = fields;
            auto sorted = fields;
            std::sort(sorted.begin(), sorted.end());
            const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
            if (twice != sorted.end()) {
                return fail(ErrorCode::invalid_input,
                            fmt::format("the column \"{}\" appears twice", twice->substr(0, 80)), place(),
                            "give each column a name of its own");
            }
            continue;
        }
        if (fields.size() != table.header_.size()) {
            return fail(ErrorCode::invalid_input,
                        fmt::format("the line has {} fields, the header {}", fields.size(),
                                    table.header_.size()),
                        place(), "complete or remove the line");
        }
        if (table.lines_.size() >= kMaxCsvRows) {
            return fail(ErrorCode::too_large, fmt::format("more than {} rows", kMaxCsvRows), place(),
                        "split the file");
        }
        table.lines_.push_back(number);
        for (auto& field : fields) table.fields_.push_back(std::move(field));
    }
    if (table.header_.empty()) {
        return fail(ErrorCode::invalid_input, "the file has no header line", name,
                    "begin the file with the names of its columns");
    }
    return table;
}

model::Expected<CsvTable> CsvTable::load(const std::string& path) {
    const auto text = model::read_file(path);
    if (!text) return tl::unexpected(text.error());
    return parse(*text, path);
}

model::Expected<void> CsvTable::require(const std::vector<std::string>& columns) const {
    for (const auto& column : columns) {
        if (!has(column)) {
            return fail(ErrorCode::invalid_input, fmt::format("there is no column \"{}\"", column), name_,
                        "columns are found by the names in the first line");
        }
    }
    return {};
}

int CsvTable::find(std::string_view column) const {
    const auto at = std::find(header_.begin(), header_.end(), column);
    return at == header_.end() ? -1 : static_cast<int>(at - header_.begin());
}

std::string CsvTable::place(std::size_t row) const {
    return fmt::format("{}:{}", name_, lines_[row]);
}

model::Expected<std::string> CsvTable::text(std::size_t row, std::string_view column) const {
    const int at = find(column);
    if (at < 0) {
        return fail(ErrorCode::invalid_input, fmt::format("there is no column \"{}\"", column), place(row));
    }
    return fields_[row * header_.size() + static_cast<std::size_t>(at)];
}

model::Expected<double> CsvTable::number(std::size_t row, std::string_view column, double low,
                                         double high) const {
    auto field = text(row, column);
    if (!field) return tl::unexpected(field.error());
    double value = 0;  // from_chars, because strtod follows the locale
    const char* last = field->data() + field->size();
    const auto [stop, code] = std::from_chars(field->data(), last, value);
    if (code != std::errc() || stop != last || !std::isfinite(value)) {
        return fail(ErrorCode::invalid_input,
                    fmt::format("{} is \"{}\", which is no number", column, field->substr(0, 40)), place(row),
                    "write a plain decimal number");
    }
    if (value < low || value > high) {
        return fail(ErrorCode::invalid_input,
                    fmt::format("{} is {:g}, outside {:g} to {:g}", column, value, low, high), place(row));
    }
    return value;
}

model::Expected<std::int64_t> CsvTable::integer(std::size_t row, std::string_view column,
                                                std::int64_t low, std::int64_t high) const {
    auto field = text(row, column);
    if (!field) return tl::unexpected(field.error());
    std::int64_t value = 0;
    const char* last = field->data() + field->size();
    const auto [stop, code] = std::from_chars(field->data(), last, value);
    if (code != std::errc() || stop != last) {
        return fail(ErrorCode::invalid_input,
                    fmt::format("{} is \"{}\", which is no whole number", column, field->substr(0, 40)),
                    place(row));
    }
    if (value < low || value > high) {
        return fail(ErrorCode::invalid_input,
                    fmt::format("{} is {}, outside {} to {}", column, value, low, high), place(row));
    }
    return value;
}

}  // namespace draftboard::calibration
