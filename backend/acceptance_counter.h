// SPDX-License-Identifier: Apache-2.0
#pragma once
// Counts what verification accepts, cycle by cycle and sequence by sequence, and says it with 90 % intervals. Its documents
// are what `predict` reads (model/acceptance_json.h) and vLLM's synthetic_acceptance_rates. It estimates nothing else.
//
//   n cycles, h of them with a draft (a hit; every cycle but a missed n-gram lookup), c_i cycles that accepted i or more
//   hit      h / n
//   m_i      c_i / h            unconditional, given a hit
//   a_i      c_i / c_{i-1}      conditional, c_0 = h
//   L        1 + sum c_i / n    bonus included, misses too
// Intervals of shares: Clopper and Pearson (1934), exact for independent cycles: s successes of t trials,
//   low = B(0.05; s, t-s+1), high = B(0.95; s+1, t-s)    quantiles of the beta distribution; 0 and 1 at the ends
// Of L: normal over cycles, L -+ 1.645 sd / sqrt(n), within 1 .. k+1. No cycles: the whole range.
// Cycles count in full even where max_tokens or an end token cut the text: the cut says nothing about the drafter.
// Worked example: accepted 0, 1, 2, 2 with k = 2: m = (3/4, 2/4), a = (3/4, 2/3), L = 2.25.

#include <cstdint>
#include <string>
#include <vector>

#include "model/acceptance.h"
#include "model/json_reader.h"

namespace draftboard::backend {

/// Clopper-Pearson at 90 %. No trials: 0 (0 .. 1).
[[nodiscard]] model::Interval share_interval(std::int64_t successes, std::int64_t trials);

class AcceptanceCounter {
   public:
    explicit AcceptanceCounter(int depth = 0);

    /// One cycle of one sequence: drafts proposed (0: a miss), drafts accepted. Beyond depth() counts as depth().
    void count(int drafted, int accepted);
    /// Adds another counter's cycles, of the same or another depth.
    void add(const AcceptanceCounter& other);

    [[nodiscard]] int depth() const { return static_cast<int>(histogram_.size()) - 1; }
    [[nodiscard]] std::int64_t cycles() const { return cycles_; }
    [[nodiscard]] std::int64_t hits() const { return hits_; }
    [[nodiscard]] std::int64_t drafted() const { return drafted_; }    ///< drafts, padding not counted
    [[nodiscard]] std::int64_t accepted() const;
    [[nodiscard]] const std::vector<std::int64_t>& histogram() const { return histogram_; }  ///< cycles by accepted drafts, hits only
    [[nodiscard]] std::int64_t reached(int position) const;            ///< c_i; position 0: hits

    [[nodiscard]] model::Interval hit_rate() const;
    [[nodiscard]] model::Interval unconditional(int position) const;   ///< m_i, i = 1 ..
    [[nodiscard]] model::Interval conditional(int position) const;     ///< a_i
    [[nodiscard]] model::Interval acceptance_length() const;

    /// The native form; m_i are those of hits, as docs/acceptance.md has them.
    [[nodiscard]] model::Acceptance acceptance(std::string source) const;
    /// Over all cycles, misses included: what vLLM's list must be for the same acceptance length.
    [[nodiscard]] std::vector<double> synthetic_acceptance_rates() const;
    /// Everything above. "acceptance" within it is the scenario's object, "vllm" the engine's setting.
    [[nodiscard]] model::Json to_json(const std::string& source) const;

   private:
    std::int64_t cycles_ = 0;
    std::int64_t hits_ = 0;
    std::int64_t drafted_ = 0;
    std::vector<std::int64_t> histogram_;
};

/// The cycles of one kind of text.
struct AcceptanceSet {
    std::string name;
    std::int64_t prompts = 0;
    AcceptanceCounter counter;
};
[[nodiscard]] AcceptanceCounter together(const std::vector<AcceptanceSet>& sets);
/// The acceptance of all sets together in the native form, so that the document itself can stand where a scenario's acceptance
/// does; beside it the sets. relative_spread: standard deviation of the sets' lengths, as a share of their mean.
[[nodiscard]] model::Json acceptance_document(const std::vector<AcceptanceSet>& sets, const std::string& source);

/// {"value", "low", "high"}, as everywhere in the public contract.
[[nodiscard]] model::Json interval_json(const model::Interval& interval);

}  // namespace draftboard::backend
