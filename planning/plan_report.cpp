// SPDX-License-Identifier: Apache-2.0
// The plan as a document and as JSON; plan.h makes it.

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planning/plan.h"
#include "sim/version.h"

namespace draftboard::planning {

namespace {

using model::Interval;
using model::Json;

std::string percent(double factor) { return fmt::format("{:+.1f} %", 100 * (factor - 1)); }
std::string percent(const Interval& gain) {
    return fmt::format("{:+.0f} % ({:+.0f} .. {:+.0f})", 100 * (gain.value - 1), 100 * (gain.low - 1), 100 * (gain.high - 1));
}
std::string rate(const Interval& interval) {
    return fmt::format("{:.1f} tok/s (90 %: {:.1f} .. {:.1f})", interval.value, interval.low, interval.high);
}

std::string with_choice(const PlannedLever& planned, std::size_t choice) {
    if (planned.lever.choices.empty() || planned.lever.choices[choice].label.empty()) return planned.lever.title;
    return planned.lever.title + ": " + planned.lever.choices[choice].label;
}

std::string state_text(const Feasibility& feasibility) {
    if (feasibility.facts.empty()) return "unknown: nothing on record";
    switch (feasibility.state) {
        case FeasibilityState::works: return "works";
        case FeasibilityState::crashes: return "crashes";
        case FeasibilityState::wrong_results: return "wrong results";
        case FeasibilityState::refused: return "refused";
        case FeasibilityState::unknown: return "unknown";
    }
    return "?";
}

std::string together_text(const PlannedLever& planned) {
    if (!planned.together) return "-";
    return (planned.in_combination ? "in it: " : "on top: ") + percent(planned.together->gain.value);
}

std::string fact_text(const FeasibilityFact& fact) {
    std::string range;
    if (!fact.from.empty()) range += " from " + fact.from;
    if (!fact.until.empty()) range += " until " + fact.until;
    return fmt::format("{}{} on {}: {}{} [{}]", fact.engine == "any" ? "any engine" : fact.engine, range,
                       fmt::join(fact.architectures, ", "), to_name(fact.state),
                       fact.evidence.empty() ? "" : ". " + fact.evidence, fact.source);
}

std::vector<std::string> how(const PlannedLever& planned) {
    const Lever& lever = planned.lever;
    std::vector<std::string> items;
    if (!lever.sglang.empty()) items.push_back("SGLang: " + lever.sglang);
    if (!lever.vllm.empty()) items.push_back("vLLM: " + lever.vllm);
    if (!lever.environment.empty()) items.push_back("environment: " + lever.environment);
    if (!lever.choices.empty() && !lever.choices[planned.choice].edits.empty()) {
        items.push_back(fmt::format("here: --set {}", fmt::join(lever.choices[planned.choice].edits, " --set ")));
    }
    return items;
}

void details(const PlannedLever& planned, Document& document) {
    std::vector<std::string> items;
    if (planned.alone) {
        items.push_back(fmt::format("predicted: {} ({}), {} with probability {:.0f} %", percent(planned.alone->gain),
                                    rate(planned.prediction->tokens_per_second), "faster", 100 * planned.alone->confidence));
    }
    items.push_back(fmt::format("effort: {}; risk: {}", to_name(planned.lever.effort), planned.lever.risk));
    for (std::string& item : how(planned)) items.push_back(std::move(item));
    items.push_back("measure first: " + planned.lever.measure);
    if (!planned.lever.assumption.empty()) items.push_back("assumed: " + planned.lever.assumption);
    if (!planned.lever.unpredicted.empty()) items.push_back("not predicted: " + planned.lever.unpredicted);
    if (!planned.refusal.empty()) items.push_back("does not run here: " + planned.refusal);
    for (const FeasibilityFact& fact : planned.feasibility.facts) items.push_back("evidence: " + fact_text(fact));
    document.blocks.push_back(Bullets{std::move(items)});
}

Json interval_json(const Interval& interval) {
    return {{"value", interval.value}, {"low", interval.low}, {"high", interval.high}};
}

Json lever_json(const PlannedLever& planned) {
    const Lever& lever = planned.lever;
    Json json{{"name", lever.name}, {"title", with_choice(planned, planned.choice)}};
    if (planned.alone) {
        json["gain"] = interval_json(planned.alone->gain);
        json["probability_faster"] = planned.alone->confidence;
        json["tokens_per_second"] = interval_json(planned.prediction->tokens_per_second);
    }
    json["in_combination"] = planned.in_combination;
    if (planned.together)
        json[planned.in_combination ? "gain_in_combination" : "gain_on_top_of_combination"] =
            interval_json(planned.together->gain);
    json["effort"] = to_name(lever.effort);
    json["risk"] = lever.risk;
    Json facts = Json::array();
    for (const FeasibilityFact& fact : planned.feasibility.facts) {
        facts.push_back({{"architectures", fact.architectures},
                         {"engine", fact.engine},
                         {"from", fact.from},
                         {"until", fact.until},
                         {"state", to_name(fact.state)},
                         {"evidence", fact.evidence},
                         {"source", fact.source}});
    }
    json["feasibility"] = {{"state", to_name(planned.feasibility.state)}, {"facts", facts}};
    json["turn_on"] = {{"sglang", lever.sglang}, {"vllm", lever.vllm}, {"environment", lever.environment}};
    if (!lever.choices.empty()) json["set"] = lever.choices[planned.choice].edits;
    json["measure_first"] = lever.measure;
    if (!lever.assumption.empty()) json["assumption"] = lever.assumption;
    if (!lever.unpredicted.empty()) json["unpredicted"] = lever.unpredicted;
    if (!planned.refusal.empty()) json["refusal"] = planned.refusal;
    return json;
}

}  // namespace

Document plan_document(const LeverPlan& plan) {
    const model::Scenario& s = plan.scenario;
    Document document;
    document.title = "Plan of levers: " + (s.name.empty() ? std::string("scenario") : s.name);
    auto& blocks = document.blocks;
    blocks.push_back(Paragraph{fmt::format(
        "{} on {} ({}, compute capability {}), {}{}, {} under {} user{}, {} tokens of context.", s.architecture.name,
        s.machine.name, s.machine.gpu.name, s.machine.gpu.compute_capability,
        s.engine.name.empty() ? "engine not named" : s.engine.name, plan.place.version.empty() ? "" : " " + plan.place.version,
        s.layout.name(), s.workload.concurrency, s.workload.concurrency == 1 ? "" : "s", s.workload.context_tokens)});
    blocks.push_back(Paragraph{fmt::format("Now: {}. {}", rate(plan.base.tokens_per_second), plan.base.verdict)});
    std::vector<std::string> members;
    for (const PlannedLever& planned : plan.ranked) {
        if (planned.in_combination) members.push_back(with_choice(planned, planned.combination_choice));
    }
    if (members.empty()) {
        blocks.push_back(Paragraph{"No lever that needs neither other weights, nor another box, nor training brings anything."});
    } else {
        blocks.push_back(Paragraph{fmt::format("Best combination found: {}, {}.", rate(plan.combination.tokens_per_second),
                                               percent(plan.combination_gain.gain))});
        blocks.push_back(Bullets{members});
    }
    blocks.push_back(Heading{2, "Levers by predicted gain"});
    Table table;
    table.head = {"", "lever", "effort", "works here", "alone, 90 % interval", "faster with", "with the combination"};
    table.text_columns = 4;
    Bars bars;
    bars.unit = "tok/s";
    bars.parts = {"predicted"};
    bars.rows.push_back({"now", {plan.base.tokens_per_second.value}});
    int number = 0;
    for (const PlannedLever& planned : plan.ranked) {
        table.rows.push_back({std::to_string(++number), with_choice(planned, planned.choice),
                              std::string(to_name(planned.lever.effort)), state_text(planned.feasibility),
                              percent(planned.alone->gain), fmt::format("{:.0f} %", 100 * planned.alone->confidence),
                              together_text(planned)});
        bars.rows.push_back({planned.lever.name, {planned.prediction->tokens_per_second.value}});
    }
    bars.rows.push_back({"combination", {plan.combination.tokens_per_second.value}});
    blocks.push_back(std::move(table));
    blocks.push_back(std::move(bars));
    blocks.push_back(
        Paragraph{"Gains are not additive. \"In it\" is what the combination loses without the lever, \"on top\" what the lever "
                  "would add to it. The interval of a "
                  "gain leaves out what both sides get wrong alike (docs/optimisation.md)."});
    if (!plan.ruled_out.empty()) {
        blocks.push_back(Heading{2, "Ruled out on this GPU and engine"});
        Table out;
        out.head = {"lever", "state", "evidence", "source", "would bring"};
        out.text_columns = 4;
        for (const PlannedLever& planned : plan.ruled_out) {
            const FeasibilityFact& fact = planned.feasibility.facts.front();
            out.rows.push_back({with_choice(planned, planned.choice), state_text(planned.feasibility), fact.evidence, fact.source,
                                planned.alone ? percent(planned.alone->gain.value) : "-"});
        }
        blocks.push_back(std::move(out));
    }
    blocks.push_back(Heading{2, "Each lever"});
    number = 0;
    for (const PlannedLever& planned : plan.ranked) {
        blocks.push_back(Heading{3, fmt::format("{}. {}", ++number, with_choice(planned, planned.choice))});
        details(planned, document);
    }
    if (!plan.unpredicted.empty()) {
        blocks.push_back(Heading{2, "Not predicted, or does not fit"});
        for (const PlannedLever& planned : plan.unpredicted) {
            blocks.push_back(Heading{3, planned.lever.title});
            details(planned, document);
        }
    }
    blocks.push_back(Heading{2, "Where this comes from"});
    std::vector<std::string> sources{
        fmt::format("kernels: {}; collectives: {}; coverage of the base: {}", plan.kernels.empty() ? "datasheet" : plan.kernels,
                    plan.collectives.empty() ? "published constants" : plan.collectives, to_name(plan.base.coverage)),
        "feasibility: data/feasibility.json",
        fmt::format("draftboard {}, scenario digest {}, {} predictions", sim::kVersion, s.digest, plan.predictions)};
    for (const std::string& assumption : s.speculation.acceptance.assumptions) sources.push_back("assumed: " + assumption);
    for (const std::string& warning : plan.base.warnings) sources.push_back("warning: " + warning);
    blocks.push_back(Bullets{std::move(sources)});
    return document;
}

Json plan_json(const LeverPlan& plan) {
    Json json{{"format", "draftboard.plan"}, {"version", 1}, {"scenario", plan.scenario.name}};
    json["tokens_per_second"] = interval_json(plan.base.tokens_per_second);
    json["place"] = {{"architecture", plan.place.architecture}, {"engine", plan.place.engine}, {"version", plan.place.version}};
    Json combination{{"tokens_per_second", interval_json(plan.combination.tokens_per_second)},
                     {"gain", interval_json(plan.combination_gain.gain)},
                     {"set", plan.combination_edits}};
    Json members = Json::array();
    const auto list = [&](const std::vector<PlannedLever>& levers) {
        Json array = Json::array();
        for (const PlannedLever& planned : levers) {
            array.push_back(lever_json(planned));
            if (planned.in_combination) members.push_back(planned.lever.name);
        }
        return array;
    };
    Json ranked = list(plan.ranked);
    combination["levers"] = members;
    json["combination"] = std::move(combination);
    json["levers"] = std::move(ranked);
    json["ruled_out"] = list(plan.ruled_out);
    json["unpredicted"] = list(plan.unpredicted);
    json["provenance"] = {
        {"draftboard", sim::kVersion}, {"revision", sim::kRevision},      {"scenario_digest", plan.scenario.digest},
        {"kernels", plan.kernels},     {"collectives", plan.collectives}, {"predictions", plan.predictions}};
    return json;
}

}  // namespace draftboard::planning
