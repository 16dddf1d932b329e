// SPDX-License-Identifier: Apache-2.0
#include "gui/core/measured_points.h"

#include "calibration/csv_table.h"
#include "model/json_reader.h"

namespace draftboard::gui {

namespace {
constexpr double kMost = 1e15;
}  // namespace

model::Expected<std::vector<std::pair<double, double>>> parse_points(std::string_view text, const std::string& name) {
    const auto table = calibration::CsvTable::parse(text, name);
    if (!table) return tl::unexpected(table.error());
    if (auto has = table->require({"x", "value"}); !has) return tl::unexpected(has.error());
    std::vector<std::pair<double, double>> points;
    for (std::size_t row = 0; row < table->rows(); ++row) {
        const auto x = table->number(row, "x", -kMost, kMost);
        if (!x) return tl::unexpected(x.error());
        const auto value = table->number(row, "value", -kMost, kMost);
        if (!value) return tl::unexpected(value.error());
        points.emplace_back(*x, *value);
    }
    return points;
}

model::Expected<std::vector<std::pair<double, double>>> read_points_file(const std::string& path) {
    const auto text = model::read_file(path);
    if (!text) return tl::unexpected(text.error());
    return parse_points(*text, path);
}

}  // namespace draftboard::gui
