// SPDX-License-Identifier: Apache-2.0
#include "backend/loop_report.h"

#include <fmt/format.h>

namespace draftboard::backend {

namespace {

std::string with_interval(const model::Interval& interval, int digits) {
    return fmt::format("{:.{}f} ({:.{}f} .. {:.{}f})", interval.value, digits, interval.low, digits, interval.high, digits);
}

double prefill_tokens_per_second(const LoopTotals& totals) {
    return totals.prefill_ms > 0 ? 1e3 * static_cast<double>(totals.prompt_tokens) / totals.prefill_ms : 0;
}

}  // namespace

std::vector<CycleTerm> cycle_terms(const LoopTotals& totals) {
    const double all = totals.draft_ms + totals.verify_ms + totals.host_ms;
    const double cycles = totals.cycles > 0 ? static_cast<double>(totals.cycles) : 1.0;
    std::vector<CycleTerm> out;
    const auto add = [&](const char* name, double ms) { out.push_back({name, ms / cycles, all > 0 ? ms / all : 0}); };
    add("draft", totals.draft_ms);
    add("verify", totals.verify_ms);
    add("host", totals.host_ms);
    return out;
}

model::Json loop_json(const DecodeLoop& loop) {
    const LoopTotals& totals = loop.totals();
    const AcceptanceCounter& counter = loop.acceptance();
    model::Json json = model::Json::object();
    json["tokens_per_second"] = interval_json(totals.throughput.tokens_per_second());
    json["acceptance_length"] =
        interval_json(counter.depth() == 0 ? model::Interval{1, 1, 1} : counter.acceptance_length());
    json["acceptance"] = model::Json::array();
    for (int i = 1; i <= counter.depth(); ++i) {
        model::Json position = interval_json(counter.unconditional(i));
        position["position"] = i;
        position["conditional"] = interval_json(counter.conditional(i));
        json["acceptance"].push_back(std::move(position));
    }
    if (counter.depth() > 0) {
        json["hit"] = interval_json(counter.hit_rate());
        json["histogram"] = counter.histogram();
    }
    json["terms"] = model::Json::array();
    double cycle_ms = 0;
    for (const CycleTerm& term : cycle_terms(totals)) {
        json["terms"].push_back({{"name", term.name}, {"ms", term.ms}, {"share", term.share}, {"coverage", "measured"}});
        cycle_ms += term.ms;
    }
    json["cycle_ms"] = cycle_ms;
    json["cycles"] = totals.cycles;
    json["prefill"] = {{"tokens", totals.prompt_tokens},
                       {"ms", totals.prefill_ms},
                       {"tokens_per_second", prefill_tokens_per_second(totals)}};
    json["near_ties"] = totals.near_ties;
    return json;
}

std::string loop_text(const DecodeLoop& loop) {
    const LoopTotals& totals = loop.totals();
    std::string text =
        fmt::format("{} tok/s over {} cycles", with_interval(totals.throughput.tokens_per_second(), 1), totals.cycles);
    text += fmt::format("; prompt {} tokens at {:.0f} tok/s\n", totals.prompt_tokens, prefill_tokens_per_second(totals));
    if (loop.acceptance().depth() > 0) text += acceptance_text(loop.acceptance());
    text += "cycle ";
    std::string parts;
    double cycle_ms = 0;
    for (const CycleTerm& term : cycle_terms(totals)) {
        parts += fmt::format("{}{} {:.3f} ms ({:.0f} %)", parts.empty() ? "" : ", ", term.name, term.ms, 100 * term.share);
        cycle_ms += term.ms;
    }
    text += fmt::format("{:.3f} ms: {}\n", cycle_ms, parts);
    if (totals.near_ties > 0) text += fmt::format("{} greedy choices were near ties\n", totals.near_ties);
    return text;
}

std::string acceptance_text(const AcceptanceCounter& counter) {
    std::string text = fmt::format("acceptance length {}", with_interval(counter.acceptance_length(), 3));
    if (counter.hits() < counter.cycles()) text += fmt::format(", hit rate {}", with_interval(counter.hit_rate(), 3));
    text +=
        fmt::format("; 90 % intervals, {} cycles\n  position  unconditional             conditional\n", counter.cycles());
    for (int i = 1; i <= counter.depth(); ++i) {
        text += fmt::format("  {:>8}  {:<24}  {}\n", i, with_interval(counter.unconditional(i), 3),
                            with_interval(counter.conditional(i), 3));
    }
    text += "  cycles by accepted drafts:";
    for (const std::int64_t count : counter.histogram()) text += fmt::format(" {}", count);
    if (counter.hits() < counter.cycles()) text += fmt::format(", without a hit: {}", counter.cycles() - counter.hits());
    return text + "\n";
}

}  // namespace draftboard::backend
