// SPDX-License-Identifier: Apache-2.0
#pragma once
// The GPU engine: one model on the GPUs of a box, as a LanguageModel. Beside what backend/engine.h shares it owns the ranks' host
// threads and what travels between host and device. One thread a GPU, tied to the cores near it; rank 0 is the caller.
//
// What a pass brings back is what its caller asked for: logits, or for greedy decoding the best tokens alone.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "backend/cpu/team.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/rank.h"
#include "backend/engine.h"

namespace draftboard::backend::cuda {

/// The ranks of one box: threads, devices, collectives. A target and its drafter share it.
class RankGroup {
   public:
    /// `max_count`: numbers of the largest message. Errors: no CUDA, fewer GPUs than ranks, what Communicator::create says.
    [[nodiscard]] static model::Expected<std::unique_ptr<RankGroup>> create(const CudaSettings& settings, std::int64_t max_count);

    [[nodiscard]] int ranks() const { return static_cast<int>(devices_.size()); }
    /// Null: one rank, or one of a layout whose others are not there.
    [[nodiscard]] Communicator* communicator() const { return communicator_.get(); }
    /// Runs job(rank) on every rank's thread with its device current. The first error of any rank; exceptions count as errors.
    [[nodiscard]] model::Expected<void> run(const std::function<model::Expected<void>(int rank)>& job);
    /// Until the stream is done, or another rank has not arrived in time. To be called inside of run().
    [[nodiscard]] model::Expected<void> wait(int rank, cudaStream_t stream);

   private:
    explicit RankGroup(std::vector<int> devices);
    std::vector<int> devices_;
    cpu::Team team_;
    std::unique_ptr<Communicator> communicator_;
    std::vector<model::Expected<void>> outcomes_;
};

class Engine final : public backend::Engine {
   public:
    using LoadWeights = std::function<model::Expected<cpu::ModelWeights>(int rank)>;
    /// `lender`: the target whose tables a drafter may share. `weights` is called on the rank's own thread.
    [[nodiscard]] static model::Expected<std::unique_ptr<Engine>> create(PlannedModel planned, const RankOptions& options,
                                                                         const LoadWeights& weights, const Engine* lender,
                                                                         RankGroup& group);
    ~Engine() override;

    /// Of a rank alone, its share of the vocabulary.
    [[nodiscard]] int vocabulary() const override;
    [[nodiscard]] model::Expected<void> forward(const Batch& batch, std::span<const int> logits_rows,
                                                ForwardOutput& output) override;
    void clear(int sequence) override;
    [[nodiscard]] std::vector<int> target_of_draft() const override;
    [[nodiscard]] const Rank& rank(int index) const { return *ranks_[static_cast<std::size_t>(index)]; }

    // For whoever enqueues passes of its own (chain_cycle.h).
    [[nodiscard]] Rank& rank(int index) { return *ranks_[static_cast<std::size_t>(index)]; }
    [[nodiscard]] RankGroup& group() const { return *group_; }
    [[nodiscard]] const RankOptions& options() const { return options_; }
    [[nodiscard]] SequenceTable& table() { return table_; }
    [[nodiscard]] model::Expected<const CompiledPass*> compiled(model::Pass pass, int sequences, int tokens);
    /// Zeroes the states of cleared sequences, on the rank's thread; once all ranks have, states_cleared().
    void clear_states(int rank);
    void states_cleared() { to_clear_.clear(); }
    /// What somebody enqueued failed: ranks may no longer be in step, and forward() refuses from now on.
    void stop() { failed_ = true; }

   private:
    Engine(PlannedModel planned, const RankOptions& options, RankGroup& group);
    [[nodiscard]] std::int64_t fused_columns() const override;
    void take_pinned();
    void read_back(const PassKey& key, ForwardOutput& output);

    RankOptions options_;
    RankGroup* group_;
    HostRows host_rows_;
    HostResults results_;
    std::vector<std::unique_ptr<Rank>> ranks_;
    CompiledPasses<Rank> passes_;
    std::vector<std::vector<OperationTime>> times_;  // by rank
    std::vector<int> to_clear_;                      // sequences whose states are to be zeroed before the next pass
    int routed_numbers_ = 0;                         // choices of all MoE layers, a row
    bool failed_ = false;
};

}  // namespace draftboard::backend::cuda
