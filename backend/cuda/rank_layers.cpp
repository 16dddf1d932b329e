// SPDX-License-Identifier: Apache-2.0
// The layers of a rank: mixers and feed-forward, in the order of cpu/rank_attention.cpp and cpu/rank_feed_forward.cpp. Bytes and
// flops of each operation stand in docs/plan.md; the kernels' own in their headers.
#include <cmath>
#include <utility>

#include "backend/cuda/attention.h"
#include "backend/cuda/check.h"
#include "backend/cuda/experts.h"
#include "backend/cuda/rank.h"
#include "model/sharding.h"

namespace draftboard::backend::cuda {

void Rank::project(const DeviceProjection& projection, const float* x, std::int64_t x_stride, float* y) {
    std::int64_t at = 0;
    for (const DeviceMatrix& part : projection.parts) {
        dense_->matmul(x, m_, x_stride, part, projection.bias == nullptr ? nullptr : projection.bias + at, y + at,
                       projection.rows, stream_);
        at += part.rows;
    }
}

void Rank::mixer_norm() {
    if (shape_->kind == ModelKind::eagle3 && layer_ == 0) {  // embedding and feature, each by its own norm, side by side
        const DeviceFusion& fusion = *weights_.fusion;
        rms_norm(embedded_, width_, fusion.embedding_norm, m_, 1, width_, epsilon(), normed_, 2 * width_, stream_);
        rms_norm(hidden_, width_, fusion.hidden_norm, m_, 1, width_, epsilon(), normed_ + width_, 2 * width_, stream_);
        return;
    }
    add_norm(norm_of("mixer.norm", layer_));
}

// Multi-head latent attention ----------------------------------------------------------------------------------

void Rank::qkv_a_proj() { project(mixer<DeviceMla>().qkv_a, normed_, width_, projected_); }

void Rank::project_part(std::size_t part) {
    const DeviceMla& weights = mixer<DeviceMla>();
    const std::int64_t at = part == 0 ? 0 : weights.part_rows.front();
    dense_->matmul(normed_, m_, width_, weights.qkv_a.parts[part], nullptr, projected_ + at, weights.qkv_a.rows, stream_);
}

void Rank::q_proj() { project_part(0); }

void Rank::kv_a_proj() { project_part(1); }

void Rank::a_norm() {
    const auto& shape = mixer_shape<model::MlaShape>();
    const auto& weights = mixer<DeviceMla>();
    const int rank = static_cast<int>(shape.q_lora_rank);
    const int latent = static_cast<int>(shape.kv_lora_rank);
    const std::int64_t stride = weights.qkv_a.rows;
    const std::int64_t before = stride - latent - shape.qk_rope_head_dim;  // q_a, or the whole q
    if (rank > 0) rms_norm(projected_, stride, weights.q_a_norm, m_, 1, rank, epsilon(), latent_, rank + latent, stream_);
    rms_norm(projected_ + before, stride, weights.kv_a_norm, m_, 1, latent, epsilon(), latent_ + rank, rank + latent, stream_);
}

void Rank::q_b_proj() {
    const auto& shape = mixer_shape<model::MlaShape>();
    project(mixer<DeviceMla>().q_b, latent_, shape.q_lora_rank + shape.kv_lora_rank, value_);
}

const float* Rank::mla_queries(std::int64_t& stride) const {
    const auto& weights = mixer<DeviceMla>();
    const bool low_rank = mixer_shape<model::MlaShape>().q_lora_rank > 0;
    stride = low_rank ? weights.q_b.rows : weights.qkv_a.rows;
    return low_rank ? value_ : projected_;
}

void Rank::absorb_q() {
    // q_nope . W_k^T: one nope x latent matrix a head, so that scores are taken against the latents themselves.
    const auto& shape = mixer_shape<model::MlaShape>();
    const int heads = shape.heads / attention_ranks();
    const std::int64_t width = shape.kv_lora_rank + shape.qk_rope_head_dim;
    std::int64_t stride = 0;
    const float* q = mla_queries(stride);
    head_columns_matmul(q, m_, heads, stride, shape.qk_nope_head_dim + shape.qk_rope_head_dim, mixer<DeviceMla>().kv_b,
                        static_cast<int>(shape.qk_nope_head_dim + shape.v_head_dim), 0, static_cast<int>(shape.qk_nope_head_dim),
                        query_, heads * width, width, stream_);
}

void Rank::mla_rope_cache() {
    const auto& shape = mixer_shape<model::MlaShape>();
    const auto& weights = mixer<DeviceMla>();
    const MlaRows rows{static_cast<int>(shape.heads / attention_ranks()), static_cast<int>(shape.kv_lora_rank),
                       static_cast<int>(shape.qk_rope_head_dim)};
    std::int64_t stride = 0;
    const float* q = mla_queries(stride);
    cuda::mla_rope_cache(view_, rows, q, stride, shape.qk_nope_head_dim + shape.qk_rope_head_dim, shape.qk_nope_head_dim,
                         latent_ + shape.q_lora_rank, shape.q_lora_rank + shape.kv_lora_rank,
                         projected_ + weights.qkv_a.rows - shape.qk_rope_head_dim, weights.qkv_a.rows, rotary_, query_,
                         caches_[static_cast<std::size_t>(layer_)], stream_);
}

void Rank::mla() {
    const auto& shape = mixer_shape<model::MlaShape>();
    const auto scale =
        static_cast<float>(softmax_factor_ / std::sqrt(static_cast<double>(shape.qk_nope_head_dim + shape.qk_rope_head_dim)));
    attend_mla(view_, query_, shape.heads / attention_ranks(), static_cast<int>(shape.kv_lora_rank),
               static_cast<int>(shape.qk_rope_head_dim), scale, caches_[static_cast<std::size_t>(layer_)], visible_, attended_,
               attention_workspace_, stream_);
}

void Rank::absorb_v() {
    const auto& shape = mixer_shape<model::MlaShape>();
    const int heads = shape.heads / attention_ranks();
    head_rows_matmul(attended_, m_, heads, heads * std::int64_t{shape.kv_lora_rank}, shape.kv_lora_rank, mixer<DeviceMla>().kv_b,
                     static_cast<int>(shape.qk_nope_head_dim + shape.v_head_dim), static_cast<int>(shape.qk_nope_head_dim),
                     static_cast<int>(shape.v_head_dim), value_, heads * std::int64_t{shape.v_head_dim}, shape.v_head_dim,
                     stream_);
}

void Rank::mla_o_proj() {
    const DeviceMatrix& o = mixer<DeviceMla>().o;
    dense_->matmul(value_, m_, o.columns, o, nullptr, block_, width_, stream_);
    block_pending_ = true;
}

// Grouped-query attention --------------------------------------------------------------------------------------

GqaRows Rank::gqa_rows() const {
    const auto& shape = mixer_shape<model::GqaShape>();
    GqaRows rows;
    rows.heads = static_cast<int>(shape.heads / attention_ranks());
    rows.kv_heads = static_cast<int>(model::kv_heads_per_rank(shape.kv_heads, attention_ranks()));
    rows.dim = static_cast<int>(shape.head_dim);
    rows.slot_dim = padded_head(rows.dim);
    rows.stride = mixer<DeviceGqa>().qkv.rows;
    rows.q_step = (shape.output_gate ? 2 : 1) * rows.dim;  // with an output gate a head is query | gate
    rows.v_offset = rows.stride - std::int64_t{rows.kv_heads} * rows.dim;
    rows.k_offset = rows.v_offset - std::int64_t{rows.kv_heads} * rows.dim;
    rows.epsilon = epsilon();
    return rows;
}

void Rank::qkv_proj() {
    const bool wide = shape_->kind == ModelKind::eagle3 && layer_ == 0;
    project(mixer<DeviceGqa>().qkv, normed_, wide ? 2 * width_ : width_, projected_);
}

void Rank::qk_norm() { norms_queries_ = true; }  // by the kernel that rotates them

void Rank::gqa_rope_cache() {
    const auto& weights = mixer<DeviceGqa>();
    const bool norms = std::exchange(norms_queries_, false);
    cuda::gqa_rope_cache(view_, projected_, gqa_rows(), norms ? weights.q_norm : nullptr, norms ? weights.k_norm : nullptr,
                         rotary_, query_, caches_[static_cast<std::size_t>(layer_)], stream_);
}

void Rank::gqa() {
    const GqaRows rows = gqa_rows();
    const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(rows.dim)));
    const bool padded = rows.slot_dim != rows.dim;
    float* output = padded ? padded_ : attended_;
    attend_gqa(view_, query_, rows.heads, rows.kv_heads, rows.slot_dim, scale, caches_[static_cast<std::size_t>(layer_)],
               visible_, output, attention_workspace_, stream_);
    if (padded) copy_rows(padded_, rows.slot_dim, m_ * rows.heads, rows.dim, attended_, rows.dim, stream_);
}

void Rank::output_gate() {
    const GqaRows rows = gqa_rows();
    sigmoid_multiply(projected_ + rows.dim, rows.stride, rows.q_step, m_, rows.heads, rows.dim, attended_, stream_);
}

void Rank::gqa_o_proj() {
    const auto& weights = mixer<DeviceGqa>();
    // The bias is added once, by rank 0, before the sum over ranks.
    dense_->matmul(attended_, m_, weights.o.columns, weights.o, index_ == 0 ? weights.o_bias : nullptr, block_, width_, stream_);
    block_pending_ = true;
}

// Gated delta net ----------------------------------------------------------------------------------------------

void Rank::delta_net_in_proj() { project(mixer<DeviceDeltaNet>().in_proj, normed_, width_, projected_); }

void Rank::delta_net_core() {
    const auto& weights = mixer<DeviceDeltaNet>();
    delta_net(view_, delta_net_shape(mixer_shape<model::DeltaNetShape>(), attention_ranks()), projected_, weights.in_proj.rows,
              weights.conv, weights.a_log, weights.dt_bias, delta_nets_[static_cast<std::size_t>(layer_)], convolved_, attended_,
              stream_);
}

void Rank::delta_net_gated_norm() {
    const auto& weights = mixer<DeviceDeltaNet>();
    const DeltaNetShape shape = delta_net_shape(mixer_shape<model::DeltaNetShape>(), attention_ranks());
    gated_rms_norm(attended_, projected_ + shape.channels(), weights.in_proj.rows, weights.norm, m_, shape.value_heads,
                   shape.value_dim, epsilon(), stream_);
}

void Rank::delta_net_out_proj() {
    const DeviceMatrix& out = mixer<DeviceDeltaNet>().out;
    dense_->matmul(attended_, m_, out.columns, out, nullptr, block_, width_, stream_);
    block_pending_ = true;
}

// Feed-forward -------------------------------------------------------------------------------------------------

bool Rank::combine_norms() const {
    std::size_t distance = 0;
    while (!role_after(distance).empty() && role_after(distance) != "moe.combine") ++distance;
    return options_.fuse_norm && norms_stream(role_after(distance + 1)) && can_norm_in_place(width_);
}

void Rank::feed_forward_norm() {
    // The router can take the norm along where its block may go on waiting until the experts are combined.
    norm_waits_ = !norm_done_ && m_ <= kFewRows && role_after(1) == "moe.router_proj" && combine_norms() &&
                  can_score_few_rows(std::get<DeviceMoe>(layer().feed_forward).router);
    if (!norm_waits_) add_norm(norm_of("feed_forward.norm", layer_));
}

void Rank::gate_up_proj() { project(std::get<DeviceDense>(layer().feed_forward).gate_up, normed_, width_, projected_); }

void Rank::activate(const DeviceMatrix& down) {
    silu_multiply(projected_, 2 * down.columns, m_, static_cast<int>(down.columns), activated_, down.columns, stream_);
}

void Rank::activation() { activate(std::get<DeviceDense>(layer().feed_forward).down); }

void Rank::down_proj() {
    const DeviceMatrix& down = std::get<DeviceDense>(layer().feed_forward).down;
    dense_->matmul(activated_, m_, down.columns, down, nullptr, block_, width_, stream_);
    block_pending_ = true;
}

void Rank::router_proj() {
    const DeviceMatrix& router = std::get<DeviceMoe>(layer().feed_forward).router;
    if (m_ > kFewRows || !can_score_few_rows(router)) {
        dense_->matmul(normed_, m_, width_, router, nullptr, scores_, router.rows, stream_);
        return;
    }
    const bool norms = std::exchange(norm_waits_, false);
    ResidualNorm norm = residual_norm(norm_of("feed_forward.norm", layer_));
    if (!norms) norm.weight = nullptr;
    score_few_rows(norm, norms && block_pending_ ? block_ : nullptr, m_, router, scores_, stream_);
}

void Rank::top_k() {
    const auto& shape =
        std::get<model::MoeFeedForward>(shape_->architecture.layers[static_cast<std::size_t>(layer_)].feed_forward);
    RouterRule rule;
    rule.experts = static_cast<int>(shape.experts);
    rule.k = static_cast<int>(shape.experts_per_token);
    rule.sigmoid = shape.scoring == model::RouterScoring::sigmoid;
    rule.groups = static_cast<int>(shape.groups);
    rule.top_groups = static_cast<int>(shape.top_groups);
    rule.normalise = shape_->numerics.normalise_top_k;
    rule.scaling = static_cast<float>(shape_->numerics.routed_scaling);
    rule.correction_bias = std::get<DeviceMoe>(layer().feed_forward).correction_bias;
    route(scores_, m_, rule, chosen_, chosen_weights_, stream_);
    if (routing_ && results_ != nullptr) {
        const std::size_t count = static_cast<std::size_t>(m_) * static_cast<std::size_t>(rule.k);
        std::int32_t* to = results_->routing.data() + static_cast<std::size_t>(moe_layer_) * count;
        check(cudaMemcpyAsync(to, chosen_, count * sizeof(std::int32_t), cudaMemcpyDeviceToHost, stream_), "routing");
    }
    ++moe_layer_;
}

void Rank::experts() {
    const int k = static_cast<int>(
        std::get<model::MoeFeedForward>(shape_->architecture.layers[static_cast<std::size_t>(layer_)].feed_forward)
            .experts_per_token);
    run_experts(normed_, m_, width_, std::get<DeviceMoe>(layer().feed_forward).experts, chosen_, k, expert_outputs_,
                experts_workspace_, stream_);
}

void Rank::shared_gate_up_proj() {
    const auto& weights = std::get<DeviceMoe>(layer().feed_forward);
    project(weights.shared->gate_up, normed_, width_, projected_);
    if (weights.shared_gate != nullptr) row_dot(normed_, width_, weights.shared_gate, m_, width_, shared_gate_, stream_);
}

void Rank::shared_activation() { activate(std::get<DeviceMoe>(layer().feed_forward).shared->down); }

void Rank::shared_down_proj() {
    const DeviceMatrix& down = std::get<DeviceMoe>(layer().feed_forward).shared->down;
    dense_->matmul(activated_, m_, down.columns, down, nullptr, shared_, width_, stream_);
}

void Rank::combine() {
    const auto& weights = std::get<DeviceMoe>(layer().feed_forward);
    const int k = static_cast<int>(
        std::get<model::MoeFeedForward>(shape_->architecture.layers[static_cast<std::size_t>(layer_)].feed_forward)
            .experts_per_token);
    const float* shared = weights.shared ? shared_ : nullptr;
    const float* gate = weights.shared_gate != nullptr ? shared_gate_ : nullptr;
    if (combine_norms()) {
        const NormPlace place = norm_of(role_after(1), (*program_)[at_ + 1].layer);
        combine_add_norm(expert_outputs_, chosen_weights_, m_, k, width_, shared, gate, block_pending_ ? block_ : nullptr,
                         residual_norm(place), stream_);
        block_pending_ = false;
        norm_done_ = true;
        return;
    }
    cuda::combine(expert_outputs_, chosen_weights_, m_, k, width_, shared, gate, block_, stream_);
    block_pending_ = true;
}

}  // namespace draftboard::backend::cuda
