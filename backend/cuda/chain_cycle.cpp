// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/chain_cycle.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "backend/cuda/attention.h"
#include "backend/cuda/capture_graph.h"
#include "backend/cuda/chain_rows.h"
#include "backend/cuda/check.h"
#include "backend/cuda/elementwise.h"

namespace draftboard::backend::cuda {

using model::ErrorCode;
using model::Expected;
using model::Pass;

namespace {

tl::unexpected<model::Error> failed_before() {
    return model::fail(ErrorCode::unavailable, "an earlier cycle failed, and the ranks are no longer in step", "cycle",
                       "start again");
}

void to_device(std::int32_t* to, std::span<const std::int32_t> words) {
    check(cudaMemcpy(to, words.data(), words.size_bytes(), cudaMemcpyHostToDevice), "words of a cycle");
    // A copy from pageable memory may still be on its way when the call returns, and streams of ranks do not wait for it.
    check(cudaStreamSynchronize(nullptr), "words of a cycle");
}

}  // namespace

ChainCycle::ChainCycle(Engine& target, Engine* drafter, int steps)
    : target_(&target), drafter_(drafter), width_(drafter == nullptr ? 1 : steps + 1) {
    ranks_.resize(static_cast<std::size_t>(target.group().ranks()));
}

Expected<std::unique_ptr<ChainCycle>> ChainCycle::create(Engine& target, Engine* drafter, int steps) {
    if (drafter != nullptr && (steps < 1 || steps - 1 > kMaxFurtherSteps)) {
        return model::fail(ErrorCode::unsupported, fmt::format("a fused cycle drafts 1 .. {} tokens", kMaxFurtherSteps + 1),
                           "steps");
    }
    if (drafter != nullptr) {
        const ModelShape& shape = drafter->shape();
        const bool recurrent = std::ranges::any_of(shape.architecture.layers, [](const model::Layer& layer) {
            return std::holds_alternative<model::DeltaNetShape>(layer.mixer);
        });
        if (shape.kind == ModelKind::model || recurrent) {
            return model::fail(ErrorCode::unsupported,
                               "a fused cycle drafts with an EAGLE-3 head or an MTP module of attention layers",
                               shape.architecture.name);
        }
        const std::int64_t states =
            shape.kind == ModelKind::eagle3
                ? std::int64_t{target.hidden()} * static_cast<std::int64_t>(target.shape().feature_layers.size())
                : target.hidden();
        if (drafter->feature_width(Pass::draft_extend) != states) {
            return model::fail(ErrorCode::invalid_input, "the target gives no states of the width that the drafter reads",
                               shape.architecture.name);
        }
    }
    std::unique_ptr<ChainCycle> cycle(new ChainCycle(target, drafter, steps));
    auto taken = target.group().run([&](int rank) -> Expected<void> {
        cycle->take_memory(rank);
        return {};
    });
    if (!taken) return tl::unexpected(taken.error());
    return cycle;
}

ChainCycle::~ChainCycle() {
    (void)target_->group().run([&](int rank) -> Expected<void> {
        OfRank& mine = ranks_[static_cast<std::size_t>(rank)];
        cudaStreamSynchronize(target_->rank(rank).stream());
        for (auto& [key, graph] : mine.graphs) cudaGraphExecDestroy(graph);
        for (cudaEvent_t event : mine.events) {
            if (event != nullptr) cudaEventDestroy(event);
        }
        mine = {};
        return {};
    });
}

int ChainCycle::most_sequences() const {
    const auto most = [&](const Engine& engine) { return std::min(engine.capacity(), engine.options().max_rows / width_); };
    return drafter_ == nullptr ? most(*target_) : std::min(most(*target_), most(*drafter_));
}

void ChainCycle::take_memory(int rank) {
    OfRank& mine = ranks_[static_cast<std::size_t>(rank)];
    const int sequences = most_sequences();
    const std::int64_t rows = std::int64_t{sequences} * width_;
    const std::int64_t words = PassBlock::most_words(target_->options().max_rows, target_->capacity());
    mine.verify = DeviceBuffer<std::int32_t>(words);
    mine.record = DeviceBuffer<std::int32_t>(rows + sequences);
    mine.gaps = DeviceBuffer<float>(rows);
    mine.lengths = DeviceBuffer<std::int32_t>(3 * sequences + rows);
    if (drafter_ != nullptr) {
        const std::int64_t own = PassBlock::most_words(drafter_->options().max_rows, drafter_->capacity());
        mine.extend = DeviceBuffer<std::int32_t>(own);
        for (int step = 0; step < width_ - 2; ++step) mine.drafts.emplace_back(own);
        const std::vector<int> map = drafter_->target_of_draft();
        if (!map.empty()) {
            mine.target_of_draft = DeviceBuffer<std::int32_t>(static_cast<std::int64_t>(map.size()));
            to_device(mine.target_of_draft.data(), map);
        }
    }
    for (cudaEvent_t& event : mine.events) check(cudaEventCreate(&event), "event");
    if (rank != 0) return;
    for (int parity = 0; parity < 2; ++parity) {
        records_[static_cast<std::size_t>(parity)] = PinnedBuffer<std::int32_t>(rows + sequences);
        gaps_[static_cast<std::size_t>(parity)] = PinnedBuffer<float>(rows);
    }
}

Expected<void> ChainCycle::compile() {
    const int sequences = static_cast<int>(slots_.size());
    const auto take = [](const CompiledPass*& into, Expected<const CompiledPass*> pass) -> Expected<void> {
        if (!pass) return tl::unexpected(pass.error());
        into = *pass;
        return {};
    };
    if (auto ok = take(verify_pass_, target_->compiled(width_ > 1 ? Pass::verify : Pass::decode, sequences, width_)); !ok)
        return ok;
    if (drafter_ == nullptr) return {};
    if (auto ok = take(extend_pass_, drafter_->compiled(Pass::draft_extend, sequences, width_)); !ok) return ok;
    return width_ > 2 ? take(draft_pass_, drafter_->compiled(Pass::draft, sequences, 1)) : Expected<void>{};
}

PassKey ChainCycle::key(const Engine& engine, Pass pass, int tokens, int logits) const {
    PassKey key;
    key.pass = pass;
    key.sequences = static_cast<int>(slots_.size());
    key.tokens = tokens;
    key.logits_count = logits;
    key.visible = std::min(visible_, engine.max_length());  // what its workspaces are for
    key.logits_to_host = false;
    return key;
}

void ChainCycle::lay_out(int rank, const Proposal& proposal) {
    OfRank& mine = ranks_[static_cast<std::size_t>(rank)];
    const auto lay = [](const ChainRows& laid, std::span<const PendingCommit> pending, int capacity,
                        const DeviceBuffer<std::int32_t>& to) {
        to_device(to.data(), laid.words(pending, capacity));
        return laid.block(capacity).writable(to.data());
    };
    ChainState& state = mine.state;
    state = {};
    state.sequences = static_cast<int>(slots_.size());
    state.width = width_;
    state.verify = lay(VerifyRows(slots_, committed_, proposal.token_ids, width_), target_->table().pending(),
                       target_->capacity(), mine.verify);
    std::int32_t* lengths = mine.lengths.data();
    const int most = most_sequences();
    state.drafted = lengths;
    state.kept = lengths + most;
    state.draft_source = lengths + 2 * most;
    state.extend_source = lengths + 3 * most;
    state.record = mine.record.data();
    state.gaps = mine.gaps.data();
    if (drafter_ == nullptr) return;

    state.extend = lay(ChainRows(Pass::draft_extend, slots_, width_, 0, false), {}, drafter_->capacity(), mine.extend);
    for (int step = 0; step < width_ - 2; ++step) {
        state.drafts[step] = lay(ChainRows(Pass::draft, slots_, 1, step, true), {}, drafter_->capacity(),
                                 mine.drafts[static_cast<std::size_t>(step)]);
    }
    std::vector<std::int32_t> drafted;
    std::vector<std::int32_t> kept;
    for (const int slot : slots_) {
        drafted.push_back(static_cast<std::int32_t>(drafter_->length(slot)));
        kept.push_back(rows_that_wait(drafter_->table().pending(), slot));
    }
    to_device(state.drafted, drafted);
    to_device(state.kept, kept);
}

Expected<void> ChainCycle::begin(std::span<const DraftSequence> sequences, const Proposal& proposal) {
    if (proposal.width != width_ || static_cast<int>(sequences.size()) > most_sequences()) {
        return model::fail(ErrorCode::invalid_input, "the proposal does not go with a fused cycle", "cycle");
    }
    if (failed_) return failed_before();
    slots_.clear();
    committed_.clear();
    drafted_.clear();
    kept_.assign(sequences.size(), 0);
    for (const DraftSequence& sequence : sequences) {
        slots_.push_back(sequence.slot);
        committed_.push_back(target_->length(sequence.slot));
        drafted_.push_back(drafter_ == nullptr ? 0 : drafter_->length(sequence.slot));
    }
    if (auto ok = compile(); !ok) {
        slots_.clear();
        return ok;
    }
    auto laid = target_->group().run([&](int rank) -> Expected<void> {
        check(cudaStreamSynchronize(target_->rank(rank).stream()), "a pass");
        if (drafter_ != nullptr) check(cudaStreamSynchronize(drafter_->rank(rank).stream()), "a pass");
        target_->clear_states(rank);
        lay_out(rank, proposal);
        ranks_[static_cast<std::size_t>(rank)].runs = 0;
        return {};
    });
    if (!laid) return fail(laid.error());
    target_->states_cleared();
    target_->table().pending_taken();
    if (drafter_ != nullptr) drafter_->table().pending_taken();
    if (auto launched = launch_all(); !launched) return fail(launched.error());
    return {};
}

tl::unexpected<model::Error> ChainCycle::fail(model::Error error) {
    failed_ = true;
    slots_.clear();
    target_->stop();
    if (drafter_ != nullptr) drafter_->stop();
    return tl::unexpected(std::move(error));
}

void ChainCycle::enqueue(int rank, int parity, bool capturing) {
    OfRank& mine = ranks_[static_cast<std::size_t>(rank)];
    Rank& target = target_->rank(rank);
    const cudaStream_t stream = target.stream();
    const ChainState& state = mine.state;
    const int sequences = state.sequences;
    const unsigned flags = capturing ? cudaEventRecordExternal : cudaEventRecordDefault;
    const auto mark = [&](std::size_t event) { check(cudaEventRecordWithFlags(mine.events[event], stream, flags), "event"); };

    mark(0);
    target.enqueue_on_device(key(*target_, width_ > 1 ? Pass::verify : Pass::decode, width_, sequences * width_), *verify_pass_,
                             mine.verify.data(), stream);
    accept_chain(state, {target.best_tokens(), target.best_values(), target.best_sums()}, stream);
    mark(1);
    if (drafter_ != nullptr) {
        Rank& drafter = drafter_->rank(rank);
        const bool eagle3 = drafter_->shape().kind == ModelKind::eagle3;
        const int width = drafter_->hidden();
        const std::int64_t read = drafter_->feature_width(Pass::draft_extend);
        const std::int32_t* map = mine.target_of_draft.data();
        gather_rows(eagle3 ? target.features() : target.states(), read, state.extend_source, sequences * width_,
                    drafter.features_in(), stream);
        drafter.enqueue_on_device(key(*drafter_, Pass::draft_extend, width_, sequences), *extend_pass_, mine.extend.data(),
                                  stream);
        take_draft(state, 0, drafter.best_tokens(), map, stream);
        for (int step = 0; step < width_ - 2; ++step) {
            if (step == 0) {
                gather_rows(drafter.states(), width, state.draft_source, sequences, drafter.features_in(), stream);
            } else {
                copy_rows(drafter.states(), width, sequences, width, drafter.features_in(), width, stream);
            }
            drafter.enqueue_on_device(key(*drafter_, Pass::draft, 1, sequences), *draft_pass_,
                                      mine.drafts[static_cast<std::size_t>(step)].data(), stream);
            take_draft(state, step + 1, drafter.best_tokens(), map, stream);
        }
    }
    if (rank == 0) {
        const auto to_host = [&](void* to, const void* from, int numbers) {
            check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(numbers) * 4, cudaMemcpyDeviceToHost, stream),
                  "record of a cycle");
        };
        to_host(records_[static_cast<std::size_t>(parity)].data(), state.record, sequences * (1 + width_));
        to_host(gaps_[static_cast<std::size_t>(parity)].data(), state.gaps, sequences * width_);
    }
    mark(2);
}

bool ChainCycle::wants_capture() const {
    const OfRank& first = ranks_.front();
    return first.runs > 0 && !first.graphs.contains({first.state.sequences, visible_, in_flight_});
}

void ChainCycle::capture(int rank) {
    OfRank& mine = ranks_[static_cast<std::size_t>(rank)];
    const cudaGraphExec_t graph = capture_graph(target_->rank(rank).stream(), [&] { enqueue(rank, in_flight_, true); });
    mine.graphs.emplace(std::tuple{mine.state.sequences, visible_, in_flight_}, graph);
}

Expected<void> ChainCycle::launch_all() {
    const std::int64_t longest = *std::ranges::max_element(committed_);
    visible_ = visible_bucket(most_chain_rows(longest, width_), kSplit, target_->max_length());
    if (wants_capture()) {  // all ranks before any of them launches: see Rank::wants_capture()
        auto captured = target_->group().run([&](int rank) -> Expected<void> {
            capture(rank);
            return {};
        });
        if (!captured) return captured;
    }
    return target_->group().run([&](int rank) -> Expected<void> {
        OfRank& mine = ranks_[static_cast<std::size_t>(rank)];
        ++mine.runs;
        const auto known = mine.graphs.find({mine.state.sequences, visible_, in_flight_});
        if (known == mine.graphs.end()) {
            enqueue(rank, in_flight_, false);
        } else {
            check(cudaGraphLaunch(known->second, target_->rank(rank).stream()), "graph launch");
        }
        return {};
    });
}

Expected<std::span<const CycleOutcome>> ChainCycle::step(bool launch_next, CycleTimes& times) {
    if (failed_) return failed_before();
    const auto index = static_cast<std::size_t>(in_flight_);
    auto waited = target_->group().run([&](int rank) -> Expected<void> {
        if (auto done = target_->group().wait(rank, target_->rank(rank).stream()); !done) return done;
        if (rank != 0) return {};
        const OfRank& first = ranks_.front();
        float verify = 0;
        float draft = 0;
        check(cudaEventElapsedTime(&verify, first.events[0], first.events[1]), "event");
        check(cudaEventElapsedTime(&draft, first.events[1], first.events[2]), "event");
        times = {verify, draft};
        return {};
    });
    if (!waited) return fail(waited.error());
    if (launch_next) {  // before anything is read: the device needs nothing of the host
        in_flight_ = 1 - in_flight_;
        if (auto ok = launch_all(); !ok) return fail(ok.error());
    }
    outcomes_.resize(slots_.size());
    for (std::size_t s = 0; s < slots_.size(); ++s) {
        const std::int32_t* record = records_[index].data() + s * static_cast<std::size_t>(1 + width_);
        const float* gaps = gaps_[index].data() + s * static_cast<std::size_t>(width_);
        CycleOutcome& outcome = outcomes_[s];
        outcome.choices.clear();
        for (int row = 0; row <= record[0]; ++row) outcome.choices.push_back({record[1 + row], static_cast<double>(gaps[row])});
        drafted_[s] += kept_[s];
        kept_[s] = record[0] + 1;
        committed_[s] += kept_[s];
    }
    return std::span<const CycleOutcome>(outcomes_);
}

Expected<void> ChainCycle::leave(std::span<const int> slots, ForwardOutput& output) {
    if (failed_ && !slots.empty()) return failed_before();
    const std::size_t rows = slots_.size() * static_cast<std::size_t>(width_);
    for (std::size_t s = 0; s < slots_.size(); ++s) {
        if (std::ranges::find(slots, slots_[s]) == slots.end()) continue;
        if (width_ == 1) {
            target_->table().set_length(slots_[s], committed_[s]);
            continue;
        }
        // The rows of the last verify pass wait for the next one to commit them; the drafter is to run them again.
        std::vector<int> path(static_cast<std::size_t>(kept_[s]));
        for (std::size_t row = 0; row < path.size(); ++row) path[row] = static_cast<int>(row);
        target_->table().set_length(slots_[s], committed_[s] - kept_[s]);
        target_->commit(slots_[s], path);
        drafter_->table().set_length(slots_[s], drafted_[s]);
    }
    output.rows = static_cast<int>(rows);
    output.logits.clear();
    output.choices.clear();
    output.hidden.clear();
    output.features.clear();
    slots_.clear();
    if (drafter_ == nullptr || slots.empty()) return {};
    const bool eagle3 = drafter_->shape().kind == ModelKind::eagle3;
    std::vector<float>& states = eagle3 ? output.features : output.hidden;
    states.resize(rows * static_cast<std::size_t>(drafter_->feature_width(Pass::draft_extend)));
    return target_->group().run([&](int rank) -> Expected<void> {
        if (rank != 0) return {};
        const Rank& target = target_->rank(0);
        check(cudaMemcpy(states.data(), eagle3 ? target.features() : target.states(), states.size() * sizeof(float),
                         cudaMemcpyDeviceToHost),
              "states of a cycle");
        return {};
    });
}

}  // namespace draftboard::backend::cuda
