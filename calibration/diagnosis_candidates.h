// SPDX-License-Identifier: Apache-2.0
#pragma once
// The table of candidate causes: single changes of a scenario that users meet, each with its prior weight and where that comes
// from. diagnosis.h weighs them. A new cause is a new row here; the test that injects each cause covers it by itself.

#include <functional>
#include <string>
#include <vector>

#include "calibration/diagnosis.h"
#include "model/scenario.h"

namespace draftboard::calibration {

struct Candidate {
    std::string name;
    std::string meaning;
    double prior = 0;             ///< weight against the others; all are assumed, see kPriorSource
    std::vector<double> factors;  ///< equally likely; {1}: a switch
    std::string edit;             ///< text; "{}" stands for the factor
    std::string fix;
    std::string look;  ///< how to see directly whether this is it; empty: only its times show it
    /// Changes the scenario, which is then predicted anew; false: it does not apply. Empty: `scale` instead.
    std::function<bool(model::Scenario&, double factor)> change;
    /// Changes the predicted outcome; false: it does not apply.
    std::function<bool(Outcome&, double factor)> scale;
};

/// Nobody has published how often each cause is met. The order follows what issue threads of serving engines and the founding
/// documents report: launch mode first, then transport settings, then acceptance, then single kernels.
inline constexpr const char* kPriorSource = "assumed; the order follows what users of serving engines report";

/// The candidates that stand for no cause.
inline constexpr const char* kAsPredicted = "as_predicted";
inline constexpr const char* kNoneOfThese = "none_of_these";

[[nodiscard]] std::vector<Candidate> candidate_table();

}  // namespace draftboard::calibration
