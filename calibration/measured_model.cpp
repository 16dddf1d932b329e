// SPDX-License-Identifier: Apache-2.0
#include "calibration/measured_model.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include <fmt/format.h>

#include "model/architecture_library.h"
#include "model/eagle3_head.h"

namespace draftboard::calibration {

using backend::DraftMethod;
using model::Expected;

namespace {

constexpr int kPlannedSteps = 3;  // plans of single passes do not depend on it

std::string without_slash(std::string path) {
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    return path;
}

}  // namespace

MeasuredDevice MeasuredDevice::with_launch(backend::cuda::LaunchMode launch) const {
    MeasuredDevice other = *this;
    other.cuda.launch = {launch, launch, launch};
    return other;
}

MeasuredDevice measured_gpu(int ranks) {
    MeasuredDevice device;
    device.device = backend::Device::cuda;
    device.ranks = ranks;
    device.cuda.bf16_activations = true;
    device.cuda.bf16_cache = true;
    return device;
}

std::string model_name(const std::string& folder) { return std::filesystem::path(without_slash(folder)).filename().string(); }

Expected<DraftMethod> default_draft_method(const std::string& folder) {
    std::error_code ec;
    if (std::filesystem::exists(without_slash(folder) + "-eagle3/config.json", ec)) return DraftMethod::eagle3;
    auto checkpoint = backend::Checkpoint::open(folder);
    if (!checkpoint) return tl::unexpected(checkpoint.error());
    const auto architecture = checkpoint->architecture();
    if (!architecture) return tl::unexpected(architecture.error());
    return architecture->mtp.empty() ? DraftMethod::none : DraftMethod::mtp;
}

Expected<MeasuredModel> checkpoint_model(const std::string& folder) {
    const auto method = default_draft_method(folder);
    if (!method) return tl::unexpected(method.error());
    MeasuredModel model;
    model.name = model_name(folder);
    model.folder = folder;
    model.method = *method;
    return model;
}

Expected<MeasuredModel> random_model(const std::string& architecture, int layers, int tensor_rank_of,
                                     const std::string& data_directory) {
    auto found = model::find_architecture(architecture, data_directory);
    if (!found) return tl::unexpected(found.error());
    if (layers < 0 || layers > static_cast<int>(found->layers.size())) {
        return model::fail(model::ErrorCode::invalid_input, fmt::format("the model has {} layers, not {}", found->layers.size(), layers),
                           architecture, "ask for its first ones, or leave the number out");
    }
    MeasuredModel model;
    model.name = model_name(architecture);
    if (layers > 0 && layers < static_cast<int>(found->layers.size())) {
        found->layers.resize(static_cast<std::size_t>(layers));
        model.name += fmt::format(" L{}", layers);
    }
    if (tensor_rank_of > 1) model.name += fmt::format(" 1of{}", tensor_rank_of);
    model.tensor_rank_of = tensor_rank_of > 1 ? tensor_rank_of : 0;
    model.method = found->mtp.empty() ? DraftMethod::eagle3 : DraftMethod::mtp;
    model.architecture = std::move(*found);
    return model;
}

backend::InferenceSettings settings_of(const MeasuredModel& model, const MeasuredDevice& device) {
    backend::InferenceSettings settings;
    settings.model = model.architecture ? model.name : model.folder;
    settings.synthetic = model.architecture;
    settings.method = model.method;
    settings.device = device.device;
    settings.ranks = device.ranks;
    settings.cuda = device.cuda;
    settings.cuda.tensor_rank_of = model.tensor_rank_of;
    return settings;
}

Expected<model::Plan> MeasuredPlanners::plan(bool of_drafter, model::Pass pass, int sequences, int tokens, std::int64_t context) const {
    if (of_drafter && !drafter) {
        return model::fail(model::ErrorCode::not_found, "the model has no drafter to plan for", target.shape.architecture.name);
    }
    const backend::PlannedModel& planned = of_drafter ? *drafter : target;
    return backend::plan_pass(planned, pass, sequences, tokens, context);
}

Expected<MeasuredPlanners> planners_of(const MeasuredModel& model, const MeasuredDevice& device) {
    model::Layout layout;
    layout.tensor = model.tensor_rank_of > 0 ? model.tensor_rank_of : device.ranks;
    const bool bf16 = device.is_gpu() && device.cuda.bf16_activations;
    const bool bf16_cache = device.is_gpu() && device.cuda.bf16_cache;
    const backend::ComputeFormats formats{bf16 ? model::NumberFormat::bf16 : model::NumberFormat::fp32,
                                          bf16_cache ? model::NumberFormat::bf16 : model::NumberFormat::fp32};
    model::Speculation speculation;
    speculation.steps = kPlannedSteps;
    speculation.draft_tokens = kPlannedSteps + 1;
    MeasuredPlanners planners;
    if (model.architecture) {
        auto target = backend::plan_target(*model.architecture, {}, layout, formats, {});
        if (!target) return tl::unexpected(target.error());
        planners.target = std::move(*target);
        if (model.method == DraftMethod::none) return planners;
        const bool eagle3 = model.method == DraftMethod::eagle3;
        speculation.method = eagle3 ? model::SpeculationMethod::eagle3 : model::SpeculationMethod::mtp;
        if (eagle3) speculation.head = model::default_eagle3_head(*model.architecture);
        auto drafter = eagle3 ? backend::plan_eagle3(planners.target.shape, speculation, {}, model.name)
                              : backend::plan_mtp(planners.target.shape, speculation, model.name);
        if (!drafter) return tl::unexpected(drafter.error());
        planners.drafter = std::move(*drafter);
        return planners;
    }
    auto checkpoint = backend::Checkpoint::open(model.folder);
    if (!checkpoint) return tl::unexpected(checkpoint.error());
    auto target = backend::plan_target(*checkpoint, layout, formats, {});
    if (!target) return tl::unexpected(target.error());
    planners.target = std::move(*target);
    if (model.method == DraftMethod::mtp) {
        speculation.method = model::SpeculationMethod::mtp;
        auto drafter = backend::plan_mtp(planners.target.shape, speculation, model.folder);
        if (!drafter) return tl::unexpected(drafter.error());
        planners.drafter = std::move(*drafter);
    } else if (model.method == DraftMethod::eagle3) {
        auto head = backend::Checkpoint::open(without_slash(model.folder) + "-eagle3");
        if (!head) return tl::unexpected(head.error());
        auto described = head->eagle3(planners.target.shape.architecture);
        if (!described) return tl::unexpected(described.error());
        speculation.method = model::SpeculationMethod::eagle3;
        speculation.head = described->head;
        auto drafter = backend::plan_eagle3(planners.target.shape, speculation, std::move(described->numerics), model.folder);
        if (!drafter) return tl::unexpected(drafter.error());
        planners.drafter = std::move(*drafter);
    }
    return planners;
}

Expected<std::vector<EngineMeasuredPass>> planned_passes(const std::vector<MeasuredModel>& models, MeasuredDevice device,
                                                         const EngineMeasurements& measurements) {
    std::map<std::pair<std::string, int>, MeasuredPlanners> planners;
    std::vector<EngineMeasuredPass> passes;
    for (const auto& [key, samples] : measurements.passes) {
        const auto bar = key.model.find('/');
        const std::string name = key.model.substr(0, bar);
        const auto found = std::find_if(models.begin(), models.end(), [&](const MeasuredModel& one) { return one.name == name; });
        if (found == models.end()) continue;
        auto at = planners.find({name, key.ranks});
        if (at == planners.end()) {
            device.ranks = key.ranks;
            auto made = planners_of(*found, device);
            if (!made) return tl::unexpected(made.error());
            at = planners.emplace(std::pair(name, key.ranks), std::move(*made)).first;
        }
        const auto context = static_cast<std::int64_t>(median_of(samples.context) + 0.5);
        auto plan = at->second.plan(bar != std::string::npos, key.pass, key.sequences, key.tokens, context);
        if (!plan) return tl::unexpected(plan.error());
        passes.push_back(measured_pass(key, samples, std::move(*plan)));
    }
    return passes;
}

}  // namespace draftboard::calibration
