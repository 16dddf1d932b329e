// SPDX-License-Identifier: Apache-2.0
#pragma once
// One configuration of a suite, predicted: its scenario, made from the loaded model's shape and this machine, and what the
// simulator answers. Acceptance and routing are given; nothing of the configuration's own run is.

#include <string>

#include "calibration/calibration.h"
#include "calibration/configuration_run.h"
#include "model/scenario.h"
#include "sim/prediction.h"

namespace draftboard::calibration {

struct PredictionInputs {
    model::Machine machine;
    std::string calibration;          ///< path or shipped name
    std::string data_directory;
    MeasuredAcceptance acceptance;    ///< of other texts; its spread is widened to that of the run's texts
    double run_texts = 1;
    model::Routing routing;
    std::string engine = "draftboard-cpu";  ///< EngineSettings::name
    bool rank_alone = false;                ///< one rank of the layout runs without the others
};

struct ConfigurationPrediction {
    model::Scenario scenario;
    sim::Prediction prediction;               ///< rates at the given acceptance length, trees too
    std::vector<sim::SimulatedPass> passes;
};

[[nodiscard]] model::Expected<ConfigurationPrediction> predict_configuration(const SuiteConfiguration& configuration,
                                                                             backend::Inference& inference,
                                                                             const PredictionInputs& inputs);

/// The speculation that a run uses, for the planner: method, depth, tree, and an EAGLE-3 head as its folder describes it.
[[nodiscard]] model::Expected<model::Speculation> speculation_of(const SuiteConfiguration& configuration,
                                                                 backend::Inference& inference);

}  // namespace draftboard::calibration
