// SPDX-License-Identifier: Apache-2.0
// The feed-forward half of a layer: dense, or router, routed experts and shared expert. Bytes and flops of each operation
// stand in docs/plan.md; the kernels' own in matmul.h and experts.h.
#include <algorithm>
#include <cmath>

#include "backend/cpu/experts.h"
#include "backend/cpu/rank.h"

namespace draftboard::backend::cpu {

void Rank::feed_forward_norm() {
    add_block();
    for (std::int64_t i = 0; i < m_; ++i) {
        rms_norm(hidden_.data() + i * hidden_width_, layer().feed_forward_norm.data(), hidden_width_,
                 shape_->numerics.norm_epsilon, normed_.data() + i * hidden_width_);
    }
}

void Rank::gate_up_proj() {
    project(std::get<DenseWeights>(layer().feed_forward).gate_up, normed_.data(), hidden_width_, projected_);
}

void Rank::activate(std::int64_t width) {
    grow(activated_, m_ * width);
    for (std::int64_t i = 0; i < m_; ++i) {
        const float* gate = projected_.data() + i * 2 * width;
        silu_multiply(gate, gate + width, width, activated_.data() + i * width);
    }
}

void Rank::activation() { activate(std::get<DenseWeights>(layer().feed_forward).down.columns); }

void Rank::down_proj() {
    const WeightMatrix& down = std::get<DenseWeights>(layer().feed_forward).down;
    matmul(activated_.data(), m_, down.columns, down, nullptr, block_.data(), hidden_width_, scratch_);
    block_pending_ = true;
}

void Rank::router_proj() {
    const WeightMatrix& router = std::get<MoeWeights>(layer().feed_forward).router;
    grow(scores_, m_ * router.rows);
    matmul(normed_.data(), m_, hidden_width_, router, nullptr, scores_.data(), router.rows, scratch_);
}

void Rank::top_k() {
    const auto& shape = std::get<model::MoeFeedForward>(layer_shape().feed_forward);
    const auto& weights = std::get<MoeWeights>(layer().feed_forward);
    const std::int64_t k = shape.experts_per_token;
    grow(chosen_, m_ * k);
    grow(chosen_weights_, m_ * k);
    route(scores_.data(), m_, shape, shape_->numerics, weights.correction_bias.empty() ? nullptr : weights.correction_bias.data(),
          chosen_.data(), chosen_weights_.data(), scratch_);
    if (results_->routing != nullptr) {
        std::transform(chosen_.begin(), chosen_.begin() + m_ * k, std::back_inserter(*results_->routing),
                       [](std::int32_t expert) { return static_cast<std::uint16_t>(expert); });
    }
}

void Rank::experts() {
    const int k = std::get<model::MoeFeedForward>(layer_shape().feed_forward).experts_per_token;
    grow(expert_outputs_, m_ * k * hidden_width_);
    run_experts(normed_.data(), m_, hidden_width_, std::get<MoeWeights>(layer().feed_forward), chosen_.data(), k,
                expert_outputs_.data(), scratch_);
}

void Rank::shared_gate_up_proj() {
    const auto& weights = std::get<MoeWeights>(layer().feed_forward);
    project(weights.shared->gate_up, normed_.data(), hidden_width_, projected_);
    if (weights.shared_gate.empty()) return;
    grow(shared_gate_, m_);
    for (std::int64_t i = 0; i < m_; ++i) {
        const float* x = normed_.data() + i * hidden_width_;
        float sum = 0;
        for (std::int64_t c = 0; c < hidden_width_; ++c) sum += x[c] * weights.shared_gate[static_cast<std::size_t>(c)];
        shared_gate_[static_cast<std::size_t>(i)] = sum;
    }
}

void Rank::shared_activation() { activate(std::get<MoeWeights>(layer().feed_forward).shared->down.columns); }

void Rank::shared_down_proj() {
    const WeightMatrix& down = std::get<MoeWeights>(layer().feed_forward).shared->down;
    grow(shared_, m_ * hidden_width_);
    matmul(activated_.data(), m_, down.columns, down, nullptr, shared_.data(), hidden_width_, scratch_);
}

void Rank::combine() {
    // block = sum over chosen experts of weight x output  (+ shared, times the sigmoid of its gate where it has one)
    const std::int64_t k = std::get<model::MoeFeedForward>(layer_shape().feed_forward).experts_per_token;
    const auto& weights = std::get<MoeWeights>(layer().feed_forward);
    for (std::int64_t i = 0; i < m_; ++i) {
        float* row = block_.data() + i * hidden_width_;
        if (weights.shared) {
            std::copy_n(shared_.data() + i * hidden_width_, hidden_width_, row);
            if (!weights.shared_gate.empty()) {
                const float gate = 1.0f / (1.0f + std::exp(-shared_gate_[static_cast<std::size_t>(i)]));
                for (std::int64_t c = 0; c < hidden_width_; ++c) row[c] *= gate;
            }
        } else {
            std::fill_n(row, hidden_width_, 0.0f);
        }
        for (std::int64_t j = 0; j < k; ++j) {
            const float weight = chosen_weights_[static_cast<std::size_t>(i * k + j)];
            const float* output = expert_outputs_.data() + (i * k + j) * hidden_width_;
            for (std::int64_t c = 0; c < hidden_width_; ++c) row[c] += weight * output[c];
        }
    }
    block_pending_ = true;
}

}  // namespace draftboard::backend::cpu
