// SPDX-License-Identifier: Apache-2.0
#include "planning/feasibility.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

namespace draftboard::planning {

namespace {

constexpr std::array<std::pair<FeasibilityState, std::string_view>, 5> kStates{
    {{FeasibilityState::works, "works"},
     {FeasibilityState::crashes, "crashes"},
     {FeasibilityState::wrong_results, "wrong_results"},
     {FeasibilityState::refused, "refused"},
     {FeasibilityState::unknown, "unknown"}}};
constexpr std::size_t kMostFacts = 10'000;

std::vector<std::uint64_t> numbers(const std::string& version) {
    std::vector<std::uint64_t> out;
    bool inside = false;
    for (const char c : version) {
        const bool digit = c >= '0' && c <= '9';
        if (digit && !inside) out.push_back(0);
        if (digit) out.back() = std::min<std::uint64_t>(out.back() * 10 + static_cast<std::uint64_t>(c - '0'), 1ULL << 50);
        inside = digit;
    }
    return out;
}

bool names(const std::vector<std::string>& list, const std::string& text) {
    return std::find(list.begin(), list.end(), text) != list.end();
}

bool matches(const FeasibilityFact& fact, const FeasibilityPlace& place) {
    if (!names(fact.architectures, "any") && !names(fact.architectures, place.architecture)) return false;
    if (fact.engine != "any" && !place.engine.empty() && fact.engine != place.engine) return false;
    if (place.version.empty()) return true;
    if (!fact.from.empty() && compare_versions(place.version, fact.from) < 0) return false;
    return fact.until.empty() || compare_versions(place.version, fact.until) <= 0;
}

/// How closely a fact is about this place.
int closeness(const FeasibilityFact& fact, const FeasibilityPlace& place) {
    return (fact.engine == place.engine ? 2 : 0) + (names(fact.architectures, place.architecture) ? 1 : 0);
}

}  // namespace

std::string_view to_name(FeasibilityState state) {
    for (const auto& [value, name] : kStates) {
        if (value == state) return name;
    }
    return "?";
}

bool ruled_out(FeasibilityState state) {
    return state == FeasibilityState::crashes || state == FeasibilityState::wrong_results || state == FeasibilityState::refused;
}

int compare_versions(const std::string& a, const std::string& b) {
    std::vector<std::uint64_t> left = numbers(a);
    std::vector<std::uint64_t> right = numbers(b);
    const std::size_t size = std::max(left.size(), right.size());
    left.resize(size);
    right.resize(size);
    return left < right ? -1 : left > right ? 1 : 0;
}

model::Expected<FeasibilityTable> FeasibilityTable::load(const std::string& path) {
    auto json = model::load_json(path);
    if (!json) return tl::unexpected(json.error());
    return from_json(*json, path);
}

model::Expected<FeasibilityTable> FeasibilityTable::from_json(const model::Json& json, const std::string& source) {
    std::vector<model::Problem> problems;
    const model::JsonReader reader(json, problems);
    FeasibilityTable table;
    if (reader.expect_object()) {
        reader.expect_format("draftboard.feasibility", 1);
        const model::JsonReader entries = reader.at("entries");
        const std::size_t count = problems.empty() ? entries.size() : 0;
        if (count > kMostFacts) entries.problem("", fmt::format("{} entries; {} is the most", count, kMostFacts));
        for (std::size_t i = 0; i < std::min(count, kMostFacts); ++i) {
            const model::JsonReader entry = entries.at(i);
            if (!entry.expect_object()) continue;
            FeasibilityFact fact;
            fact.lever = entry.string("lever");
            fact.architectures = entry.strings_or("architectures");
            fact.engine = entry.string("engine");
            fact.from = entry.string_or("from", "");
            fact.until = entry.string_or("until", "");
            fact.evidence = entry.string("evidence");
            fact.source = entry.string("source");
            const std::string state = entry.string("state");
            const auto known = std::find_if(kStates.begin(), kStates.end(), [&](const auto& one) { return one.second == state; });
            if (known == kStates.end()) {
                entry.problem("state", "expected works, crashes, wrong_results, refused or unknown");
            } else {
                fact.state = known->first;
            }
            if (fact.architectures.empty()) entry.problem("architectures", "name a compute capability, or any");
            if (fact.source.empty()) entry.problem("source", "a fact needs a source");
            table.facts_.push_back(std::move(fact));
        }
    }
    if (!problems.empty()) return tl::unexpected(to_error(problems, source));
    return table;
}

Feasibility FeasibilityTable::of(const std::string& lever, const FeasibilityPlace& place) const {
    Feasibility result;
    for (const FeasibilityFact& fact : facts_) {
        if (fact.lever == lever && matches(fact, place)) result.facts.push_back(fact);
    }
    std::stable_sort(result.facts.begin(), result.facts.end(), [&](const FeasibilityFact& a, const FeasibilityFact& b) {
        return closeness(a, place) > closeness(b, place);
    });
    if (!result.facts.empty()) result.state = result.facts.front().state;
    return result;
}

}  // namespace draftboard::planning
