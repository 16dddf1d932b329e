// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "calibration/log_import.h"

namespace draftboard::calibration {
namespace {

using model::Json;

constexpr std::size_t kMostRows = 20;

std::vector<const CollectiveFitPoint*> worst_first(const CollectiveFit& fit) {
    std::vector<const CollectiveFitPoint*> out;
    for (const CollectiveFitPoint& point : fit.points) out.push_back(&point);
    const auto error = [](const CollectiveFitPoint* point) {
        return std::abs(std::log(point->fitted_us / point->measurement.latency_us));
    };
    std::stable_sort(out.begin(), out.end(), [&](const auto* a, const auto* b) { return error(a) > error(b); });
    return out;
}

std::string more(std::size_t all) {
    return all > kMostRows ? fmt::format("  {} more with smaller errors\n", all - kMostRows) : "";
}

std::string collectives_text(const CollectiveFit& fit, const std::vector<std::string>& undetermined) {
    std::string text = fmt::format("collectives: {} rows, mean error {:.1f} %, worst {:.1f} %", fit.points.size(),
                                   100 * fit.mean_error, 100 * fit.worst_error);
    if (fit.held_out_worst_error > 0) {
        text += fmt::format("; of sizes left out mean {:.1f} %, worst {:.1f} %", 100 * fit.held_out_mean_error,
                            100 * fit.held_out_worst_error);
    }
    text += "\n";
    text += fmt::format("  {:<26} {:>10} {:>10} {:>8}\n", "constant", "fitted", "before", "+- %");
    for (const FittedConstant& constant : fit.fitted) {
        const bool open = std::find(undetermined.begin(), undetermined.end(), constant.name) != undetermined.end();
        text += fmt::format("  {:<26} {:>10.4g} {:>10.4g} {:>8}{}\n", constant.name, constant.value, constant.default_value,
                            open ? "-" : fmt::format("{:.1f}", 100 * constant.standard_error),
                            open ? "  not determined by these rows" : "");
    }
    text += fmt::format("  {:<14} {:>4} {:>11} {:<7} {:>11} {:>11} {:>8} {:>8}\n", "worst first", "gpus", "bytes", "proto",
                        "measured us", "fitted", "error %", "left out");
    const auto points = worst_first(fit);
    for (std::size_t i = 0; i < points.size() && i < kMostRows; ++i) {
        const CollectiveFitPoint& point = *points[i];
        const double measured = point.measurement.latency_us;
        text += fmt::format("  {:<14} {:>4} {:>11} {:<7} {:>11.2f} {:>11.2f} {:>+8.1f} {:>8}\n",
                            model::to_name(point.measurement.operation), point.measurement.gpus, point.measurement.bytes,
                            point.choice.nvls ? "nvls" : model::to_name(point.choice.protocol), measured, point.fitted_us,
                            100 * (point.fitted_us / measured - 1),
                            point.held_out_us > 0 ? fmt::format("{:+.1f}", 100 * (point.held_out_us / measured - 1)) : "-");
    }
    return text + more(points.size());
}

std::string links_text(const LinkFit& fit) {
    std::string text = "links, against the machine's description\n";
    for (const LinkFactor& link : fit.factors) {
        text += fmt::format("  {:<14} x {:.3f} +- {:.3f}, {} pairs\n", model::to_name(link.kind), link.factor,
                            link.standard_error, link.pairs);
    }
    text += fmt::format("  {:<52} {:>9} {:>9} {:>9} {:>8}\n", "worst first", "measured", "described", "fitted", "error %");
    for (std::size_t i = 0; i < fit.residuals.size() && i < kMostRows; ++i) {
        const PairResidual& row = fit.residuals[i];
        text += fmt::format("  {:<52} {:>9.2f} {:>9.2f} {:>9.2f} {:>+8.1f}\n", row.what, row.measured_gb_s, row.described_gb_s,
                            row.fitted_gb_s, 100 * row.error());
    }
    return text + more(fit.residuals.size());
}

std::string recorded_text(const std::vector<RecordedTerm>& terms) {
    std::string text = fmt::format("host, as recorded\n  {:<26} {:>10} {:>10} {:>9} {:>16}\n", "constant", "recorded", "before",
                                   "times", "10 .. 90 %");
    for (const RecordedTerm& term : terms) {
        text += fmt::format("  {:<26} {:>10.4g} {:>10.4g} {:>9} {:>16}{}\n", term.name, term.value, term.before, term.count,
                            fmt::format("{:.2f} .. {:.2f}", term.p10, term.p90),
                            term.determined             ? ""
                            : term.count < kFewRecorded ? "  not determined: too few"
                                                        : "  out of range, left as it was");
    }
    return text;
}

std::string serving_text(const ServingFit& fit) {
    std::string text = fmt::format("cycles of {} as served\n", fit.engine);
    for (const ServingTerm& term : fit.terms) {
        text += fmt::format("  {:<26} {:>10.4g} {:>10.4g}{}\n", term.name, term.value, term.before,
                            term.determined        ? fmt::format("  +- {:.2g}", term.error)
                            : term.why_not.empty() ? "  not determined by these logs: left as it was"
                                                   : "  left as it was: " + term.why_not);
    }
    text += fmt::format("  {:<40} {:>8} {:>12} {:>10} {:>10} {:>8}\n", "worst first", "requests", "measured ms", "before",
                        "fitted", "error %");
    for (std::size_t i = 0; i < fit.residuals.size() && i < kMostRows; ++i) {
        const ServingResidual& row = fit.residuals[i];
        const std::string name = row.log.size() <= 40 ? row.log : "..." + row.log.substr(row.log.size() - 37);
        text += fmt::format("  {:<40} {:>8} {:>12.2f} {:>10.2f} {:>10.2f} {:>+8.1f}\n", name, row.requests, row.measured_cycle_ms,
                            row.before_ms, row.fitted_ms, 100 * row.error());
    }
    return text + more(fit.residuals.size());
}

}  // namespace

std::string to_text(const LogImport& result) {
    std::string text = result.calibration.name + ": " + result.calibration.description + "\n";
    if (!result.links.empty()) text += links_text(result.links);
    if (result.collectives) text += collectives_text(*result.collectives, result.undetermined);
    if (!result.recorded.empty()) text += recorded_text(result.recorded);
    if (result.serving) text += serving_text(*result.serving);
    for (const std::string& note : result.notes) text += "note: " + note + "\n";
    return text;
}

Json to_json(const LogImport& result) {
    Json json = {{"name", result.calibration.name}, {"notes", result.notes}};
    if (result.collectives) {
        const CollectiveFit& fit = *result.collectives;
        const bool left_out = fit.held_out_worst_error > 0;
        Json constants = Json::array();
        for (const FittedConstant& one : fit.fitted) {
            const bool open =
                std::find(result.undetermined.begin(), result.undetermined.end(), one.name) != result.undetermined.end();
            constants.push_back({{"name", one.name},
                                 {"value", one.value},
                                 {"before", one.default_value},
                                 {"relative_error", one.standard_error},
                                 {"determined", !open}});
        }
        Json rows = Json::array();
        for (const CollectiveFitPoint* point : worst_first(fit)) {
            rows.push_back({{"operation", std::string(model::to_name(point->measurement.operation))},
                            {"gpus", point->measurement.gpus},
                            {"bytes", point->measurement.bytes},
                            {"measured_us", point->measurement.latency_us},
                            {"fitted_us", point->fitted_us},
                            {"left_out_us", point->held_out_us > 0 ? Json(point->held_out_us) : Json()}});
        }
        json["collectives"] = {{"mean_error", fit.mean_error},
                               {"worst_error", fit.worst_error},
                               {"left_out_mean_error", left_out ? Json(fit.held_out_mean_error) : Json()},
                               {"left_out_worst_error", left_out ? Json(fit.held_out_worst_error) : Json()},
                               {"constants", std::move(constants)},
                               {"rows", std::move(rows)}};
    }
    Json links = Json::array();
    for (const LinkFactor& link : result.links.factors) {
        links.push_back({{"kind", std::string(model::to_name(link.kind))},
                         {"factor", link.factor},
                         {"standard_error", link.standard_error},
                         {"pairs", link.pairs}});
    }
    json["links"] = std::move(links);
    Json host = Json::array();
    for (const RecordedTerm& term : result.recorded) {
        host.push_back({{"name", term.name},
                        {"value", term.value},
                        {"before", term.before},
                        {"count", term.count},
                        {"determined", term.determined},
                        {"file", term.file}});
    }
    json["host"] = std::move(host);
    if (!result.serving) return json;
    Json terms = Json::array();
    for (const ServingTerm& term : result.serving->terms) {
        terms.push_back({{"name", term.name},
                         {"value", term.value},
                         {"before", term.before},
                         {"error", term.error},
                         {"determined", term.determined}});
    }
    Json rows = Json::array();
    for (const ServingResidual& row : result.serving->residuals) {
        rows.push_back({{"log", row.log},
                        {"requests", row.requests},
                        {"measured_cycle_ms", row.measured_cycle_ms},
                        {"before_ms", row.before_ms},
                        {"fitted_ms", row.fitted_ms}});
    }
    json["serving"] = {{"engine", result.serving->engine}, {"terms", std::move(terms)}, {"rows", std::move(rows)}};
    return json;
}

}  // namespace draftboard::calibration
