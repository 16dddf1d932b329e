// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the decode loop needs of a model, target or drafter: run rows of tokens, keep those that were accepted, forget
// the others. cpu/engine.h implements it with real weights; tests of the loop implement it with a table.
//
// A sequence is its committed tokens, in order, and after them the uncommitted rows u = 0, 1, ... that forward() appended
// since the last commit() or discard(). Each uncommitted row names its parent among them (-1: the last committed
// token), so they form a tree: a row attends to all committed tokens and to its ancestors. Its position is the number of
// committed tokens plus the number of its ancestors.
//
//   prefill, decode            rows are a chain and are committed at once
//   verify, draft_extend, draft   rows stay uncommitted: several passes may follow one another (a drafter's steps)

#include <cstdint>
#include <span>
#include <vector>

#include "backend/sampling.h"
#include "model/error.h"
#include "model/plan.h"

namespace draftboard::backend {

/// One pass over `sequences.size()` x `tokens` rows, sequence after sequence.
struct Batch {
    model::Pass pass = model::Pass::decode;
    std::vector<int> sequences;   ///< slots, 0 .. capacity-1, each at most once
    int tokens = 1;               ///< rows a sequence
    std::vector<int> token_ids;   ///< sequences x tokens
    std::vector<int> parents;     ///< sequences x tokens, indices of uncommitted rows or -1; empty: a chain that goes
                                  ///< on from the last uncommitted row (or the last committed token)
    std::vector<float> features;  ///< drafters that read the target: sequences x tokens x feature_width(); else empty
    /// The caller takes the best token of each row and nothing else: an engine may give `choices` and leave the logits where they are.
    bool greedy = false;
};

/// Results, row by row; reused between passes so that nothing is allocated in the loop.
struct ForwardOutput {
    int rows = 0;                ///< rows of logits: sequences x tokens in decode, verify and draft; one a sequence (its
                                 ///< last row) in prefill; in draft_extend one a sequence: row Batch::tokens - 1 unless
                                 ///< logits_row says which
    std::vector<float> logits;   ///< rows x vocabulary; empty where choices are given
    std::vector<GreedyChoice> choices;  ///< of each row, where Batch::greedy asked for no more; else empty
    std::vector<float> hidden;   ///< all rows of the pass x hidden: what a drafter's next step feeds on (before the final norm)
    std::vector<float> features; ///< all rows x feature_width of the drafter that reads this model: auxiliary hidden states
};

/// The choice at a row of logits, whether the engine made it or left it to the host.
[[nodiscard]] inline GreedyChoice greedy_choice(const ForwardOutput& output, std::size_t row, std::size_t vocabulary) {
    if (!output.choices.empty()) return output.choices[row];
    return greedy_choice(std::span(output.logits).subspan(row * vocabulary, vocabulary));
}

class LanguageModel {
   public:
    virtual ~LanguageModel() = default;
    [[nodiscard]] virtual int vocabulary() const = 0;
    [[nodiscard]] virtual int hidden() const = 0;
    /// Width of Batch::features this model wants: 0 for a target or a stand-alone draft model.
    [[nodiscard]] virtual int feature_width(model::Pass pass) const = 0;
    [[nodiscard]] virtual int capacity() const = 0;              ///< sequences
    [[nodiscard]] virtual std::int64_t max_length() const = 0;   ///< tokens a sequence, uncommitted included

    /// `logits_rows`: for draft_extend, the row within each sequence whose logits are wanted (the last accepted one);
    /// empty: the last. Errors: beyond max_length(), tokens out of range, parents that are not there.
    [[nodiscard]] virtual model::Expected<void> forward(const Batch& batch, std::span<const int> logits_rows,
                                                        ForwardOutput& output) = 0;
    /// Keeps the uncommitted rows of `path` (each the child of the one before, the first of -1) in that order; drops the rest.
    virtual void commit(int sequence, std::span<const int> path) = 0;
    virtual void discard(int sequence) = 0;  ///< drops all uncommitted rows
    virtual void clear(int sequence) = 0;    ///< empties the sequence
    [[nodiscard]] virtual std::int64_t length(int sequence) const = 0;     ///< committed tokens
    [[nodiscard]] virtual int uncommitted(int sequence) const = 0;
};

}  // namespace draftboard::backend
