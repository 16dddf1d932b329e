// SPDX-License-Identifier: Apache-2.0
#include "calibration/logs/serving_validation.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include <fmt/format.h>

#include "calibration/cost_constants.h"

namespace draftboard::calibration {

using model::ErrorCode;
using model::fail;

namespace {

/// Notes in the order in which they came up, each once.
void note(std::vector<std::string>& notes, std::string text) {
    if (std::find(notes.begin(), notes.end(), text) == notes.end()) notes.push_back(std::move(text));
}

/// Depth and width of the draft as the log has them, where the scenario's differ.
void add_depth(const ServingLog& log, const model::Speculation& speculation, model::Edits& edits,
               std::vector<std::string>& notes) {
    if (log.depth_inferred && speculation.top_k > 1 && speculation.method != model::SpeculationMethod::ngram) {
        return note(notes, "the log does not print its draft settings: depth and width of the tree are the scenario's");
    }
    if (log.top_k > 0 && log.top_k != speculation.top_k) {
        edits.push_back(fmt::format("speculation.top_k={}", log.top_k));
        note(notes, fmt::format("top-k {} as the log says; the scenario has {}", log.top_k, speculation.top_k));
    }
    const int top_k = log.top_k > 0 ? log.top_k : speculation.top_k;
    const int steps = log.draft_steps > 0 ? log.draft_steps : speculation.steps;
    const int tokens = log.draft_tokens > 0 ? log.draft_tokens : top_k <= 1 ? steps + 1 : speculation.draft_tokens;
    if (steps != speculation.steps) {
        edits.push_back(fmt::format("speculation.steps={}", steps));
        note(notes, fmt::format("{} draft steps as the log says; the scenario has {}", steps, speculation.steps));
    }
    if (tokens != speculation.draft_tokens && (tokens != steps + 1 || speculation.draft_tokens != 0)) {
        edits.push_back(fmt::format("speculation.draft_tokens={}", tokens));
    }
}

std::string acceptance_edit(const BatchSummary& batch, const ServingLog& log, const model::Speculation& speculation) {
    const int top_k = log.top_k > 0 ? log.top_k : speculation.top_k;
    const bool tree = top_k > 1 && speculation.method != model::SpeculationMethod::ngram;
    model::Json acceptance = model::Json::object();
    if (!batch.per_position.empty() && !tree) {
        acceptance["per_position"] = batch.per_position;
    } else {
        acceptance["acceptance_length"] = batch.acceptance_length;
        if (tree) acceptance["tree_length"] = batch.acceptance_length;
    }
    if (speculation.acceptance.hit < 1) acceptance["hit"] = speculation.acceptance.hit;
    if (batch.cycles > 0) acceptance["observed_cycles"] = batch.cycles;
    if (batch.windows > 1) acceptance["relative_spread"] = std::min(1.0, batch.relative_error);
    acceptance["source"] = fmt::format("{} windows of {} requests in {}", batch.windows, batch.running, log.name);
    // A name in any encoding must not end the command.
    return "speculation.acceptance=" + acceptance.dump(-1, ' ', false, model::Json::error_handler_t::replace);
}

/// The edits that make the scenario the one that the log measured at this batch size.
model::Expected<model::Edits> edits_of(const BatchSummary& batch, const ServingLog& log, const model::Scenario& scenario,
                                       std::vector<std::string>& notes) {
    model::Edits edits{fmt::format("workload.concurrency={}", batch.running * log.ranks)};
    if (batch.context_tokens > 0) {
        edits.push_back(fmt::format("workload.context_tokens={:.0f}", batch.context_tokens));
        note(notes, log.engine == ServingEngine::sglang
                        ? "context: #token / running requests, without what requests share and with slots reserved for drafts"
                        : "context: cached tokens / running requests");
    } else {
        note(notes,
             fmt::format("the log does not tell the context: {} tokens, the scenario's", scenario.workload.context_tokens));
    }
    const bool speculates = batch.acceptance_length > 0;
    const model::Speculation& speculation = scenario.speculation;
    if (speculates && speculation.method == model::SpeculationMethod::none) {
        return fail(ErrorCode::invalid_input,
                    fmt::format("the log speculates (acceptance length {:.2f}), the scenario does not", batch.acceptance_length),
                    log.name,
                    "give a scenario with the log's drafter, or set speculation.method, speculation.steps and its head");
    }
    if (speculates) {
        add_depth(log, speculation, edits, notes);
        edits.push_back(acceptance_edit(batch, log, speculation));
        if (speculation.method == model::SpeculationMethod::ngram && log.engine == ServingEngine::vllm) {
            note(notes, "vLLM counts no draft where an n-gram lookup misses: the scenario's hit rate is kept");
        }
    } else if (speculation.method != model::SpeculationMethod::none) {
        edits.push_back("speculation.method=none");
        note(notes, fmt::format("no acceptance in the log at {} requests: predicted without speculation", batch.running));
    }
    const model::LaunchMode mode = speculates ? scenario.engine.verify_launch : scenario.engine.decode_launch;
    const std::string field = speculates ? "engine.launch.verify" : "engine.launch.decode";
    if (batch.graph && *batch.graph && mode == model::LaunchMode::eager) {
        edits.push_back(field + "=graph");
        note(notes, fmt::format("passes were CUDA graphs in the log; the scenario has {}=eager", field));
    } else if (batch.graph && !*batch.graph && mode != model::LaunchMode::eager) {
        edits.push_back(field + "=eager");
        note(notes, fmt::format("passes were no CUDA graphs in the log; the scenario has {}={}", field, model::to_name(mode)));
    } else if (!batch.graph) {
        note(notes, batch.graph_share > 0
                        ? fmt::format("at {} requests {:.0f} % of the windows ended with a CUDA graph: the scenario's launch "
                                      "is kept",
                                      batch.running, 100 * batch.graph_share)
                        : std::string("the log does not tell graphs from eager launches: the scenario's are kept"));
    }
    return edits;
}

/// Batch sizes with enough windows, those with most if there are too many.
std::vector<BatchSummary> comparable(const ServingSummary& summary, std::vector<std::string>& warnings) {
    std::vector<BatchSummary> out;
    int few = 0;
    for (const BatchSummary& batch : summary.batches) {
        if (batch.windows >= kFewWindows) {
            out.push_back(batch);
        } else {
            ++few;
        }
    }
    if (few > 0) note(warnings, fmt::format("{} batch sizes with fewer than {} steady windows are left out", few, kFewWindows));
    if (out.size() > kMaxComparedBatches) {
        note(warnings, fmt::format("of {} batch sizes the {} with most windows are compared", out.size(), kMaxComparedBatches));
        std::stable_sort(out.begin(), out.end(),
                         [](const BatchSummary& a, const BatchSummary& b) { return a.windows > b.windows; });
        out.resize(kMaxComparedBatches);
        std::sort(out.begin(), out.end(), [](const BatchSummary& a, const BatchSummary& b) { return a.running < b.running; });
    }
    return out;
}

model::Interval scaled(const model::Interval& interval, double factor) {
    return {interval.value * factor, interval.low * factor, interval.high * factor};
}

void note_log(const ServingLog& log, ServingValidation& out) {
    for (const auto& text : log.assumptions) note(out.assumptions, text);
    if (log.ranks > 1) {
        note(out.assumptions, fmt::format("{} data-parallel ranks log: batch and tok/s of one x {}, as if all had the same load",
                                          log.ranks, log.ranks));
    }
    if (log.malformed_lines > 0) {
        note(out.warnings, fmt::format("lines of the engine that could not be read: {}, the first is line {}",
                                       log.malformed_lines, log.first_malformed));
    }
    if (log.cut_lines > 0) {
        note(out.warnings, fmt::format("lines longer than {} bytes, the rest passed over: {}", kMaxLogLineBytes, log.cut_lines));
    }
}

}  // namespace

double ServingValidation::median_error() const {
    std::vector<double> errors;
    for (const auto& comparison : comparisons) errors.push_back(std::abs(comparison.error()));
    return errors.empty() ? 0 : median_interval(std::move(errors)).value;
}

double ServingValidation::interval_coverage() const {
    const auto inside = std::count_if(comparisons.begin(), comparisons.end(),
                                      [](const ServingComparison& comparison) { return comparison.inside(); });
    return comparisons.empty() ? 0 : static_cast<double>(inside) / static_cast<double>(comparisons.size());
}

model::Expected<ServingValidation> validate_serving_log(ServingLog log, const ServingValidationOptions& options) {
    ServingValidation out;
    out.bound = options.bound;
    out.summary = summarize_serving_log(log);
    out.samples = log.samples.size();
    log.samples.clear();
    note_log(log, out);
    const auto batches = comparable(out.summary, out.warnings);
    if (batches.empty()) {
        return fail(ErrorCode::invalid_input,
                    fmt::format("no batch size has {} steady windows: of {} samples {} are warm-up, {} have a change of the "
                                "batch, {} read prompts, {} are steady",
                                kFewWindows, out.samples, out.summary.warm_up, out.summary.changed, out.summary.prefill,
                                out.summary.steady),
                    log.name, "log some minutes of a constant number of long requests");
    }
    auto base = model::load_scenario(options.scenario, options.data_directory, options.edits);
    if (!base) return tl::unexpected(base.error());
    out.scenario = base->name;
    auto constants = options.constants != nullptr ? model::Expected<sim::CostConstants>(*options.constants)
                                                  : load_cost_constants(*base, options.data_directory);
    if (!constants) return tl::unexpected(constants.error());
    sim::Predictor predictor(std::move(*constants));
    for (const BatchSummary& batch : batches) {
        auto edits = edits_of(batch, log, *base, out.assumptions);
        if (!edits) return tl::unexpected(edits.error());
        edits->insert(edits->end(), options.edits.begin(), options.edits.end());
        auto scenario = model::load_scenario(options.scenario, options.data_directory, *edits);
        if (!scenario) return tl::unexpected(scenario.error());
        auto prediction = predictor.predict(*scenario);
        if (!prediction) return tl::unexpected(prediction.error());
        if (batch.prefill_inside) {
            note(out.warnings, fmt::format("windows of {} requests read prompts too: their tok/s is below that of decoding alone",
                                           batch.running));
        }
        if (!prediction->memory.fits) {
            note(out.warnings, fmt::format("{} requests do not fit in memory by the prediction", batch.running));
        }
        for (const auto& warning : prediction->warnings) note(out.warnings, warning);
        ServingComparison comparison;
        comparison.measured = batch;
        comparison.sequences = batch.running * log.ranks;
        comparison.tokens_per_second = scaled(batch.tokens_per_second, log.ranks);
        comparison.predicted = prediction->tokens_per_second;
        comparison.measured_cycle_ms =
            1e3 * comparison.sequences * std::max(1.0, batch.acceptance_length) / comparison.tokens_per_second.value;
        comparison.predicted_cycle_ms = prediction->cycle_ms;
        comparison.predicted_length = prediction->acceptance_length.value;
        comparison.context_tokens = static_cast<double>(scenario->workload.context_tokens);
        comparison.coverage = prediction->coverage;
        comparison.edits = std::move(*edits);
        out.comparisons.push_back(std::move(comparison));
    }
    out.log = std::move(log);
    return out;
}

}  // namespace draftboard::calibration
