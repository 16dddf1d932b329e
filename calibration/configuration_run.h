// SPDX-License-Identifier: Apache-2.0
#pragma once
// One configuration of a suite, decoded for real. What is measured is what tok/s means to a user: steady decoding. So batches
// count while they are full and no text joins, and the first cycles of each visit are left out; what is counted of a
// text is complete, whatever limit ended it. Texts go on past end tokens, so that all are of one length.
//
// Configurations of one model on as many ranks run on the same engines (open_engines), each with a drafter of its own. With
// weights of their own they would push each other's out of the caches, and a visit would measure how they come back.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/inference.h"
#include "calibration/measured_model.h"
#include "calibration/round_sample.h"
#include "calibration/validation_suite.h"
#include "model/acceptance.h"

namespace draftboard::calibration {

/// Acceptance over texts, at most `steps` deep.
struct MeasuredAcceptance {
    model::Acceptance acceptance;  ///< relative_spread: sd of log L, from text to text
    double length = 1;
    double texts = 0;
};
[[nodiscard]] MeasuredAcceptance acceptance_of(const std::vector<TextAcceptance>& texts, int steps);

/// Target and drafter model for all of `configurations`, which are of one model and number of ranks and draft with at most one
/// model: room for the largest batch, and for texts of `text_length` beside the rows of the widest drafts.
/// Errors: the model's; a checkpoint without a byte tokenizer.
[[nodiscard]] model::Expected<std::shared_ptr<backend::Inference>> open_engines(
    const std::vector<SuiteConfiguration>& configurations, const MeasuredModel& model, const MeasuredDevice& device, int text_length);

/// Whether the method runs a model of its own: engines serve one such method, and lookups and plain decoding beside it.
[[nodiscard]] bool has_draft_model(model::SpeculationMethod method);

class ConfigurationRun {
   public:
    /// `engines`: made for a list that holds the configuration.
    [[nodiscard]] static model::Expected<ConfigurationRun> open(const SuiteConfiguration& configuration,
                                                                std::shared_ptr<backend::Inference> engines);
    [[nodiscard]] model::Expected<RoundSample> decode(const std::vector<std::vector<int>>& texts, int tokens);
    /// decode() with the time of every operation: medians, of full batches.
    [[nodiscard]] model::Expected<ProfiledPasses> profile(const std::vector<std::vector<int>>& texts, int tokens);
    /// Whole cycles run on the device.
    [[nodiscard]] bool fused() const { return fused_ != nullptr; }
    [[nodiscard]] backend::Inference& inference() { return *inference_; }
    [[nodiscard]] const backend::Inference& inference() const { return *inference_; }
    [[nodiscard]] const std::shared_ptr<backend::Inference>& shared_inference() const { return inference_; }

   private:
    ConfigurationRun() = default;
    SuiteConfiguration configuration_;
    std::shared_ptr<backend::Inference> inference_;
    std::unique_ptr<backend::Drafter> drafter_;  ///< nullptr: plain decoding
    std::unique_ptr<backend::FusedCycle> fused_;  ///< nullptr: the host drives each pass
    bool profiling_ = false;
};

}  // namespace draftboard::calibration
