// SPDX-License-Identifier: Apache-2.0
#pragma once
// The CPU engine: one model on the ranks of a team, as a LanguageModel. It makes the plan of each pass (model/plan.h), has every
// rank execute it, and keeps which rows are committed. Two engines on one team are a target and its drafter.
//
// Worked example: tiny-kimi with EAGLE-3 on two ranks
//   Team team(2);  auto target = load_target(checkpoint, {...}, team);  auto drafter = load_eagle3_drafter(head, *target, {...});
//   DecodeLoop loop(*target, ...);

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "backend/checkpoint.h"
#include "backend/cpu/rank.h"
#include "backend/cpu/team.h"
#include "backend/language_model.h"
#include "backend/profile.h"
#include "model/speculation.h"

namespace draftboard::backend::cpu {

struct EngineOptions {
    int sequences = 1;
    std::int64_t max_length = 4096;  ///< tokens a sequence; memory for all of them is taken at the start
    bool expert_parallel = false;    ///< whole experts a rank instead of slices of each
    AllReduceAlgorithm all_reduce = AllReduceAlgorithm::one_shot;
    bool expand_latents_in_prefill = false;
    std::vector<int> feature_layers; ///< see ModelShape
};

/// The plan of one step, as the model's own planner makes it (plan_forward or plan_draft).
using Planner = std::function<model::Expected<model::Plan>(const model::Step&)>;

class Engine final : public LanguageModel {
   public:
    /// `weights`: makes the weights of a rank, called on the rank's own thread so that they lie in its node's memory.
    [[nodiscard]] static model::Expected<std::unique_ptr<Engine>> create(
        ModelShape shape, const EngineOptions& options, Planner planner,
        const std::function<model::Expected<ModelWeights>(int rank)>& weights, Team& team);

    [[nodiscard]] int vocabulary() const override { return static_cast<int>(shape_.architecture.vocabulary); }
    [[nodiscard]] int hidden() const override { return shape_.architecture.hidden; }
    [[nodiscard]] int feature_width(model::Pass pass) const override;
    [[nodiscard]] int capacity() const override { return static_cast<int>(sequences_.size()); }
    [[nodiscard]] std::int64_t max_length() const override { return max_length_; }
    [[nodiscard]] model::Expected<void> forward(const Batch& batch, std::span<const int> logits_rows,
                                                ForwardOutput& output) override;
    void commit(int sequence, std::span<const int> path) override;
    void discard(int sequence) override;
    void clear(int sequence) override;
    [[nodiscard]] std::int64_t length(int sequence) const override;
    [[nodiscard]] int uncommitted(int sequence) const override;

    [[nodiscard]] const ModelShape& shape() const { return shape_; }
    [[nodiscard]] const Rank& rank(int index) const { return *ranks_[static_cast<std::size_t>(index)]; }
    [[nodiscard]] Team& team() const { return *team_; }
    /// Times of every operation go here from now on; nullptr: not measured.
    void set_profile(Profile* profile) { profile_ = profile; }
    /// Chosen experts are appended as (pass, MoE layer, row, k); nullptr: not kept.
    void set_routing_record(std::vector<std::uint16_t>* record) { routing_ = record; }
    /// The plan of a pass of this shape at this context (for reports beside measured times).
    [[nodiscard]] model::Expected<model::Plan> plan(model::Pass pass, int sequences, int tokens, std::int64_t context) const;

   private:
    struct Sequence {
        std::int64_t committed = 0;
        std::vector<std::int32_t> parents;  // of uncommitted rows
        std::vector<std::int32_t> depths;   // ancestors of uncommitted rows
    };
    struct CompiledPass {
        model::Plan plan;
        Program program;
    };
    Engine(ModelShape shape, const EngineOptions& options, Planner planner, Team& team);
    [[nodiscard]] model::Expected<const CompiledPass*> compiled(model::Pass pass, int sequences, int tokens);
    [[nodiscard]] model::Expected<void> check(const Batch& batch, std::span<const int> logits_rows) const;
    void lay_out_rows(const Batch& batch, std::span<const int> logits_rows);
    void record(const CompiledPass& compiled);

    ModelShape shape_;
    Planner planner_;
    Team* team_;
    std::int64_t max_length_;
    std::vector<std::unique_ptr<Rank>> ranks_;
    std::vector<Sequence> sequences_;
    std::vector<PendingCommit> pending_;
    std::map<std::tuple<model::Pass, int, int>, CompiledPass> passes_;
    PassRows rows_;
    Profile* profile_ = nullptr;
    std::vector<std::uint16_t>* routing_ = nullptr;
    std::vector<std::vector<OperationTime>> times_;  // by rank
};

/// What a checkpoint's model can be run as. Errors: families or formats that the engine does not compute.
[[nodiscard]] model::Expected<std::unique_ptr<Engine>> load_target(const Checkpoint& checkpoint, const EngineOptions& options,
                                                                   Team& team);
/// Drafters of a target that runs on the same team. `speculation` names method, steps and (EAGLE-3) the head.
[[nodiscard]] model::Expected<std::unique_ptr<Engine>> load_mtp_drafter(const Checkpoint& checkpoint,
                                                                        const model::Speculation& speculation,
                                                                        const Engine& target, const EngineOptions& options);
[[nodiscard]] model::Expected<std::unique_ptr<Engine>> load_eagle3_drafter(const Checkpoint& head,
                                                                           const model::Speculation& speculation,
                                                                           const Engine& target, const EngineOptions& options);
/// A stand-alone draft model on the target's ranks.
[[nodiscard]] model::Expected<std::unique_ptr<Engine>> load_draft_model(const Checkpoint& checkpoint,
                                                                        const model::Speculation& speculation,
                                                                        const Engine& target, const EngineOptions& options);

}  // namespace draftboard::backend::cpu
