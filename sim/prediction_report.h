// SPDX-License-Identifier: Apache-2.0
#pragma once
// A prediction as JSON (the contract of `predict --json`) and as text for a terminal. The same input
// gives the same bytes: no clock, no host name.

#include "model/json_reader.h"
#include "sim/prediction.h"

namespace draftboard::sim {

[[nodiscard]] model::Json prediction_json(const model::Scenario& scenario,
                                          const Prediction& prediction,
                                          const CostConstants& constants);

[[nodiscard]] std::string prediction_text(const model::Scenario& scenario,
                                          const Prediction& prediction,
                                          const CostConstants& constants);

}  // namespace draftboard::sim
