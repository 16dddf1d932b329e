// SPDX-License-Identifier: Apache-2.0
#include "model/acceptance_json.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace draftboard::model {

namespace {

constexpr std::array<std::string_view, 7> kForms{
    "per_position", "synthetic_acceptance_rates", "conditional", "acceptance_length",
    "synthetic_acceptance_length", "rate", "histogram"};

/// Moves a conversion's result into `out`, or its error into the reader's problems.
void take(const JsonReader& reader, std::string_view key, Expected<Acceptance> converted, Acceptance& out) {
    if (converted) {
        out = std::move(*converted);
        return;
    }
    std::string message = converted.error().message;
    if (!converted.error().hint.empty()) message += "; " + converted.error().hint;
    reader.problem(key, std::move(message));
}

/// A scalar over all cycles holds misses; the vector describes hits only: 1 + hit * sum m = L.
Expected<Acceptance> from_overall_length(double length, double hit, int k) {
    if (hit >= 1) return acceptance_from_length(length, k);
    if (!(hit > 0)) return acceptance_from_length(1.0, k);
    auto out = acceptance_from_length(1.0 + (length - 1.0) / hit, k);
    if (out) out->assumptions.push_back("the length counts missed lookups; the rates are those of hits");
    return out;
}

Acceptance read_form(const JsonReader& reader, std::string_view form, double hit, int k) {
    Acceptance out;
    if (form == "acceptance_length" || form == "synthetic_acceptance_length") {
        const double length = reader.number(form, 1, kMaxDraftTokens + 1);
        take(reader, form, from_overall_length(length, hit, k), out);
        return out;
    }
    if (form == "rate") {
        const double rate = reader.number("rate", 0, 1);
        const std::string name = reader.string("definition");
        const auto definition = rate_definition_from_name(name);
        if (!definition) {
            reader.problem("definition", "\"" + name + "\" is none of vllm, sglang_log, sglang_request, llama_cpp");
            return out;
        }
        auto read = acceptance_from_rate(rate, *definition, k);
        if (read && hit < 1) {
            auto notes = std::move(read->assumptions);
            read = from_overall_length(chain_acceptance_length(*read, k), hit, k);
            if (read) read->assumptions.insert(read->assumptions.begin(), notes.front());
        }
        take(reader, form, std::move(read), out);
        return out;
    }
    if (form == "histogram") {
        take(reader, form, acceptance_from_histogram(reader.numbers_or(form, {}, 0, 1e12)), out);
        return out;
    }
    const std::vector<double> values = reader.numbers_or(form, {}, 0, 1);
    if (values.size() > static_cast<std::size_t>(kMaxDraftTokens)) {
        reader.problem(form, fmt::format("more than {} positions", kMaxDraftTokens));
    } else if (form == "conditional") {
        take(reader, form, acceptance_from_conditional(values), out);
    } else {
        out.per_position = values;
    }
    return out;
}

}  // namespace

Acceptance acceptance_from_json(const JsonReader& reader, int k) {
    if (!reader.expect_object()) return {};
    std::vector<std::string_view> given;
    std::copy_if(kForms.begin(), kForms.end(), std::back_inserter(given),
                 [&](std::string_view form) { return reader.has(form); });
    if (given.size() != 1) {
        reader.problem({}, given.empty()
                               ? "no acceptance given: one of per_position, acceptance_length, rate with "
                                 "definition, histogram, conditional, synthetic_acceptance_rates is needed"
                               : fmt::format("both {} and {} are given; keep one", given[0], given[1]));
        return {};
    }
    const double hit = reader.number_or("hit", 1.0, 0, 1);
    Acceptance out = read_form(reader, given.front(), hit, k);
    if (given.front() == "histogram" && hit < 1) {
        reader.problem("hit", "a histogram counts missed lookups already, as cycles that accepted nothing");
    }
    out.hit = hit;
    if (reader.has("tree_length")) out.tree_length = reader.number("tree_length", 1, kMaxDraftTokens + 1);
    const double counted = out.observed_cycles;
    out.observed_cycles = reader.number_or("observed_cycles", counted, 0, 1e17);
    const bool unknown = out.observed_cycles <= 0 && !reader.has("relative_spread");
    out.relative_spread = reader.number_or("relative_spread", unknown ? kDefaultRelativeSpread : 0.0, 0, 1);
    out.source = reader.string_or("source", {});
    for (auto& text : reader.strings_or("assumptions")) out.assumptions.push_back(std::move(text));
    if (unknown) {
        out.assumptions.push_back(fmt::format(
            "nothing is known about the spread of the acceptance length: {:.0f} % assumed",
            100 * kDefaultRelativeSpread));
    }
    for (auto& problem : out.validate()) {
        const std::string_view key = given.front();
        // The native vector stands under the key it was given by; other places are keys themselves.
        constexpr std::string_view kVector = "/per_position";
        if (problem.place.starts_with(kVector)) {
            reader.problem(key, problem.place.size() > kVector.size()
                                    ? fmt::format("entry {}: {}", problem.place.substr(kVector.size() + 1),
                                                  problem.message)
                                    : problem.message);
        } else {
            reader.problem(std::string_view(problem.place).substr(1), problem.message);
        }
    }
    return out;
}

Json acceptance_to_json(const Acceptance& acceptance) {
    Json json = Json::object();
    json["per_position"] = acceptance.per_position;
    json["hit"] = acceptance.hit;
    if (acceptance.tree_length > 0) json["tree_length"] = acceptance.tree_length;
    json["observed_cycles"] = acceptance.observed_cycles;
    json["relative_spread"] = acceptance.relative_spread;
    if (!acceptance.source.empty()) json["source"] = acceptance.source;
    if (!acceptance.assumptions.empty()) json["assumptions"] = acceptance.assumptions;
    return json;
}

}  // namespace draftboard::model
