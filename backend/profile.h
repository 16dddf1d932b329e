// SPDX-License-Identifier: Apache-2.0
#pragma once
// Measured times of the plan's operations, under the plan's own keys: what `--profile` writes and what a calibration is fitted
// to. Samples are kept a pass shape (pass, sequences, tokens) and operation; contexts of the samples are averaged.
//
// {"format": "draftboard.profile", "version": 1, "name": ..., "environment": {...},
//  "passes": [{"pass", "sequences", "tokens", "context", "count", "total_us",
//              "operations": [{"key", "kind", "m", "n", "k", "batch", "weight_format", "weight_bytes", "activation_bytes",
//                              "cache_bytes", "flops", "distinct_experts", "expert_tokens", "message_bytes", "group",
//                              "median_us", "p10_us", "p90_us", "wait_us"}]}]}

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "model/json_reader.h"
#include "model/plan.h"

namespace draftboard::backend {

struct OperationSamples {
    std::vector<float> us;       ///< mean over ranks, waiting left out
    std::vector<float> wait_us;  ///< mean over ranks
};

struct PassSamples {
    std::vector<OperationSamples> operations;  ///< parallel to the plan's
    std::vector<float> total_us;               ///< of whole passes
    double context_sum = 0;                    ///< mean context of the pass's sequences, summed over passes
    std::int64_t count = 0;
};

class Profile {
   public:
    using Key = std::tuple<model::Pass, int, int>;  ///< pass, sequences, tokens

    PassSamples& pass(model::Pass pass, int sequences, int tokens, std::size_t operations);
    [[nodiscard]] const std::map<Key, PassSamples>& passes() const { return passes_; }
    void clear() { passes_.clear(); }

   private:
    std::map<Key, PassSamples> passes_;
};

/// Median and other quantiles of unsorted samples; 0 without samples.
[[nodiscard]] double quantile(std::span<const float> samples, double q);

/// Entry of "passes" above: `plan` is the plan of the pass at the samples' mean context.
[[nodiscard]] model::Json to_json(const PassSamples& samples, const model::Plan& plan, int sequences, int tokens);

}  // namespace draftboard::backend
