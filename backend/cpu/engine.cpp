// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/engine.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

namespace draftboard::backend::cpu {

namespace {

using model::ErrorCode;
using model::Pass;

/// Rows of these passes are committed as they come.
bool commits_at_once(Pass pass) { return pass == Pass::prefill || pass == Pass::decode; }

}  // namespace

Engine::Engine(ModelShape shape, const EngineOptions& options, Planner planner, Team& team)
    : shape_(std::move(shape)), planner_(std::move(planner)), team_(&team), max_length_(options.max_length) {
    ranks_.resize(static_cast<std::size_t>(team.ranks()));
    times_.resize(ranks_.size());
    sequences_.resize(static_cast<std::size_t>(options.sequences));
}

model::Expected<std::unique_ptr<Engine>> Engine::create(ModelShape shape, const EngineOptions& options, Planner planner,
                                                        const std::function<model::Expected<ModelWeights>(int rank)>& weights,
                                                        Team& team) {
    if (options.sequences < 1 || options.max_length < 1) {
        return model::fail(ErrorCode::invalid_input, "an engine needs at least one sequence of at least one token", "engine",
                           "give positive counts");
    }
    if (shape.layout.tensor != team.ranks()) {
        return model::fail(ErrorCode::invalid_input,
                           fmt::format("the layout has {} ranks, the team {}", shape.layout.tensor, team.ranks()), "engine",
                           "make both the same");
    }
    std::unique_ptr<Engine> engine(new Engine(std::move(shape), options, std::move(planner), team));
    std::vector<std::optional<model::Error>> errors(engine->ranks_.size());
    team.run([&](int rank) {
        auto loaded = weights(rank);
        if (!loaded) {
            errors[static_cast<std::size_t>(rank)] = loaded.error();
            return;
        }
        engine->ranks_[static_cast<std::size_t>(rank)] = std::make_unique<Rank>(
            engine->shape_, rank, std::move(*loaded), options.sequences, options.max_length, team.communicator());
    });
    for (const auto& error : errors) {
        if (error) return tl::unexpected(*error);
    }
    return engine;
}

int Engine::feature_width(Pass pass) const {
    if (shape_.kind == ModelKind::model) return 0;
    // EAGLE-3: auxiliary states of the target in the first call of a cycle, the head's own hidden state in the others.
    const bool first = pass == Pass::draft_extend || pass == Pass::prefill;
    if (shape_.kind == ModelKind::eagle3 && first) {
        return static_cast<int>(ranks_.front()->weights().fusion->projection.columns);
    }
    return shape_.architecture.hidden;
}

std::int64_t Engine::length(int sequence) const { return sequences_[static_cast<std::size_t>(sequence)].committed; }

int Engine::uncommitted(int sequence) const {
    return static_cast<int>(sequences_[static_cast<std::size_t>(sequence)].parents.size());
}

void Engine::discard(int sequence) {
    Sequence& state = sequences_[static_cast<std::size_t>(sequence)];
    state.parents.clear();
    state.depths.clear();
}

void Engine::clear(int sequence) {
    discard(sequence);
    sequences_[static_cast<std::size_t>(sequence)].committed = 0;
    std::erase_if(pending_, [&](const PendingCommit& pending) { return pending.slot == sequence; });
    for (auto& rank : ranks_) rank->clear(sequence);
}

void Engine::commit(int sequence, std::span<const int> path) {
    Sequence& state = sequences_[static_cast<std::size_t>(sequence)];
    if (!path.empty()) pending_.push_back({sequence, state.committed, {path.begin(), path.end()}});
    state.committed += static_cast<std::int64_t>(path.size());
    discard(sequence);
}

model::Expected<model::Plan> Engine::plan(Pass pass, int sequences, int tokens, std::int64_t context) const {
    model::Step step;
    step.pass = pass;
    step.sequences = sequences;
    step.tokens = tokens;
    step.context = context;
    step.kv_format = model::NumberFormat::fp32;
    return planner_(step);
}

model::Expected<const Engine::CompiledPass*> Engine::compiled(Pass pass, int sequences, int tokens) {
    const std::tuple<Pass, int, int> key{pass, sequences, tokens};
    if (const auto found = passes_.find(key); found != passes_.end()) return &found->second;
    auto planned = plan(pass, sequences, tokens, 0);
    if (!planned) return tl::unexpected(planned.error());
    auto program = Rank::compile(*planned, shape_);
    if (!program) return tl::unexpected(program.error());
    return &passes_.emplace(key, CompiledPass{std::move(*planned), std::move(*program)}).first->second;
}

model::Expected<void> Engine::check(const Batch& batch, std::span<const int> logits_rows) const {
    const auto refuse = [](std::string message, std::string hint) {
        return model::fail(ErrorCode::invalid_input, std::move(message), "engine", std::move(hint));
    };
    const std::size_t count = batch.sequences.size() * static_cast<std::size_t>(std::max(batch.tokens, 0));
    if (count == 0 || batch.token_ids.size() != count || (!batch.parents.empty() && batch.parents.size() != count)) {
        return refuse("a batch's tokens or parents are not sequences x tokens", "give one token for each row");
    }
    if (!logits_rows.empty() && logits_rows.size() != batch.sequences.size()) {
        return refuse("the rows whose logits are wanted are not one a sequence", "give one row a sequence, or none");
    }
    for (const int row : logits_rows) {
        if (row < 0 || row >= batch.tokens) return refuse("a row whose logits are wanted is not there", "count from 0");
    }
    const auto width = static_cast<std::size_t>(feature_width(batch.pass));
    if (batch.features.size() != count * width) {
        return refuse(fmt::format("a batch brings {} feature numbers, {} are needed", batch.features.size(), count * width),
                      "give one row of features for each token");
    }
    for (const int token : batch.token_ids) {
        if (token < 0 || token >= ranks_.front()->weights().embedding->rows * team_->ranks()) {
            return refuse(fmt::format("token {} is outside of the vocabulary", token),
                          fmt::format("tokens go from 0 to {}", ranks_.front()->weights().embedding->rows * team_->ranks() - 1));
        }
    }
    std::vector<bool> seen(sequences_.size());
    for (std::size_t s = 0; s < batch.sequences.size(); ++s) {
        const int slot = batch.sequences[s];
        if (slot < 0 || slot >= capacity() || seen[static_cast<std::size_t>(slot)]) {
            return refuse(fmt::format("sequence {} is not there or given twice", slot),
                          fmt::format("sequences go from 0 to {}", capacity() - 1));
        }
        seen[static_cast<std::size_t>(slot)] = true;
        const Sequence& state = sequences_[static_cast<std::size_t>(slot)];
        const auto rows = static_cast<std::int64_t>(state.parents.size());
        if (state.committed + rows + batch.tokens > max_length_) {
            return model::fail(ErrorCode::too_large,
                               fmt::format("sequence {} would grow to {} tokens, room is for {}", slot,
                                           state.committed + rows + batch.tokens, max_length_),
                               "engine", "raise the maximum length, or stop earlier");
        }
        if (commits_at_once(batch.pass) && (rows > 0 || !batch.parents.empty())) {
            return refuse("a pass that commits its rows follows uncommitted ones", "commit or discard them first");
        }
        for (int t = 0; t < batch.tokens && !batch.parents.empty(); ++t) {
            const int parent = batch.parents[s * static_cast<std::size_t>(batch.tokens) + static_cast<std::size_t>(t)];
            if (parent < -1 || parent >= rows + t) return refuse("a row's parent does not come before it", "order rows by depth");
        }
    }
    return {};
}

void Engine::lay_out_rows(const Batch& batch, std::span<const int> logits_rows) {
    rows_.pass = batch.pass;
    rows_.sequences = static_cast<int>(batch.sequences.size());
    rows_.tokens = batch.tokens;
    rows_.slots = batch.sequences;
    rows_.token_ids = batch.token_ids;
    rows_.features = batch.features.empty() ? nullptr : batch.features.data();
    rows_.committed.clear();
    rows_.first_row.clear();
    rows_.parents.clear();
    rows_.positions.clear();
    rows_.logits_rows.clear();
    const bool all_logits = batch.pass == Pass::decode || batch.pass == Pass::verify || batch.pass == Pass::draft;
    for (std::size_t s = 0; s < batch.sequences.size(); ++s) {
        Sequence& state = sequences_[static_cast<std::size_t>(batch.sequences[s])];
        const auto first = static_cast<int>(state.parents.size());
        const int base = static_cast<int>(s) * batch.tokens;
        for (int t = 0; t < batch.tokens; ++t) {
            const std::int32_t parent =
                batch.parents.empty() ? first + t - 1 : batch.parents[static_cast<std::size_t>(base + t)];
            const std::int32_t depth = parent < 0 ? 0 : state.depths[static_cast<std::size_t>(parent)] + 1;
            state.parents.push_back(parent);
            state.depths.push_back(depth);
            rows_.positions.push_back(state.committed + depth);
            if (all_logits) rows_.logits_rows.push_back(base + t);
        }
        if (!all_logits) rows_.logits_rows.push_back(base + (logits_rows.empty() ? batch.tokens - 1 : logits_rows[s]));
        rows_.committed.push_back(state.committed);
        rows_.first_row.push_back(first);
        rows_.parents.push_back(state.parents.data());
    }
}

model::Expected<void> Engine::forward(const Batch& batch, std::span<const int> logits_rows, ForwardOutput& output) {
    if (auto checked = check(batch, logits_rows); !checked) return checked;
    auto pass = compiled(batch.pass, static_cast<int>(batch.sequences.size()), batch.tokens);
    if (!pass) return tl::unexpected(pass.error());
    lay_out_rows(batch, logits_rows);

    const std::size_t count = batch.token_ids.size();
    const auto width = static_cast<std::size_t>(shape_.architecture.hidden);
    output.rows = static_cast<int>(rows_.logits_rows.size());
    output.logits.resize(rows_.logits_rows.size() * static_cast<std::size_t>(vocabulary()));
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
        ranks_[r]->commit(pending_);
        ranks_[r]->run((*pass)->program, rows_, rank == 0 ? results : none,
                       profile_ != nullptr ? std::span<OperationTime>(times_[r]) : std::span<OperationTime>());
    });
    pending_.clear();
    if (profile_ != nullptr) {
        profile_->pass(batch.pass, rows_.sequences, rows_.tokens, (*pass)->plan.operations.size())
            .total_us.push_back(static_cast<float>(now_ns() - begin) * 1e-3f);
        record(**pass);
    }
    if (commits_at_once(batch.pass)) {
        for (const int slot : batch.sequences) {
            sequences_[static_cast<std::size_t>(slot)].committed += batch.tokens;
            discard(slot);
        }
    }
    return {};
}

void Engine::record(const CompiledPass& compiled) {
    PassSamples& samples = profile_->pass(rows_.pass, rows_.sequences, rows_.tokens, compiled.plan.operations.size());
    double context = 0;
    for (const std::int64_t committed : rows_.committed) context += static_cast<double>(committed);
    samples.context_sum += context / rows_.sequences;
    ++samples.count;
    const float share = 1e-3f / static_cast<float>(times_.size());
    for (std::size_t i = 0; i < compiled.plan.operations.size(); ++i) {
        std::int64_t busy = 0;
        std::int64_t wait = 0;
        for (const auto& times : times_) {
            busy += times[i].total_ns - times[i].wait_ns;
            wait += times[i].wait_ns;
        }
        if (compiled.plan.operations[i].role == "delta_net.rollback") {
            busy = 0;
            for (const auto& rank : ranks_) busy += rank->commit_ns();
        }
        samples.operations[i].us.push_back(static_cast<float>(busy) * share);
        samples.operations[i].wait_us.push_back(static_cast<float>(wait) * share);
    }
}

}  // namespace draftboard::backend::cpu
