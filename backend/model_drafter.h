// SPDX-License-Identifier: Apache-2.0
#pragma once
// Drafting with a model: an EAGLE-3 head, an MTP module applied again and again, or a stand-alone draft model. They share
// one rhythm and differ in what a row of the drafter is:
//
//   reads           row for position t holds                                   further draft steps read
//   nothing         token t                                                    -
//   hidden (MTP)    token t+1, the target's final hidden state at t            the drafter's own hidden state
//   features (EAGLE-3)  token t+1, the target's auxiliary states at t          the drafter's own hidden state
//
// Rhythm of a cycle over k = steps, b = top_k (plan.h prices the same passes):
//   draft_extend    rows of the tokens accepted in the last cycle, padded to k + 1; logits at the last accepted one;
//                   the accepted rows are committed, so the drafter's cache holds nothing but text
//   draft, k-1 times    b rows a sequence, each on its parent's row; forgotten when the cycle's drafts are complete
// The chain (b = 1) draws its drafts from the drafter's distribution under the request's own temperature and top_p when the
// request samples; greedy chains and all trees are deterministic proposals (draft_beam.h).
//
// A prompt is run by Pass::prefill as the target goes through it, all rows but the last, which is left to the first
// draft_extend. Rows wait in `pending`: one after a prompt, accepted + 1 after a cycle.

#include <memory>
#include <vector>

#include "backend/draft_beam.h"
#include "backend/drafter.h"
#include "backend/language_model.h"

namespace draftboard::backend {

enum class DrafterReads { nothing, hidden, features };

struct ModelDrafterOptions {
    DrafterReads reads = DrafterReads::nothing;
    int steps = 3;
    int top_k = 1;
    int draft_tokens = 0;              ///< verified tokens of a tree, root included; 0 or a chain: steps + 1
    std::vector<int> target_of_draft;  ///< target token of each of the drafter's output tokens; empty: the same
};

class ModelDrafter final : public Drafter {
 public:
    /// `drafter` outlives the result. Errors: options out of range, a vocabulary or map that does not reach into the
    /// target's, feature widths that do not go with what is read.
    [[nodiscard]] static model::Expected<ModelDrafter> create(LanguageModel& drafter, int target_vocabulary,
                                                              ModelDrafterOptions options);

    [[nodiscard]] int depth() const override;
    [[nodiscard]] int width() const override { return width_; }
    [[nodiscard]] int capacity() const override { return model_->capacity(); }
    [[nodiscard]] std::int64_t max_length() const override;
    [[nodiscard]] model::Expected<void> observe(const Observation& observation) override;
    [[nodiscard]] model::Expected<void> propose(std::span<const DraftSequence> sequences, int vocabulary,
                                                Proposal& proposal) override;
    void release(int slot) override;

 private:
    /// Rows that the drafter has yet to run for a sequence.
    struct Pending {
        std::vector<int> tokens;
        std::vector<float> features;
    };
    ModelDrafter(LanguageModel& drafter, int target_vocabulary, ModelDrafterOptions options);

    [[nodiscard]] model::Expected<void> append(const Observation& observation, Pending& pending) const;
    [[nodiscard]] model::Expected<void> run_prompt(int slot, Pending& pending);
    [[nodiscard]] model::Expected<void> extend(std::span<const DraftSequence> sequences);
    [[nodiscard]] model::Expected<void> draft_chain(std::span<const DraftSequence> sequences, Proposal& proposal);
    [[nodiscard]] model::Expected<void> draft_tree(std::span<const DraftSequence> sequences, Proposal& proposal);
    [[nodiscard]] int pick(const DraftSequence& sequence, std::size_t index, int draft, Proposal& proposal);
    void write_tree(const DraftBeam& beam, std::size_t sequence, Proposal& proposal) const;
    [[nodiscard]] int to_target(int token) const;
    [[nodiscard]] std::span<const float> logits_row(std::size_t row) const;
    void append_hidden(std::size_t row);  ///< hidden state of output row `row` becomes the next row's feature

    LanguageModel* model_;
    int target_vocabulary_;
    ModelDrafterOptions options_;
    int width_;
    std::size_t feature_width_;          ///< of rows that come from the target
    std::vector<Pending> pending_;       ///< by slot
    std::vector<DraftBeam> beams_;       ///< by sequence of the batch
    std::vector<std::size_t> last_row_;  ///< by sequence of the batch: row of extend's output that drafts go on from
    std::vector<float> q_;
    DistributionMaker maker_;
    Batch batch_;
    ForwardOutput output_;
};

/// The three usual ones.
[[nodiscard]] inline ModelDrafterOptions eagle3_options(int steps, int top_k, int draft_tokens,
                                                        std::vector<int> target_of_draft) {
    return {DrafterReads::features, steps, top_k, draft_tokens, std::move(target_of_draft)};
}
[[nodiscard]] inline ModelDrafterOptions mtp_options(int steps, int top_k = 1, int draft_tokens = 0) {
    return {DrafterReads::hidden, steps, top_k, draft_tokens, {}};
}
[[nodiscard]] inline ModelDrafterOptions draft_model_options(int steps, int top_k = 1, int draft_tokens = 0) {
    return {DrafterReads::nothing, steps, top_k, draft_tokens, {}};
}

}  // namespace draftboard::backend
