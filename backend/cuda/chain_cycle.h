// SPDX-License-Identifier: Apache-2.0
#pragma once
// Whole greedy cycles on the GPUs (fused_cycle.h): one graph a rank runs
//
//   verify -> accept -> gather states -> draft_extend -> take draft -> { gather states -> draft -> take draft } -> record to the
//   host
//
// and the words of every pass are laid out by the step before it (chain_kernels.h), so the host is needed for nothing but to
// launch the graph again and to read what came out. It launches the next cycle before it reads the last one's tokens. Plain
// decoding is the same without the drafter. Every rank runs the same steps on the same numbers: with sums that are equal on all
// ranks they stay in step.
//
// Two graphs take turns, because their records go to two buffers of the host. The first run is eager, as in rank.h; a graph
// serves contexts up to a power of two.

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "backend/cuda/chain_kernels.h"
#include "backend/cuda/engine.h"
#include "backend/fused_cycle.h"
#include "backend/model_drafter.h"

namespace draftboard::backend::cuda {

class ChainCycle final : public FusedCycle {
   public:
    /// `drafter` null: plain decoding. Else an EAGLE-3 head or an MTP module without recurrent layers, drafting `steps`. Both
    /// engines outlive it. Errors: more steps than there is room for, such a drafter.
    [[nodiscard]] static model::Expected<std::unique_ptr<ChainCycle>> create(Engine& target, Engine* drafter, int steps);
    ~ChainCycle() override;

    [[nodiscard]] int width() const override { return width_; }
    [[nodiscard]] int most_sequences() const override;
    [[nodiscard]] model::Expected<void> begin(std::span<const DraftSequence> sequences, const Proposal& proposal) override;
    [[nodiscard]] bool running() const override { return !slots_.empty(); }
    [[nodiscard]] model::Expected<std::span<const CycleOutcome>> step(bool launch_next, CycleTimes& times) override;
    [[nodiscard]] model::Expected<void> leave(std::span<const int> slots, ForwardOutput& output) override;

   private:
    /// Where a rank lays out its passes, and its graphs.
    struct OfRank {
        DeviceBuffer<std::int32_t> verify;
        DeviceBuffer<std::int32_t> extend;
        std::vector<DeviceBuffer<std::int32_t>> drafts;
        DeviceBuffer<std::int32_t> lengths;  ///< drafted | kept | extend_source | draft_source
        DeviceBuffer<std::int32_t> record;
        DeviceBuffer<float> gaps;
        DeviceBuffer<std::int32_t> target_of_draft;
        std::array<cudaEvent_t, 3> events{};                                   ///< before verify, after accept, at the end
        std::map<std::tuple<int, std::int64_t, int>, cudaGraphExec_t> graphs;  ///< sequences, visible, parity
        int runs = 0;                                                          ///< since begin(): the first is eager
        ChainState state;
    };
    ChainCycle(Engine& target, Engine* drafter, int steps);

    void take_memory(int rank);
    [[nodiscard]] model::Expected<void> compile();
    void lay_out(int rank, const Proposal& proposal);
    void enqueue(int rank, int parity, bool capturing);
    [[nodiscard]] bool wants_capture() const;
    void capture(int rank);
    [[nodiscard]] model::Expected<void> launch_all();
    /// An error of the devices: neither this nor the engines run anything again.
    [[nodiscard]] tl::unexpected<model::Error> fail(model::Error error);
    [[nodiscard]] PassKey key(const Engine& engine, model::Pass pass, int tokens, int logits) const;

    Engine* target_;
    Engine* drafter_;
    int width_;
    std::vector<OfRank> ranks_;
    std::array<PinnedBuffer<std::int32_t>, 2> records_;
    std::array<PinnedBuffer<float>, 2> gaps_;
    const CompiledPass* verify_pass_ = nullptr;
    const CompiledPass* extend_pass_ = nullptr;
    const CompiledPass* draft_pass_ = nullptr;

    std::vector<int> slots_;               ///< of the sequences in begin()'s order; empty: not running
    std::vector<std::int64_t> committed_;  ///< target rows, of the cycles whose outcome is read
    std::vector<std::int64_t> drafted_;    ///< drafter rows before the last read cycle's
    std::vector<int> kept_;                ///< rows of the last read cycle
    std::int64_t visible_ = 0;             ///< bucket
    int in_flight_ = 0;                    ///< parity of the cycle launched last
    bool failed_ = false;                  ///< ranks are no longer in step
    std::vector<CycleOutcome> outcomes_;
};

}  // namespace draftboard::backend::cuda
