// SPDX-License-Identifier: Apache-2.0
#include "calibration/diagnosis_outcome.h"

#include <algorithm>
#include <set>
#include <string_view>

#include <fmt/format.h>

namespace draftboard::calibration {

using model::ErrorCode;
using model::Expected;
using model::fail;
using sim::Term;

namespace {

std::string kind_of(const std::string& term) {
    const std::size_t dot = term.find('.');
    return dot == std::string::npos ? term : term.substr(dot + 1);
}

/// "collectives", "verify.collectives", "verify.collectives.wait" all hold the term of the last name.
bool holds(std::string_view group, std::string_view term) {
    const auto within = [&](std::string_view name) {
        return name == group || (name.size() > group.size() && name.starts_with(group) && name[group.size()] == '.');
    };
    const std::size_t dot = term.find('.');
    return within(term) || (dot != std::string_view::npos && within(term.substr(dot + 1)));
}

template <class Chosen>
std::optional<Observable> sum_of(const std::vector<Term>& terms, const Chosen& chosen) {
    Observable sum;
    bool any = false;
    for (const Term& term : terms) {
        if (!chosen(term.name)) continue;
        any = true;
        sum.value += term.ms;
        sum.gradient[kind_of(term.name)] += term.sigma_ms;
    }
    if (!any) return std::nullopt;
    for (auto& [kind, sigma] : sum.gradient) sigma /= std::max(sum.value, kResolutionMs);
    return sum;
}

bool any_term(const std::string&) { return true; }

Observable rate_of(const Outcome& outcome, const Observable& time, bool speculative) {
    Observable rate;
    const double length = speculative ? outcome.length : 1;
    rate.value = outcome.sequences * length / time.value * 1e3;
    for (const auto& [kind, sigma] : time.gradient) rate.gradient[kind] = -sigma;
    if (speculative) rate.gradient["length"] = outcome.length_sigma;
    rate.gradient["run"] = outcome.run_sigma;
    return rate;
}

}  // namespace

std::optional<Observable> find_observable(const Outcome& o, const std::string& name) {
    const auto of_run = [&o](std::optional<Observable> time) {
        if (time) time->gradient["run"] = -o.run_sigma;
        return time;
    };
    if (name == "tokens_per_second") return rate_of(o, *sum_of(o.terms, any_term), o.speculates);
    if (name == "plain_tokens_per_second") return rate_of(o, *sum_of(o.plain_terms, any_term), false);
    if (name == "plain_step_ms") return of_run(sum_of(o.plain_terms, any_term));
    if (name == "cycle_ms") return of_run(sum_of(o.terms, any_term));
    if (name == "host_ms") return of_run(sum_of(o.terms, [](const std::string& term) { return term == "host"; }));
    if (name.starts_with("terms.")) {
        return of_run(sum_of(o.terms, [&](const std::string& term) { return holds(std::string_view(name).substr(6), term); }));
    }
    if (name == "all_reduce_us" && o.collectives > 0) {
        const std::string pass = o.speculates ? "verify." : "plain.";
        auto us = sum_of(o.terms, [&](const std::string& term) {
            return term == pass + "collectives.latency" || term == pass + "collectives.transport";
        });
        if (us) us->value *= 1e3 / o.collectives;
        return us;
    }
    if (!o.speculates) return std::nullopt;
    if (name == "acceptance_length") return Observable{o.length, {{"length", o.length_sigma}}};
    if (name == "verify_ms") {  // n-gram: a missed lookup's plain step counts as verify, as in a prediction
        return of_run(sum_of(o.terms, [](const std::string& t) { return t.starts_with("verify.") || t.starts_with("plain."); }));
    }
    if (name == "draft_ms") return of_run(sum_of(o.terms, [](const std::string& term) { return term.starts_with("draft."); }));
    return std::nullopt;
}

Outcome outcome_of(const model::Scenario& scenario, const sim::Prediction& prediction, double run_sigma) {
    Outcome outcome;
    outcome.terms = prediction.terms;
    outcome.plain_terms = prediction.plain_terms;
    outcome.length = prediction.acceptance_length.value;
    outcome.length_sigma = sim::log_sigma_of(prediction.acceptance_length);
    outcome.max_length = std::max<double>(scenario.speculation.depth() + 1, outcome.length);
    outcome.run_sigma = run_sigma;
    outcome.sequences = scenario.workload.concurrency;
    outcome.speculates = scenario.speculation.method != model::SpeculationMethod::none;
    outcome.collectives = outcome.speculates ? prediction.verify.collectives : prediction.plain.collectives;
    return outcome;
}

Expected<Observable> observe(const Outcome& outcome, const std::string& name) {
    if (auto found = find_observable(outcome, name)) return *found;
    std::set<std::string> known;
    for (const Term& term : outcome.terms) known.insert(term.name);
    std::string list;
    for (const std::string& term : known) list += (list.empty() ? "" : ", ") + term;
    if (name.starts_with("terms.")) {
        return fail(ErrorCode::not_found, fmt::format("the prediction has no term {}", name.substr(6)),
                    "/terms/" + name.substr(6),
                    "its terms: " + list + "; also their groups, such as collectives or verify.collectives");
    }
    return fail(ErrorCode::invalid_input, fmt::format("the scenario's prediction has no {}", name), "/" + name,
                outcome.speculates ? "" : "the scenario does not speculate");
}

}  // namespace draftboard::calibration
