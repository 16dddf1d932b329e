// SPDX-License-Identifier: Apache-2.0
// A serving log and the predictions beside it, as lines for the terminal and as JSON. It computes nothing that
// serving_validation.h does not.
#include <fmt/format.h>

#include "calibration/logs/serving_validation.h"

namespace draftboard::calibration {

namespace {

model::Json interval_json(const model::Interval& interval) {
    return {{"value", interval.value}, {"low", interval.low}, {"high", interval.high}};
}

model::Json comparison_json(const ServingComparison& comparison) {
    const BatchSummary& measured = comparison.measured;
    model::Json json = model::Json::object();
    json["running"] = measured.running;
    json["sequences"] = comparison.sequences;
    json["windows"] = measured.windows;
    json["prefill_inside"] = measured.prefill_inside;
    json["measured"] = interval_json(comparison.tokens_per_second);
    json["measured_per_user"] = comparison.tokens_per_second.value / comparison.sequences;
    json["predicted"] = interval_json(comparison.predicted);
    json["error"] = comparison.error();
    json["inside"] = comparison.inside();
    json["measured_cycle_ms"] = comparison.measured_cycle_ms;
    json["predicted_cycle_ms"] = comparison.predicted_cycle_ms;
    if (measured.acceptance_length > 0) {
        json["acceptance_length"] = interval_json(measured.acceptance_interval);
        json["predicted_acceptance_length"] = comparison.predicted_length;
    }
    if (!measured.per_position.empty()) json["per_position"] = measured.per_position;
    if (measured.cycles > 0) json["observed_cycles"] = measured.cycles;
    if (measured.graph) json["cuda_graph"] = *measured.graph;
    json["context_tokens"] = comparison.context_tokens;
    json["coverage"] = sim::to_name(comparison.coverage);
    json["edits"] = comparison.edits;
    return json;
}

/// 28 columns.
std::string rate_text(const model::Interval& rate) {
    return fmt::format("{:>8.1f} {:>8.1f} .. {:<7.1f}", rate.value, rate.low, rate.high);
}

std::string row_text(const ServingComparison& comparison) {
    const BatchSummary& measured = comparison.measured;
    const std::string length = measured.acceptance_length > 0
                                   ? fmt::format("{:5.2f} {:5.2f} .. {:<5.2f}", measured.acceptance_length,
                                                 measured.acceptance_interval.low, measured.acceptance_interval.high)
                                   : fmt::format("{:>5} {:14}", "-", "");
    return fmt::format("{:>8} {:>7}{} {} {} {:>+6.1f} % {:<7} {:>8.2f} {:>9.2f}  {} {:>7.0f}  {}\n", comparison.sequences,
                       measured.windows, measured.prefill_inside ? "p" : " ", rate_text(comparison.tokens_per_second),
                       rate_text(comparison.predicted), 100 * comparison.error(), comparison.inside() ? "inside" : "outside",
                       comparison.measured_cycle_ms, comparison.predicted_cycle_ms, length, comparison.context_tokens,
                       sim::to_name(comparison.coverage));
}

}  // namespace

std::string serving_validation_text(const ServingValidation& validation) {
    const ServingLog& log = validation.log;
    std::string out = fmt::format("{}{}{}: {} samples in {} lines, {} prefill and {} idle lines\n", to_name(log.engine),
                                  log.version.empty() ? "" : " ", log.version, validation.samples, log.lines, log.prefill_lines,
                                  log.idle_lines);
    const ServingSummary& summary = validation.summary;
    out += fmt::format("  {} steady windows; left out: {} of warm-up, {} with a change of the batch; {} read prompts\n",
                       summary.steady, summary.warm_up, summary.changed, summary.prefill);
    out += fmt::format("scenario {}\n\n", validation.scenario);
    out += fmt::format("{:>8} {:>7}  {:>8} {:<19} {:>9} {:<18} {:>8} {:<7} {:>18}  {}\n", "", "", "measured", "tok/s, 90 %",
                       "predicted", "tok/s, 90 %", "", "", "cycle ms", "acceptance");
    out += fmt::format("{:>8} {:>7}  {:<28} {:<28} {:>8} {:<7} {:>8} {:>9}  {:<20} {:>7}  {}\n", "requests", "windows", "", "",
                       "error", "", "measured", "predicted", "length, 90 %", "context", "coverage");
    for (const auto& comparison : validation.comparisons) out += row_text(comparison);
    std::size_t inside = 0;
    for (const auto& comparison : validation.comparisons) inside += comparison.inside() ? 1u : 0u;
    out += fmt::format("\nmedian |error| of tok/s {:.1f} %, bound {:.1f} %; {} of {} measured within the predicted interval\n",
                       100 * validation.median_error(), 100 * validation.bound, inside, validation.comparisons.size());
    for (const auto& text : validation.assumptions) out += "  assumed: " + text + "\n";
    for (const auto& text : validation.warnings) out += "  warning: " + text + "\n";
    return out;
}

model::Json serving_validation_json(const ServingValidation& validation) {
    const ServingLog& log = validation.log;
    const ServingSummary& summary = validation.summary;
    model::Json json = model::Json::object();
    json["log"] = {{"file", log.name},
                   {"engine", to_name(log.engine)},
                   {"version", log.version},
                   {"lines", log.lines},
                   {"samples", validation.samples},
                   {"prefill_lines", log.prefill_lines},
                   {"idle_lines", log.idle_lines},
                   {"malformed_lines", log.malformed_lines},
                   {"ranks", log.ranks}};
    json["windows"] = {
        {"steady", summary.steady}, {"warm_up", summary.warm_up}, {"changed", summary.changed}, {"prefill", summary.prefill}};
    json["scenario"] = validation.scenario;
    json["batches"] = model::Json::array();
    for (const auto& comparison : validation.comparisons) json["batches"].push_back(comparison_json(comparison));
    json["median_absolute_error"] = validation.median_error();
    json["interval_coverage"] = validation.interval_coverage();
    json["bound"] = validation.bound;
    json["within_bound"] = validation.within_bound();
    json["assumptions"] = validation.assumptions;
    json["warnings"] = validation.warnings;
    return json;
}

}  // namespace draftboard::calibration
