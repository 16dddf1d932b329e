// SPDX-License-Identifier: Apache-2.0
#include "calibration/cpu_terms.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "calibration/host_terms.h"

namespace draftboard::calibration {

using model::Expected;
using model::Json;
using model::JsonReader;

namespace {

constexpr int kMaxRanks = 1024;
constexpr std::string_view kFamily = "cpu";

void read_host(const JsonReader& list, CpuTerms& terms) {
    for (std::size_t i = 0; i < list.size() && i < kMaxRanks; ++i) {
        const JsonReader entry = list.at(i);
        if (!entry.expect_object()) continue;
        CpuHostTerms one;
        one.ranks = static_cast<int>(entry.integer("ranks", 1, kMaxRanks));
        if (!terms.host.empty() && one.ranks <= terms.host.back().ranks) entry.problem("ranks", "must grow from entry to entry");
        one.values = read_host_terms(entry, true, "ranks");
        terms.host.push_back(std::move(one));
    }
}

void read_collectives(const JsonReader& list, CpuTerms& terms) {
    for (std::size_t i = 0; i < list.size() && i < kMaxRanks; ++i) {
        const JsonReader entry = list.at(i);
        if (!entry.expect_object()) continue;
        sim::SharedMemoryConstants one;
        for (const auto& [name, field] : sim::shared_memory_fields()) {
            const bool rate = name.ends_with("gb_s");
            one.*field = name == "ranks" ? entry.number(name, 2, kMaxRanks)
                                         : entry.number_or(name, one.*field, rate ? 1e-3 : 0.0, 1e12);
        }
        if (!terms.collectives.empty() && one.ranks <= terms.collectives.back().ranks) {
            entry.problem("ranks", "must grow from entry to entry");
        }
        terms.collectives.push_back(one);
    }
}

/// Of "cpu.draft@2": {"cpu.draft", 2}; nothing for other implementations.
std::optional<std::pair<std::string, int>> measured_on(std::string_view implementation) {
    const auto at = implementation.rfind('@');
    if (at == std::string_view::npos) return std::nullopt;
    const std::string_view family = implementation.substr(0, at);
    bool known = family == kFamily;
    for (const model::Pass pass : kOwnCachePasses) known = known || family == fmt::format("{}.{}", kFamily, to_name(pass));
    if (!known) return std::nullopt;
    implementation.remove_prefix(at + 1);
    int ranks = 0;
    const auto [end, error] = std::from_chars(implementation.data(), implementation.data() + implementation.size(), ranks);
    if (error != std::errc() || end != implementation.data() + implementation.size() || ranks < 1) return std::nullopt;
    return std::pair(std::string(family), ranks);
}

constexpr std::array kMixed = {
    &sim::KernelConstants::floor_us,       &sim::KernelConstants::fixed_us,     &sim::KernelConstants::per_item_us,
    &sim::KernelConstants::serial_us,      &sim::KernelConstants::serial_limit, &sim::KernelConstants::bandwidth_gb_s,
    &sim::KernelConstants::relative_error, &sim::KernelConstants::rate_tflops,
    &sim::KernelConstants::warm_bandwidth_gb_s,
};

/// `by_ranks`: not empty.
sim::KernelConstants between(const std::map<int, sim::KernelConstants>& by_ranks, int ranks) {
    const auto right = by_ranks.lower_bound(ranks);
    if (right != by_ranks.end() && right->first == ranks) return right->second;
    if (right == by_ranks.end() || right == by_ranks.begin()) {
        sim::KernelConstants nearest = right == by_ranks.end() ? std::prev(right)->second : right->second;
        nearest.coverage = sim::worse(nearest.coverage, sim::Coverage::extrapolated);
        return nearest;
    }
    const auto left = std::prev(right);
    const double share = static_cast<double>(ranks - left->first) / (right->first - left->first);
    sim::KernelConstants mixed = left->second;
    for (const auto field : kMixed) mixed.*field = (1 - share) * left->second.*field + share * right->second.*field;
    mixed.coverage = sim::worse(sim::worse(left->second.coverage, right->second.coverage), sim::Coverage::interpolated);
    return mixed;
}

std::map<std::string, double> host_between(const std::vector<CpuHostTerms>& host, int ranks) {
    const auto right = std::find_if(host.begin(), host.end(), [&](const CpuHostTerms& one) { return one.ranks >= ranks; });
    if (right == host.end()) return host.back().values;
    if (right->ranks == ranks || right == host.begin()) return right->values;
    const auto left = std::prev(right);
    const double share = static_cast<double>(ranks - left->ranks) / (right->ranks - left->ranks);
    std::map<std::string, double> mixed = left->values;
    for (auto& [name, value] : mixed) {
        const auto other = right->values.find(name);
        if (other != right->values.end()) value += share * (other->second - value);
    }
    return mixed;
}

}  // namespace

Expected<CpuTerms> cpu_terms(const Calibration& calibration) {
    CpuTerms terms;
    std::vector<model::Problem> problems;
    const JsonReader reader(calibration.unknown, problems);
    if (reader.has("host")) read_host(reader.at("host"), terms);
    if (reader.has("collectives")) read_collectives(reader.at("collectives"), terms);
    if (!problems.empty()) return tl::unexpected(to_error(problems, calibration.name));
    return terms;
}

void set_cpu_terms(Calibration& calibration, const CpuTerms& terms) {
    Json host = Json::array();
    for (const CpuHostTerms& one : terms.host) {
        Json entry = {{"ranks", one.ranks}};
        for (const auto& [name, value] : one.values) entry[name] = value;
        host.push_back(std::move(entry));
    }
    Json collectives = Json::array();
    for (const sim::SharedMemoryConstants& one : terms.collectives) {
        Json entry = Json::object();
        for (const auto& [name, field] : sim::shared_memory_fields()) entry[std::string(name)] = one.*field;
        collectives.push_back(std::move(entry));
    }
    calibration.unknown["host"] = std::move(host);
    calibration.unknown["collectives"] = std::move(collectives);
}

bool has_own_cache(model::Pass pass) {
    return std::find(kOwnCachePasses.begin(), kOwnCachePasses.end(), pass) != kOwnCachePasses.end();
}

std::string cpu_implementation(int ranks, model::Pass pass) {
    return has_own_cache(pass) ? fmt::format("{}.{}@{}", kFamily, to_name(pass), ranks) : fmt::format("{}@{}", kFamily, ranks);
}

sim::KernelTable kernels_for_ranks(const sim::KernelTable& table, int ranks, model::Pass pass) {
    sim::KernelTable chosen;
    chosen.name = table.name;
    chosen.source = table.source;
    const std::string own = has_own_cache(pass) ? fmt::format("{}.{}", kFamily, to_name(pass)) : std::string();
    std::map<std::string, std::map<int, sim::KernelConstants>> families;      // "gemm/bf16/cpu"
    std::map<std::string, std::map<int, sim::KernelConstants>> own_families;  // "gemm/bf16/cpu.draft"
    for (const auto& [key, constants] : table.entries) {
        const auto bar = key.rfind('/');
        const auto measured = bar == std::string::npos ? std::nullopt : measured_on(std::string_view(key).substr(bar + 1));
        if (!measured) {
            chosen.entries[key] = constants;
        } else if (measured->first == kFamily) {
            families[key.substr(0, bar + 1) + measured->first][measured->second] = constants;
        } else if (measured->first == own) {
            own_families[key.substr(0, bar + 1) + measured->first][measured->second] = constants;
        }
    }
    for (const auto& [key, by_ranks] : families) chosen.entries[key] = between(by_ranks, ranks);
    for (const auto& [key, by_ranks] : own_families) {
        chosen.entries.erase(key.substr(0, key.rfind('/') + 1) + std::string(kFamily));
        chosen.entries[key] = between(by_ranks, ranks);
    }
    return chosen;
}

Expected<void> apply(const CpuTerms& terms, int ranks, sim::CostConstants& constants) {
    for (const model::Pass pass : kOwnCachePasses) {
        const std::string suffix = "/" + cpu_implementation(ranks, pass);
        const std::string family = suffix.substr(0, suffix.rfind('@') + 1);
        const bool told_apart = std::any_of(constants.kernels.entries.begin(), constants.kernels.entries.end(),
                                            [&](const auto& entry) { return entry.first.find(family) != std::string::npos; });
        if (told_apart) constants.pass_kernels[pass] = kernels_for_ranks(constants.kernels, ranks, pass);
    }
    constants.kernels = kernels_for_ranks(constants.kernels, ranks);
    if (terms.empty()) return {};
    constants.collectives.shared_memory = terms.collectives;
    if (terms.host.empty()) return {};
    return apply_host_terms(host_between(terms.host, ranks), constants.host);
}

}  // namespace draftboard::calibration
