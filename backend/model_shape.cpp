// SPDX-License-Identifier: Apache-2.0
#include "backend/model_shape.h"

#include <memory>
#include <utility>

namespace draftboard::backend {

using model::ErrorCode;
using model::Expected;

namespace {

Planner forward_planner(const ModelShape& shape) {
    return [architecture = std::make_shared<model::Architecture>(shape.architecture),
            layout = shape.layout](const model::Step& step) { return model::plan_forward(*architecture, layout, step); };
}

/// A drafter that reads the target fills its cache by the call that also drafts: a prefill is a long draft_extend.
Planner draft_planner(const ModelShape& target, const model::Speculation& speculation) {
    return [architecture = std::make_shared<model::Architecture>(target.architecture), speculation,
            layout = target.layout](const model::Step& step) {
        model::Step call = step;
        if (step.pass == model::Pass::prefill) call.pass = model::Pass::draft_extend;
        return model::plan_draft(*architecture, speculation, layout, call);
    };
}

Expected<PlannedModel> plan_reader(ModelKind kind, const ModelShape& target, const model::Speculation& speculation,
                                   Numerics numerics, const std::string& name) {
    if (const auto problems = speculation.validate(target.architecture); !problems.empty()) {
        return tl::unexpected(model::to_error(problems, name));
    }
    ModelShape shape = target;
    shape.kind = kind;
    shape.architecture = model::drafter_architecture(target.architecture, speculation);
    shape.numerics = std::move(numerics);
    shape.feature_layers.clear();
    return PlannedModel{std::move(shape), draft_planner(target, speculation)};
}

}  // namespace

int rotary_dim(const model::Architecture& architecture) {
    for (const model::Layer& layer : architecture.layers) {
        if (const auto* latent = std::get_if<model::MlaShape>(&layer.mixer)) return latent->qk_rope_head_dim;
        if (const auto* grouped = std::get_if<model::GqaShape>(&layer.mixer)) return grouped->rotary_dim;
    }
    return 0;
}

model::Step step_of(const ModelShape& shape, model::Pass pass, int sequences, int tokens, std::int64_t context) {
    model::Step step;
    step.pass = pass;
    step.sequences = sequences;
    step.tokens = tokens;
    step.context = context;
    step.kv_format = shape.architecture.kv_format;
    return step;
}

Expected<model::Plan> plan_pass(const PlannedModel& planned, model::Pass pass, int sequences, int tokens, std::int64_t context) {
    return planned.planner(step_of(planned.shape, pass, sequences, tokens, context));
}

Expected<PlannedModel> plan_target(model::Architecture architecture, Numerics numerics, const model::Layout& layout,
                                   const ComputeFormats& formats, std::vector<int> feature_layers) {
    architecture.activation_format = formats.activations;
    architecture.kv_format = formats.cache;
    if (const auto problems = layout.validate(architecture); !problems.empty()) {
        return tl::unexpected(model::to_error(problems, architecture.name));
    }
    PlannedModel planned{{ModelKind::model, std::move(architecture), std::move(numerics), layout, std::move(feature_layers)}, {}};
    planned.planner = forward_planner(planned.shape);
    return planned;
}

Expected<PlannedModel> plan_target(const Checkpoint& checkpoint, const model::Layout& layout, const ComputeFormats& formats,
                                   std::vector<int> feature_layers) {
    auto architecture = checkpoint.architecture();
    if (!architecture) return tl::unexpected(architecture.error());
    auto numerics = checkpoint.numerics();
    if (!numerics) return tl::unexpected(numerics.error());
    return plan_target(std::move(*architecture), std::move(*numerics), layout, formats, std::move(feature_layers));
}

Expected<PlannedModel> plan_mtp(const ModelShape& target, const model::Speculation& speculation, const std::string& name) {
    return plan_reader(ModelKind::mtp, target, speculation, target.numerics, name);
}

Expected<PlannedModel> plan_eagle3(const ModelShape& target, const model::Speculation& speculation, Numerics numerics,
                                   const std::string& name) {
    return plan_reader(ModelKind::eagle3, target, speculation, std::move(numerics), name);
}

Expected<PlannedModel> plan_draft_model(const Checkpoint& checkpoint, const ModelShape& target,
                                        const model::Speculation& speculation, const ComputeFormats& formats) {
    model::Layout layout;
    layout.tensor = target.layout.tensor;
    auto planned = plan_target(checkpoint, layout, formats, {});
    if (!planned) return planned;
    const model::Architecture& own = planned->shape.architecture;
    if (own.vocabulary != target.architecture.vocabulary) {
        return model::fail(ErrorCode::invalid_input, "the draft model's vocabulary is not the target's", checkpoint.path(),
                           "choose a draft model with the target's tokenizer");
    }
    model::Speculation resolved = speculation;
    resolved.draft_architecture = std::make_shared<model::Architecture>(own);
    if (const auto problems = resolved.validate(target.architecture); !problems.empty()) {
        return tl::unexpected(model::to_error(problems, checkpoint.path()));
    }
    planned->planner = [forward = planned->planner, draft = draft_planner(target, resolved)](const model::Step& step) {
        const bool drafts = step.pass == model::Pass::draft || step.pass == model::Pass::draft_extend;
        return drafts ? draft(step) : forward(step);
    };
    return planned;
}

}  // namespace draftboard::backend
