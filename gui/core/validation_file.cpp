// SPDX-License-Identifier: Apache-2.0
#include "gui/core/validation_file.h"

#include <algorithm>
#include <cmath>

#include "model/json_reader.h"

namespace draftboard::gui {

using model::JsonReader;

namespace {

constexpr double kMost = 1e15;  // tokens a second, microseconds: beyond any

ValidatedConfiguration read_configuration(const JsonReader& reader) {
    ValidatedConfiguration out;
    if (!reader.expect_object()) return out;
    out.name = reader.string("name");
    out.group = reader.string_or("group", "");
    out.unseen = reader.boolean_or("unseen", false);
    out.measured = reader.number("measured_tokens_per_second", 1e-12, kMost);
    const JsonReader predicted = reader.at("predicted_tokens_per_second");
    if (predicted.expect_object()) {
        out.predicted.value = predicted.number("value", 0, kMost);
        out.predicted.low = predicted.number_or("low", out.predicted.value, 0, kMost);
        out.predicted.high = predicted.number_or("high", out.predicted.value, 0, kMost);
    }
    out.measured_length = reader.number_or("measured_acceptance_length", 1, 0, kMost);
    out.predicted_length = reader.number_or("predicted_acceptance_length", 1, 0, kMost);
    return out;
}

ValidatedOperation read_operation(const JsonReader& reader) {
    ValidatedOperation out;
    if (!reader.expect_object()) return out;
    out.key = reader.string("key");
    out.count = static_cast<int>(reader.integer_or("count", 0, 0, 1'000'000'000));
    out.measured_us = reader.number("measured_us", 0, kMost);
    out.predicted_us = reader.number("predicted_us", 0, kMost);
    out.median_error = reader.number_or("median_absolute_error", 0, 0, kMost);
    out.bias = reader.number_or("bias", 0, -kMost, kMost);
    out.share = reader.number_or("share", 0, 0, kMost);
    return out;
}

}  // namespace

model::Expected<ValidationFile> parse_validation_file(std::string_view text, const std::string& source) {
    auto json = model::parse_json(text, source);
    if (!json) return tl::unexpected(json.error());
    std::vector<model::Problem> problems;
    const JsonReader reader(*json, problems);
    ValidationFile out;
    if (!reader.expect_object()) return tl::unexpected(model::to_error(problems, source));
    out.suite = reader.string("suite");
    out.description = reader.string_or("description", "");
    out.calibration = reader.string_or("calibration", "");
    out.bound = reader.number_or("bound", 0.08, 0, kMost);
    out.within_bound = reader.boolean_or("within_bound", false);
    out.median_error = reader.number_or("median_absolute_error", 0, 0, kMost);
    out.coverage_90 = reader.number_or("coverage_90", 0, 0, 1);
    const JsonReader configurations = reader.at("configurations");
    if (problems.empty() && configurations.size() > kMaxValidationRows) reader.problem("configurations", "more than 100000 rows");
    for (std::size_t i = 0; problems.empty() && i < configurations.size(); ++i) {
        out.configurations.push_back(read_configuration(configurations.at(i)));
    }
    if (reader.has("operation_rows") && problems.empty()) {
        const JsonReader operations = reader.at("operation_rows");
        if (problems.empty() && operations.size() > kMaxValidationRows) reader.problem("operation_rows", "more than 100000 rows");
        for (std::size_t i = 0; problems.empty() && i < operations.size(); ++i)
            out.operations.push_back(read_operation(operations.at(i)));
    }
    if (problems.empty() && out.configurations.empty())
        reader.problem("configurations", "a validation has at least one configuration");
    if (!problems.empty()) return tl::unexpected(model::to_error(problems, source));
    std::stable_sort(out.configurations.begin(), out.configurations.end(),
                     [](const auto& a, const auto& b) { return std::fabs(a.error()) > std::fabs(b.error()); });
    std::stable_sort(out.operations.begin(), out.operations.end(),
                     [](const auto& a, const auto& b) { return a.median_error * a.share > b.median_error * b.share; });
    return out;
}

}  // namespace draftboard::gui
