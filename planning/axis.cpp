// SPDX-License-Identifier: Apache-2.0
#include "planning/axis.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include <fmt/format.h>

namespace draftboard::planning {

using model::ErrorCode;

namespace {

tl::unexpected<model::Error> refuse(std::string_view text, std::string message, std::string hint) {
    return model::fail(ErrorCode::invalid_input, std::move(message), "--vary " + std::string(text.substr(0, 200)),
                       std::move(hint));
}

constexpr const char* kForms = "use path=a,b,c or path=a..b or path=a..b:step or path=a..b:*ratio";

std::optional<double> number(std::string_view text) {
    double value = 0;
    const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || ec != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return value;  // may be infinite or no number
}

bool whole(double value) { return value == std::floor(value) && std::abs(value) < 1e15; }

/// Twelve digits: 0.1 + 2 * 0.1 is written 0.3.
std::string to_text(double value) { return whole(value) ? fmt::format("{:.0f}", value) : fmt::format("{:.12g}", value); }

/// a..b, and what stands behind a colon.
struct Range {
    double low = 0;
    double high = 0;
    std::string step;
    bool whole_ends = false;
};

std::optional<Range> parse_range(std::string_view text) {
    const auto dots = text.find("..");
    if (dots == std::string_view::npos) return std::nullopt;
    std::string_view rest = text.substr(dots + 2);
    Range range;
    if (const auto colon = rest.find(':'); colon != std::string_view::npos) {
        range.step = std::string(rest.substr(colon + 1));
        if (range.step.empty()) return std::nullopt;
        rest = rest.substr(0, colon);
    }
    const auto low = number(text.substr(0, dots));
    const auto high = number(rest);
    if (!low || !high) return std::nullopt;
    range.low = *low;
    range.high = *high;
    range.whole_ends = whole(*low) && whole(*high);
    return range;
}

model::Expected<std::vector<std::string>> values_of(const Range& range, std::string_view text) {
    const bool ratio = range.step.starts_with('*');
    const auto step = range.step.empty() ? std::optional<double>(1) : number(std::string_view(range.step).substr(ratio ? 1 : 0));
    if (!step || !std::isfinite(*step) || (ratio ? *step <= 1 : *step <= 0)) {
        return refuse(text, "the step has to be above 0, a ratio above 1", kForms);
    }
    if (ratio && range.low <= 0) return refuse(text, "a range in ratios has to begin above 0", kForms);
    std::vector<std::string> values;
    const double most = ratio ? std::log(range.high / range.low) / std::log(*step) : (range.high - range.low) / *step;
    if (!(most < static_cast<double>(kMaxAxisValues))) {
        return refuse(text, fmt::format("more than {} values", kMaxAxisValues), "take a larger step");
    }
    const auto count = static_cast<std::size_t>(std::floor(most * (1 + 1e-12) + 1e-9)) + 1;
    for (std::size_t i = 0; i < count; ++i) {
        const double n = static_cast<double>(i);
        values.push_back(to_text(ratio ? range.low * std::pow(*step, n) : range.low + n * *step));
    }
    return values;
}

}  // namespace

std::vector<std::string> split_list(std::string_view text) {
    std::vector<std::string> parts(1);
    int depth = 0;
    bool quoted = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (quoted && c == '\\' && i + 1 < text.size()) {
            parts.back() += c;
            parts.back() += text[++i];
            continue;
        }
        if (c == '"') quoted = !quoted;
        if (!quoted && (c == '[' || c == '{')) ++depth;
        if (!quoted && (c == ']' || c == '}')) --depth;
        if (c == ',' && !quoted && depth == 0) {
            parts.emplace_back();
        } else {
            parts.back() += c;
        }
    }
    return parts;
}

std::string Axis::at(double u) const {
    if (continuous()) return fmt::format("{:.9g}", low + (high - low) * u);
    const auto index = static_cast<std::size_t>(u * static_cast<double>(values.size()));
    return values[std::min(index, values.size() - 1)];
}

model::Expected<Axis> parse_axis(std::string_view text) {
    const auto equals = text.find('=');
    if (equals == std::string_view::npos || equals == 0) return refuse(text, "an axis has to be path=values", kForms);
    Axis axis;
    axis.path = std::string(text.substr(0, equals));
    const std::string_view spec = text.substr(equals + 1);
    if (spec.empty()) return refuse(text, "no values", kForms);
    if (text.find_first_of("\r\n") != std::string_view::npos || text.find('\0') != std::string_view::npos) {
        return refuse(text.substr(0, equals), "a value holds the end of a line", kForms);
    }
    if (const auto range = parse_range(spec)) {
        if (!std::isfinite(range->low) || !std::isfinite(range->high))
            return refuse(text, "the range's ends have to be finite", kForms);
        if (range->high < range->low) return refuse(text, "the range ends before it begins", kForms);
        if (range->step.empty() && !range->whole_ends) {
            axis.low = range->low;
            axis.high = range->high;
            return axis;
        }
        auto values = values_of(*range, text);
        if (!values) return tl::unexpected(values.error());
        axis.values = std::move(*values);
        return axis;
    }
    axis.values = split_list(spec);
    if (axis.values.size() > kMaxAxisValues) {
        return refuse(axis.path, fmt::format("more than {} values", kMaxAxisValues), "split the sweep");
    }
    for (const std::string& value : axis.values) {
        if (value.empty()) return refuse(text, "an empty value stands between two commas", kForms);
        if (std::count(axis.values.begin(), axis.values.end(), value) > 1 && axis.values.size() < 1000) {
            return refuse(text, "the value " + value + " is named twice", "name each value once");
        }
    }
    return axis;
}

}  // namespace draftboard::planning
