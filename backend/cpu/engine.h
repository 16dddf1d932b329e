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
#include "backend/engine.h"
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

class Engine final : public backend::Engine {
   public:
    /// `weights`: makes the weights of a rank, called on the rank's own thread so that they lie in its node's memory.
    [[nodiscard]] static model::Expected<std::unique_ptr<Engine>> create(
        PlannedModel planned, const EngineOptions& options,
        const std::function<model::Expected<ModelWeights>(int rank)>& weights, Team& team);

    [[nodiscard]] model::Expected<void> forward(const Batch& batch, std::span<const int> logits_rows,
                                                ForwardOutput& output) override;
    void clear(int sequence) override;
    [[nodiscard]] std::vector<int> target_of_draft() const override;
    [[nodiscard]] const Rank& rank(int index) const { return *ranks_[static_cast<std::size_t>(index)]; }
    [[nodiscard]] Team& team() const { return *team_; }

   private:
    Engine(PlannedModel planned, const EngineOptions& options, Team& team);
    [[nodiscard]] std::int64_t fused_columns() const override;
    [[nodiscard]] model::Expected<const CompiledPass<Rank>*> compiled(model::Pass pass, int sequences, int tokens);

    Team* team_;
    RankOptions rank_options_;
    std::vector<std::unique_ptr<Rank>> ranks_;
    CompiledPasses<Rank> passes_;
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
/// The same with random weights (random_source.h); `speculation`: EAGLE-3 or MTP.
[[nodiscard]] model::Expected<std::unique_ptr<Engine>> random_engine(const model::Architecture& architecture,
                                                                     const EngineOptions& options, std::uint64_t seed, Team& team);
[[nodiscard]] model::Expected<std::unique_ptr<Engine>> random_drafter_engine(const model::Speculation& speculation,
                                                                             const Engine& target, const EngineOptions& options,
                                                                             std::uint64_t seed);

}  // namespace draftboard::backend::cpu
