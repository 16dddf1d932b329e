// SPDX-License-Identifier: Apache-2.0
#pragma once
// One model on some ranks, with its drafter, driven pass by pass for measurements: no decoding happens, rows are the tokens of
// given texts. Each cycle runs twice: once with passes timed whole from outside, once with the time of every operation.
//
// Cycles of one shape follow one another on running text, and passes follow in the order of a cycle, because what a pass finds in the
// caches is what those before it left there:
//   verify (commits half of its rows, so that the next one has a rollback to do), draft_extend, three times draft of each width
// On a GPU contexts are visited in ascending order on the same sequences, so that only one context's caches are needed at a time, and
// greedy choices stay on the device, as they do while it decodes.
//
// A model's pass walks through all its weights and comes back to a layer after all others; a drafter is small and its
// further steps find in cache what its first call loaded, as they do in a cycle.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/inference.h"
#include "calibration/engine_measurements.h"
#include "calibration/measured_model.h"

namespace draftboard::calibration {

struct EngineSessionOptions {
    MeasuredModel model;
    MeasuredDevice device;
    std::string launch;           ///< what samples are kept under, see EnginePassKey
    std::vector<int> contexts;    ///< tokens, ascending
    std::vector<int> sequences;   ///< batch sizes
    std::vector<int> tokens;      ///< widths of verify and draft_extend
    std::vector<int> branches;    ///< widths of draft
    bool eviction = false;        ///< walk through a buffer of twice the last-level cache before each pass
    double l3_bytes = 0;
    int most_rows = 1 << 20;      ///< wider batches are left out
    bool profiles = true;         ///< also time every operation
    int warm_cycles = 8;          ///< of a shape before any is kept
    int steady_cycles = 4;        ///< of a shape, in each of the two ways
};

class EngineSession {
   public:
    /// `texts`: at least one, of any length; slot i reads text i, over and over. Errors: the model's.
    [[nodiscard]] static model::Expected<EngineSession> open(EngineSessionOptions options, std::vector<std::vector<int>> texts);

    /// One round over all shapes; samples are added to `measurements`.
    [[nodiscard]] model::Expected<void> round(EngineMeasurements& measurements);
    /// The shapes of one batch size at one of the contexts.
    [[nodiscard]] model::Expected<void> visit(std::size_t context, int sequences, EngineMeasurements& measurements);
    [[nodiscard]] const EngineSessionOptions& options() const { return options_; }
    /// Tokens of a made-up or given text, as prompts: `length` of text `slot`.
    [[nodiscard]] std::vector<int> text(int slot, int length) const;
    [[nodiscard]] backend::Inference& inference() { return *inference_; }

   private:
    /// Sequences at a context, measured in one of the two ways.
    struct Visit {
        EngineMeasurements* measurements = nullptr;
        int first_slot = 0;
        int sequences = 1;
        int context = 0;
        bool profiled = false;
    };
    EngineSession() = default;
    [[nodiscard]] model::Expected<void> fill(int first_slot, int count, int context);
    [[nodiscard]] model::Expected<void> measure(backend::Engine& engine, backend::Batch& batch, std::span<const int> logits_rows,
                                                const Visit& visit, int commit_rows);
    [[nodiscard]] model::Expected<void> cycle(const Visit& visit, int tokens);
    [[nodiscard]] model::Expected<void> decode(const Visit& visit, bool after_verify);
    [[nodiscard]] model::Expected<void> arrive(double clock_us);
    [[nodiscard]] model::Expected<void> steady(Visit visit, int tokens);  ///< tokens 0: plain steps
    [[nodiscard]] model::Expected<void> count_experts(backend::Engine& engine, const backend::Batch& batch,
                                                      std::span<const int> logits_rows, EnginePassSamples& samples);
    [[nodiscard]] int token_at(int slot, std::int64_t position) const;
    void take_rows(const std::vector<int>& slots, int tokens, std::int64_t ahead, std::vector<int>& ids) const;
    void evict();

    EngineSessionOptions options_;
    std::vector<std::vector<int>> texts_;
    std::unique_ptr<backend::Inference> inference_;
    backend::Profile profile_;
    backend::ForwardOutput output_;
    backend::ForwardOutput draft_output_;
    std::vector<std::uint16_t> routing_;
    std::vector<float> sweep_;
    double swept_ = 0;
    int most_sequences_ = 1;
    int rounds_ = 0;
};

}  // namespace draftboard::calibration
