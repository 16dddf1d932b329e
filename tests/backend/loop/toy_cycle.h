// SPDX-License-Identifier: Apache-2.0
#pragma once
// A device that runs whole greedy cycles (fused_cycle.h), played by the toy models: what a GPU does in one launch, step by step,
// and with the same promises. It checks that the loop keeps its own: nothing is begun twice, nothing is left in flight, texts
// have room.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "backend/fused_cycle.h"
#include "backend/model_drafter.h"
#include "tests/backend/loop/toy_model.h"

namespace draftboard::backend {

class ToyCycle final : public FusedCycle {
   public:
    /// `drafter` null: plain decoding.
    ToyCycle(ToyModel& target, ToyModel* drafter, DrafterReads reads, int steps)
        : target_(&target), drafter_(drafter), reads_(reads), width_(drafter == nullptr ? 1 : steps + 1) {}

    [[nodiscard]] int width() const override { return width_; }
    [[nodiscard]] int most_sequences() const override { return target_->capacity(); }
    [[nodiscard]] bool running() const override { return !sequences_.empty(); }
    [[nodiscard]] int begun() const { return begun_; }
    [[nodiscard]] int cycles() const { return cycles_; }
    /// The device fails in this cycle, 1 the first, and gives nothing from then on.
    void fail_in(int cycle) { fails_in_ = cycle; }

    [[nodiscard]] model::Expected<void> begin(std::span<const DraftSequence> sequences, const Proposal& proposal) override {
        EXPECT_FALSE(running());
        EXPECT_EQ(proposal.width, width_);
        if (failed()) return broken();
        ++begun_;
        for (std::size_t s = 0; s < sequences.size(); ++s) {
            const auto first = proposal.token_ids.begin() + static_cast<std::ptrdiff_t>(s) * width_;
            sequences_.push_back({sequences[s].slot, {first, first + width_}, {}, {}, {}});
        }
        run();
        return {};
    }

    [[nodiscard]] model::Expected<std::span<const CycleOutcome>> step(bool launch_next, CycleTimes& times) override {
        if (failed()) {
            in_flight_ = false;
            sequences_.clear();
            return broken();
        }
        EXPECT_TRUE(in_flight_);
        times = {};
        done_ = outcomes_;
        in_flight_ = false;
        if (launch_next) run();
        return std::span<const CycleOutcome>(done_);
    }

    [[nodiscard]] model::Expected<void> leave(std::span<const int> slots, ForwardOutput& output) override {
        EXPECT_FALSE(in_flight_);
        output = {};
        for (const Sequence& sequence : sequences_) {
            output.features.insert(output.features.end(), sequence.features.begin(), sequence.features.end());
            output.hidden.insert(output.hidden.end(), sequence.hidden.begin(), sequence.hidden.end());
            EXPECT_LE(std::ranges::count(slots, sequence.slot), 1);
        }
        sequences_.clear();
        return {};
    }

   private:
    [[nodiscard]] bool failed() const { return fails_in_ > 0 && cycles_ >= fails_in_; }
    [[nodiscard]] static tl::unexpected<model::Error> broken() {
        return model::fail(model::ErrorCode::unavailable, "the device fell off the bus", "toy");
    }
    struct Sequence {
        int slot = 0;
        std::vector<int> rows;        ///< root and drafts of the next verify pass
        std::vector<int> kept;        ///< tokens that the last one kept, which the drafter has not committed yet
        std::vector<float> features;  ///< of all rows of the last verify pass
        std::vector<float> hidden;
    };

    static Batch batch_of(model::Pass pass, int slot, std::vector<int> tokens, std::vector<int> parents = {}) {
        Batch batch;
        batch.pass = pass;
        batch.sequences = {slot};
        batch.tokens = static_cast<int>(tokens.size());
        batch.token_ids = std::move(tokens);
        batch.parents = std::move(parents);
        return batch;
    }

    void run() {
        ++cycles_;
        in_flight_ = true;
        outcomes_.clear();
        for (Sequence& sequence : sequences_) outcomes_.push_back(cycle(sequence));
    }

    CycleOutcome cycle(Sequence& sequence) {
        ForwardOutput output;
        const bool plain = width_ == 1;
        EXPECT_TRUE(target_->forward(batch_of(plain ? model::Pass::decode : model::Pass::verify, sequence.slot, sequence.rows),
                                     {}, output));
        CycleOutcome outcome;
        for (std::size_t row = 0; row < sequence.rows.size(); ++row) {
            outcome.choices.push_back(greedy_choice(output, row, static_cast<std::size_t>(target_->vocabulary())));
            if (row + 1 < sequence.rows.size() && outcome.choices.back().token != sequence.rows[row + 1]) break;
        }
        const int root = outcome.choices.back().token;
        if (plain) {
            sequence.rows = {root};
            return outcome;
        }
        std::vector<int> path(outcome.choices.size());
        std::iota(path.begin(), path.end(), 0);
        target_->commit(sequence.slot, path);
        extend(sequence, true);  // the rows of the cycle before
        sequence.kept.clear();
        for (const GreedyChoice& choice : outcome.choices) sequence.kept.push_back(choice.token);
        sequence.features = output.features;
        sequence.hidden = output.hidden;
        sequence.rows.assign(1, root);
        draft(sequence);
        return outcome;
    }

    /// The kept rows on the drafter.
    ForwardOutput extend(const Sequence& sequence, bool commit) {
        ForwardOutput output;
        if (sequence.kept.empty()) return output;
        Batch batch = batch_of(model::Pass::draft_extend, sequence.slot, sequence.kept);
        const std::vector<float>& states = reads_ == DrafterReads::features ? sequence.features : sequence.hidden;
        const auto width = static_cast<std::size_t>(drafter_->feature_width(model::Pass::draft_extend));
        batch.features.assign(states.begin(), states.begin() + static_cast<std::ptrdiff_t>(width * sequence.kept.size()));
        EXPECT_TRUE(drafter_->forward(batch, {}, output));
        if (!commit) return output;
        std::vector<int> path(sequence.kept.size());
        std::iota(path.begin(), path.end(), 0);
        drafter_->commit(sequence.slot, path);
        return output;
    }

    void draft(Sequence& sequence) {
        ForwardOutput output = extend(sequence, false);
        int parent = static_cast<int>(sequence.kept.size()) - 1;
        for (int step = 0;; ++step) {
            const int token = greedy_choice(output, 0, static_cast<std::size_t>(drafter_->vocabulary())).token;
            sequence.rows.push_back(token);
            if (step + 2 == width_) break;
            Batch batch = batch_of(model::Pass::draft, sequence.slot, {token}, {parent});
            batch.features.assign(output.hidden.end() - ToyModel::kHidden, output.hidden.end());
            EXPECT_TRUE(drafter_->forward(batch, {}, output));
            ++parent;
        }
        drafter_->discard(sequence.slot);
    }

    ToyModel* target_;
    ToyModel* drafter_;
    DrafterReads reads_;
    int width_;
    std::vector<Sequence> sequences_;
    std::vector<CycleOutcome> outcomes_;
    std::vector<CycleOutcome> done_;
    bool in_flight_ = false;
    int begun_ = 0;
    int cycles_ = 0;
    int fails_in_ = 0;
};

}  // namespace draftboard::backend
