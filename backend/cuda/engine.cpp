// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "backend/cuda/attention.h"
#include "backend/cuda/check.h"
#include "backend/cuda/device_affinity.h"

namespace draftboard::backend::cuda {

using model::ErrorCode;
using model::Expected;
using model::Pass;

// Ranks of a box -----------------------------------------------------------------------------------------------

RankGroup::RankGroup(std::vector<int> devices)
    : devices_(std::move(devices)), team_(static_cast<int>(devices_.size()), false), outcomes_(devices_.size()) {}

Expected<std::unique_ptr<RankGroup>> RankGroup::create(const CudaSettings& settings, std::int64_t max_count) {
    // Ranks that share a GPU need a hardware queue each, and kernels that are loaded before one of them waits for the other:
    // loading one may wait for the device. Both are read when CUDA starts, so this does nothing where something ran before.
    if (settings.share_device) {
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
        setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    }
    int present = 0;
    if (const cudaError_t status = cudaGetDeviceCount(&present); status != cudaSuccess || present == 0) {
        cudaGetLastError();
        return model::fail(ErrorCode::unavailable, "there is no GPU to run on", "CUDA",
                           fmt::format("the runtime says: {}; run with --device cpu", cudaGetErrorString(status)));
    }
    std::vector<int> devices = settings.devices;
    if (devices.empty()) {
        devices.resize(static_cast<std::size_t>(settings.ranks));
        if (!settings.share_device) std::iota(devices.begin(), devices.end(), 0);
    }
    if (devices.size() != static_cast<std::size_t>(settings.ranks)) {
        return model::fail(ErrorCode::invalid_input,
                           fmt::format("{} devices are named for {} ranks", devices.size(), settings.ranks), "devices");
    }
    for (const int device : devices) {
        if (device >= 0 && device < present) continue;
        return model::fail(ErrorCode::unavailable, fmt::format("{} GPUs are wanted, {} are here", settings.ranks, present),
                           "CUDA", "run fewer ranks, or several on one GPU with --share-gpu");
    }
    std::unique_ptr<RankGroup> group(new RankGroup(devices));
    if (settings.ranks > 1) {
        CommunicatorOptions options;
        options.devices = devices;
        options.format = settings.bf16_activations ? MessageFormat::bf16 : MessageFormat::fp32;
        options.cutoffs = {settings.host_staged_up_to, settings.one_shot_up_to, settings.two_shot_up_to};
        options.peer_access = settings.peer_access;
        options.max_count = max_count;
        options.nccl_algorithm = settings.nccl_algorithm;
        options.nccl_protocol = settings.nccl_protocol;
        options.nccl_channels = settings.nccl_channels;
        options.timeout_s = settings.timeout_s;
        auto made = Communicator::create(std::move(options));
        if (!made) return tl::unexpected(made.error());
        group->communicator_ = std::move(*made);
    }
    auto bound = group->run([&](int rank) -> Expected<void> {
        bind_near_device(group->devices_[static_cast<std::size_t>(rank)]);
        return {};
    });
    if (!bound) return tl::unexpected(bound.error());
    return group;
}

Expected<void> RankGroup::run(const std::function<Expected<void>(int rank)>& job) {
    team_.run([&](int rank) {
        const auto r = static_cast<std::size_t>(rank);
        try {
            check(cudaSetDevice(devices_[r]), "device");
            outcomes_[r] = job(rank);
        } catch (const std::exception& error) {
            outcomes_[r] = model::fail(ErrorCode::unavailable, error.what(), fmt::format("rank {} (GPU {})", rank, devices_[r]));
        }
    });
    for (const auto& outcome : outcomes_) {
        if (!outcome) return tl::unexpected(outcome.error());
    }
    return {};
}

Expected<void> RankGroup::wait(int rank, cudaStream_t stream) {
    if (communicator_ != nullptr) return communicator_->wait(rank, stream);
    check(cudaStreamSynchronize(stream), "a pass");
    return {};
}

// The engine ---------------------------------------------------------------------------------------------------

Engine::Engine(PlannedModel planned, const RankOptions& options, RankGroup& group)
    : backend::Engine(std::move(planned), SequenceTable(options.sequences, options.max_length, kMaxUncommitted)),
      options_(options),
      group_(&group) {
    ranks_.resize(static_cast<std::size_t>(group.ranks()));
    times_.resize(ranks_.size());
    for (const model::Layer& layer : shape_.architecture.layers) {
        if (const model::MoeFeedForward* moe = model::moe_of(layer)) routed_numbers_ += static_cast<int>(moe->experts_per_token);
    }
}

Engine::~Engine() {
    // Graphs and memory go on the thread and device that made them.
    (void)group_->run([&](int rank) -> Expected<void> {
        ranks_[static_cast<std::size_t>(rank)].reset();
        return {};
    });
}

Expected<std::unique_ptr<Engine>> Engine::create(PlannedModel planned, const RankOptions& options, const LoadWeights& weights,
                                                 const Engine* lender, RankGroup& group) {
    if (options.sequences < 1 || options.max_length < 1 || options.max_rows < 1) {
        return model::fail(ErrorCode::invalid_input, "an engine needs at least one sequence of at least one token", "engine",
                           "give positive counts");
    }
    if (group.ranks() > 1 && planned.shape.layout.tensor != group.ranks()) {
        return model::fail(ErrorCode::invalid_input,
                           fmt::format("the layout has {} ranks, the box {}", planned.shape.layout.tensor, group.ranks()),
                           "engine");
    }
    std::unique_ptr<Engine> engine(new Engine(std::move(planned), options, group));
    auto made = group.run([&](int rank) -> Expected<void> {
        const auto r = static_cast<std::size_t>(rank);
        auto loaded = weights(rank);
        if (!loaded) return tl::unexpected(loaded.error());
        if (rank == 0) {
            engine->host_rows_.features = PinnedBuffer<float>(
                loaded->fusion ? options.max_rows * std::max<std::int64_t>(loaded->fusion->projection.columns, engine->hidden())
                               : 0);
        }
        DeviceWeights on_device(std::move(*loaded), lender == nullptr ? nullptr : &lender->rank(rank).weights(),
                                static_cast<std::uint64_t>(rank) + 1);
        engine->ranks_[r] = std::make_unique<Rank>(engine->shape_, options, rank, std::move(on_device), group.communicator(),
                                                   engine->host_rows_, rank == 0 ? &engine->results_ : nullptr);
        if (rank == 0) engine->take_pinned();
        return {};
    });
    if (!made) return tl::unexpected(made.error());
    return engine;
}

void Engine::take_pinned() {
    const std::int64_t rows = options_.max_rows;
    host_rows_.words = PinnedBuffer<std::int32_t>(PassBlock::most_words(options_.max_rows, options_.sequences));
    results_.logits = PinnedBuffer<float>(rows * shape_.architecture.vocabulary);
    results_.hidden = PinnedBuffer<float>(options_.outputs_hidden ? rows * hidden() : 0);
    results_.features = PinnedBuffer<float>(rows * hidden() * static_cast<std::int64_t>(shape_.feature_layers.size()));
    results_.tokens = PinnedBuffer<std::int32_t>(rows * 2);
    results_.values = PinnedBuffer<float>(rows * 2);
    results_.sums = PinnedBuffer<float>(rows);
    results_.routing = PinnedBuffer<std::int32_t>(rows * routed_numbers_);
}

int Engine::vocabulary() const {
    // A rank of a layout whose others are not there knows its own share alone.
    const bool alone = shape_.layout.tensor > 1 && group_->ranks() == 1;
    return alone ? static_cast<int>(ranks_.front()->weights().lm_head.rows) : backend::Engine::vocabulary();
}

std::int64_t Engine::fused_columns() const {
    const auto& fusion = ranks_.front()->weights().fusion;
    return fusion ? fusion->projection.columns : 0;
}

std::vector<int> Engine::target_of_draft() const {
    const auto& fusion = ranks_.front()->weights().host().fusion;
    std::vector<int> tokens = fusion ? fusion->target_of_draft : std::vector<int>{};
    if (!tokens.empty()) tokens.resize(static_cast<std::size_t>(vocabulary()));  // a rank alone has the first ones
    return tokens;
}

void Engine::clear(int sequence) {
    table_.clear(sequence);
    to_clear_.push_back(sequence);
}

void Engine::clear_states(int rank) {
    for (const int sequence : to_clear_) ranks_[static_cast<std::size_t>(rank)]->clear(sequence);
}

Expected<const CompiledPass*> Engine::compiled(Pass pass, int sequences, int tokens) {
    return passes_.find(pass, sequences, tokens, shape_,
                        [&](Pass of, int count, int rows) { return plan(of, count, rows, 0); });
}

Expected<void> Engine::forward(const Batch& batch, std::span<const int> logits_rows, ForwardOutput& output) {
    if (failed_) {
        return model::fail(ErrorCode::unavailable, "an earlier pass failed, and the ranks are no longer in step", "engine",
                           "start again");
    }
    const std::int64_t tokens = ranks_.front()->weights().embedding.rows * shape_.layout.tensor;
    if (auto checked = table_.check(batch, logits_rows, tokens, feature_width(batch.pass)); !checked) return checked;
    if (batch.token_ids.size() > static_cast<std::size_t>(options_.max_rows)) {
        return model::fail(
            ErrorCode::too_large,
            fmt::format("a pass of {} rows; the engine has room for {}", batch.token_ids.size(), options_.max_rows), "engine",
            "run smaller batches, or prefill in shorter chunks");
    }
    auto pass = compiled(batch.pass, static_cast<int>(batch.sequences.size()), batch.tokens);
    if (!pass) return tl::unexpected(pass.error());
    const PassRows& rows = table_.lay_out(batch, logits_rows);

    PassKey key;
    key.pass = batch.pass;
    key.sequences = rows.sequences;
    key.tokens = rows.tokens;
    key.logits_count = static_cast<int>(rows.logits_rows.size());
    key.visible = visible_bucket(most_visible(rows), kSplit, max_length());
    key.logits_to_host = !batch.greedy;
    key.timed = profile_ != nullptr;
    key.routing = routing_ != nullptr;
    PassBlock(key.sequences, key.tokens, key.logits_count, options_.sequences)
        .fill(rows, table_.pending(), host_rows_.words.data());
    if (rows.features != nullptr) std::ranges::copy(batch.features, host_rows_.features.data());
    for (auto& times : times_) times.assign(key.timed ? (*pass)->plan.operations.size() : 0, {});

    if (ranks_.front()->wants_capture(key)) {
        auto captured = group_->run([&](int rank) -> Expected<void> {
            ranks_[static_cast<std::size_t>(rank)]->capture(key, **pass);
            return {};
        });
        if (!captured) {
            failed_ = true;
            return captured;
        }
    }
    const auto begin = std::chrono::steady_clock::now();
    auto ran = group_->run([&](int rank) {
        const auto r = static_cast<std::size_t>(rank);
        clear_states(rank);
        ranks_[r]->launch(key, **pass);
        return ranks_[r]->finish(times_[r]);
    });
    states_cleared();
    table_.pending_taken();
    if (!ran) {
        failed_ = true;
        return ran;
    }
    if (key.timed) {
        const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
        std::int64_t commit_ns = 0;
        for (const auto& rank : ranks_) commit_ns += rank->commit_ns();
        record((*pass)->plan, rows, times_, commit_ns, took.count());
    }
    read_back(key, output);
    table_.ran(batch);
    return {};
}

void Engine::read_back(const PassKey& key, ForwardOutput& output) {
    const auto logits = static_cast<std::size_t>(key.logits_count);
    const auto rows = static_cast<std::size_t>(key.sequences) * static_cast<std::size_t>(key.tokens);
    output.rows = key.logits_count;
    output.logits.clear();
    output.choices.clear();
    if (key.logits_to_host) {
        const float* from = results_.logits.data();
        output.logits.assign(from, from + logits * static_cast<std::size_t>(vocabulary()));
    } else {
        for (std::size_t i = 0; i < logits; ++i) {
            const float best = results_.values.data()[2 * i];
            const float next = results_.values.data()[2 * i + 1];
            // A sum that is no number: some logit was none.
            const bool usable = std::isfinite(best) && std::isfinite(results_.sums.data()[i]);
            output.choices.push_back(
                {usable ? results_.tokens.data()[2 * i] : -1, static_cast<double>(best) - static_cast<double>(next)});
        }
    }
    const auto take = [](std::vector<float>& to, const PinnedBuffer<float>& from, std::size_t count) {
        to.assign(from.data(), from.data() + (from.size() == 0 ? 0 : count));
    };
    take(output.hidden, results_.hidden, rows * static_cast<std::size_t>(hidden()));
    take(output.features, results_.features, rows * static_cast<std::size_t>(hidden()) * shape_.feature_layers.size());
    if (routing_ == nullptr) return;
    const std::int32_t* chosen = results_.routing.data();
    std::transform(chosen, chosen + rows * static_cast<std::size_t>(routed_numbers_), std::back_inserter(*routing_),
                   [](std::int32_t expert) { return static_cast<std::uint16_t>(expert); });
}

}  // namespace draftboard::backend::cuda
