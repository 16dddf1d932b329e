// SPDX-License-Identifier: Apache-2.0
// Engines from checkpoints; declared in engine.h.
#include <memory>
#include <utility>

#include "backend/cpu/engine.h"

namespace draftboard::backend::cpu {

namespace {

/// The CPU computes in float: activations and messages are 4 bytes a number, whatever the checkpoint was made for.
model::Architecture in_float(model::Architecture architecture) {
    architecture.activation_format = model::NumberFormat::fp32;
    architecture.kv_format = model::NumberFormat::fp32;
    return architecture;
}

model::Layout layout_of(const EngineOptions& options, int ranks) {
    model::Layout layout;
    layout.tensor = ranks;
    layout.expert = options.expert_parallel ? ranks : 1;
    return layout;
}

model::Expected<ModelShape> shape_of(model::Architecture architecture, Numerics numerics, const EngineOptions& options,
                                     int ranks) {
    ModelShape shape;
    shape.architecture = in_float(std::move(architecture));
    shape.numerics = std::move(numerics);
    shape.layout = layout_of(options, ranks);
    shape.all_reduce = options.all_reduce;
    shape.expand_latents = options.expand_latents_in_prefill;
    shape.feature_layers = options.feature_layers;
    if (const auto problems = shape.layout.validate(shape.architecture); !problems.empty()) {
        return tl::unexpected(to_error(problems, shape.architecture.name));
    }
    return shape;
}

Planner forward_planner(const model::Architecture& architecture, const model::Layout& layout) {
    return [architecture = std::make_shared<model::Architecture>(architecture), layout](const model::Step& step) {
        return model::plan_forward(*architecture, layout, step);
    };
}

/// A drafter that reads the target fills its cache by the call that also drafts: a prefill is a long draft_extend.
Planner draft_planner(const model::Architecture& target, const model::Speculation& speculation, const model::Layout& layout) {
    return [target = std::make_shared<model::Architecture>(target), speculation, layout](const model::Step& step) {
        model::Step call = step;
        if (step.pass == model::Pass::prefill) call.pass = model::Pass::draft_extend;
        return model::plan_draft(*target, speculation, layout, call);
    };
}

/// Shape of a drafter that reads `target`.
ModelShape drafter_shape(ModelKind kind, const Engine& target, const model::Speculation& speculation, Numerics numerics) {
    ModelShape shape = target.shape();
    shape.kind = kind;
    shape.architecture = model::drafter_architecture(target.shape().architecture, speculation);
    shape.numerics = std::move(numerics);
    shape.feature_layers.clear();
    return shape;
}

}  // namespace

model::Expected<std::unique_ptr<Engine>> load_target(const Checkpoint& checkpoint, const EngineOptions& options, Team& team) {
    auto architecture = checkpoint.architecture();
    if (!architecture) return tl::unexpected(architecture.error());
    auto numerics = checkpoint.numerics();
    if (!numerics) return tl::unexpected(numerics.error());
    auto shape = shape_of(std::move(*architecture), std::move(*numerics), options, team.ranks());
    if (!shape) return tl::unexpected(shape.error());
    const ModelShape known = *shape;
    return Engine::create(
        std::move(*shape), options, forward_planner(known.architecture, known.layout),
        [&](int rank) { return load_weights(checkpoint, known.architecture, known.numerics, known.layout, rank); }, team);
}

model::Expected<std::unique_ptr<Engine>> load_mtp_drafter(const Checkpoint& checkpoint, const model::Speculation& speculation,
                                                          const Engine& target, const EngineOptions& options) {
    const ModelShape& target_shape = target.shape();
    if (const auto problems = speculation.validate(target_shape.architecture); !problems.empty()) {
        return tl::unexpected(to_error(problems, checkpoint.path()));
    }
    return Engine::create(
        drafter_shape(ModelKind::mtp, target, speculation, target_shape.numerics), options,
        draft_planner(target_shape.architecture, speculation, target_shape.layout),
        [&](int rank) {
            return load_mtp(checkpoint, target_shape.architecture, target_shape.numerics, target_shape.layout, rank,
                            target.rank(rank).weights());
        },
        target.team());
}

model::Expected<std::unique_ptr<Engine>> load_eagle3_drafter(const Checkpoint& head, const model::Speculation& speculation,
                                                             const Engine& target, const EngineOptions& options) {
    const ModelShape& target_shape = target.shape();
    if (const auto problems = speculation.validate(target_shape.architecture); !problems.empty()) {
        return tl::unexpected(to_error(problems, head.path()));
    }
    auto description = head.eagle3(target_shape.architecture);
    if (!description) return tl::unexpected(description.error());
    ModelShape shape = drafter_shape(ModelKind::eagle3, target, speculation, std::move(description->numerics));
    const model::Architecture architecture = shape.architecture;
    return Engine::create(
        std::move(shape), options, draft_planner(target_shape.architecture, speculation, target_shape.layout),
        [&](int rank) {
            return load_eagle3(head, architecture, target_shape.architecture, target_shape.layout, rank,
                               target.rank(rank).weights());
        },
        target.team());
}

model::Expected<std::unique_ptr<Engine>> load_draft_model(const Checkpoint& checkpoint, const model::Speculation& speculation,
                                                          const Engine& target, const EngineOptions& options) {
    EngineOptions own = options;
    own.feature_layers.clear();
    own.expert_parallel = false;
    auto architecture = checkpoint.architecture();
    if (!architecture) return tl::unexpected(architecture.error());
    auto numerics = checkpoint.numerics();
    if (!numerics) return tl::unexpected(numerics.error());
    auto shape = shape_of(std::move(*architecture), std::move(*numerics), own, target.team().ranks());
    if (!shape) return tl::unexpected(shape.error());
    if (shape->architecture.vocabulary != target.shape().architecture.vocabulary) {
        return model::fail(model::ErrorCode::invalid_input, "the draft model's vocabulary is not the target's", checkpoint.path(),
                           "choose a draft model with the target's tokenizer");
    }
    const ModelShape known = *shape;
    model::Speculation resolved = speculation;
    resolved.draft_architecture = std::make_shared<model::Architecture>(known.architecture);
    if (const auto problems = resolved.validate(target.shape().architecture); !problems.empty()) {
        return tl::unexpected(to_error(problems, checkpoint.path()));
    }
    const Planner forward = forward_planner(known.architecture, known.layout);
    const Planner draft = draft_planner(target.shape().architecture, resolved, target.shape().layout);
    const Planner planner = [forward, draft](const model::Step& step) {
        const bool drafts = step.pass == model::Pass::draft || step.pass == model::Pass::draft_extend;
        return drafts ? draft(step) : forward(step);
    };
    return Engine::create(
        std::move(*shape), own, planner,
        [&](int rank) { return load_weights(checkpoint, known.architecture, known.numerics, known.layout, rank); },
        target.team());
}

}  // namespace draftboard::backend::cpu
