// SPDX-License-Identifier: Apache-2.0
#include "planning/scenario_variants.h"

#include "calibration/cost_constants.h"
#include "model/acceptance_json.h"

namespace draftboard::planning {

std::string SharedConstants::key(const model::Scenario& scenario) {
    return scenario.directory + '\n' + scenario.calibration + '\n' + scenario.machine.calibration + '\n' +
           scenario.collective_calibration + '\n' + scenario.machine.name + '\n' + std::to_string(scenario.layout.tensor);
}

model::Expected<std::shared_ptr<const SharedConstants::Entry>> SharedConstants::of(const model::Scenario& scenario) {
    const std::lock_guard lock(mutex_);
    auto& entry = entries_[key(scenario)];
    if (!entry) {
        auto constants = calibration::load_cost_constants(scenario, data_directory_);
        if (!constants) return tl::unexpected(constants.error());
        entry = std::make_shared<const Entry>(Entry{std::move(*constants), std::make_shared<sim::PassStore>()});
    }
    return entry;
}

model::Expected<BaseDocument> load_base(const std::string& name_or_path, const std::string& data_directory,
                                        const model::Edits& edits) {
    BaseDocument base;
    base.source = name_or_path;
    auto document = model::load_scenario_document(name_or_path, data_directory, edits, base.directory);
    if (!document) return tl::unexpected(document.error());
    base.document = std::move(*document);
    return base;
}

bool pin_acceptance(BaseDocument& base, const std::string& data_directory) {
    const model::Json& acceptance = base.document["speculation"]["acceptance"];
    const auto states = [&](const char* key) { return acceptance.is_object() && acceptance.contains(key); };
    if (!states("acceptance_length") && !states("synthetic_acceptance_length") && !states("rate")) return false;
    const auto scenario = model::scenario_from_document(base.document, base.source, data_directory, base.directory);
    if (!scenario) return false;
    base.document["speculation"]["acceptance"] = model::acceptance_to_json(scenario->speculation.acceptance);
    return true;
}

Variants::Variants(std::shared_ptr<SharedConstants> shared, BaseDocument base)
    : shared_(std::move(shared)), base_(std::move(base)) {
    references_.bare = true;
}

model::Expected<model::Scenario> Variants::scenario(const model::Edits& edits) {
    model::Json document = base_.document;
    for (const std::string& edit : edits) {
        if (auto edited = model::edit_scenario_document(document, edit, shared_->data_directory(), base_.directory); !edited) {
            return tl::unexpected(edited.error());
        }
    }
    return model::scenario_from_document(document, base_.source, shared_->data_directory(), base_.directory, &references_);
}

model::Expected<sim::Prediction> Variants::predict(const model::Scenario& scenario) {
    std::string key = SharedConstants::key(scenario);
    auto predictor = predictors_.find(key);
    if (predictor == predictors_.end()) {
        const auto entry = shared_->of(scenario);
        if (!entry) return tl::unexpected(entry.error());
        predictor = predictors_.try_emplace(std::move(key), (*entry)->constants, (*entry)->store).first;
    }
    return predictor->second.predict(scenario);
}

model::Expected<sim::Prediction> Variants::predict(const model::Edits& edits) {
    const auto changed = scenario(edits);
    if (!changed) return tl::unexpected(changed.error());
    return predict(*changed);
}

}  // namespace draftboard::planning
