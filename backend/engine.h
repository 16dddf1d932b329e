// SPDX-License-Identifier: Apache-2.0
#pragma once
// A real engine, on whatever device: a LanguageModel that executes the plan, can say which plan, measure each operation of it,
// and record which experts were chosen. Here is what every device shares: the table of sequences, the planner, the profile.
// cpu/engine.h and cuda/engine.h add the ranks and forward(); inference.h chooses between them.

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "backend/language_model.h"
#include "backend/model_shape.h"
#include "backend/profile.h"
#include "backend/sequence_table.h"
#include "model/plan.h"

namespace draftboard::backend {

/// Time of one operation on one rank, ns.
struct OperationTime {
    std::int64_t total_ns = 0;
    std::int64_t wait_ns = 0;  ///< collectives: for the last rank
};

class Engine : public LanguageModel {
   public:
    [[nodiscard]] int vocabulary() const override { return static_cast<int>(shape_.architecture.vocabulary); }
    [[nodiscard]] int hidden() const override { return shape_.architecture.hidden; }
    [[nodiscard]] int feature_width(model::Pass pass) const override;
    [[nodiscard]] int capacity() const override { return table_.capacity(); }
    [[nodiscard]] std::int64_t max_length() const override { return table_.max_length(); }
    void commit(int sequence, std::span<const int> path) override { table_.commit(sequence, path); }
    void discard(int sequence) override { table_.discard(sequence); }
    [[nodiscard]] std::int64_t length(int sequence) const override { return table_.length(sequence); }
    [[nodiscard]] int uncommitted(int sequence) const override { return table_.uncommitted(sequence); }

    [[nodiscard]] const ModelShape& shape() const { return shape_; }
    /// Target token of each output token of an EAGLE-3 head; empty: the same.
    [[nodiscard]] virtual std::vector<int> target_of_draft() const = 0;
    /// Times of every operation go here from now on; nullptr: not measured.
    void set_profile(Profile* profile) { profile_ = profile; }
    /// Chosen experts are appended as (pass, MoE layer, row, k); nullptr: not kept.
    void set_routing_record(std::vector<std::uint16_t>* record) { routing_ = record; }
    /// The plan of a pass of this shape at this context (for reports beside measured times).
    [[nodiscard]] model::Expected<model::Plan> plan(model::Pass pass, int sequences, int tokens, std::int64_t context) const;

   protected:
    Engine(PlannedModel planned, SequenceTable table)
        : shape_(std::move(planned.shape)), planner_(std::move(planned.planner)), table_(std::move(table)) {}
    /// Input features of the projection by which an EAGLE-3 head or MTP module reads the target; 0 of a whole model.
    [[nodiscard]] virtual std::int64_t fused_columns() const = 0;
    /// Adds a measured pass to the profile. `times`: by rank, an entry an operation of the plan. `commit_ns`: by all ranks,
    /// before the pass: the plan's delta_net.rollback.
    void record(const model::Plan& plan, const PassRows& rows, std::span<const std::vector<OperationTime>> times,
                std::int64_t commit_ns, double pass_us);

    ModelShape shape_;
    Planner planner_;
    SequenceTable table_;
    Profile* profile_ = nullptr;
    std::vector<std::uint16_t>* routing_ = nullptr;
};

}  // namespace draftboard::backend
