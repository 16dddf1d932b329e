// SPDX-License-Identifier: Apache-2.0
#pragma once
// One model on some ranks, with its drafter, driven pass by pass for measurements: no decoding happens, rows are the tokens of
// given texts. Each cycle runs twice: once with passes timed whole from outside, once with the time of every operation.
//
// Cycles of one shape follow one another on running text, and passes follow in the order of a cycle, because what a pass finds in the
// caches is what those before it left there:
//   verify (commits half of its rows, so that the next one has a rollback to do), draft_extend, three times draft of each width
// A model's pass walks through all its weights and comes back to a layer after all others; a drafter is small and its
// further steps find in cache what its first call loaded, as they do in a cycle.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/inference.h"
#include "calibration/cpu_measurements.h"

namespace draftboard::calibration {

struct CpuSessionOptions {
    std::string folder;
    std::string name;
    int ranks = 1;
    std::vector<int> contexts;    ///< tokens
    std::vector<int> sequences;   ///< batch sizes
    std::vector<int> tokens;      ///< widths of verify and draft_extend
    std::vector<int> branches;    ///< widths of draft
    bool eviction = false;        ///< walk through a buffer of twice the last-level cache before each pass
    double l3_bytes = 0;
};

class CpuSession {
   public:
    /// `texts`: at least one, of any length; slot i reads text i, over and over. Errors: the model's.
    [[nodiscard]] static model::Expected<CpuSession> open(CpuSessionOptions options, std::vector<std::vector<int>> texts);

    /// One round over all shapes; samples are added to `measurements`.
    [[nodiscard]] model::Expected<void> round(CpuMeasurements& measurements);
    /// The plan of a key's pass at a context. Precondition: the key is of this session.
    [[nodiscard]] model::Expected<model::Plan> plan(const CpuPassKey& key, std::int64_t context);
    [[nodiscard]] backend::Inference& inference() { return *inference_; }

   private:
    /// Sequences at a context, measured in one of the two ways.
    struct Visit {
        CpuMeasurements* measurements = nullptr;
        int first_slot = 0;
        int sequences = 1;
        int context = 0;
        bool profiled = false;
    };
    CpuSession() = default;
    [[nodiscard]] model::Expected<void> fill(int first_slot, int count, int context);
    [[nodiscard]] model::Expected<void> measure(backend::Engine& engine, backend::Batch& batch, std::span<const int> logits_rows,
                                                const Visit& visit, int commit_rows);
    [[nodiscard]] model::Expected<void> cycle(const Visit& visit, int tokens);
    [[nodiscard]] model::Expected<void> decode(const Visit& visit, bool after_verify);
    [[nodiscard]] model::Expected<void> arrive(double clock_us);
    [[nodiscard]] model::Expected<void> steady(Visit visit, int tokens);  ///< tokens 0: plain steps
    [[nodiscard]] model::Expected<void> count_experts(backend::Engine& engine, const backend::Batch& batch,
                                                      std::span<const int> logits_rows, CpuPassSamples& samples);
    [[nodiscard]] int token_at(int slot, std::int64_t position) const;
    void take_rows(const std::vector<int>& slots, int tokens, std::int64_t ahead, std::vector<int>& ids) const;
    void evict();

    CpuSessionOptions options_;
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

/// The last part of a folder's path: what measurements call the model.
[[nodiscard]] std::string model_name(const std::string& folder);

/// How the model is drafted for where nobody says: its EAGLE-3 head beside it, else its own MTP module, else not at all.
[[nodiscard]] model::Expected<backend::DraftMethod> default_draft_method(const std::string& folder);

}  // namespace draftboard::calibration
