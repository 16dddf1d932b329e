// SPDX-License-Identifier: Apache-2.0
#include "model/acceptance.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

namespace draftboard::model {

namespace {

constexpr double kRounding = 1e-9;     // rates are printed with few digits; m_i may wobble by this much
constexpr double kNinetyPercent = 1.645;  // two-sided 90 % quantile of the normal distribution

int clamp_depth(int k) { return std::clamp(k, 0, kMaxDraftTokens); }

double sum_of(const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0);
}

Expected<int> checked_depth(int k) {
    if (k >= 1 && k <= kMaxDraftTokens) return k;
    return fail(ErrorCode::invalid_input, fmt::format("a draft depth of {} is outside 1 .. {}", k,
                                                      kMaxDraftTokens),
                {}, "give the number of draft tokens a cycle, the root not counted");
}

}  // namespace

std::string_view to_name(RateDefinition definition) {
    switch (definition) {
        case RateDefinition::vllm: return "vllm";
        case RateDefinition::sglang_log: return "sglang_log";
        case RateDefinition::sglang_request: return "sglang_request";
        case RateDefinition::llama_cpp: return "llama_cpp";
    }
    return "?";
}

std::optional<RateDefinition> rate_definition_from_name(std::string_view name) {
    for (const auto definition : {RateDefinition::vllm, RateDefinition::sglang_log,
                                  RateDefinition::sglang_request, RateDefinition::llama_cpp}) {
        if (to_name(definition) == name) return definition;
    }
    return std::nullopt;
}

std::vector<Problem> Acceptance::validate() const {
    std::vector<Problem> problems;
    if (per_position.size() > static_cast<std::size_t>(kMaxDraftTokens)) {
        problems.push_back({"/per_position", fmt::format("more than {} positions", kMaxDraftTokens)});
        return problems;
    }
    double before = 1.0;
    for (std::size_t i = 0; i < per_position.size(); ++i) {
        const double m = per_position[i];
        if (!(m >= 0 && m <= 1)) {
            problems.push_back({fmt::format("/per_position/{}", i), fmt::format("{} is outside 0 .. 1", m)});
            continue;
        }
        if (m > before + kRounding) {
            problems.push_back({fmt::format("/per_position/{}", i),
                                fmt::format("{} is above the position before it ({}); unconditional rates "
                                            "never rise, so these may be conditional ones",
                                            m, before)});
        }
        before = m;
    }
    if (!(hit >= 0 && hit <= 1)) problems.push_back({"/hit", fmt::format("{} is outside 0 .. 1", hit)});
    if (tree_length != 0 && !(tree_length >= 1 && tree_length <= kMaxDraftTokens + 1)) {
        problems.push_back({"/tree_length", fmt::format("{} is outside 1 .. {}", tree_length, kMaxDraftTokens + 1)});
    }
    if (!(observed_cycles >= 0 && observed_cycles < 1e18)) {
        problems.push_back({"/observed_cycles", fmt::format("{} is outside 0 .. 1e18", observed_cycles)});
    }
    if (!(relative_spread >= 0 && relative_spread <= 1)) {
        problems.push_back({"/relative_spread", fmt::format("{} is outside 0 .. 1", relative_spread)});
    }
    return problems;
}

std::vector<double> Acceptance::positions(int k) const {
    const auto count = static_cast<std::size_t>(clamp_depth(k));
    std::vector<double> out(count, 0.0);
    if (per_position.empty()) return out;
    const std::size_t known = std::min(count, per_position.size());
    std::copy_n(per_position.begin(), known, out.begin());
    const std::size_t n = per_position.size();
    const double before_last = n >= 2 ? per_position[n - 2] : 1.0;
    const double rate = before_last > 0 ? std::min(1.0, per_position[n - 1] / before_last) : 0.0;
    for (std::size_t i = known; i < count; ++i) out[i] = out[i - 1] * rate;
    return out;
}

std::vector<double> Acceptance::conditional(int k) const {
    std::vector<double> out = positions(k);
    double before = 1.0;
    for (double& each : out) {
        const double m = each;
        each = before > 0 ? std::min(1.0, m / before) : 0.0;
        before = m;
    }
    return out;
}

double chain_acceptance_length(const Acceptance& acceptance, int k) {
    return 1.0 + acceptance.hit * sum_of(acceptance.positions(k));
}

std::vector<double> accepted_distribution(const Acceptance& acceptance, int k) {
    const std::vector<double> m = acceptance.positions(k);
    std::vector<double> out(m.size() + 1, 0.0);
    double before = 1.0;
    for (std::size_t i = 0; i < m.size(); ++i) {
        out[i] = acceptance.hit * std::max(0.0, before - m[i]);
        before = m[i];
    }
    out.back() = acceptance.hit * before;
    out.front() += 1.0 - acceptance.hit;  // a missed lookup accepts nothing
    return out;
}

Interval acceptance_length_interval(const Acceptance& acceptance, double length, int k) {
    double variance_of_mean = 0;
    if (acceptance.observed_cycles > 0) {
        const std::vector<double> p = accepted_distribution(acceptance, k);
        double mean = 0;
        double square = 0;
        for (std::size_t i = 0; i < p.size(); ++i) {
            const auto accepted = static_cast<double>(i);
            mean += p[i] * accepted;
            square += p[i] * accepted * accepted;
        }
        variance_of_mean = std::max(0.0, square - mean * mean) / acceptance.observed_cycles;
    }
    const double spread = length * acceptance.relative_spread;
    const double half = kNinetyPercent * std::sqrt(variance_of_mean + spread * spread);
    return {length, std::min(length, std::max(1.0, length - half)),
            std::max(length, std::min(clamp_depth(k) + 1.0, length + half))};
}

Expected<Acceptance> acceptance_from_length(double length, int k) {
    if (auto depth = checked_depth(k); !depth) return tl::unexpected(depth.error());
    if (!(length >= 1.0 - kRounding && length <= k + 1.0 + kRounding)) {
        return fail(ErrorCode::invalid_input,
                    fmt::format("an acceptance length of {} is impossible with {} draft tokens", length, k),
                    {}, fmt::format("it counts the bonus token, so it lies within 1 .. {}", k + 1));
    }
    // Solve 1 + a + a^2 + ... + a^k = L; the left side grows with a.
    double low = 0;
    double high = 1;
    for (int i = 0; i < 100; ++i) {
        const double a = 0.5 * (low + high);
        double sum = 1;
        double power = 1;
        for (int j = 0; j < k; ++j) sum += power *= a;
        (sum < length ? low : high) = a;
    }
    const double rate = length >= k + 1.0 ? 1.0 : length <= 1.0 ? 0.0 : 0.5 * (low + high);
    Acceptance out;
    double power = 1;
    for (int j = 0; j < k; ++j) out.per_position.push_back(power *= rate);
    out.assumptions.push_back(fmt::format(
        "acceptance length {:.3g} over {} draft tokens spread with one conditional rate of {:.3f}", length, k,
        rate));
    return out;
}

Expected<Acceptance> acceptance_from_rate(double rate, RateDefinition definition, int k) {
    if (auto depth = checked_depth(k); !depth) return tl::unexpected(depth.error());
    const bool counts_root = definition == RateDefinition::sglang_log;
    const double lowest = counts_root ? 1.0 / (k + 1.0) : 0.0;
    // A log prints two digits, so the floor of SGLang's rate may be a little undercut.
    if (!(rate >= lowest - 0.005 && rate <= 1.0 + kRounding)) {
        return fail(ErrorCode::invalid_input,
                    fmt::format("an acceptance rate of {} by the definition \"{}\" is outside {:.3g} .. 1", rate,
                                to_name(definition), lowest),
                    {},
                    counts_root ? "SGLang's log counts the bonus token; check which figure this is"
                                : "give a fraction, not per cent");
    }
    const double length = counts_root ? rate * (k + 1.0) : 1.0 + k * rate;
    auto out = acceptance_from_length(std::clamp(length, 1.0, k + 1.0), k);
    if (out) {
        out->assumptions.insert(out->assumptions.begin(),
                                fmt::format("rate {:.3g} read by the definition \"{}\": acceptance length {:.3f}",
                                            rate, to_name(definition), length));
    }
    return out;
}

double to_engine_rate(double acceptance_length, RateDefinition definition, int k) {
    if (k < 1) return 0;
    if (definition == RateDefinition::sglang_log) return acceptance_length / (k + 1.0);
    return (acceptance_length - 1.0) / k;
}

Expected<Acceptance> acceptance_from_conditional(const std::vector<double>& rates) {
    if (rates.size() > static_cast<std::size_t>(kMaxDraftTokens)) {
        return fail(ErrorCode::too_large, fmt::format("more than {} conditional rates", kMaxDraftTokens));
    }
    Acceptance out;
    double m = 1;
    for (const double rate : rates) {
        if (!(rate >= 0 && rate <= 1)) {
            return fail(ErrorCode::invalid_input, fmt::format("a conditional rate of {} is outside 0 .. 1", rate),
                        {}, "give fractions, not per cent");
        }
        out.per_position.push_back(m *= rate);
    }
    out.assumptions.push_back("per-position rates multiplied from conditional ones");
    return out;
}

Expected<Acceptance> acceptance_from_histogram(const std::vector<double>& counts) {
    if (counts.size() < 2 || counts.size() > static_cast<std::size_t>(kMaxDraftTokens) + 1) {
        return fail(ErrorCode::invalid_input,
                    fmt::format("a histogram of {} entries says nothing about drafts", counts.size()), {},
                    "entry i counts the cycles in which i draft tokens were accepted, from 0 to the depth");
    }
    double total = 0;
    for (const double count : counts) {
        if (!(count >= 0 && count <= 1e12)) {
            return fail(ErrorCode::invalid_input, fmt::format("a histogram count of {} is no count", count));
        }
        total += count;
    }
    if (!(total > 0)) {
        return fail(ErrorCode::invalid_input, "the histogram counts no cycle", {}, "measure at least one");
    }
    Acceptance out;
    out.per_position.resize(counts.size() - 1);
    double at_least = 0;  // m_i = P(i or more accepted)
    for (std::size_t i = counts.size(); i-- > 1;) {
        at_least += counts[i];
        out.per_position[i - 1] = std::min(1.0, at_least / total);
    }
    out.observed_cycles = total;
    out.assumptions.push_back(fmt::format("per-position rates from a histogram of {:.0f} cycles", total));
    return out;
}

}  // namespace draftboard::model
