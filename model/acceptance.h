// SPDX-License-Identifier: Apache-2.0
#pragma once
// Acceptance is data. The native form is the per-position unconditional vector m_i = P(the first i
// draft tokens are all accepted), non-increasing; everything else is converted at the door, and the
// conversion is written down in `assumptions`.
//
//   conditional           a_i = m_i / m_{i-1}
//   acceptance length     L = 1 + sum_i m_i               (bonus token included)
//   i.i.d. at rate a      L = (1 - a^(k+1)) / (1 - a)
//   vLLM   rate r = accepted / drafted (no bonus):         L = 1 + k r
//   SGLang log rate rho = (accepted + bonus) / n, n draft tokens *including the root*: L = rho n
//   SGLang per-request rate and llama.cpp's = accepted / drafted, as vLLM's
// Worked example: m = (0.645, 0.393, 0.240): L = 2.278; vLLM prints 42.6 %, SGLang's log 0.57 (n = 4).
//
// n-gram drafting is hit/miss, not i.i.d.: with probability `hit` the lookup fires and the vector
// applies, else nothing is drafted (engines that pad still verify the full width).

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/error.h"

namespace draftboard::model {

inline constexpr int kMaxDraftTokens = 4096;  ///< bound of depths, vectors and trees in every reader

/// A 90 % interval around a value.
struct Interval {
    double value = 0;
    double low = 0;
    double high = 0;
};

/// Names as in files: "vllm", "sglang_log", "sglang_request", "llama_cpp".
enum class RateDefinition {
    vllm,              ///< accepted / drafted, no bonus
    sglang_log,        ///< (accepted + bonus) / draft tokens including the root
    sglang_request,    ///< accepted / drafted
    llama_cpp,         ///< accepted / drafted
};

[[nodiscard]] std::string_view to_name(RateDefinition definition);
[[nodiscard]] std::optional<RateDefinition> rate_definition_from_name(std::string_view name);

struct Acceptance {
    std::vector<double> per_position;  ///< m_1..m_k, each in [0,1], non-increasing
    double hit = 1.0;                  ///< n-gram: probability that the lookup fires; others 1
    /// Mean tokens a cycle of a draft tree, where it was measured with that tree; 0: built from the rates (build_draft_tree).
    double tree_length = 0;
    /// Number of draft cycles behind the figures (for the interval); 0: unknown.
    double observed_cycles = 0;
    /// Relative standard deviation of L between workloads or measurement windows; see docs.
    double relative_spread = 0;
    std::string source;
    std::vector<std::string> assumptions;

    [[nodiscard]] std::vector<Problem> validate() const;
    /// m_i for i beyond the vector continue with the last conditional rate (geometric tail);
    /// shorter k truncates. Returns exactly k entries. An empty vector yields zeros.
    [[nodiscard]] std::vector<double> positions(int k) const;
    [[nodiscard]] std::vector<double> conditional(int k) const;
};

/// Mean tokens per cycle of a chain of k drafts, bonus included: 1 + hit * sum m_i.
[[nodiscard]] double chain_acceptance_length(const Acceptance& acceptance, int k);

/// The expected shape of a draft tree: for depth d (1-based) and sibling rank j the probability that a
/// node is on the accepted path, given its parent is. Greedy verification accepts at most one child.
/// Rank probabilities follow from the conditional rate a of rank 1 and the stated `sibling_decay` s:
/// p_j = a * (1-a)^(j-1) * s^(j-1). At each depth only the `top_k` likeliest nodes get children, and a
/// node has at most `top_k` of them (EAGLE-2's beam); the first step also carries `hit`. The tree keeps the `draft_tokens - 1` likeliest nodes (EAGLE-2 rerank).
struct DraftTree {
    struct Node {
        int parent = -1;  ///< index into nodes, -1: child of the root
        int depth = 1;
        int rank = 1;              ///< 1: the drafter's first choice
        double path_probability = 0;
    };
    std::vector<Node> nodes;  ///< in order of falling path probability, parents before children
    [[nodiscard]] double acceptance_length() const;  ///< 1 + sum of path probabilities
};
[[nodiscard]] DraftTree build_draft_tree(const Acceptance& acceptance, int steps, int top_k,
                                         int draft_tokens, double sibling_decay = 1.0);

/// Distribution of tokens per cycle: entry i = P(i draft tokens accepted), i = 0..k (chain).
[[nodiscard]] std::vector<double> accepted_distribution(const Acceptance& acceptance, int k);

/// 90 % interval of the acceptance length: sampling error sqrt(var/cycles) and relative_spread in
/// quadrature, times 1.645; kept within 1 .. k+1. var is that of accepted_distribution(k).
/// Worked example: k = 1, m = (0.5), 100 cycles: sd = sqrt(0.25/100) = 0.05: 1.5 (1.418 .. 1.582).
[[nodiscard]] Interval acceptance_length_interval(const Acceptance& acceptance, double length,
                                                  int k);

/// Per-position vector (geometric, constant conditional rate) whose acceptance length is `length`.
[[nodiscard]] Expected<Acceptance> acceptance_from_length(double length, int k);
/// From an engine's scalar acceptance rate over k drafted tokens (k excludes the root).
[[nodiscard]] Expected<Acceptance> acceptance_from_rate(double rate, RateDefinition definition, int k);
/// The rate an engine would print for this acceptance at depth k.
[[nodiscard]] double to_engine_rate(double acceptance_length, RateDefinition definition, int k);
/// From conditional rates a_i: m_i = product of a_1..a_i.
[[nodiscard]] Expected<Acceptance> acceptance_from_conditional(const std::vector<double>& rates);
/// From a histogram: counts[i] = cycles in which i draft tokens were accepted.
[[nodiscard]] Expected<Acceptance> acceptance_from_histogram(const std::vector<double>& counts);

}  // namespace draftboard::model
