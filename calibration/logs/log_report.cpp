// SPDX-License-Identifier: Apache-2.0
#include "calibration/logs/log_report.h"

#include <map>
#include <set>

#include <fmt/format.h>

#include "calibration/logs/collective_rows.h"
#include "calibration/logs/read_log.h"

namespace draftboard::calibration {
namespace {

using model::Json;

std::string head(const LinkLog& log, const std::string& name) {
    std::string text = fmt::format("{}: {}", name, to_name(log.tool));
    if (!log.version.empty()) text += " " + log.version;
    if (log.format == "JSON") text += ", JSON";
    if (log.ranks > 0) text += fmt::format(", {} ranks", log.ranks);
    if (log.nodes > 0) text += fmt::format(" on {} node{}", log.nodes, log.nodes == 1 ? "" : "s");
    std::map<std::string, int> kinds;
    for (const LogGpu& gpu : log.gpus) {
        if (!gpu.name.empty()) ++kinds[gpu.name];
    }
    for (const auto& [kind, count] : kinds) text += fmt::format(", {} x {}", count, kind);
    text += "\n";
    std::string facts;
    for (const auto& [key, value] : log.facts) facts += fmt::format("{}{} {}", facts.empty() ? "  " : ", ", key, value);
    return facts.empty() ? text : text + facts + "\n";
}

std::string timing_text(const CollectiveTiming& timing) {
    if (!timing.measured) return fmt::format(" {:>11} {:>9} {:>9} {:>6}", "-", "-", "-", "-");
    return fmt::format(" {:>11.2f} {:>9.2f} {:>9.2f} {:>6}", timing.time_us, timing.algorithm_gb_s, timing.bus_gb_s,
                       timing.errors < 0 ? std::string("-") : fmt::format("{:g}", timing.errors));
}

std::string rows_text(const LinkLog& log) {
    if (log.rows.empty()) return {};
    std::string text = "  time in us, GB/s = 1e9 B/s: algbw = bytes / time";
    std::set<std::string> operations;
    for (const CollectiveRow& row : log.rows) operations.insert(row.operation);
    for (const std::string& operation : operations) {
        const std::string formula = bus_formula(operation);
        if (!formula.empty()) text += fmt::format("; {}: busbw = algbw x {}", operation, formula);
    }
    text += fmt::format("\n  {:<22} {:>5} {:>12} {:<9} {:<5} {:>11} {:>9} {:>9} {:>6} {:>11} {:>9} {:>9} {:>6}\n", "operation",
                        "ranks", "bytes", "type", "redop", "out: time", "algbw", "busbw", "errors", "in: time", "algbw", "busbw",
                        "errors");
    for (const CollectiveRow& row : log.rows) {
        text += fmt::format("  {:<22} {:>5} {:>12} {:<9} {:<5}", row.operation.empty() ? "?" : row.operation,
                            row.ranks > 0 ? fmt::format("{}", row.ranks) : "?", row.bytes, row.dtype,
                            row.reduction.empty() ? "-" : row.reduction);
        text += timing_text(row.out_of_place) + timing_text(row.in_place) + "\n";
    }
    return text;
}

std::string index_text(int index) { return index < 0 ? "all" : fmt::format("{}", index); }

std::string matrix_text(const PairMatrix& matrix) {
    std::string text = fmt::format("  {}, {}: from {} (row) to {} (column)", matrix.what.empty() ? "?" : matrix.what, matrix.unit,
                                   matrix.from_kind, matrix.to_kind);
    if (matrix.bidirectional) text += ", both directions busy";
    if (!matrix.peer_access.empty()) text += ", peer access " + matrix.peer_access;
    if (!matrix.timed_by.empty()) text += ", timed by the " + matrix.timed_by;
    text += "\n";
    if (matrix.values.empty()) return text + "    no value\n";
    std::map<int, std::map<int, double>> rows;
    std::set<int> columns;
    for (const PairValue& value : matrix.values) {
        rows[value.from][value.to] = value.value;
        columns.insert(value.to);
    }
    text += "       ";
    for (const int column : columns) text += fmt::format(" {:>9}", index_text(column));
    text += "\n";
    for (const auto& [row, cells] : rows) {
        text += fmt::format("    {:>3}", index_text(row));
        for (const int column : columns) {
            const auto cell = cells.find(column);
            text += cell == cells.end() ? fmt::format(" {:>9}", "-")
                                        : fmt::format(" {:>9.{}f}", cell->second, matrix.unit == "us" ? 3 : 2);
        }
        text += "\n";
    }
    return text;
}

std::string tuning_text(const LinkLog& log) {
    std::string text;
    if (!log.tuning.empty()) {
        text =
            fmt::format("  what NCCL believes: time = latency + bytes / bandwidth\n  {:>5} {:<15} {:<14} {:<8} {:>11} {:>15}\n",
                        "table", "operation", "algorithm", "protocol", "latency us", "bandwidth GB/s");
    }
    int off = 0;
    for (const TuningEntry& entry : log.tuning) {
        if (entry.bandwidth_gb_s <= 0) {
            ++off;
            continue;
        }
        text += fmt::format("  {:>5} {:<15} {:<14} {:<8} {:>11.1f} {:>15.1f}\n", entry.table, entry.operation, entry.algorithm,
                            entry.protocol, entry.latency_us, entry.bandwidth_gb_s);
    }
    if (off > 0) text += fmt::format("  {} pairs of algorithm and protocol have no bandwidth: they are switched off\n", off);
    if (log.choices.empty()) return text;
    text += fmt::format("  what NCCL chose\n  {:<15} {:>12} {:<14} {:<8} {:>8} {:>11} {:>6}\n", "operation", "bytes", "algorithm",
                        "protocol", "channels", "believed us", "calls");
    for (const TuningChoice& choice : log.choices) {
        text += fmt::format("  {:<15} {:>12} {:<14} {:<8} {:>8} {:>11} {:>6}\n",
                            choice.operation.empty() ? "?" : choice.operation, choice.bytes, choice.algorithm, choice.protocol,
                            choice.channel_low < 0 ? "-" : fmt::format("{}..{}", choice.channel_low, choice.channel_high),
                            choice.time_us < 0 ? "-" : fmt::format("{:.1f}", choice.time_us), choice.calls);
    }
    return text;
}

Json number_or_null(bool known, double value) { return known ? Json(value) : Json(); }
Json whole_or_null(bool known, int value) { return known ? Json(value) : Json(); }

Json timing_json(const CollectiveTiming& timing) {
    if (!timing.measured) return {};
    return {{"time_us", timing.time_us},
            {"algorithm_gb_s", timing.algorithm_gb_s},
            {"bus_gb_s", timing.bus_gb_s},
            {"errors", number_or_null(timing.errors >= 0, timing.errors)}};
}

Json rows_json(const LinkLog& log) {
    Json list = Json::array();
    for (const CollectiveRow& row : log.rows) {
        list.push_back({{"line", row.line},
                        {"operation", row.operation},
                        {"ranks", whole_or_null(row.ranks > 0, row.ranks)},
                        {"bytes", row.bytes},
                        {"count", row.count},
                        {"type", row.dtype},
                        {"reduction", row.reduction},
                        {"root", whole_or_null(row.root >= 0, row.root)},
                        {"out_of_place", timing_json(row.out_of_place)},
                        {"in_place", timing_json(row.in_place)}});
    }
    return list;
}

Json matrices_json(const LinkLog& log) {
    Json list = Json::array();
    for (const PairMatrix& matrix : log.matrices) {
        Json values = Json::array();
        for (const PairValue& value : matrix.values)
            values.push_back({{"from", value.from}, {"to", value.to}, {"value", value.value}});
        list.push_back({{"line", matrix.line},
                        {"what", matrix.what},
                        {"unit", matrix.unit},
                        {"from", matrix.from_kind},
                        {"to", matrix.to_kind},
                        {"bidirectional", matrix.bidirectional},
                        {"peer_access", matrix.peer_access},
                        {"timed_by", matrix.timed_by},
                        {"values", std::move(values)}});
    }
    return list;
}

}  // namespace

std::string to_text(const LinkLog& log, const std::string& name) {
    std::string text = head(log, name) + rows_text(log);
    for (const PairMatrix& matrix : log.matrices) text += matrix_text(matrix);
    text += tuning_text(log);
    for (const std::string& warning : log.warnings) text += "  note: " + warning + "\n";
    for (const std::string& finding : log.findings) text += "  finding: " + finding + "\n";
    return text;
}

model::Json to_json(const LinkLog& log, const std::string& name) {
    Json facts = Json::object();
    for (const auto& [key, value] : log.facts) {
        if (!facts.contains(key)) facts[key] = value;
    }
    Json gpus = Json::array();
    for (const LogGpu& gpu : log.gpus) {
        gpus.push_back({{"rank", whole_or_null(gpu.rank >= 0, gpu.rank)},
                        {"device", whole_or_null(gpu.device >= 0, gpu.device)},
                        {"host", gpu.host},
                        {"bus_id", gpu.bus_id},
                        {"name", gpu.name}});
    }
    Json tuning = Json::array();
    for (const TuningEntry& entry : log.tuning) {
        tuning.push_back({{"line", entry.line},
                          {"table", entry.table},
                          {"operation", entry.operation},
                          {"algorithm", entry.algorithm},
                          {"protocol", entry.protocol},
                          {"latency_us", entry.latency_us},
                          {"bandwidth_gb_s", entry.bandwidth_gb_s}});
    }
    Json choices = Json::array();
    for (const TuningChoice& choice : log.choices) {
        const bool channels = choice.channel_low >= 0;
        choices.push_back({{"line", choice.line},
                           {"operation", choice.operation},
                           {"bytes", choice.bytes},
                           {"algorithm", choice.algorithm},
                           {"protocol", choice.protocol},
                           {"channels", whole_or_null(channels, choice.channel_high - choice.channel_low + 1)},
                           {"believed_us", number_or_null(choice.time_us >= 0, choice.time_us)},
                           {"calls", choice.calls}});
    }
    return {{"file", name},
            {"tool", to_name(log.tool)},
            {"format", log.format},
            {"version", log.version},
            {"ranks", whole_or_null(log.ranks > 0, log.ranks)},
            {"nodes", whole_or_null(log.nodes > 0, log.nodes)},
            {"gpus", std::move(gpus)},
            {"facts", std::move(facts)},
            {"rows", rows_json(log)},
            {"matrices", matrices_json(log)},
            {"tuning", std::move(tuning)},
            {"choices", std::move(choices)},
            {"warnings", log.warnings},
            {"findings", log.findings}};
}

}  // namespace draftboard::calibration
