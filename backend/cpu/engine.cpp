// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/engine.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

namespace draftboard::backend::cpu {

using model::ErrorCode;
using model::Pass;

Engine::Engine(PlannedModel planned, const EngineOptions& options, Team& team)
    : backend::Engine(std::move(planned), SequenceTable(options.sequences, options.max_length)),
      team_(&team),
      rank_options_{options.all_reduce, options.expand_latents_in_prefill} {
    ranks_.resize(static_cast<std::size_t>(team.ranks()));
    times_.resize(ranks_.size());
}

model::Expected<std::unique_ptr<Engine>> Engine::create(PlannedModel planned, const EngineOptions& options,
                                                        const std::function<model::Expected<ModelWeights>(int rank)>& weights,
                                                        Team& team) {
    if (options.sequences < 1 || options.max_length < 1) {
        return model::fail(ErrorCode::invalid_input, "an engine needs at least one sequence of at least one token", "engine",
                           "give positive counts");
    }
    if (planned.shape.layout.tensor != team.ranks()) {
        return model::fail(ErrorCode::invalid_input,
                           fmt::format("the layout has {} ranks, the team {}", planned.shape.layout.tensor, team.ranks()), "engine",
                           "make both the same");
    }
    std::unique_ptr<Engine> engine(new Engine(std::move(planned), options, team));
    std::vector<std::optional<model::Error>> errors(engine->ranks_.size());
    team.run([&](int rank) {
        auto loaded = weights(rank);
        if (!loaded) {
            errors[static_cast<std::size_t>(rank)] = loaded.error();
            return;
        }
        engine->ranks_[static_cast<std::size_t>(rank)] = std::make_unique<Rank>(
            engine->shape_, engine->rank_options_, rank, std::move(*loaded), options.sequences, options.max_length, team.communicator());
    });
    for (const auto& error : errors) {
        if (error) return tl::unexpected(*error);
    }
    return engine;
}

std::int64_t Engine::fused_columns() const {
    const auto& fusion = ranks_.front()->weights().fusion;
    return fusion ? fusion->projection.columns : 0;
}

std::vector<int> Engine::target_of_draft() const {
    const auto& fusion = ranks_.front()->weights().fusion;
    return fusion ? fusion->target_of_draft : std::vector<int>{};
}

void Engine::clear(int sequence) {
    table_.clear(sequence);
    for (auto& rank : ranks_) rank->clear(sequence);
}

model::Expected<const CompiledPass<Rank>*> Engine::compiled(Pass pass, int sequences, int tokens) {
    return passes_.find(pass, sequences, tokens, shape_,
                        [&](Pass of, int count, int rows) { return plan(of, count, rows, 0); });
}

model::Expected<void> Engine::forward(const Batch& batch, std::span<const int> logits_rows, ForwardOutput& output) {
    const std::int64_t tokens = ranks_.front()->weights().embedding->rows * team_->ranks();
    if (auto checked = table_.check(batch, logits_rows, tokens, feature_width(batch.pass)); !checked) return checked;
    auto pass = compiled(batch.pass, static_cast<int>(batch.sequences.size()), batch.tokens);
    if (!pass) return tl::unexpected(pass.error());
    const PassRows& rows = table_.lay_out(batch, logits_rows);

    const std::size_t count = batch.token_ids.size();
    const auto width = static_cast<std::size_t>(shape_.architecture.hidden);
    output.rows = static_cast<int>(rows.logits_rows.size());
    output.logits.resize(rows.logits_rows.size() * static_cast<std::size_t>(vocabulary()));
    output.hidden.resize(count * width);
    output.features.resize(count * width * shape_.feature_layers.size());
    const PassResults results{output.logits.data(), output.hidden.data(),
                              shape_.feature_layers.empty() ? nullptr : output.features.data(), routing_};
    const PassResults none;
    const std::int64_t begin = profile_ != nullptr ? now_ns() : 0;
    if (profile_ != nullptr) {
        for (auto& times : times_) times.assign((*pass)->plan.operations.size(), {});
    }
    team_->run([&](int rank) {
        const auto r = static_cast<std::size_t>(rank);
        ranks_[r]->commit(table_.pending());
        ranks_[r]->run((*pass)->program, rows, rank == 0 ? results : none,
                       profile_ != nullptr ? std::span<OperationTime>(times_[r]) : std::span<OperationTime>());
    });
    table_.pending_taken();
    if (profile_ != nullptr) {
        std::int64_t commit_ns = 0;
        for (const auto& rank : ranks_) commit_ns += rank->commit_ns();
        record((*pass)->plan, rows, times_, commit_ns, static_cast<double>(now_ns() - begin) * 1e-3);
    }
    table_.ran(batch);
    return {};
}

}  // namespace draftboard::backend::cpu
