// SPDX-License-Identifier: Apache-2.0
#pragma once
// One configuration of a suite, decoded for real. Batches count while they are full and no text joins; what is counted of a
// text is complete, whatever limit ended it. Texts go on past end tokens, so that all are of one length.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/inference.h"
#include "calibration/validation_suite.h"
#include "model/acceptance.h"

namespace draftboard::calibration {

/// What verification accepted of one text, by depth.
struct TextAcceptance {
    double cycles = 0;
    double hits = 0;
    std::vector<double> reached;  ///< [i]: cycles that accepted i + 1 drafts or more
};

/// Acceptance over texts, at most `steps` deep.
struct MeasuredAcceptance {
    model::Acceptance acceptance;  ///< relative_spread: sd of log L, from text to text
    double length = 1;
    double texts = 0;
};
[[nodiscard]] MeasuredAcceptance acceptance_of(const std::vector<TextAcceptance>& texts, int steps);

struct RoundSample {
    double cycle_us = 0;   ///< mean over counted cycles; 0: none counted
    double cycles = 0;
    double disturbed = 0;  ///< share of cycles during which a core was taken away; left out
    std::vector<TextAcceptance> texts;
};

/// Medians of a profiled run, by pass: "target"/"drafter", pass, sequences, tokens.
struct ProfiledPass {
    std::vector<double> us;
    std::vector<double> wait_us;
};
using ProfiledPasses = std::map<std::tuple<std::string, model::Pass, int, int>, ProfiledPass>;

class ConfigurationRun {
   public:
    /// `folder`: the model's.
    [[nodiscard]] static model::Expected<ConfigurationRun> open(const SuiteConfiguration& configuration, const std::string& folder,
                                                                int text_length);
    [[nodiscard]] model::Expected<RoundSample> decode(const std::vector<std::vector<int>>& texts, int tokens);
    /// decode() with the time of every operation; those of full batches are returned.
    [[nodiscard]] model::Expected<ProfiledPasses> profile(const std::vector<std::vector<int>>& texts, int tokens);
    [[nodiscard]] backend::Inference& inference() { return *inference_; }
    [[nodiscard]] const backend::Inference& inference() const { return *inference_; }

   private:
    SuiteConfiguration configuration_;
    std::unique_ptr<backend::Inference> inference_;
};

}  // namespace draftboard::calibration
