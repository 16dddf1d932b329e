// SPDX-License-Identifier: Apache-2.0
// How a pass is launched: eagerly, in captured pieces, or as one graph; and how its operations are timed.
//
// A pass is: one copy of its block of words (and features) to the device, the commits that wait, the program, one copy of its
// results to the host. In a timed pass an event stands before each operation, inside of the graph where there is one.
#include <utility>

#include "backend/cuda/capture_graph.h"
#include "backend/cuda/check.h"
#include "backend/cuda/rank.h"

namespace draftboard::backend::cuda {

Rank::~Rank() {
    if (stream_ != nullptr) cudaStreamSynchronize(stream_);
    captured_.clear();
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

LaunchMode Rank::mode_of(const PassKey& key) const {
    if (key.routing) return LaunchMode::eager;
    switch (key.pass) {
        case model::Pass::decode: return options_.launch.decode;
        case model::Pass::verify: return options_.launch.verify;
        case model::Pass::draft_extend:
        case model::Pass::draft: return options_.launch.draft;
        case model::Pass::prefill: break;
    }
    return LaunchMode::eager;
}

void Rank::mark(std::size_t index) {
    const unsigned flags = capturing_ ? cudaEventRecordExternal : cudaEventRecordDefault;
    check(cudaEventRecordWithFlags(events_[index], stream_, flags), "event");
}

void Rank::enqueue_begin(const PassKey& key) {
    const PassBlock block(key.sequences, key.tokens, key.logits_count, options_.sequences);
    check(cudaMemcpyAsync(words_, host_rows_->words.data(), static_cast<std::size_t>(block.words()) * 4, cudaMemcpyHostToDevice,
                          stream_),
          "rows of a pass");
    if (shape_->kind != ModelKind::model) {
        const bool first = key.pass == model::Pass::draft_extend || key.pass == model::Pass::prefill;
        const std::int64_t width = shape_->kind == ModelKind::eagle3 && first ? weights_.fusion->projection.columns : width_;
        check(cudaMemcpyAsync(features_in_, host_rows_->features.data(), static_cast<std::size_t>(m_ * width) * 4,
                              cudaMemcpyHostToDevice, stream_),
              "features of a pass");
    }
    if (key.timed) mark(0);
    enqueue_before(block.commits(words_));
}

void Rank::enqueue_before(const CommitView& commits) {
    if (key_value_layers_ > 0) commit_caches(commits, caches_on_device_, key_value_layers_, stream_);
    for (std::size_t i = 0; i < delta_nets_.size(); ++i) {
        if (delta_nets_[i].state == nullptr) continue;
        const auto& shape = std::get<model::DeltaNetShape>(shape_->architecture.layers[i].mixer);
        commit_delta_net(commits, delta_net_shape(shape, attention_ranks()), delta_nets_[i], stream_);
    }
    begin_pass(stream_);
}

void Rank::enqueue_operation(const Instruction<Rank>& instruction) {
    layer_ = instruction.layer;
    (this->*instruction.action)();
}

void Rank::enqueue_end(const PassKey& key) {
    if (key.timed) mark(program_->size() + 1);
    if (results_ == nullptr) return;
    const auto to_host = [&](void* to, const void* from, std::int64_t numbers) {
        check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(numbers) * 4, cudaMemcpyDeviceToHost, stream_),
              "results of a pass");
    };
    const std::int64_t rows = key.logits_count;
    if (key.logits_to_host) {
        const bool gathered = communicator_ != nullptr && shape_->layout.tensor > 1;
        to_host(results_->logits.data(), gathered ? all_logits_ : logits_,
                rows * (gathered ? shape_->architecture.vocabulary : weights_.lm_head.rows));
    } else {
        to_host(results_->tokens.data(), best_tokens_, rows * 2);
        to_host(results_->values.data(), best_values_, rows * 2);
        to_host(results_->sums.data(), best_sums_, rows);
    }
    if (options_.outputs_hidden) {
        to_host(results_->hidden.data(), shape_->kind == ModelKind::eagle3 ? hidden_ : normed_, std::int64_t{m_} * width_);
    }
    if (!shape_->feature_layers.empty()) to_host(results_->features.data(), features_, m_ * kept_stride());
}

/// Instructions [first, last), with what comes before the first and after the last of the program.
void Rank::enqueue(const PassKey& key, const CompiledPass& pass, std::size_t first, std::size_t last) {
    if (first == 0) enqueue_begin(key);
    for (std::size_t i = first; i < last; ++i) {
        at_ = i;
        if (key.timed) mark(i + 1);
        enqueue_operation(pass.program[i]);
    }
    if (last == pass.program.size()) enqueue_end(key);
}

CapturedPass::Piece Rank::capture_piece(const PassKey& key, const CompiledPass& pass, std::size_t first, std::size_t last) {
    const cudaGraphExec_t graph = capture_graph(stream_, [&] {
        capturing_ = true;
        try {
            enqueue(key, pass, first, last);
        } catch (...) {
            capturing_ = false;
            throw;
        }
        capturing_ = false;
    });
    return {graph, first, last};
}

bool Rank::wants_capture(const PassKey& key) const {
    if (mode_of(key) == LaunchMode::eager) return false;
    const auto known = captured_.find(key);
    return known != captured_.end() && known->second.runs > 0 && known->second.pieces.empty();
}

void Rank::capture(const PassKey& key, const CompiledPass& pass) {
    set_pass(key, pass, words_);
    std::vector<CapturedPass::Piece>& pieces = captured_[key].pieces;
    if (mode_of(key) == LaunchMode::full) {
        pieces.push_back(capture_piece(key, pass, 0, pass.program.size()));
        return;
    }
    std::size_t first = 0;
    for (std::size_t i = 0; i < pass.program.size(); ++i) {
        const auto operation = static_cast<std::size_t>(pass.program[i].operation);
        if (pass.plan.operations[operation].kind != model::OperationKind::attention) continue;
        if (i > first) pieces.push_back(capture_piece(key, pass, first, i));
        pieces.push_back({nullptr, i, i + 1});
        first = i + 1;
    }
    if (first < pass.program.size()) pieces.push_back(capture_piece(key, pass, first, pass.program.size()));
}

void Rank::set_pass(const PassKey& key, const CompiledPass& pass, const std::int32_t* words) {
    program_ = &pass.program;
    plan_ = &pass.plan;
    pass_ = key.pass;
    m_ = key.sequences * key.tokens;
    visible_ = key.visible;
    logits_to_host_ = key.logits_to_host;
    routing_ = key.routing;
    layer_ = -1;
    moe_layer_ = 0;
    block_pending_ = false;
    norm_done_ = false;
    norms_queries_ = false;
    norm_waits_ = false;
    view_ = PassBlock(key.sequences, key.tokens, key.logits_count, options_.sequences).view(words, !commits_at_once(key.pass));
    while (key.timed && events_.size() < pass.program.size() + 2) check(cudaEventCreate(&events_.emplace_back()), "event");
}

void Rank::enqueue_on_device(const PassKey& key, const CompiledPass& pass, const std::int32_t* words, cudaStream_t stream) {
    // However it ends: a rank that kept another one's stream would destroy it, and not its own.
    struct Borrowed {
        Rank& rank;
        cudaStream_t own;
        ~Borrowed() {
            rank.on_device_ = false;
            rank.stream_ = own;
        }
    };
    const Borrowed borrowed{*this, std::exchange(stream_, stream)};
    on_device_ = true;
    set_pass(key, pass, words);
    enqueue_before(PassBlock(key.sequences, key.tokens, key.logits_count, options_.sequences).commits(words));
    for (at_ = 0; at_ < pass.program.size(); ++at_) enqueue_operation(pass.program[at_]);
}

void Rank::launch(const PassKey& key, const CompiledPass& pass) {
    set_pass(key, pass, words_);
    timed_operations_ = key.timed ? pass.program.size() : 0;
    if (mode_of(key) == LaunchMode::eager) {
        enqueue(key, pass, 0, pass.program.size());
        return;
    }
    CapturedPass& captured = captured_[key];
    if (++captured.runs == 1) {  // modules are loaded and algorithms chosen outside of any capture
        enqueue(key, pass, 0, pass.program.size());
        return;
    }
    for (const CapturedPass::Piece& piece : captured.pieces) {
        if (piece.graph != nullptr) {
            check(cudaGraphLaunch(piece.graph, stream_), "graph launch");
        } else {
            enqueue(key, pass, piece.first, piece.last);
        }
    }
}

model::Expected<void> Rank::finish(std::span<OperationTime> times) {
    if (communicator_ != nullptr) {
        if (auto done = communicator_->wait(index_, stream_); !done) return done;
    } else {
        check(cudaStreamSynchronize(stream_), "a pass");
    }
    if (times.empty() || timed_operations_ == 0) return {};
    const auto between = [&](std::size_t from, std::size_t to) {
        float ms = 0;
        check(cudaEventElapsedTime(&ms, events_[from], events_[to]), "event");
        return static_cast<std::int64_t>(static_cast<double>(ms) * 1e6);
    };
    commit_ns_ = between(0, 1);
    for (std::size_t i = 0; i < timed_operations_; ++i) {
        times[static_cast<std::size_t>((*program_)[i].operation)] = {between(i + 1, i + 2), 0};
    }
    return {};
}

}  // namespace draftboard::backend::cuda
