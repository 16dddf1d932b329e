// SPDX-License-Identifier: Apache-2.0
#include "gui/core/answer.h"

#include <chrono>
#include <optional>

#include "calibration/cost_constants.h"
#include "sim/prediction_report.h"
#include "sim/trace.h"

namespace draftboard::gui {

using Clock = std::chrono::steady_clock;

struct Answerer::Last {
    std::string key;  ///< what selects the constants
    std::optional<sim::Predictor> predictor;
    VariantDocument document;
    model::Scenario scenario;
    sim::Prediction prediction;
};

namespace {

/// All that load_cost_constants() looks at.
std::string constants_key(const model::Json& document, const std::string& directory) {
    return document["machine"].dump() + document["calibration"].dump() + document["collective_calibration"].dump() + directory;
}

std::string name_or(const std::string& name, const char* fallback) { return name.empty() ? fallback : name; }

}  // namespace

Answerer::Answerer(std::string data_directory) : data_directory_(std::move(data_directory)), last_(std::make_unique<Last>()) {}
Answerer::~Answerer() = default;
Answerer::Answerer(Answerer&&) noexcept = default;

model::Expected<void> Answerer::ask(const Variant& variant) {
    auto document = variant_document(variant, data_directory_);
    if (!document) return tl::unexpected(document.error());
    auto scenario = model::scenario_from_document(document->document, variant.base, data_directory_, document->directory);
    if (!scenario) return tl::unexpected(scenario.error());
    const std::string key = constants_key(document->document, document->directory);
    if (!last_->predictor || key != last_->key) {
        auto constants = calibration::load_cost_constants(*scenario, data_directory_);
        if (!constants) return tl::unexpected(constants.error());
        last_->predictor.emplace(std::move(*constants));
        last_->key = key;
    }
    auto prediction = last_->predictor->predict(*scenario);
    if (!prediction) return tl::unexpected(prediction.error());
    last_->document = std::move(*document);
    last_->scenario = std::move(*scenario);
    last_->prediction = std::move(*prediction);
    return {};
}

model::Expected<AnswerPointer> Answerer::answer(const Variant& variant) {
    const auto start = Clock::now();
    if (auto asked = ask(variant); !asked) return tl::unexpected(asked.error());
    const sim::CostConstants& constants = last_->predictor->constants();
    auto out = std::make_shared<Answer>();
    out->variant = variant;
    out->document = last_->document;
    out->scenario = last_->scenario;
    out->prediction = last_->prediction;
    out->passes = last_->predictor->passes();
    out->kernels = name_or(constants.kernel_calibration, "datasheet");
    out->collectives = name_or(constants.collective_calibration, "published constants");
    out->collective_constants = constants.collectives;
    if (auto host = last_->predictor->host_constants(last_->scenario)) out->host = *host;
    out->json = sim::prediction_json(out->scenario, out->prediction, constants)
                    .dump(2, ' ', false, model::Json::error_handler_t::replace);
    out->milliseconds = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    return AnswerPointer(std::move(out));
}

model::Expected<QuickAnswer> Answerer::quick(const Variant& variant) {
    if (auto asked = ask(variant); !asked) return tl::unexpected(asked.error());
    return QuickAnswer{last_->scenario, last_->prediction};
}

model::Expected<sim::Explanation> Answerer::explain() const {
    if (!last_->predictor)
        return model::fail(model::ErrorCode::invalid_input, "nothing has been asked yet", "explain", "open a scenario");
    return sim::explain(last_->scenario, last_->prediction, *last_->predictor, "");
}

std::string Answerer::trace() const {
    return last_->predictor ? sim::chrome_trace(last_->scenario, *last_->predictor) : std::string();
}

}  // namespace draftboard::gui
