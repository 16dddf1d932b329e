// SPDX-License-Identifier: Apache-2.0
#include "sim/prediction_report.h"

#include <algorithm>

#include <fmt/format.h>

#include "sim/version.h"

namespace draftboard::sim {

using model::Interval;
using model::Json;

namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

Json interval_json(const Interval& interval) {
    return {{"value", interval.value}, {"low", interval.low}, {"high", interval.high}};
}

Json terms_json(const std::vector<Term>& terms) {
    Json list = Json::array();
    for (const Term& term : terms) {
        list.push_back({{"name", term.name},
                        {"ms", term.ms},
                        {"share", term.share},
                        {"sigma_ms", term.sigma_ms},
                        {"coverage", to_name(term.coverage)}});
    }
    return list;
}

Json memory_json(const model::MemoryFit& memory) {
    Json parts;
    for (const model::MemoryPart& part : memory.parts) parts[part.name] = part.bytes;
    return {{"fits", memory.fits},
            {"per_gpu_bytes", parts},
            {"total_bytes", memory.total_bytes},
            {"usable_bytes", memory.usable_bytes},
            {"max_context_tokens", memory.max_context},
            {"max_sequences", memory.max_sequences},
            {"verdict", memory.verdict}};
}

/// The time of all collectives of a pass, by part.
Json collectives_json(const PassCost& pass) {
    const auto ms = [&pass](TermKind kind) { return pass.terms[static_cast<int>(kind)].ms; };
    return {{"count", pass.collectives},
            {"latency_ms", ms(TermKind::latency)},
            {"transport_ms", ms(TermKind::transport)},
            {"wait_ms", ms(TermKind::wait)},
            {"wait_ms_of_the_rank_others_wait_for", pass.fastest_wait_ms},
            {"wait_ms_of_the_most_waiting_rank", pass.slowest_wait_ms}};
}

/// By what law tokens choose experts: it decides how many of them a batch reads.
std::string routing_text(const model::Routing& routing) {
    switch (routing.kind) {
        case model::RoutingKind::uniform: return "uniform";
        case model::RoutingKind::power_law:
            return fmt::format("power law, exponent {:g}, draft overlap {:g}", routing.alpha, routing.draft_overlap);
        case model::RoutingKind::trace: return "trace " + routing.trace_file;
    }
    return "?";
}

std::string name_or(const std::string& name, const std::string& fallback) {
    return name.empty() ? fallback : name;
}

}  // namespace

Json prediction_json(const model::Scenario& scenario, const Prediction& p,
                     const CostConstants& constants) {
    const bool speculates = scenario.speculation.method != model::SpeculationMethod::none;
    Json json;
    json["format"] = "draftboard.prediction";
    json["version"] = 1;
    json["scenario"] = p.scenario;
    json["verdict"] = p.verdict;
    json["tokens_per_second"] = interval_json(p.tokens_per_second);
    json["per_user_tokens_per_second"] = interval_json(p.per_user_tokens_per_second);
    json["plain_tokens_per_second"] = interval_json(p.plain_tokens_per_second);
    json["speedup"] = interval_json(p.speedup);
    json["acceptance_length"] = interval_json(p.acceptance_length);
    json["break_even_acceptance_length"] = p.break_even_acceptance_length;
    json["cycle_ms"] = p.cycle_ms;
    json["verify_ms"] = p.verify_ms;
    json["draft_ms"] = p.draft_ms;
    json["host_ms"] = p.host_ms;
    json["plain_step_ms"] = p.plain_step_ms;
    json["all_reduces_per_verify"] = p.all_reduces_per_verify;
    json["memory"] = memory_json(p.memory);
    json["terms"] = terms_json(p.terms);
    json["plain_terms"] = terms_json(p.plain_terms);
    if (speculates) json["verify_collectives"] = collectives_json(p.verify);
    json["plain_collectives"] = collectives_json(p.plain);
    json["coverage"] = to_name(p.coverage);
    json["warnings"] = p.warnings;
    Json provenance;
    provenance["draftboard"] = kVersion;
    provenance["revision"] = kRevision;
    provenance["scenario_digest"] = scenario.digest;
    provenance["architecture"] = scenario.architecture.name;
    provenance["machine"] = scenario.machine.name;
    provenance["kernels"] = name_or(constants.kernel_calibration, "datasheet");
    provenance["collectives"] = name_or(constants.collective_calibration, "published constants");
    provenance["routing"] = routing_text(scenario.routing);
    provenance["seed"] = scenario.seed;
    provenance["acceptance_source"] = scenario.speculation.acceptance.source;
    provenance["assumptions"] = scenario.speculation.acceptance.assumptions;
    Json overrides = Json::object();
    for (const auto& [name, value] : scenario.constants) {
        const auto reason = scenario.constant_reasons.find(name);
        overrides[name] = {
            {"value", value},
            {"reason", reason == scenario.constant_reasons.end() ? "" : reason->second}};
    }
    provenance["constants_set_by_scenario"] = overrides;
    json["provenance"] = provenance;
    return json;
}

namespace {

std::string interval_text(const Interval& interval, const char* unit, int digits) {
    return fmt::format("{:8.{}f} {:<6} 90 % interval {:.{}f} .. {:.{}f}\n", interval.value, digits,
                       unit, interval.low, digits, interval.high, digits);
}

std::string terms_text(std::vector<Term> terms) {
    std::stable_sort(terms.begin(), terms.end(),
                     [](const Term& a, const Term& b) { return a.ms > b.ms; });
    std::string text;
    for (const Term& term : terms) {
        const auto bar = static_cast<std::size_t>(term.share * 30 + 0.5);
        text += fmt::format("  {:<32} {:8.3f} ms {:5.1f} %  {:<30}  {}\n", term.name, term.ms,
                            100 * term.share, std::string(bar, '#'), to_name(term.coverage));
    }
    return text;
}

std::string memory_text(const model::MemoryFit& memory) {
    std::string text = fmt::format("Memory of the fullest GPU: {:.1f} of {:.1f} GiB usable. {}\n",
                                   memory.total_bytes / kGiB, memory.usable_bytes / kGiB,
                                   memory.verdict);
    for (const model::MemoryPart& part : memory.parts) {
        if (part.bytes >= 0.01 * kGiB) {
            text += fmt::format("  {:<32} {:8.2f} GiB\n", part.name, part.bytes / kGiB);
        }
    }
    return text;
}

}  // namespace

std::string prediction_text(const model::Scenario& scenario, const Prediction& p,
                            const CostConstants& constants) {
    const bool speculates = scenario.speculation.method != model::SpeculationMethod::none;
    std::string text = fmt::format("{}\n", name_or(p.scenario, "scenario"));
    text += fmt::format("  {} on {}, tensor parallel {}, {} sequence{}, {} tokens of context\n\n",
                        scenario.architecture.name, scenario.machine.name, scenario.layout.tensor,
                        scenario.workload.concurrency,
                        scenario.workload.concurrency == 1 ? "" : "s",
                        scenario.workload.context_tokens);
    text += "  tokens per second   " + interval_text(p.tokens_per_second, "tok/s", 1);
    if (speculates) {
        text += "  plain decoding      " + interval_text(p.plain_tokens_per_second, "tok/s", 1);
        text += "  speed-up            " + interval_text(p.speedup, "x", 2);
        text += "  acceptance length   " + interval_text(p.acceptance_length, "tokens", 2);
        text += fmt::format("  break-even length   {:8.2f} tokens\n", p.break_even_acceptance_length);
        text += fmt::format("  cycle               {:8.2f} ms = draft {:.2f} + verify {:.2f} + host {:.2f}\n",
                            p.cycle_ms, p.draft_ms, p.verify_ms, p.host_ms);
    }
    text += fmt::format("  plain step          {:8.2f} ms\n", p.plain_step_ms);
    text += fmt::format("\n{}\n\n", p.verdict);
    text += speculates ? "Where the cycle goes (mean over ranks)\n"
                       : "Where the step goes (mean over ranks)\n";
    text += terms_text(p.terms);
    if (speculates) {
        const auto ms = [&p](TermKind kind) { return p.verify.terms[static_cast<int>(kind)].ms; };
        text += fmt::format(
            "  verify has {} collectives ({} all-reduces): {:.2f} ms latency, {:.2f} ms transport, {:.2f} ms wait\n",
            p.verify.collectives, p.all_reduces_per_verify, ms(TermKind::latency),
            ms(TermKind::transport), ms(TermKind::wait));
    }
    text += "\n" + memory_text(p.memory);
    text += fmt::format("\nCoverage: {}. Kernels: {}; collectives: {}. Routing: {}.\n", to_name(p.coverage),
                        name_or(constants.kernel_calibration, "datasheet"),
                        name_or(constants.collective_calibration, "published constants"),
                        routing_text(scenario.routing));
    for (const auto& [name, value] : scenario.constants) {
        const auto reason = scenario.constant_reasons.find(name);
        text += fmt::format("  set by the scenario: {} = {}", name, value);
        if (reason != scenario.constant_reasons.end()) text += fmt::format(" ({})", reason->second);
        text += "\n";
    }
    for (const std::string& assumption : scenario.speculation.acceptance.assumptions) {
        text += "  assumed: " + assumption + "\n";
    }
    for (const std::string& warning : p.warnings) text += "  warning: " + warning + "\n";
    return text;
}

}  // namespace draftboard::sim
