// SPDX-License-Identifier: Apache-2.0
#pragma once
// n-gram prompt lookup (Saxena 2023; vLLM's and SGLang's "ngram"): the longest suffix of the text, max_n .. min_n tokens, that
// stands earlier in the same text; what followed there is the draft. Of several places with a match of that length the
// earliest counts, as in vLLM: it has the longest continuation. No model, no cache: the cost is in the verify pass.
//
// A lookup hits or misses as a whole; a continuation that ends with the text gives fewer drafts. On a miss the sequence
// is padded to the full width where pad_misses says so (engines with captured graphs do), or where another sequence of
// the batch hit; else the cycle is a plain step.
// Worked example: "a b c a b", max_n 3, min_n 1: suffix "a b" stands at 0, what follows is "c a b": 3 drafts.

#include <span>
#include <vector>

#include "backend/drafter.h"

namespace draftboard::backend {

struct NgramOptions {
    int steps = 3;     ///< most drafts
    int min_n = 2;
    int max_n = 5;
    bool pad_misses = true;
};

/// Where the continuation of the longest earlier match starts, or tokens.size(): a miss. O(tokens x max_n).
[[nodiscard]] std::size_t find_continuation(std::span<const int> tokens, int min_n, int max_n);

class NgramDrafter final : public Drafter {
   public:
    /// Errors: steps below 1, not 1 <= min_n <= max_n.
    [[nodiscard]] static model::Expected<NgramDrafter> create(const NgramOptions& options);

    [[nodiscard]] int depth() const override { return options_.steps; }
    [[nodiscard]] int width() const override { return options_.steps + 1; }
    [[nodiscard]] model::Expected<void> observe(const Observation&) override { return {}; }
    [[nodiscard]] model::Expected<void> propose(std::span<const DraftSequence> sequences, int vocabulary,
                                                Proposal& proposal) override;
    void release(int) override {}

   private:
    explicit NgramDrafter(const NgramOptions& options) : options_(options) {}
    NgramOptions options_;
};

}  // namespace draftboard::backend
