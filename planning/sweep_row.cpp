// SPDX-License-Identifier: Apache-2.0
#include "planning/sweep_row.h"

#include <algorithm>
#include <charconv>
#include <iterator>

#include <fmt/format.h>

namespace draftboard::planning {

namespace {

constexpr std::string_view kResults[] = {
    "status",
    "tokens_per_second",
    "tokens_per_second_low",
    "tokens_per_second_high",
    "per_user_tokens_per_second",
    "plain_tokens_per_second",
    "speedup",
    "speedup_low",
    "speedup_high",
    "acceptance_length",
    "break_even_acceptance_length",
    "cycle_ms",
    "verify_ms",
    "draft_ms",
    "host_ms",
    "plain_step_ms",
    "kernels_ms",
    "launch_ms",
    "collective_latency_ms",
    "collective_transport_ms",
    "collective_wait_ms",
    "memory_bytes_per_gpu",
    "coverage",
    "remark",
};

void append_field(std::string& line, std::string_view text) {
    const bool quote = text.find_first_of(",\"\r\n") != std::string_view::npos;
    if (!quote) {
        line += text;
        return;
    }
    line += '"';
    for (const char c : text) {
        if (c == '"') line += '"';
        line += c == '\n' || c == '\r' ? ' ' : c;  // a row is one line
    }
    line += '"';
}

std::string begin_line(std::uint64_t row, const std::vector<std::string>& values) {
    std::string line = fmt::format("{}", row);
    for (const std::string& value : values) {
        line += ',';
        append_field(line, value);
    }
    return line;
}

void append_number(std::string& line, double value) {
    line += ',';
    fmt::format_to(std::back_inserter(line), "{}", value);
}

/// Milliseconds of the cycle by what they went into.
struct Split {
    double kernels = 0;
    double launch = 0;
    double latency = 0;
    double transport = 0;
    double wait = 0;
};

Split split(const std::vector<sim::Term>& terms) {
    Split parts;
    for (const sim::Term& term : terms) {
        const std::string_view name = term.name;
        if (name == "host") continue;
        if (name.ends_with(".launch")) {
            parts.launch += term.ms;
        } else if (name.ends_with(".collectives.latency")) {
            parts.latency += term.ms;
        } else if (name.ends_with(".collectives.transport")) {
            parts.transport += term.ms;
        } else if (name.ends_with(".collectives.wait")) {
            parts.wait += term.ms;
        } else {
            parts.kernels += term.ms;
        }
    }
    return parts;
}

}  // namespace

std::vector<std::string> column_names(const std::vector<Axis>& axes) {
    std::vector<std::string> names{"row"};
    for (const Axis& axis : axes) names.push_back(axis.path);
    names.insert(names.end(), std::begin(kResults), std::end(kResults));
    return names;
}

std::string row_line(std::uint64_t row, const std::vector<std::string>& values, const sim::Prediction& p) {
    std::string line = begin_line(row, values);
    line += p.memory.fits ? ",ok" : ",does_not_fit";
    const Split parts = split(p.terms);
    for (const double value : {p.tokens_per_second.value,
                               p.tokens_per_second.low,
                               p.tokens_per_second.high,
                               p.per_user_tokens_per_second.value,
                               p.plain_tokens_per_second.value,
                               p.speedup.value,
                               p.speedup.low,
                               p.speedup.high,
                               p.acceptance_length.value,
                               p.break_even_acceptance_length,
                               p.cycle_ms,
                               p.verify_ms,
                               p.draft_ms,
                               p.host_ms,
                               p.plain_step_ms,
                               parts.kernels,
                               parts.launch,
                               parts.latency,
                               parts.transport,
                               parts.wait,
                               p.memory.total_bytes}) {
        append_number(line, value);
    }
    line += ',';
    line += to_name(p.coverage);
    line += ',';
    if (!p.memory.fits) append_field(line, p.memory.verdict);
    line += '\n';
    return line;
}

std::string refused_line(std::uint64_t row, const std::vector<std::string>& values, const model::Error& error) {
    std::string line = begin_line(row, values);
    line += ",refused";
    line.append(std::size(kResults) - 1, ',');  // no figures between the status and the remark
    append_field(line, error.message.substr(0, 1000));
    line += '\n';
    return line;
}

std::string header_line(const std::vector<std::string>& columns) {
    std::string line;
    for (const std::string& column : columns) {
        if (!line.empty()) line += ',';
        append_field(line, column);
    }
    return line + '\n';
}

std::optional<std::uint64_t> row_number(std::string_view line) {
    std::uint64_t row = 0;
    const auto [end, ec] = std::from_chars(line.data(), line.data() + line.size(), row);
    if (ec != std::errc{} || end == line.data() + line.size() || *end != ',') return std::nullopt;
    return row;
}

std::optional<std::vector<std::string>> split_line(std::string_view line) {
    std::vector<std::string> fields(1);
    bool quoted = false;
    for (std::size_t i = 0; i < line.size(); ++i) {
        const char c = line[i];
        if (c == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
            fields.back() += '"';
            ++i;
        } else if (c == '"') {
            quoted = !quoted;
        } else if (c == ',' && !quoted) {
            fields.emplace_back();
        } else {
            fields.back() += c;
        }
    }
    if (quoted) return std::nullopt;
    return fields;
}

}  // namespace draftboard::planning
