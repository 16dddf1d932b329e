// SPDX-License-Identifier: Apache-2.0
#pragma once
// How many experts a MoE benchmark touches. Benchmarks route by construction and not by a router; to read
// their times as a cost of distinct experts, the construction is followed here. What real routers do is
// model/routing.h.
//
// The distributions are those of NVIDIA's aiconfigurator collectors (Apache-2.0), described by their definition:
//   balanced       token t's i-th expert is t * s/T + i * s (T < s) or t + i * s, modulo E, with the stride
//                  s = ceil(E/k): min(E, k T) distinct experts in all
//   power_law_a    a weight x_e per expert, drawn from the density x^-a on [0.01, 2] while k T <= E, else on
//                  [1, 0.8 T]; expert e gets round(k T x_e / sum x) tokens, at most T; what rounding left over is
//                  handed round the ranks to their least loaded experts, what it took too much is taken from
//                  their most loaded. The rank with most tokens is measured.
// The draw is random in the benchmark; here it is the mean of kDraws draws from a fixed seed.
// Worked example: E = 384, k = 8, balanced, one rank: T = 4 touches 32, T = 48 all 384.

#include <cstdint>
#include <string_view>

#include "model/error.h"

namespace draftboard::calibration {

inline constexpr int kDraws = 24;
inline constexpr std::int64_t kMaxBenchmarkTokens = 4096;
inline constexpr std::int64_t kMaxBenchmarkExperts = 4096;

struct BenchmarkLoad {
    double distinct_experts = 0;  ///< on the rank that is measured
    double expert_tokens = 0;     ///< token-expert pairs there
};

/// Errors: an unknown distribution, sizes out of range (k > E, E not a multiple of the ranks, the limits above).
[[nodiscard]] model::Expected<BenchmarkLoad> benchmark_load(std::string_view distribution,
                                                            std::int64_t tokens, std::int64_t experts,
                                                            std::int64_t experts_per_token,
                                                            std::int64_t ranks);

}  // namespace draftboard::calibration
