// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which experts a step touches. The cost of a mixture-of-experts layer follows the number of distinct
// experts D among the routed tokens, on the busiest rank under expert parallelism.
//
//   uniform:   D(T) = E * (1 - (1 - k/E)^T)                      E experts, k a token, T tokens
//   power law: p_e ~ (e+1)^-alpha scaled to sum k (each <= 1);   D(T) = sum_e 1 - (1 - p_e)^T
//   overlap:   draft tokens of one sequence share experts:       D = k + (D_independent(T) - k) * (1 - overlap)
//              applied within a sequence's run of draft tokens, and not across sequences
//   trace:     the mean over windows of T consecutive tokens of a recorded trace; it carries its own
//              overlap, so draft_overlap does not apply to it
//   several sequences: a run of T draft tokens with overlap touches what T' <= T independent tokens
//              would (D_independent(T') = D, T' may be fractional); S sequences touch D_independent(S T')
//
// Under expert parallelism the busiest of R ranks counts. Its expectation is the mean of the maximum over
// kRankDraws simulated steps (token routing drawn from `seed`, power-law popularity dealt to the ranks at
// random); beyond kRankDrawTokens tokens, where ranks are nearly saturated, it is the expected maximum of
// R normal variables with each rank's mean and variance. The same draws serve every T, so D grows with T.
//
// Worked example: Kimi-K2.5 (E 384, k 8), T = 4, uniform: 384 * (1 - (1 - 8/384)^4) = 31.0.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/error.h"
#include "model/limits.h"

namespace draftboard::model {

enum class RoutingKind { uniform, power_law, trace };
[[nodiscard]] std::string_view to_name(RoutingKind kind);
[[nodiscard]] std::optional<RoutingKind> routing_kind_from_name(std::string_view name);

inline constexpr int kRankDraws = 128;           ///< simulated steps behind a busiest rank (2 % error)
inline constexpr int kRankDrawTokens = 256;      ///< longest step that is simulated token by token

/// A recorded routing trace: for each token (in sequence order) and MoE layer, the chosen experts.
/// File: JSON {"format":"draftboard.routing_trace","version":1,"experts":E,"experts_per_token":k,
/// "layers":L,"tokens":[[[e,...k] ...L] ...]}.
struct RoutingTrace {
    int experts = 0;
    int experts_per_token = 0;
    int layers = 0;
    std::vector<std::uint16_t> choices;  ///< (token, layer, k)
    [[nodiscard]] std::size_t tokens() const;
    /// Sizes positive and consistent, experts in range, none twice in one choice.
    [[nodiscard]] std::vector<Problem> validate() const;
};

struct Routing {
    RoutingKind kind = RoutingKind::uniform;
    double alpha = 1.2;          ///< power-law exponent
    double draft_overlap = 0.0;  ///< 0..1: share of experts that draft tokens reuse beyond chance
    std::string trace_file;      ///< for RoutingKind::trace, relative to the scenario
    std::optional<RoutingTrace> trace;

    [[nodiscard]] std::vector<Problem> validate() const;
};

/// Expected distinct experts in one MoE layer of E experts, k a token.
struct DistinctExperts {
    double total = 0;            ///< over all ranks
    double busiest_rank = 0;     ///< expected maximum over `ranks` equal contiguous placements; = total if ranks == 1
    double mean_rank = 0;        ///< total / ranks
    double busiest_rank_tokens = 0;  ///< expected token-expert pairs on the rank with most of them
};

/// `sequences` sequences with `tokens_per_sequence` tokens each (draft tokens of one sequence are
/// correlated by draft_overlap, sequences are not). ranks: EP degree. Deterministic: rank maxima are
/// taken by quadrature or a fixed-seed draw from `seed`. Costs up to 5 ms with ranks > 1: cache it.
/// Preconditions: 1 <= experts_per_token <= experts <= kMaxExperts (else all zeros); a trace is of the same
/// experts and experts_per_token (plan_forward refuses others; here they count as uniform).
[[nodiscard]] DistinctExperts distinct_experts(const Routing& routing, int experts,
                                               int experts_per_token, int sequences,
                                               int tokens_per_sequence, int ranks,
                                               std::uint64_t seed);

/// Expected distinct experts of `tokens` independent tokens (fractional allowed), without ranks.
[[nodiscard]] double independent_distinct_experts(const Routing& routing, int experts,
                                                  int experts_per_token, double tokens);

/// Inclusion probabilities of the power law, most popular first; their sum is experts_per_token.
[[nodiscard]] std::vector<double> power_law_probabilities(int experts, int experts_per_token,
                                                          double alpha);

[[nodiscard]] Expected<RoutingTrace> read_routing_trace(const std::string& path);
/// The same from text; `name` stands in errors.
[[nodiscard]] Expected<RoutingTrace> parse_routing_trace(std::string_view text, const std::string& name);

}  // namespace draftboard::model
