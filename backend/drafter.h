// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the decode loop needs of a drafter: see the rows that the target has committed, propose drafts for a batch of
// sequences. model_drafter.h drafts with a model (EAGLE-3, MTP, a stand-alone one), ngram_drafter.h looks into the text,
// scripted_drafter.h plays a given acceptance for timing runs. A drafter decides nothing: verification.h does.
//
// A proposal is a tree in every case (a chain is a thin one). Row 0 of a sequence is its root, the last token of its text,
// which the target has not run yet; rows 1 .. drafted are drafts, each after its parent; the rest is padding, which is
// run for its cost, has the row before as its parent, and is never accepted.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "backend/language_model.h"
#include "backend/sampling.h"
#include "model/error.h"
#include "model/random.h"

namespace draftboard::backend {

/// One sequence as a drafter sees it.
struct DraftSequence {
    int slot = 0;
    std::span<const int> tokens;         ///< prompt and output so far; the last one is the root
    const Sampling* sampling = nullptr;
    model::Random* random = nullptr;     ///< the request's own stream
};

struct Proposal {
    int width = 1;                      ///< rows a sequence, root included; 1: a plain step
    int vocabulary = 0;
    std::vector<int> token_ids;         ///< sequences x width
    std::vector<int> parents;           ///< sequences x width, row of the parent within the sequence; the root's: -1
    std::vector<int> drafted;           ///< a sequence: drafts that count; 0: a missed lookup
    /// Drafts were drawn: distributions holds what from, sequences x (width - 1) x vocabulary. Else they are deterministic,
    /// and nothing is allocated for them.
    std::vector<std::uint8_t> sampled;
    std::vector<float> distributions;
    std::vector<int> scripted;          ///< a sequence: drafts to accept whatever the target says; -1: the target decides

    /// Roots set, all else padding: token 0, a chain.
    void reset(std::span<const DraftSequence> sequences, int rows, int vocabulary_size);
    [[nodiscard]] std::span<float> distribution(std::size_t sequence, int draft);  ///< draft 0: row 1; allocates at first
};

/// Rows of the target that were just committed: positions tokens.size() - 1 - rows.size() and on.
struct Observation {
    int slot = 0;
    bool prefill = false;
    std::span<const int> tokens;         ///< the text so far, with one token after the last committed row
    std::span<const int> rows;           ///< of `output`, in order
    const ForwardOutput* output = nullptr;
};

class Drafter {
   public:
    virtual ~Drafter() = default;
    [[nodiscard]] virtual int depth() const = 0;      ///< longest chain that can be accepted
    [[nodiscard]] virtual int width() const = 0;      ///< most rows of a proposal, root included
    [[nodiscard]] virtual int capacity() const { return std::numeric_limits<int>::max(); }  ///< sequences
    /// Longest text that it can still draft for. Beyond it the loop ends speculation for the sequence.
    [[nodiscard]] virtual std::int64_t max_length() const { return std::numeric_limits<std::int64_t>::max(); }

    [[nodiscard]] virtual model::Expected<void> observe(const Observation& observation) = 0;
    /// Sequences that were observed and not released, each at most once. Its width may be below width().
    [[nodiscard]] virtual model::Expected<void> propose(std::span<const DraftSequence> sequences, int vocabulary,
                                                        Proposal& proposal) = 0;
    virtual void release(int slot) = 0;  ///< forgets the sequence
};

}  // namespace draftboard::backend
