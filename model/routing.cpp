// SPDX-License-Identifier: Apache-2.0
#include "model/routing.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "model/random.h"

namespace draftboard::model {

namespace {

/// 1 - (1 - p)^t without cancellation.
double touched(double p, double t) {
    if (p >= 1) return t > 0 ? 1.0 : 0.0;
    return -std::expm1(t * std::log1p(-p));
}

/// Expected maximum of independent normals N(mean_r, sd_r): integral of x dF with F = product of CDFs,
/// by the trapezoid rule over mean +- 8 sd.
double expected_maximum(const std::vector<double>& means, const std::vector<double>& sds) {
    double low = means[0] - 8 * sds[0];
    double high = means[0] + 8 * sds[0];
    for (std::size_t r = 1; r < means.size(); ++r) {  // F vanishes as soon as one factor does
        low = std::max(low, means[r] - 8 * sds[r]);
        high = std::max(high, means[r] + 8 * sds[r]);
    }
    constexpr int kSteps = 256;
    const double width = (high - low) / kSteps;
    double integral = 0;  // E[max] = high - integral of F
    for (int i = 0; i <= kSteps && width > 0; ++i) {
        const double x = low + width * i;
        double all_below = 1;
        for (std::size_t r = 0; r < means.size(); ++r) {
            all_below *= sds[r] > 0 ? 0.5 * std::erfc((means[r] - x) / (sds[r] * 1.4142135623730951))
                                    : (x >= means[r] ? 1.0 : 0.0);
        }
        integral += (i == 0 || i == kSteps ? 0.5 : 1.0) * all_below * width;
    }
    return high - integral;
}

struct RankMaxima {
    double experts = 0;
    double tokens = 0;
};

/// One simulated step after another: tokens pick experts, ranks count. Values at `tokens` (fractional:
/// between the two nearest counts, on the same draws).
class RankDraws {
   public:
    RankDraws(int experts, int experts_per_token, int ranks, std::uint64_t seed)
        : experts_(experts), picks_(experts_per_token), ranks_(ranks), seed_(seed) {}

    RankMaxima uniform(double tokens) {
        std::vector<std::uint32_t> order(static_cast<std::size_t>(experts_));
        return run(tokens, [&](Random& random, bool first, auto&& pick) {
            if (first) std::iota(order.begin(), order.end(), 0u);
            for (int i = 0; i < picks_; ++i) {  // partial Fisher-Yates: k of E without replacement
                const auto at = static_cast<std::size_t>(i);
                const auto other = at + random.below(static_cast<std::uint32_t>(experts_ - i));
                std::swap(order[at], order[other]);
                pick(order[at]);
            }
        });
    }

    /// Systematic sampling over a random order: expert e is picked with probability p_e exactly, and a
    /// token never picks one twice because p_e <= 1.
    RankMaxima weighted(double tokens, const std::vector<double>& probabilities) {
        std::vector<std::uint32_t> order(static_cast<std::size_t>(experts_));
        std::vector<double> cumulative(order.size());
        return run(tokens, [&](Random& random, bool first, auto&& pick) {
            if (first) {
                std::iota(order.begin(), order.end(), 0u);
                for (std::size_t i = order.size(); i > 1; --i) {
                    std::swap(order[i - 1], order[random.below(static_cast<std::uint32_t>(i))]);
                }
                double sum = 0;
                for (std::size_t i = 0; i < order.size(); ++i) {
                    cumulative[i] = sum += probabilities[order[i]];
                }
            }
            const double start = random.uniform();
            std::size_t position = 0;
            for (int i = 0; i < picks_; ++i) {
                const auto at = std::upper_bound(
                    cumulative.begin() + static_cast<std::ptrdiff_t>(position), cumulative.end(), start + i);
                position = std::min(static_cast<std::size_t>(at - cumulative.begin()), order.size() - 1);
                pick(order[position]);
            }
        });
    }

   private:
    template <class PickToken>
    RankMaxima run(double tokens, PickToken&& pick_token) {
        const auto whole = static_cast<int>(tokens);
        const double fraction = tokens - whole;
        const int last = fraction > 0 ? whole + 1 : whole;
        const int per_rank = (experts_ + ranks_ - 1) / ranks_;
        std::vector<int> placement(static_cast<std::size_t>(experts_));
        std::iota(placement.begin(), placement.end(), 0);
        Random place(seed_ ^ 0x6a09e667f3bcc909ULL);
        std::vector<char> seen(placement.size());
        std::vector<int> distinct(static_cast<std::size_t>(ranks_));
        std::vector<int> pairs(distinct.size());
        RankMaxima sum;
        for (int draw = 0; draw < kRankDraws; ++draw) {
            Random random(seed_ + 0x9e3779b97f4a7c15ULL * static_cast<std::uint64_t>(draw + 1));
            for (std::size_t i = placement.size(); i > 1; --i) {  // popular experts may sit anywhere
                std::swap(placement[i - 1], placement[place.below(static_cast<std::uint32_t>(i))]);
            }
            std::fill(seen.begin(), seen.end(), 0);
            std::fill(distinct.begin(), distinct.end(), 0);
            std::fill(pairs.begin(), pairs.end(), 0);
            double before_experts = 0;
            double before_tokens = 0;
            for (int t = 0; t < last; ++t) {
                if (t == whole) {
                    before_experts = *std::max_element(distinct.begin(), distinct.end());
                    before_tokens = *std::max_element(pairs.begin(), pairs.end());
                }
                pick_token(random, t == 0, [&](std::uint32_t expert) {
                    const auto rank = static_cast<std::size_t>(placement[expert] / per_rank);
                    ++pairs[rank];
                    if (seen[expert] == 0) {
                        seen[expert] = 1;
                        ++distinct[rank];
                    }
                });
            }
            const double end_experts = *std::max_element(distinct.begin(), distinct.end());
            const double end_tokens = *std::max_element(pairs.begin(), pairs.end());
            if (fraction > 0) {
                sum.experts += before_experts + fraction * (end_experts - before_experts);
                sum.tokens += before_tokens + fraction * (end_tokens - before_tokens);
            } else {
                sum.experts += end_experts;
                sum.tokens += end_tokens;
            }
        }
        return {sum.experts / kRankDraws, sum.tokens / kRankDraws};
    }

    int experts_;
    int picks_;
    int ranks_;
    std::uint64_t seed_;
};

/// Beyond the simulated length: normal approximation, never below the longest simulated step.
RankMaxima saturated_maxima(const std::vector<double>& probabilities, int experts_per_token, int ranks,
                            double tokens, RankMaxima floor) {
    // Ranks hold the experts in a random deal, so each rank's mean and variance are those of the average
    // rank; the spread of popularity between ranks adds to the variance.
    const auto experts = static_cast<double>(probabilities.size());
    const double share = experts / ranks;
    double mean = 0;
    double within = 0;
    double mean_p2 = 0;
    double mean_d2 = 0;
    for (const double p : probabilities) {
        const double d = touched(p, tokens);
        mean += d;
        within += d * (1 - d);
        mean_d2 += d * d;
        mean_p2 += p * p;
    }
    const double d_bar = mean / experts;
    const double p_bar = experts_per_token / experts;
    const double between = share * std::max(0.0, mean_d2 / experts - d_bar * d_bar);
    const double popularity = share * std::max(0.0, mean_p2 / experts - p_bar * p_bar);
    const auto count = static_cast<std::size_t>(ranks);
    const std::vector<double> means(count, share * d_bar);
    const std::vector<double> sds(count, std::sqrt(within / ranks + between));
    const double pairs = tokens * experts_per_token / ranks;
    const std::vector<double> pair_means(count, pairs);
    const std::vector<double> pair_sds(count, std::sqrt(pairs + tokens * tokens * popularity));
    return {std::max(floor.experts, expected_maximum(means, sds)),
            std::max(floor.tokens, expected_maximum(pair_means, pair_sds))};
}

/// Means over windows of consecutive tokens of a trace; several sequences are windows from different
/// places. Window starts do not depend on the width, so wider windows contain the narrower ones.
DistinctExperts distinct_from_trace(const RoutingTrace& trace, int sequences, int width, int ranks) {
    const std::size_t tokens = trace.tokens();
    const auto picks = static_cast<std::size_t>(trace.experts_per_token);
    const auto layers = static_cast<std::size_t>(trace.layers);
    const double work = static_cast<double>(sequences) * width * static_cast<double>(picks);
    constexpr double kWork = 2e6;     // picks looked at in one call, a few ms
    constexpr double kSamples = 4096;  // windows over all layers; the same ones for every T with k S T < 488
    const auto samples = static_cast<std::size_t>(std::clamp(
        kWork / std::max(1.0, work), 1.0, std::min(kSamples, static_cast<double>(tokens * layers))));
    const std::size_t used_layers = std::min(layers, samples);
    const std::size_t windows = std::min(tokens, std::max<std::size_t>(1, samples / used_layers));
    // A step that covers the trace several times touches nothing new after the first round.
    const auto lanes = std::min<std::size_t>(static_cast<std::size_t>(sequences), tokens);
    const auto run = std::min<std::size_t>(static_cast<std::size_t>(width), (tokens + lanes - 1) / lanes);

    const int per_rank = (trace.experts + ranks - 1) / ranks;
    std::vector<std::size_t> seen(static_cast<std::size_t>(trace.experts), 0);
    std::vector<int> distinct(static_cast<std::size_t>(ranks));
    std::vector<int> pairs(distinct.size());
    std::size_t stamp = 0;
    DistinctExperts sum;
    for (std::size_t l = 0; l < used_layers; ++l) {
        const std::size_t layer = l * layers / used_layers;
        for (std::size_t w = 0; w < windows; ++w) {
            ++stamp;
            std::fill(distinct.begin(), distinct.end(), 0);
            std::fill(pairs.begin(), pairs.end(), 0);
            int total = 0;
            for (std::size_t s = 0; s < lanes; ++s) {
                const std::size_t start = (w * tokens / windows + s * tokens / lanes) % tokens;
                for (std::size_t t = 0; t < run; ++t) {
                    const std::size_t token = (start + t) % tokens;
                    for (std::size_t i = 0; i < picks; ++i) {
                        const std::size_t expert = trace.choices[(token * layers + layer) * picks + i];
                        const std::size_t rank = expert / static_cast<std::size_t>(per_rank);
                        ++pairs[rank];
                        if (seen[expert] == stamp) continue;
                        seen[expert] = stamp;
                        ++distinct[rank];
                        ++total;
                    }
                }
            }
            sum.total += total;
            sum.busiest_rank += *std::max_element(distinct.begin(), distinct.end());
            sum.busiest_rank_tokens += *std::max_element(pairs.begin(), pairs.end());
        }
    }
    const double count = static_cast<double>(used_layers * windows);
    const double scale = static_cast<double>(sequences) * width / static_cast<double>(lanes * run);
    return {sum.total / count, sum.busiest_rank / count, sum.total / count / ranks,
            sum.busiest_rank_tokens / count * scale};
}

bool usable_trace(const Routing& routing, int experts, int experts_per_token) {
    return routing.kind == RoutingKind::trace && routing.trace && routing.trace->tokens() > 0 &&
           routing.trace->experts == experts && routing.trace->experts_per_token == experts_per_token;
}

}  // namespace

std::string_view to_name(RoutingKind kind) {
    switch (kind) {
        case RoutingKind::uniform: return "uniform";
        case RoutingKind::power_law: return "power_law";
        case RoutingKind::trace: return "trace";
    }
    return "?";
}

std::optional<RoutingKind> routing_kind_from_name(std::string_view name) {
    for (const auto kind : {RoutingKind::uniform, RoutingKind::power_law, RoutingKind::trace}) {
        if (to_name(kind) == name) return kind;
    }
    return std::nullopt;
}

std::vector<Problem> Routing::validate() const {
    std::vector<Problem> problems;
    if (!std::isfinite(alpha) || alpha < 0 || alpha > 16) {
        problems.push_back({"/routing/alpha", fmt::format("{} is outside 0 .. 16", alpha)});
    }
    if (!(draft_overlap >= 0 && draft_overlap <= 1)) {
        problems.push_back({"/routing/draft_overlap", fmt::format("{} is outside 0 .. 1", draft_overlap)});
    }
    if (kind == RoutingKind::trace) {
        if (!trace) {
            problems.push_back({"/routing/trace_file", "no routing trace has been read"});
        } else {
            for (auto& problem : trace->validate()) {
                problems.push_back({"/routing/trace" + problem.place, std::move(problem.message)});
            }
        }
    }
    return problems;
}

std::vector<double> power_law_probabilities(int experts, int experts_per_token, double alpha) {
    std::vector<double> p(static_cast<std::size_t>(std::max(0, experts)));
    for (std::size_t e = 0; e < p.size(); ++e) p[e] = std::pow(static_cast<double>(e) + 1.0, -alpha);
    // Scale to sum k; what exceeds 1 is certain, and the rest shares what remains. p falls with e, so the
    // certain ones are a prefix.
    std::vector<double> rest_from(p.size() + 1, 0.0);  // summed smallest first, so that nothing cancels
    for (std::size_t e = p.size(); e-- > 0;) rest_from[e] = rest_from[e + 1] + p[e];
    std::size_t certain = 0;
    double scale = 0;
    while (certain < p.size()) {
        const double remaining = static_cast<double>(experts_per_token) - static_cast<double>(certain);
        scale = rest_from[certain] > 0 ? remaining / rest_from[certain] : 0;
        if (remaining <= 0 || p[certain] * scale <= 1) break;
        ++certain;
    }
    for (std::size_t e = 0; e < p.size(); ++e) p[e] = e < certain ? 1.0 : std::clamp(p[e] * scale, 0.0, 1.0);
    return p;
}

double independent_distinct_experts(const Routing& routing, int experts, int experts_per_token,
                                    double tokens) {
    if (experts < 1 || experts_per_token < 1 || experts_per_token > experts || !(tokens > 0)) return 0;
    if (routing.kind == RoutingKind::power_law) {
        double sum = 0;
        for (const double p : power_law_probabilities(experts, experts_per_token, routing.alpha)) {
            sum += touched(p, tokens);
        }
        return sum;
    }
    return experts * touched(static_cast<double>(experts_per_token) / experts, tokens);
}

DistinctExperts distinct_experts(const Routing& routing, int experts, int experts_per_token,
                                 int sequences, int tokens_per_sequence, int ranks, std::uint64_t seed) {
    if (experts < 1 || experts > kMaxExperts || experts_per_token < 1 || experts_per_token > experts ||
        sequences < 1 || tokens_per_sequence < 1) {
        return {};
    }
    ranks = std::clamp(ranks, 1, experts);
    if (usable_trace(routing, experts, experts_per_token)) {
        return distinct_from_trace(*routing.trace, sequences, tokens_per_sequence, ranks);
    }
    const double k = experts_per_token;
    const double tokens = static_cast<double>(sequences) * tokens_per_sequence;
    const double most = std::min<double>(experts, k * tokens);
    std::vector<double> p;
    if (routing.kind == RoutingKind::power_law) {
        p = power_law_probabilities(experts, experts_per_token, routing.alpha);
    }
    const auto independent = [&](double t) {
        if (p.empty()) return experts * touched(k / experts, t);
        double sum = 0;
        for (const double each : p) sum += touched(each, t);
        return sum;
    };
    // Independent tokens that touch what one sequence's correlated run touches.
    double run = tokens_per_sequence;
    if (routing.draft_overlap > 0 && tokens_per_sequence > 1) {
        const double target =
            k + (independent(run) - k) * (1 - std::clamp(routing.draft_overlap, 0.0, 1.0));
        double low = 1;
        double high = run;
        for (int i = 0; i < 60 && high - low > 1e-9 * high; ++i) {
            const double middle = 0.5 * (low + high);
            (independent(middle) < target ? low : high) = middle;
        }
        run = routing.draft_overlap >= 1 ? 1.0 : 0.5 * (low + high);
    }
    const double effective = sequences * run;

    DistinctExperts result;
    result.total = std::clamp(independent(effective), k, most);
    result.mean_rank = result.total / ranks;
    if (ranks == 1) {
        result.busiest_rank = result.total;
        result.busiest_rank_tokens = k * tokens;
        return result;
    }
    RankDraws draws(experts, experts_per_token, ranks, seed);
    const double drawn = std::min<double>(effective, kRankDrawTokens);
    RankMaxima maxima = p.empty() ? draws.uniform(drawn) : draws.weighted(drawn, p);
    if (effective > drawn) {
        if (p.empty()) p.assign(static_cast<std::size_t>(experts), k / experts);
        maxima = saturated_maxima(p, experts_per_token, ranks, effective, maxima);
    }
    const double per_rank = (experts + ranks - 1) / ranks;
    result.busiest_rank = std::clamp(maxima.experts, result.mean_rank, std::min(per_rank, result.total));
    // Correlated tokens weigh more: pairs per effective token scale to the real token count.
    result.busiest_rank_tokens =
        std::clamp(maxima.tokens * tokens / effective, k * tokens / ranks, k * tokens);
    return result;
}

}  // namespace draftboard::model
