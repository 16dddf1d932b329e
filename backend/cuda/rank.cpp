// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/rank.h"

#include <algorithm>
#include <utility>

#include "backend/cpu/elementwise.h"
#include "backend/cuda/attention.h"
#include "backend/cuda/check.h"
#include "backend/cuda/experts.h"
#include "model/sharding.h"

namespace draftboard::backend::cuda {

namespace {

/// Rows of scratch numbers that the widest layer needs.
struct Widths {
    std::int64_t projected = 1;
    std::int64_t latent = 1;
    std::int64_t query = 1;
    std::int64_t attended = 1;
    std::int64_t padded = 0;
    std::int64_t value = 1;
    std::int64_t activated = 1;
    std::int64_t channels = 1;
    std::int64_t experts = 1;
    std::int64_t chosen = 1;
    std::int64_t expert_width = 1;
    std::int64_t value_heads = 1;  ///< attention's heads, for the workspace
    std::int64_t value_width = 1;
    std::int64_t matrix_columns = 1;
    std::int64_t matrix_rows = 1;
};

void widen(std::int64_t& width, std::int64_t other) { width = std::max(width, other); }

void widen_matrix(Widths& widths, const DeviceMatrix& matrix) {
    widen(widths.matrix_columns, matrix.columns);
    widen(widths.matrix_rows, matrix.rows);
}

void widen_projection(Widths& widths, const DeviceProjection& projection) {
    widen(widths.projected, projection.rows);
    for (const DeviceMatrix& part : projection.parts) widen_matrix(widths, part);
}

void widen_mixer(Widths& widths, const DeviceLayer& layer, const model::TokenMixer& mixer, int ranks) {
    if (const auto* mla = std::get_if<model::MlaShape>(&mixer)) {
        const auto& weights = std::get<DeviceMla>(layer.mixer);
        const std::int64_t heads = mla->heads / ranks;
        widen_projection(widths, weights.qkv_a);
        widen_projection(widths, weights.q_b);
        widen_matrix(widths, weights.o);
        widen(widths.latent, mla->q_lora_rank + mla->kv_lora_rank);
        widen(widths.query, heads * (mla->kv_lora_rank + mla->qk_rope_head_dim));
        widen(widths.attended, heads * mla->kv_lora_rank);
        widen(widths.value, std::max(weights.q_b.rows, heads * mla->v_head_dim));
        widen(widths.value_heads, heads);
        widen(widths.value_width, mla->kv_lora_rank);
    } else if (const auto* gqa = std::get_if<model::GqaShape>(&mixer)) {
        const auto& weights = std::get<DeviceGqa>(layer.mixer);
        const std::int64_t heads = gqa->heads / ranks;
        widen_projection(widths, weights.qkv);
        widen_matrix(widths, weights.o);
        const int padded = padded_head(static_cast<int>(gqa->head_dim));
        widen(widths.query, heads * padded);
        widen(widths.attended, heads * gqa->head_dim);
        widen(widths.padded, padded == gqa->head_dim ? 0 : heads * padded);
        widen(widths.value_heads, heads);
        widen(widths.value_width, padded);
    } else {
        const auto& weights = std::get<DeviceDeltaNet>(layer.mixer);
        const DeltaNetShape shape = delta_net_shape(std::get<model::DeltaNetShape>(mixer), ranks);
        widen_projection(widths, weights.in_proj);
        widen_matrix(widths, weights.out);
        widen(widths.attended, std::int64_t{shape.value_heads} * shape.value_dim);
        widen(widths.channels, shape.channels());
    }
}

void widen_feed_forward(Widths& widths, const DeviceLayer& layer, const model::Layer& shape) {
    const auto dense = [&](const DeviceDense& weights) {
        widen_projection(widths, weights.gate_up);
        widen_matrix(widths, weights.down);
        widen(widths.activated, weights.down.columns);
    };
    if (const auto* only = std::get_if<DeviceDense>(&layer.feed_forward)) {
        dense(*only);
        return;
    }
    const auto& moe = std::get<DeviceMoe>(layer.feed_forward);
    widen_matrix(widths, moe.router);
    widen(widths.experts, moe.router.rows);
    widen(widths.chosen, std::get<model::MoeFeedForward>(shape.feed_forward).experts_per_token);
    widen(widths.expert_width, moe.experts.down.first.columns);
    if (moe.shared) dense(*moe.shared);
}

}  // namespace

Rank::Rank(const ModelShape& shape, const RankOptions& options, int index, DeviceWeights weights, Communicator* communicator,
           const HostRows& rows, HostResults* results)
    : shape_(&shape),
      options_(options),
      index_(index),
      weights_(std::move(weights)),
      communicator_(communicator),
      host_rows_(&rows),
      results_(results),
      width_(shape.architecture.hidden) {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream");
    take_caches();
    take_buffers();
    check(cudaDeviceSynchronize(), "memory of a rank");
}

model::Expected<Program<Rank>> Rank::compile(const model::Plan& plan, const ModelShape& shape) {
    return RoleTable<Rank>::compile(plan, shape, "CUDA");
}

template <class Number>
Number* Rank::take(std::int64_t count) {
    const std::int64_t bytes = std::max<std::int64_t>(count, 1) * static_cast<std::int64_t>(sizeof(Number));
    memory_.emplace_back(bytes);
    check(cudaMemset(memory_.back().data(), 0, static_cast<std::size_t>(bytes)),
          "memory of a rank");  // what pads heads stays zero
    return reinterpret_cast<Number*>(memory_.back().data());
}

void Rank::take_caches() {
    const cpu::RotaryTable rotary(shape_->numerics, rotary_dim(shape_->architecture), options_.max_length);
    softmax_factor_ = rotary.softmax_factor();
    const auto table = [&](const std::vector<float>& values) {
        float* data = take<float>(static_cast<std::int64_t>(values.size()));
        check(cudaMemcpy(data, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice), "rotary table");
        return data;
    };
    rotary_ = {table(rotary.cosines()), table(rotary.sines()), rotary.dim(), rotary.interleaved()};

    const int ranks = attention_ranks();
    const std::int64_t number = options_.cache == CacheFormat::bf16 ? 2 : 4;
    const std::int64_t sequences = options_.sequences;
    std::vector<KeyValueCache> with_keys;
    for (const model::Layer& layer : shape_->architecture.layers) {
        KeyValueCache& cache = caches_.emplace_back();
        DeltaNetCache& net = delta_nets_.emplace_back();
        cache.format = options_.cache;
        if (const auto* delta = std::get_if<model::DeltaNetShape>(&layer.mixer)) {
            const DeltaNetShape sizes = delta_net_shape(*delta, ranks);
            // A tree's rows, or a chain's with the drafts of its drafter; prefills keep none.
            net.snapshots = std::min(kMaxUncommitted, options_.max_rows);
            net.state = take<float>(sequences * sizes.state());
            net.window = take<float>(sequences * (sizes.conv_kernel - 1) * sizes.channels());
            net.snapshot_state = take<float>(sequences * net.snapshots * sizes.state());
            net.snapshot_input = take<float>(sequences * net.snapshots * sizes.channels());
            continue;
        }
        if (const auto* mla = std::get_if<model::MlaShape>(&layer.mixer)) {
            cache.slot_width = mla->kv_lora_rank + mla->qk_rope_head_dim;
        } else {
            const auto& gqa = std::get<model::GqaShape>(layer.mixer);
            cache.slot_width = model::kv_heads_per_rank(gqa.kv_heads, ranks) * padded_head(static_cast<int>(gqa.head_dim));
            cache.values = take<std::byte>(sequences * options_.max_length * cache.slot_width * number);
        }
        cache.sequence_stride = options_.max_length * cache.slot_width;
        cache.keys = take<std::byte>(sequences * cache.sequence_stride * number);
        with_keys.push_back(cache);
    }
    key_value_layers_ = static_cast<int>(with_keys.size());
    auto* on_device = take<KeyValueCache>(key_value_layers_);
    check(cudaMemcpy(on_device, with_keys.data(), with_keys.size() * sizeof(KeyValueCache), cudaMemcpyHostToDevice), "caches");
    caches_on_device_ = on_device;
}

void Rank::take_buffers() {
    Widths widths;
    for (std::size_t i = 0; i < weights_.layers.size(); ++i) {
        widen_mixer(widths, weights_.layers[i], shape_->architecture.layers[i].mixer, attention_ranks());
        widen_feed_forward(widths, weights_.layers[i], shape_->architecture.layers[i]);
    }
    widen_matrix(widths, weights_.lm_head);
    if (weights_.fusion) widen_matrix(widths, weights_.fusion->projection);

    const std::int64_t m = options_.max_rows;
    const std::int64_t vocabulary = shape_->architecture.vocabulary;
    words_ = take<std::int32_t>(PassBlock::most_words(options_.max_rows, options_.sequences));
    features_in_ = take<float>(weights_.fusion ? m * std::max<std::int64_t>(weights_.fusion->projection.columns, width_) : 0);
    hidden_ = take<float>(m * width_);
    embedded_ = take<float>(m * width_);
    normed_ = take<float>(m * 2 * width_);
    block_ = take<float>(m * width_);
    projected_ = take<float>(m * widths.projected);
    latent_ = take<float>(m * widths.latent);
    query_ = take<float>(m * widths.query);
    attended_ = take<float>(m * widths.attended);
    padded_ = take<float>(m * widths.padded);
    value_ = take<float>(m * widths.value);
    activated_ = take<float>(m * widths.activated);
    convolved_ = take<float>(m * widths.channels);
    scores_ = take<float>(m * widths.experts);
    chosen_ = take<std::int32_t>(m * widths.chosen);
    chosen_weights_ = take<float>(m * widths.chosen);
    expert_outputs_ = take<float>(m * widths.chosen * width_);
    shared_ = take<float>(m * width_);
    shared_gate_ = take<float>(m);
    logits_in_ = take<float>(m * width_);
    logits_ = take<float>(m * weights_.lm_head.rows);
    all_logits_ = shape_->layout.tensor > 1 ? take<float>(m * vocabulary) : logits_;
    features_ = take<float>(m * width_ * static_cast<std::int64_t>(shape_->feature_layers.size()));
    best_tokens_ = take<std::int32_t>(m * 2);
    best_values_ = take<float>(m * 2);
    best_sums_ = take<float>(m);
    attention_workspace_ = take<std::byte>(attention_workspace_bytes(static_cast<int>(m), static_cast<int>(widths.value_heads),
                                                                     static_cast<int>(widths.value_width), options_.max_length));
    experts_workspace_ =
        take<std::byte>(experts_workspace_bytes(m * widths.chosen, widths.expert_width, static_cast<int>(widths.experts)));
    dense_ = std::make_unique<DenseMath>(static_cast<int>(m), widths.matrix_columns, widths.matrix_rows, options_.precision,
                                         options_.dense);
}

void Rank::clear(int slot) {
    for (std::size_t i = 0; i < delta_nets_.size(); ++i) {
        const DeltaNetCache& net = delta_nets_[i];
        if (net.state == nullptr) continue;
        const DeltaNetShape sizes =
            delta_net_shape(std::get<model::DeltaNetShape>(shape_->architecture.layers[i].mixer), attention_ranks());
        const std::int64_t window = (sizes.conv_kernel - 1) * sizes.channels();
        check(cudaMemsetAsync(net.state + slot * sizes.state(), 0, static_cast<std::size_t>(sizes.state()) * 4, stream_),
              "clear");
        check(cudaMemsetAsync(net.window + slot * window, 0, static_cast<std::size_t>(window) * 4, stream_), "clear");
    }
}

// Outside of layers ------------------------------------------------------------------------------------------

void Rank::embedding() {
    float* target = shape_->kind == ModelKind::model ? hidden_ : embedded_;
    embed(weights_.embedding, weights_.embedding.rows * index_, view_.token_ids, m_, target, stream_);
    // The first call of a cycle makes its residual stream by eagle3.fc, further steps go on from the head's own.
    if (shape_->kind == ModelKind::eagle3 && pass_ == model::Pass::draft) {
        copy_rows(features_in_, width_, m_, width_, hidden_, width_, stream_);
    }
}

void Rank::embedding_all_reduce() {
    if (communicator_ == nullptr) return;
    float* target = shape_->kind == ModelKind::model ? hidden_ : embedded_;
    communicator_->all_reduce(index_, target, target, std::int64_t{m_} * width_, stream_);
}

void Rank::eagle3_fc() {
    const DeviceMatrix& fc = weights_.fusion->projection;
    dense_->matmul(features_in_, m_, fc.columns, fc, nullptr, hidden_, width_, stream_);
}

void Rank::mtp_norm() {
    const DeviceFusion& fusion = *weights_.fusion;
    rms_norm(embedded_, width_, fusion.embedding_norm, m_, 1, width_, epsilon(), normed_, 2 * width_, stream_);
    rms_norm(features_in_, width_, fusion.hidden_norm, m_, 1, width_, epsilon(), normed_ + width_, 2 * width_, stream_);
}

void Rank::mtp_projection() {
    dense_->matmul(normed_, m_, 2 * width_, weights_.fusion->projection, nullptr, hidden_, width_, stream_);
}

float* Rank::kept_features(int layer) const {
    const auto& wanted = shape_->feature_layers;
    const auto found = std::ranges::find(wanted, layer);
    return found == wanted.end() ? nullptr : features_ + (found - wanted.begin()) * width_;
}

std::int64_t Rank::kept_stride() const { return static_cast<std::int64_t>(shape_->feature_layers.size()) * width_; }

Rank::NormPlace Rank::norm_of(std::string_view role, int layer) const {
    if (role == "final.norm") return {weights_.final_norm, kept_features(static_cast<int>(shape_->architecture.layers.size()))};
    const DeviceLayer& at = weights_.layers[static_cast<std::size_t>(layer)];
    if (role == "mixer.norm") return {at.mixer_norm, kept_features(layer)};
    return {at.feed_forward_norm, nullptr};
}

void Rank::add_norm(const NormPlace& place) {
    if (!norm_done_) {
        add_rms_norm(hidden_, block_pending_ ? block_ : nullptr, place.weight, m_, width_, epsilon(), normed_, width_, place.kept,
                     kept_stride(), stream_);
    }
    norm_done_ = false;
    block_pending_ = false;
}

std::string_view Rank::role_after(std::size_t distance) const {
    const std::size_t at = at_ + distance;
    return at < program_->size() ? plan_->operations[static_cast<std::size_t>((*program_)[at].operation)].role : std::string_view{};
}

ResidualNorm Rank::residual_norm(const NormPlace& place) const {
    return {hidden_, place.weight, epsilon(), normed_, width_, place.kept, kept_stride()};
}

void Rank::block_all_reduce() {
    if (communicator_ == nullptr) return;
    const std::string_view next = role_after(1);
    if (options_.fuse_norm && norms_stream(next)) {
        const NormPlace place = norm_of(next, (*program_)[at_ + 1].layer);
        communicator_->all_reduce_add_norm(index_, block_, hidden_, place.weight, m_, width_, epsilon(), normed_, width_,
                                           place.kept, kept_stride(), stream_);
        norm_done_ = true;
        return;
    }
    communicator_->all_reduce(index_, block_, block_, std::int64_t{m_} * width_, stream_);
}

void Rank::final_norm() { add_norm(norm_of("final.norm", -1)); }

void Rank::lm_head() {
    const float* input = normed_;
    if (view_.logits_count != m_) {
        gather_rows(normed_, width_, view_.logits_rows, view_.logits_count, logits_in_, stream_);
        input = logits_in_;
    }
    dense_->matmul(input, view_.logits_count, width_, weights_.lm_head, nullptr, logits_, weights_.lm_head.rows, stream_);
}

void Rank::logits_all_gather() {
    if (communicator_ == nullptr) return;
    communicator_->all_gather(index_, logits_, view_.logits_count, weights_.lm_head.rows, all_logits_, stream_);
}

void Rank::hand_over() {
    // What the loop chooses from; copied to the host at the end of the pass.
    if (logits_to_host_ || (results_ == nullptr && !on_device_)) return;
    const bool gathered = communicator_ != nullptr && shape_->layout.tensor > 1;
    const std::int64_t vocabulary = gathered ? shape_->architecture.vocabulary : weights_.lm_head.rows;
    cuda::best_tokens(gathered ? all_logits_ : logits_, view_.logits_count, vocabulary, vocabulary, 2, best_tokens_, best_values_,
                      best_sums_, stream_);
}

}  // namespace draftboard::backend::cuda
