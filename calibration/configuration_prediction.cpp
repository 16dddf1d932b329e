// SPDX-License-Identifier: Apache-2.0
#include "calibration/configuration_prediction.h"

#include <algorithm>
#include <cmath>

#include "calibration/cost_constants.h"
#include "model/eagle3_head.h"

namespace draftboard::calibration {

using model::Expected;
using model::SpeculationMethod;

Expected<model::Speculation> speculation_of(const SuiteConfiguration& configuration, backend::Inference& inference) {
    model::Speculation speculation;
    speculation.method = configuration.method;
    if (configuration.method == SpeculationMethod::none) return speculation;
    speculation.steps = configuration.steps;
    speculation.top_k = configuration.top_k;
    speculation.draft_tokens = configuration.draft_tokens;
    if (configuration.method == SpeculationMethod::eagle3 && configuration.random_weights) {
        speculation.head = model::default_eagle3_head(inference.target().shape().architecture);
    } else if (configuration.method == SpeculationMethod::eagle3) {
        const auto head = backend::Checkpoint::open(inference.settings().draft_model);
        if (!head) return tl::unexpected(head.error());
        auto described = head->eagle3(inference.target().shape().architecture);
        if (!described) return tl::unexpected(described.error());
        speculation.head = described->head;
    }
    return speculation;
}

Expected<ConfigurationPrediction> predict_configuration(const SuiteConfiguration& configuration, backend::Inference& inference,
                                                        const PredictionInputs& inputs) {
    auto speculation = speculation_of(configuration, inference);
    if (!speculation) return tl::unexpected(speculation.error());
    ConfigurationPrediction out;
    model::Scenario& scenario = out.scenario;
    const backend::ModelShape& shape = inference.target().shape();
    scenario.name = configuration.name();
    scenario.architecture = shape.architecture;
    scenario.layout = shape.layout;
    scenario.machine = inputs.machine;
    scenario.calibration = inputs.calibration;
    scenario.speculation = std::move(*speculation);
    scenario.speculation.acceptance = inputs.acceptance.acceptance;
    // A tree's length was measured as a tree's: the model of trees would build it from a chain's rates.
    if (configuration.top_k > 1) scenario.speculation.acceptance.tree_length = std::max(1.0, inputs.acceptance.length);
    // Two samples of texts stand between the two lengths: the one behind the prediction and the run's own.
    const double spread = inputs.acceptance.acceptance.relative_spread;
    scenario.speculation.acceptance.relative_spread =
        std::min(1.0, spread * std::sqrt(1 + inputs.acceptance.texts / std::max(inputs.run_texts, 1.0)));
    scenario.routing = inputs.routing;
    scenario.workload.concurrency = configuration.batch;
    scenario.workload.context_tokens = configuration.context;
    scenario.memory.kv_format = shape.architecture.kv_format;
    scenario.engine.name = inputs.engine;
    if (configuration.launch == "eager") {
        scenario.engine.decode_launch = scenario.engine.verify_launch = scenario.engine.draft_launch = model::LaunchMode::eager;
    }
    // One rank alone stands for a layout that its machine has no room for.
    if (const auto problems = scenario.validate(); !problems.empty() && !inputs.rank_alone) return tl::unexpected(to_error(problems, scenario.name));

    auto constants = load_cost_constants(scenario, inputs.data_directory);
    if (!constants) return tl::unexpected(constants.error());
    constants->rank_alone = inputs.rank_alone;
    sim::Predictor predictor(std::move(*constants));
    auto prediction = predictor.predict(scenario);
    if (!prediction) return tl::unexpected(prediction.error());
    out.prediction = std::move(*prediction);
    out.passes = predictor.passes();
    return out;
}

}  // namespace draftboard::calibration
