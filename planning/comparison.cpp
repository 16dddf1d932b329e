// SPDX-License-Identifier: Apache-2.0
#include "planning/comparison.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "model/scenario_document.h"
#include "sim/version.h"

namespace draftboard::planning {

namespace {

using model::Interval;
using model::Json;

Json interval_json(const Interval& interval) {
    return {{"value", interval.value}, {"low", interval.low}, {"high", interval.high}};
}

std::string interval_text(const Interval& interval, int digits) {
    return fmt::format("{:.{}f} ({:.{}f} .. {:.{}f})", interval.value, digits, interval.low, digits, interval.high, digits);
}

double ms_of(const sim::Prediction& prediction, const std::string& name) {
    for (const sim::Term& term : prediction.terms) {
        if (term.name == name) return term.ms;
    }
    return 0;
}

std::vector<ComparedTerm> terms_of(const std::vector<Compared>& scenarios) {
    std::vector<ComparedTerm> out;
    for (const Compared& one : scenarios) {
        for (const sim::Term& term : one.prediction.terms) {
            const bool known = std::any_of(out.begin(), out.end(), [&](const ComparedTerm& t) { return t.name == term.name; });
            if (known) continue;
            ComparedTerm compared{term.name, {}};
            for (const Compared& other : scenarios) compared.ms.push_back(ms_of(other.prediction, term.name));
            out.push_back(std::move(compared));
        }
    }
    const auto spread = [](const ComparedTerm& term) {
        const auto [low, high] = std::minmax_element(term.ms.begin(), term.ms.end());
        return *high - *low;
    };
    std::stable_sort(out.begin(), out.end(), [&](const auto& a, const auto& b) { return spread(a) > spread(b); });
    return out;
}

const Json* at(const Json& document, const std::string& path) {
    const Json* here = &document;
    std::size_t begin = 0;
    while (begin <= path.size()) {
        // Keys of constants hold dots themselves.
        if (here->is_object() && here->contains(path.substr(begin))) return &here->at(path.substr(begin));
        const auto end = path.find('.', begin);
        if (end == std::string::npos) return nullptr;
        const std::string key = path.substr(begin, end - begin);
        if (!here->is_object() || !here->contains(key)) return nullptr;
        here = &here->at(key);
        begin = end + 1;
    }
    return nullptr;
}

std::vector<std::string> differences(const std::vector<Json>& documents) {
    std::vector<std::string> paths;
    for (const Json& document : documents) {
        for (std::string& path : model::leaf_paths(document)) {
            if (path.starts_with("constant_reasons") || path == "name" || path == "description" || path == "sources") continue;
            if (std::find(paths.begin(), paths.end(), path) == paths.end()) paths.push_back(std::move(path));
        }
    }
    std::vector<std::string> out;
    for (const std::string& path : paths) {
        std::string line = path + ":";
        bool differs = false;
        const Json* first = at(documents.front(), path);
        for (const Json& document : documents) {
            const Json* value = at(document, path);
            differs = differs || (value == nullptr) != (first == nullptr) || (value != nullptr && *value != *first);
            const std::string text = value == nullptr ? "-" : value->dump(-1, ' ', false, Json::error_handler_t::replace);
            line += (&document == &documents.front() ? " " : " | ") + text.substr(0, 60);
        }
        if (differs) out.push_back(std::move(line));
    }
    return out;
}

}  // namespace

Comparison compare(std::vector<Compared> scenarios, const std::vector<Json>& documents) {
    Comparison result;
    result.scenarios = std::move(scenarios);
    const Compared& first = result.scenarios.front();
    for (const Compared& other : result.scenarios) {
        result.against_first.push_back(contest(first.scenario, first.prediction, other.scenario, other.prediction));
    }
    result.terms = terms_of(result.scenarios);
    result.differences = differences(documents);
    return result;
}

Document comparison_document(const Comparison& comparison) {
    Document document;
    const auto& all = comparison.scenarios;
    document.title = "Comparison of " + std::to_string(all.size()) + " scenarios";
    Table head;
    head.head.push_back("");
    for (const Compared& one : all) head.head.push_back(one.name);
    const auto row = [&](const std::string& name, auto text) {
        std::vector<std::string> cells{name};
        for (std::size_t i = 0; i < all.size(); ++i) cells.push_back(text(all[i].prediction, i));
        head.rows.push_back(std::move(cells));
    };
    row("tokens per second", [](const sim::Prediction& p, std::size_t) { return interval_text(p.tokens_per_second, 1); });
    row("against the first", [&](const sim::Prediction&, std::size_t i) {
        return i == 0 ? std::string("1") : interval_text(comparison.against_first[i].gain, 2);
    });
    row("probability that it is faster", [&](const sim::Prediction&, std::size_t i) {
        if (i == 0) return std::string("-");
        const double confidence = comparison.against_first[i].confidence;
        return fmt::format("{:.0f} %, {}", 100 * confidence, confidence_word(confidence));
    });
    row("speed-up by speculation", [](const sim::Prediction& p, std::size_t) { return interval_text(p.speedup, 2); });
    row("acceptance length",
        [](const sim::Prediction& p, std::size_t) { return fmt::format("{:.2f}", p.acceptance_length.value); });
    row("break-even length",
        [](const sim::Prediction& p, std::size_t) { return fmt::format("{:.2f}", p.break_even_acceptance_length); });
    row("plain step, ms", [](const sim::Prediction& p, std::size_t) { return fmt::format("{:.2f}", p.plain_step_ms); });
    row("memory a GPU, GB", [](const sim::Prediction& p, std::size_t) {
        return fmt::format("{:.1f}{}", p.memory.total_bytes * 1e-9, p.memory.fits ? "" : ", does not fit");
    });
    row("coverage", [](const sim::Prediction& p, std::size_t) { return std::string(to_name(p.coverage)); });
    document.blocks.push_back(std::move(head));

    document.blocks.push_back(Heading{2, "Where the cycle goes, ms"});
    Table terms;
    terms.head.push_back("term");
    Bars bars;
    bars.unit = "ms";
    for (const Compared& one : all) {
        terms.head.push_back(one.name);
        bars.rows.push_back({one.name, {}});
    }
    if (all.size() == 2) terms.head.push_back("difference");
    for (const ComparedTerm& term : comparison.terms) {
        std::vector<std::string> cells{term.name};
        for (std::size_t i = 0; i < term.ms.size(); ++i) {
            cells.push_back(fmt::format("{:.3f}", term.ms[i]));
            bars.rows[i].values.push_back(term.ms[i]);
        }
        bars.parts.push_back(term.name);
        if (all.size() == 2) cells.push_back(fmt::format("{:+.3f}", term.ms[1] - term.ms[0]));
        terms.rows.push_back(std::move(cells));
    }
    std::vector<std::string> sums{"cycle"};
    for (const Compared& one : all) sums.push_back(fmt::format("{:.3f}", one.prediction.cycle_ms));
    if (all.size() == 2) sums.push_back(fmt::format("{:+.3f}", all[1].prediction.cycle_ms - all[0].prediction.cycle_ms));
    terms.rows.push_back(std::move(sums));
    document.blocks.push_back(std::move(bars));
    document.blocks.push_back(std::move(terms));

    if (!comparison.differences.empty()) {
        document.blocks.push_back(Heading{2, "What differs in the scenarios"});
        document.blocks.push_back(Bullets{comparison.differences});
    }
    document.blocks.push_back(
        Paragraph{"Intervals are 90 %. The interval of a ratio leaves out what all scenarios get wrong alike "
                  "(docs/optimisation.md), so it is "
                  "narrower than the rates' own."});
    return document;
}

Json comparison_json(const Comparison& comparison) {
    Json json{{"format", "draftboard.comparison"}, {"version", 1}};
    Json scenarios = Json::array();
    for (std::size_t i = 0; i < comparison.scenarios.size(); ++i) {
        const Compared& one = comparison.scenarios[i];
        const Contest& duel = comparison.against_first[i];
        Json entry{{"name", one.name},
                   {"tokens_per_second", interval_json(one.prediction.tokens_per_second)},
                   {"plain_tokens_per_second", interval_json(one.prediction.plain_tokens_per_second)},
                   {"speedup", interval_json(one.prediction.speedup)},
                   {"acceptance_length", interval_json(one.prediction.acceptance_length)},
                   {"break_even_acceptance_length", one.prediction.break_even_acceptance_length},
                   {"cycle_ms", one.prediction.cycle_ms},
                   {"plain_step_ms", one.prediction.plain_step_ms},
                   {"memory_bytes_per_gpu", one.prediction.memory.total_bytes},
                   {"fits", one.prediction.memory.fits},
                   {"coverage", to_name(one.prediction.coverage)},
                   {"digest", one.scenario.digest}};
        if (i > 0) {
            entry["against_first"] = {{"gain", interval_json(duel.gain)},     {"sigma", duel.sigma},
                                      {"sigma_times", duel.sigma_times},      {"sigma_length", duel.sigma_length},
                                      {"sigma_shape", duel.sigma_shape},      {"sigma_run", duel.sigma_run},
                                      {"probability_faster", duel.confidence}};
        }
        scenarios.push_back(std::move(entry));
    }
    json["scenarios"] = std::move(scenarios);
    Json terms = Json::array();
    for (const ComparedTerm& term : comparison.terms) terms.push_back({{"name", term.name}, {"ms", term.ms}});
    json["terms"] = std::move(terms);
    json["differences"] = comparison.differences;
    json["provenance"] = {{"draftboard", sim::kVersion}, {"revision", sim::kRevision}};
    return json;
}

}  // namespace draftboard::planning
