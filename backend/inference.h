// SPDX-License-Identifier: Apache-2.0
#pragma once
// Target, drafter and tokenizer of one run, put together from folders and settings: what `run`, `acceptance`, `calibrate` and
// `validate` share. It chooses the device, loads and wires; DecodeLoop decodes.
//
//   Inference inference = Inference::open(settings);  DecodeLoop loop(inference.target(), inference.drafter(), {...});

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/byte_tokenizer.h"
#include "backend/checkpoint.h"
#include "backend/cpu/cpu_engines.h"
#include "backend/cuda/launch.h"
#include "backend/engine_factory.h"
#include "backend/model_drafter.h"
#include "backend/profile.h"
#include "model/routing.h"

namespace draftboard::backend {

enum class DraftMethod { none, eagle3, mtp, ngram, draft, scripted };
[[nodiscard]] std::string_view to_name(DraftMethod method);
[[nodiscard]] std::optional<DraftMethod> draft_method_from_name(std::string_view name);

enum class Device { cpu, cuda };
[[nodiscard]] std::optional<Device> device_from_name(std::string_view name);

struct InferenceSettings {
    std::string model;                   ///< folder of the target
    DraftMethod method = DraftMethod::none;
    std::string draft_model;             ///< folder; EAGLE-3: empty is the target's folder with "-eagle3" behind it
    int steps = 3;
    int top_k = 1;
    int draft_tokens = 0;                ///< 0: steps + 1, for a tree 1 + steps x top_k
    std::vector<double> scripted_rates;  ///< conditional, one a step
    int ngram_min = 2;
    int ngram_max = 5;
    bool pad_misses = true;
    Device device = Device::cpu;
    int ranks = 1;
    bool expert_parallel = false;
    cpu::AllReduceAlgorithm all_reduce = cpu::AllReduceAlgorithm::one_shot;
    cuda::CudaSettings cuda;             ///< where device is cuda; its ranks and expert_parallel are those above
    /// Random weights at the true shapes instead of a checkpoint; `model` is then a name for messages alone.
    std::optional<model::Architecture> synthetic;
    int batch = 1;                       ///< sequences at once
    std::int64_t text_length = 4096;     ///< longest text, prompt and output; rows of drafts get their room beside it
};

class Inference {
   public:
    [[nodiscard]] static model::Expected<Inference> open(InferenceSettings settings);

    [[nodiscard]] const InferenceSettings& settings() const { return settings_; }
    [[nodiscard]] Engine& target() { return *target_; }
    [[nodiscard]] Drafter* drafter() { return drafter_.get(); }              ///< nullptr: plain decoding
    [[nodiscard]] Engine* drafter_engine() { return draft_engine_.get(); }  ///< nullptr: it drafts without a model
    /// For LoopOptions::fused; null where the device or the drafter has none, and while operations are measured.
    [[nodiscard]] model::Expected<FusedCycle*> fused_cycle();
    /// One of another depth than the settings', 0: plain decoding; null where the device has none.
    [[nodiscard]] model::Expected<std::unique_ptr<FusedCycle>> make_fused_cycle(int steps) { return engines_->fused_cycle(steps); }
    /// See EngineFactory.
    [[nodiscard]] model::Expected<model::Json> device_costs() { return engines_->device_costs(); }
    [[nodiscard]] const std::optional<ByteTokenizer>& tokenizer() const { return tokenizer_; }
    [[nodiscard]] const std::vector<int>& end_tokens() const { return end_tokens_; }

    /// "eagle3, 3 steps" and the like, for reports.
    [[nodiscard]] std::string describe() const;

    /// Measures every operation from now on.
    void start_profile();
    /// What was measured as a "draftboard.profile" document; passes of the drafter say so ("model": "drafter").
    [[nodiscard]] model::Expected<model::Json> profile() const;

    void stop_profile();
    [[nodiscard]] double read_ceiling_gb_per_s() { return engines_->read_ceiling_gb_per_s(); }

    /// Runs the texts through the target and keeps each token's experts, in the order of the texts. Error: no experts.
    [[nodiscard]] model::Expected<model::RoutingTrace> routing_trace(const std::vector<std::vector<int>>& texts);

   private:
    Inference() = default;
    [[nodiscard]] model::Expected<void> make_engines();
    void set_requests();
    [[nodiscard]] model::Expected<void> load_target();
    [[nodiscard]] model::Expected<void> make_random_target();
    [[nodiscard]] model::Expected<void> read_tokenizer();
    [[nodiscard]] model::Expected<void> load_drafter();
    [[nodiscard]] model::Expected<void> make_model_drafter(DrafterReads reads, std::vector<int> target_of_draft);
    [[nodiscard]] std::int64_t room() const;  ///< rows beside the text in a cache

    InferenceSettings settings_;
    std::unique_ptr<Checkpoint> checkpoint_;
    std::unique_ptr<Checkpoint> draft_checkpoint_;
    model::Speculation speculation_;
    EngineRequest request_;
    std::unique_ptr<EngineFactory> engines_;
    std::unique_ptr<Engine> target_;
    std::unique_ptr<Engine> draft_engine_;
    std::unique_ptr<Drafter> drafter_;
    std::unique_ptr<FusedCycle> fused_;
    std::optional<ByteTokenizer> tokenizer_;
    std::vector<int> end_tokens_;
    std::unique_ptr<Profile> target_profile_;
    std::unique_ptr<Profile> draft_profile_;
};

/// The trace as read_routing_trace() reads it.
[[nodiscard]] std::string to_text(const model::RoutingTrace& trace);

}  // namespace draftboard::backend
