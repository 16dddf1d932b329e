// SPDX-License-Identifier: Apache-2.0
// How a backtest is shown: JSON, text, CSV. Declared in backtest.h.
#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "calibration/backtest.h"

namespace draftboard::calibration {

using model::Json;

namespace {

constexpr std::size_t kTermsShown = 3;

Json summary_json(const BacktestSummary& summary) {
    return {{"name", summary.name},
            {"cells", summary.cells},
            {"median_absolute_error", summary.median_absolute_error},
            {"median_error", summary.median_error},
            {"pairs", summary.pairs},
            {"speedup_error", summary.speedup_error},
            {"pairs_beyond_noise", summary.sign_pairs},
            {"sign_right", summary.sign_right},
            {"repeat_sigma_plain", summary.noise.plain},
            {"repeat_sigma_speculating", summary.noise.speculating},
            {"pairs_beyond_repeats", summary.repeat_pairs},
            {"sign_right_beyond_repeats", summary.repeat_right},
            {"coverage_90", summary.coverage_90}};
}

std::string summary_line(const BacktestSummary& s) {
    std::string line = fmt::format("{:<44} {:>5} {:>7.1f} % {:>+7.1f} % {:>6.0f} %", s.name, s.cells,
                                   100 * s.median_absolute_error, 100 * s.median_error, 100 * s.coverage_90);
    if (s.pairs == 0) return line + "\n";
    line += fmt::format(" {:>5} {:>5.1f} %", s.pairs, 100 * s.speedup_error);
    line += s.sign_pairs == 0 ? fmt::format("  {:>13}", "-")
                              : fmt::format("  {:>4.0f} % of {:<4}", 100 * s.sign_right, s.sign_pairs);
    line += fmt::format(" {:>4.0f} %", 100 * std::expm1(s.noise.limit()));
    if (s.repeat_pairs == 0) return line + "      -\n";
    return line + fmt::format("  {:>4.0f} % of {}\n", 100 * s.repeat_right, s.repeat_pairs);
}

/// The largest terms of a cell: "verify.experts 5.0 ms, ...".
std::string largest_terms(const BacktestCell& cell) {
    std::vector<const sim::Term*> terms;
    for (const sim::Term& term : cell.terms) terms.push_back(&term);
    std::stable_sort(terms.begin(), terms.end(),
                     [](const sim::Term* a, const sim::Term* b) { return a->ms > b->ms; });
    std::string text;
    for (std::size_t i = 0; i < std::min(kTermsShown, terms.size()); ++i) {
        text += fmt::format("{}{} {:.2f}", i == 0 ? "" : ", ", terms[i]->name, terms[i]->ms);
    }
    return text;
}

std::string csv_field(std::string_view text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"') out += '"';
        out += c == '\n' || c == '\r' ? ' ' : c;
    }
    return out + "\"";
}

}  // namespace

Json backtest_json(const BacktestReport& report) {
    Json json;
    json["format"] = "draftboard.backtest";
    json["version"] = 1;
    json["rows"] = report.rows;
    json["cells"] = report.overall.cells;
    json["median_absolute_error"] = report.overall.median_absolute_error;
    json["median_error"] = report.overall.median_error;
    json["overall_coverage_90"] = report.overall.coverage_90;
    json["speedup_error"] = report.overall.speedup_error;
    json["pairs_beyond_noise"] = report.overall.sign_pairs;
    json["sign_right"] = report.overall.sign_right;
    json["repeat_sigma_plain"] = report.overall.noise.plain;
    json["repeat_sigma_speculating"] = report.overall.noise.speculating;
    json["pairs_beyond_repeats"] = report.overall.repeat_pairs;
    json["sign_right_beyond_repeats"] = report.overall.repeat_right;
    json["groups"] = Json::array();
    for (const BacktestSummary& group : report.groups) json["groups"].push_back(summary_json(group));
    json["skipped"] = Json::array();
    for (const auto& [reason, count] : report.skipped) {
        json["skipped"].push_back({{"reason", reason}, {"count", count}});
    }
    return json;
}

std::string backtest_text(const BacktestReport& report, std::size_t worst) {
    std::string text = fmt::format("{} of {} rows predicted\n\n{:<44} {:>5} {:>9} {:>9} {:>8} {:>5} {:>7}  {:<13} {:>6}  {}\n",
                                   report.cells.size(), report.rows, "group", "cells", "error", "bias",
                                   "held 90", "pairs", "speedup", "sign right", "noise", "sign right");
    for (const BacktestSummary& group : report.groups) text += summary_line(group);
    text += summary_line(report.overall);
    text += "error: median |predicted / measured - 1| of tok/s; bias: its signed median; held 90: cells inside their "
            "90 % interval;\nspeedup: the same error of tok/s with speculation over tok/s without; sign right: of "
            "the pairs that differ by more than 5 %, then by\nmore than the noise: what repeats of one measurement "
            "differ by in nine cases of ten, made of a plain and a speculating cell's\n";
    if (!report.skipped.empty()) text += "\nskipped rows\n";
    for (const auto& [reason, count] : report.skipped) text += fmt::format("{:>6}  {}\n", count, reason);
    if (worst == 0) return text;

    std::vector<std::size_t> order(report.cells.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&report](std::size_t a, std::size_t b) {
        return std::fabs(std::log1p(report.cells[a].error())) > std::fabs(std::log1p(report.cells[b].error()));
    });
    order.resize(std::min(worst, order.size()));
    text += fmt::format("\n{:<10} {:<44} {:>4} {:>7} {:>4} {:<7} {:>8} {:>9} {:>8}  {}\n", "worst", "group", "c",
                        "context", "dcp", "spec", "measured", "predicted", "error", "largest terms, ms");
    for (const std::size_t i : order) {
        const BacktestCell& cell = report.cells[i];
        text += fmt::format("{:<10} {:<44} {:>4} {:>7} {:>4} {:<7} {:>8.1f} {:>9.1f} {:>+7.1f} %  {}\n",
                            cell.row.id, cell.group, cell.row.concurrency, cell.row.context_tokens.value_or(0),
                            cell.row.dcp, cell.row.spec_method, cell.measured, cell.predicted.value,
                            100 * cell.error(), largest_terms(cell));
    }
    return text;
}

std::string backtest_csv(const BacktestReport& report) {
    std::string text = "id,group,dcp,speculation,concurrency,context_tokens,measured_tok_s,predicted_tok_s,low,high,"
                       "error,held,cycle_ms,fits_memory,terms\n";
    for (const BacktestCell& cell : report.cells) {
        std::string terms;
        for (const sim::Term& term : cell.terms) {
            terms += fmt::format("{}{}={:.4f}", terms.empty() ? "" : ";", term.name, term.ms);
        }
        text += fmt::format("{},{},{},{},{},{},{},{:.3f},{:.3f},{:.3f},{:.4f},{},{:.4f},{},{}\n",
                            csv_field(cell.row.id), csv_field(cell.group), cell.row.dcp, csv_field(cell.row.spec_method),
                            cell.row.concurrency, cell.row.context_tokens.value_or(0), cell.measured,
                            cell.predicted.value, cell.predicted.low, cell.predicted.high, cell.error(),
                            cell.held() ? 1 : 0, cell.cycle_ms, cell.fits_memory ? 1 : 0, csv_field(terms));
    }
    return text;
}

}  // namespace draftboard::calibration
