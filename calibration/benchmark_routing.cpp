// SPDX-License-Identifier: Apache-2.0
#include "calibration/benchmark_routing.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <numeric>
#include <queue>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace draftboard::calibration {

namespace {

using model::ErrorCode;
using model::fail;

BenchmarkLoad balanced_load(std::int64_t tokens, std::int64_t experts, std::int64_t k,
                            std::int64_t ranks) {
    const std::int64_t stride = (experts + k - 1) / k;
    const std::int64_t local = experts / ranks;
    std::vector<char> touched(static_cast<std::size_t>(local), 0);
    BenchmarkLoad load;
    for (std::int64_t t = 0; t < tokens; ++t) {
        const std::int64_t start = tokens >= stride ? t : t * stride / tokens;
        for (std::int64_t i = 0; i < k; ++i) {
            const std::int64_t expert = (start + i * stride) % experts;
            if (expert >= local) continue;  // the first rank is measured
            load.expert_tokens += 1;
            char& seen = touched[static_cast<std::size_t>(expert)];
            if (seen == 0) load.distinct_experts += 1;
            seen = 1;
        }
    }
    return load;
}

// Hands `amount` tokens (or takes them, amount < 0) one at a time round the ranks.
void adjust(std::vector<std::int64_t>& counts, std::int64_t ranks, std::int64_t amount,
            std::int64_t upper) {
    using Item = std::pair<std::int64_t, std::size_t>;  // key: the count, negated where tokens are taken
    using Heap = std::priority_queue<Item, std::vector<Item>, std::greater<>>;
    const std::int64_t sign = amount > 0 ? 1 : -1;
    const auto local = counts.size() / static_cast<std::size_t>(ranks);
    std::vector<Heap> heaps(static_cast<std::size_t>(ranks));
    for (std::size_t e = 0; e < counts.size(); ++e) heaps[e / local].emplace(sign * counts[e], e);
    std::size_t idle = 0;
    for (std::size_t rank = 0; amount != 0 && idle < heaps.size(); rank = (rank + 1) % heaps.size()) {
        Heap& heap = heaps[rank];
        const auto [key, expert] = heap.top();
        if (sign > 0 ? key >= upper : key >= 0) {
            ++idle;
            continue;
        }
        idle = 0;
        heap.pop();
        counts[expert] += sign;
        heap.emplace(sign * counts[expert], expert);
        amount -= sign;
    }
}

BenchmarkLoad power_law_load(double alpha, std::int64_t tokens, std::int64_t experts, std::int64_t k,
                             std::int64_t ranks) {
    const bool crowded = tokens * k > experts;
    const double low = crowded ? 1.0 : 0.01;
    const double high = crowded ? 0.8 * static_cast<double>(tokens) : 2.0;
    const double power = 1.0 - alpha;
    const double from = std::pow(low, power);
    const double to = std::pow(high, power);
    const double pairs = static_cast<double>(tokens) * static_cast<double>(k);
    const auto local = static_cast<std::size_t>(experts / ranks);

    std::mt19937_64 generator(1);
    std::vector<double> weights(static_cast<std::size_t>(experts));
    std::vector<std::int64_t> counts(weights.size());
    BenchmarkLoad mean;
    for (int draw = 0; draw < kDraws; ++draw) {
        for (double& weight : weights) {
            const double u = static_cast<double>(generator() >> 11) * 0x1.0p-53;
            weight = std::pow(from + (to - from) * u, 1.0 / power);
        }
        const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
        std::int64_t placed = 0;
        for (std::size_t e = 0; e < counts.size(); ++e) {
            counts[e] = std::min<std::int64_t>(tokens, std::llrint(weights[e] / sum * pairs));
            placed += counts[e];
        }
        adjust(counts, ranks, tokens * k - placed, tokens);
        std::int64_t most = -1;
        double distinct = 0;
        for (std::size_t first = 0; first < counts.size(); first += local) {
            const auto begin = counts.begin() + static_cast<std::ptrdiff_t>(first);
            const auto end = begin + static_cast<std::ptrdiff_t>(local);
            const std::int64_t load = std::accumulate(begin, end, std::int64_t{0});
            if (load <= most) continue;
            most = load;
            distinct = static_cast<double>(local) - static_cast<double>(std::count(begin, end, 0));
        }
        mean.distinct_experts += distinct / kDraws;
        mean.expert_tokens += static_cast<double>(most) / kDraws;
    }
    return mean;
}

}  // namespace

model::Expected<BenchmarkLoad> benchmark_load(std::string_view distribution, std::int64_t tokens,
                                              std::int64_t experts, std::int64_t experts_per_token,
                                              std::int64_t ranks) {
    if (tokens < 1 || tokens > kMaxBenchmarkTokens || experts < 1 || experts > kMaxBenchmarkExperts) {
        return fail(ErrorCode::too_large,
                    fmt::format("{} tokens over {} experts are outside 1 to {} and 1 to {}", tokens, experts,
                                kMaxBenchmarkTokens, kMaxBenchmarkExperts));
    }
    if (experts_per_token < 1 || experts_per_token > experts) {
        return fail(ErrorCode::invalid_input,
                    fmt::format("a token can't choose {} of {} experts", experts_per_token, experts));
    }
    if (ranks < 1 || ranks > experts || experts % ranks != 0) {
        return fail(ErrorCode::invalid_input,
                    fmt::format("{} experts don't spread evenly over {} ranks", experts, ranks));
    }
    if (distribution == "balanced") return balanced_load(tokens, experts, experts_per_token, ranks);
    constexpr std::string_view kPowerLaw = "power_law_";
    if (distribution.substr(0, kPowerLaw.size()) == kPowerLaw) {
        const auto digits = distribution.substr(kPowerLaw.size());
        double alpha = 0;
        const auto [stop, code] = std::from_chars(digits.data(), digits.data() + digits.size(), alpha);
        if (code == std::errc() && stop == digits.data() + digits.size() && alpha > 0 && alpha <= 4 &&
            std::abs(alpha - 1) > 1e-6) {
            return power_law_load(alpha, tokens, experts, experts_per_token, ranks);
        }
    }
    return fail(ErrorCode::unsupported,
                fmt::format("the routing distribution \"{}\" is not known", distribution.substr(0, 60)), {},
                "known are balanced and power_law_A with A up to 4 and other than 1");
}

}  // namespace draftboard::calibration
