// SPDX-License-Identifier: Apache-2.0
// Engines from checkpoints; declared in engine.h.
#include <memory>
#include <utility>

#include "backend/cpu/engine.h"

namespace draftboard::backend::cpu {

namespace {

model::Layout layout_of(const EngineOptions& options, int ranks) {
    model::Layout layout;
    layout.tensor = ranks;
    layout.expert = options.expert_parallel ? ranks : 1;
    return layout;
}

}  // namespace

model::Expected<std::unique_ptr<Engine>> load_target(const Checkpoint& checkpoint, const EngineOptions& options, Team& team) {
    auto planned = plan_target(checkpoint, layout_of(options, team.ranks()), {}, options.feature_layers);
    if (!planned) return tl::unexpected(planned.error());
    const ModelShape shape = planned->shape;
    return Engine::create(
        std::move(*planned), options,
        [&](int rank) { return load_weights(checkpoint, shape.architecture, shape.numerics, shape.layout, rank); }, team);
}

model::Expected<std::unique_ptr<Engine>> load_mtp_drafter(const Checkpoint& checkpoint, const model::Speculation& speculation,
                                                          const Engine& target, const EngineOptions& options) {
    auto planned = plan_mtp(target.shape(), speculation, checkpoint.path());
    if (!planned) return tl::unexpected(planned.error());
    const ModelShape& shape = target.shape();
    return Engine::create(
        std::move(*planned), options,
        [&](int rank) {
            return load_mtp(checkpoint, shape.architecture, shape.numerics, shape.layout, rank, target.rank(rank).weights());
        },
        target.team());
}

model::Expected<std::unique_ptr<Engine>> load_eagle3_drafter(const Checkpoint& head, const model::Speculation& speculation,
                                                             const Engine& target, const EngineOptions& options) {
    const ModelShape& shape = target.shape();
    auto description = head.eagle3(shape.architecture);
    if (!description) return tl::unexpected(description.error());
    auto planned = plan_eagle3(shape, speculation, std::move(description->numerics), head.path());
    if (!planned) return tl::unexpected(planned.error());
    const model::Architecture architecture = planned->shape.architecture;
    return Engine::create(
        std::move(*planned), options,
        [&](int rank) {
            return load_eagle3(head, architecture, shape.architecture, shape.layout, rank, target.rank(rank).weights());
        },
        target.team());
}

model::Expected<std::unique_ptr<Engine>> load_draft_model(const Checkpoint& checkpoint, const model::Speculation& speculation,
                                                          const Engine& target, const EngineOptions& options) {
    EngineOptions own = options;
    own.feature_layers.clear();
    auto planned = plan_draft_model(checkpoint, target.shape(), speculation, {});
    if (!planned) return tl::unexpected(planned.error());
    const ModelShape shape = planned->shape;
    return Engine::create(
        std::move(*planned), own,
        [&](int rank) { return load_weights(checkpoint, shape.architecture, shape.numerics, shape.layout, rank); }, target.team());
}

model::Expected<std::unique_ptr<Engine>> random_engine(const model::Architecture& architecture, const EngineOptions& options,
                                                       std::uint64_t seed, Team& team) {
    auto planned = plan_target(architecture, {}, layout_of(options, team.ranks()), {}, options.feature_layers);
    if (!planned) return tl::unexpected(planned.error());
    const ModelShape shape = planned->shape;
    return Engine::create(
        std::move(*planned), options, [&](int rank) { return random_weights(shape.architecture, shape.layout, rank, seed); }, team);
}

model::Expected<std::unique_ptr<Engine>> random_drafter_engine(const model::Speculation& speculation, const Engine& target,
                                                               const EngineOptions& options, std::uint64_t seed) {
    const ModelShape& shape = target.shape();
    const bool eagle3 = speculation.method == model::SpeculationMethod::eagle3;
    auto planned = eagle3 ? plan_eagle3(shape, speculation, {}, shape.architecture.name) : plan_mtp(shape, speculation, shape.architecture.name);
    if (!planned) return tl::unexpected(planned.error());
    const model::Architecture architecture = planned->shape.architecture;
    return Engine::create(
        std::move(*planned), options,
        [&](int rank) {
            const ModelWeights& lender = target.rank(rank).weights();
            return eagle3 ? random_eagle3(architecture, static_cast<int>(shape.feature_layers.size()), shape.architecture, shape.layout, rank,
                                          seed, lender)
                          : random_mtp(shape.architecture, shape.layout, rank, seed, lender);
        },
        target.team());
}

}  // namespace draftboard::backend::cpu
