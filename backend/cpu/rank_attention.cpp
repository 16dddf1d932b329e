// SPDX-License-Identifier: Apache-2.0
// The mixers of a layer: latent attention, grouped-query attention, gated delta net. Bytes and flops of each operation stand
// in docs/plan.md; the kernels' own in attention.h, delta_net.h and matmul.h.
#include <algorithm>
#include <cmath>

#include "backend/cpu/delta_net.h"
#include "backend/cpu/rank.h"
#include "model/sharding.h"

namespace draftboard::backend::cpu {

void Rank::mixer_norm() {
    add_block();
    keep_features(layer_);
    const double epsilon = shape_->numerics.norm_epsilon;
    if (shape_->kind == ModelKind::eagle3 && layer_ == 0) {  // embedding and feature, each by its own norm, side by side
        const DraftFusion& fusion = *weights_.fusion;
        for (std::int64_t i = 0; i < m_; ++i) {
            float* row = normed_.data() + i * 2 * hidden_width_;
            rms_norm(embedded_.data() + i * hidden_width_, fusion.embedding_norm.data(), hidden_width_, epsilon, row);
            rms_norm(hidden_.data() + i * hidden_width_, fusion.hidden_norm.data(), hidden_width_, epsilon,
                     row + hidden_width_);
        }
        return;
    }
    for (std::int64_t i = 0; i < m_; ++i) {
        rms_norm(hidden_.data() + i * hidden_width_, layer().mixer_norm.data(), hidden_width_, epsilon,
                 normed_.data() + i * hidden_width_);
    }
}

AttentionRows Rank::attention_rows(int sequence, int heads, std::int64_t query_width, std::int64_t output_width) {
    const auto s = static_cast<std::size_t>(sequence);
    const std::int64_t first = static_cast<std::int64_t>(sequence) * rows_->tokens;
    grow(attended_, m_ * output_width);
    AttentionRows rows;
    rows.rows = rows_->tokens;
    rows.first_row = rows_->first_row[s];
    rows.context = rows_->committed[s];
    rows.parents = rows_->parents[s];
    rows.queries = query_.data() + first * query_width;
    rows.query_stride = query_width;
    rows.output = attended_.data() + first * output_width;
    rows.output_stride = output_width;
    rows.heads = heads;
    return rows;
}

// Multi-head latent attention ----------------------------------------------------------------------------------

void Rank::qkv_a_proj() { project(mixer<MlaWeights>().qkv_a, normed_.data(), hidden_width_, projected_); }

void Rank::a_norm() {
    const auto& shape = mixer_shape<model::MlaShape>();
    const auto& weights = mixer<MlaWeights>();
    const std::int64_t rank = shape.q_lora_rank;
    const std::int64_t latent = shape.kv_lora_rank;
    const std::int64_t stride = weights.qkv_a.rows();
    const std::int64_t before = stride - latent - shape.qk_rope_head_dim;  // q_a, or the whole q
    const double epsilon = shape_->numerics.norm_epsilon;
    grow(latent_, m_ * (rank + latent));
    for (std::int64_t i = 0; i < m_; ++i) {
        const float* from = projected_.data() + i * stride;
        float* to = latent_.data() + i * (rank + latent);
        if (rank > 0) rms_norm(from, weights.q_a_norm.data(), rank, epsilon, to);
        rms_norm(from + before, weights.kv_a_norm.data(), latent, epsilon, to + rank);
    }
}

void Rank::q_b_proj() {
    const auto& shape = mixer_shape<model::MlaShape>();
    project(mixer<MlaWeights>().q_b, latent_.data(), shape.q_lora_rank + shape.kv_lora_rank, value_);
}

void Rank::q_proj() { project_part(mixer<MlaWeights>().qkv_a, 0); }

void Rank::kv_a_proj() { project_part(mixer<MlaWeights>().qkv_a, 1); }

void Rank::absorb_q() {
    // q_nope . W_k^T: one nope x latent matrix a head, so that scores are taken against the latents themselves.
    if (expanded()) return;
    const auto& shape = mixer_shape<model::MlaShape>();
    const auto& weights = mixer<MlaWeights>();
    const int heads = shape.heads / attention_ranks();
    const std::int64_t nope = shape.qk_nope_head_dim;
    const std::int64_t rope = shape.qk_rope_head_dim;
    const std::int64_t latent = shape.kv_lora_rank;
    const std::int64_t width = latent + rope;
    const bool low_rank = shape.q_lora_rank > 0;
    const float* q = low_rank ? value_.data() : projected_.data();
    const std::int64_t q_stride = low_rank ? heads * (nope + rope) : weights.qkv_a.rows();
    grow(query_, m_ * heads * width);
    for (int h = 0; h < heads; ++h) {
        matmul_transposed(q + h * (nope + rope), m_, q_stride, weights.kv_b, h * (nope + shape.v_head_dim), nope,
                          query_.data() + h * width, heads * width, scratch_);
        for (std::int64_t i = 0; i < m_; ++i) {
            std::copy_n(q + i * q_stride + h * (nope + rope) + nope, rope, query_.data() + (i * heads + h) * width + latent);
        }
    }
}

void Rank::mla_rope_cache() {
    const auto& shape = mixer_shape<model::MlaShape>();
    const auto& weights = mixer<MlaWeights>();
    const int heads = shape.heads / attention_ranks();
    const std::int64_t rope = shape.qk_rope_head_dim;
    const std::int64_t latent = shape.kv_lora_rank;
    const std::int64_t stride = weights.qkv_a.rows();
    if (expanded()) {  // queries as projected: nope | rope a head
        const bool low_rank = shape.q_lora_rank > 0;
        const std::int64_t width = heads * (shape.qk_nope_head_dim + rope);
        const float* q = low_rank ? value_.data() : projected_.data();
        grow(query_, m_ * width);
        for (std::int64_t i = 0; i < m_; ++i) {
            std::copy_n(q + i * (low_rank ? width : stride), width, query_.data() + i * width);
        }
    }
    const std::int64_t query_width = expanded() ? shape.qk_nope_head_dim + rope : latent + rope;
    for (int s = 0; s < rows_->sequences; ++s) {
        LayerCache& memory = cache(s);
        const std::int64_t first_slot = rows_->committed[static_cast<std::size_t>(s)] + rows_->first_row[static_cast<std::size_t>(s)];
        for (int t = 0; t < rows_->tokens; ++t) {
            const std::int64_t i = static_cast<std::int64_t>(s) * rows_->tokens + t;
            const std::int64_t position = rows_->positions[static_cast<std::size_t>(i)];
            for (int h = 0; h < heads; ++h) {
                rotary_.rotate(query_.data() + (i * heads + h) * query_width + query_width - rope, position);
            }
            float* slot = memory.keys.data() + (first_slot + t) * memory.slot_width;
            std::copy_n(latent_.data() + i * (shape.q_lora_rank + latent) + shape.q_lora_rank, latent, slot);
            std::copy_n(projected_.data() + i * stride + stride - rope, rope, slot + latent);
            rotary_.rotate(slot + latent, position);
        }
    }
}

void Rank::mla() {
    const auto& shape = mixer_shape<model::MlaShape>();
    const int heads = shape.heads / attention_ranks();
    const std::int64_t latent = shape.kv_lora_rank;
    const std::int64_t rope = shape.qk_rope_head_dim;
    const auto scale = static_cast<float>(rotary_.softmax_factor() / std::sqrt(static_cast<double>(shape.qk_nope_head_dim + rope)));
    for (int s = 0; s < rows_->sequences; ++s) {
        if (expanded()) {
            expanded_mla(s);
            continue;
        }
        AttentionRows rows = attention_rows(s, heads, heads * (latent + rope), heads * latent);
        rows.scale = scale;
        attend_mla(rows, static_cast<int>(latent), static_cast<int>(rope), cache(s).keys.data(), scratch_);
    }
}

void Rank::expanded_mla(int sequence) {
    // Keys and values a head from every visible latent: context (nope + v) heads latent multiply-adds more, for prefill's many rows.
    const auto& shape = mixer_shape<model::MlaShape>();
    const auto& weights = mixer<MlaWeights>();
    const int heads = shape.heads / attention_ranks();
    const std::int64_t nope = shape.qk_nope_head_dim;
    const std::int64_t rope = shape.qk_rope_head_dim;
    const std::int64_t latent = shape.kv_lora_rank;
    const std::int64_t value = shape.v_head_dim;
    const std::int64_t width = std::max(nope + rope, value);
    const std::int64_t slots = rows_->committed[static_cast<std::size_t>(sequence)] +
                               rows_->first_row[static_cast<std::size_t>(sequence)] + rows_->tokens;
    const LayerCache& memory = cache(sequence);
    grow(expanded_keys_, slots * heads * width);
    grow(expanded_values_, slots * heads * width);
    grow(activated_, slots * heads * (nope + value));
    matmul(memory.keys.data(), slots, memory.slot_width, weights.kv_b, nullptr, activated_.data(), heads * (nope + value),
           scratch_);
    for (std::int64_t slot = 0; slot < slots; ++slot) {
        for (int h = 0; h < heads; ++h) {
            const float* from = activated_.data() + (slot * heads + h) * (nope + value);
            float* key = expanded_keys_.data() + (slot * heads + h) * width;
            float* out = expanded_values_.data() + (slot * heads + h) * width;
            std::copy_n(from, nope, key);
            std::copy_n(memory.keys.data() + slot * memory.slot_width + latent, rope, key + nope);
            std::fill(key + nope + rope, key + width, 0.0f);
            std::copy_n(from + nope, value, out);
            std::fill(out + value, out + width, 0.0f);
        }
    }
    // Queries padded to the common width.
    const std::int64_t first = static_cast<std::int64_t>(sequence) * rows_->tokens;
    grow(value_, rows_->tokens * heads * width);
    for (std::int64_t r = 0; r < static_cast<std::int64_t>(rows_->tokens) * heads; ++r) {
        float* to = value_.data() + r * width;
        std::copy_n(query_.data() + (first * heads + r) * (nope + rope), nope + rope, to);
        std::fill(to + nope + rope, to + width, 0.0f);
    }
    AttentionRows rows = attention_rows(sequence, heads, heads * width, heads * width);
    rows.queries = value_.data();
    rows.scale = static_cast<float>(rotary_.softmax_factor() / std::sqrt(static_cast<double>(nope + rope)));
    attend_gqa(rows, heads, static_cast<int>(width), expanded_keys_.data(), expanded_values_.data(), heads * width, scratch_);
}

void Rank::absorb_v() {
    const auto& shape = mixer_shape<model::MlaShape>();
    const auto& weights = mixer<MlaWeights>();
    const int heads = shape.heads / attention_ranks();
    const std::int64_t nope = shape.qk_nope_head_dim;
    const std::int64_t latent = shape.kv_lora_rank;
    const std::int64_t value = shape.v_head_dim;
    grow(value_, m_ * heads * value);
    if (expanded()) {
        const std::int64_t width = std::max(nope + shape.qk_rope_head_dim, value);
        for (std::int64_t r = 0; r < m_ * heads; ++r) {
            std::copy_n(attended_.data() + r * width, value, value_.data() + r * value);
        }
        return;
    }
    for (int h = 0; h < heads; ++h) {
        matmul_rows(attended_.data() + h * latent, m_, heads * latent, weights.kv_b, h * (nope + value) + nope, value,
                    value_.data() + h * value, heads * value, scratch_);
    }
}

void Rank::mla_o_proj() {
    const WeightMatrix& o = mixer<MlaWeights>().o;
    matmul(value_.data(), m_, o.columns, o, nullptr, block_.data(), hidden_width_, scratch_);
    block_pending_ = true;
}

// Grouped-query attention --------------------------------------------------------------------------------------

void Rank::qkv_proj() {
    const std::int64_t width = shape_->kind == ModelKind::eagle3 && layer_ == 0 ? 2 * hidden_width_ : hidden_width_;
    const Projection& qkv = mixer<GqaWeights>().qkv;
    project(qkv, normed_.data(), width, projected_);
    // Queries in a buffer of their own: with an output gate a head is (query | gate).
    const auto& shape = mixer_shape<model::GqaShape>();
    const int heads = shape.heads / attention_ranks();
    const std::int64_t step = (shape.output_gate ? 2 : 1) * shape.head_dim;
    grow(query_, m_ * heads * shape.head_dim);
    for (std::int64_t i = 0; i < m_; ++i) {
        for (int h = 0; h < heads; ++h) {
            std::copy_n(projected_.data() + i * qkv.rows() + h * step, shape.head_dim,
                        query_.data() + (i * heads + h) * shape.head_dim);
        }
    }
}

void Rank::qk_norm() {
    const auto& shape = mixer_shape<model::GqaShape>();
    const auto& weights = mixer<GqaWeights>();
    const std::int64_t heads = shape.heads / attention_ranks();
    const std::int64_t kv_heads = model::kv_heads_per_rank(shape.kv_heads, attention_ranks());
    const std::int64_t dim = shape.head_dim;
    const std::int64_t stride = weights.qkv.rows();
    const double epsilon = shape_->numerics.norm_epsilon;
    for (std::int64_t r = 0; r < m_ * heads; ++r) {
        float* head = query_.data() + r * dim;
        rms_norm(head, weights.q_norm.data(), dim, epsilon, head);
    }
    for (std::int64_t i = 0; i < m_; ++i) {
        for (std::int64_t h = 0; h < kv_heads; ++h) {
            float* head = projected_.data() + (i + 1) * stride + (h - 2 * kv_heads) * dim;
            rms_norm(head, weights.k_norm.data(), dim, epsilon, head);
        }
    }
}

void Rank::gqa_rope_cache() {
    const auto& shape = mixer_shape<model::GqaShape>();
    const std::int64_t heads = shape.heads / attention_ranks();
    const std::int64_t kv_width = model::kv_heads_per_rank(shape.kv_heads, attention_ranks()) * shape.head_dim;
    const std::int64_t stride = mixer<GqaWeights>().qkv.rows();
    for (int s = 0; s < rows_->sequences; ++s) {
        LayerCache& memory = cache(s);
        const std::int64_t first_slot = rows_->committed[static_cast<std::size_t>(s)] + rows_->first_row[static_cast<std::size_t>(s)];
        for (int t = 0; t < rows_->tokens; ++t) {
            const std::int64_t i = static_cast<std::int64_t>(s) * rows_->tokens + t;
            const std::int64_t position = rows_->positions[static_cast<std::size_t>(i)];
            for (std::int64_t h = 0; h < heads; ++h) {
                rotary_.rotate(query_.data() + (i * heads + h) * shape.head_dim, position);
            }
            const float* kv = projected_.data() + (i + 1) * stride - 2 * kv_width;
            float* key = memory.keys.data() + (first_slot + t) * memory.slot_width;
            std::copy_n(kv, kv_width, key);
            for (std::int64_t at = 0; at < kv_width; at += shape.head_dim) rotary_.rotate(key + at, position);
            std::copy_n(kv + kv_width, kv_width, memory.values.data() + (first_slot + t) * memory.slot_width);
        }
    }
}

void Rank::gqa() {
    const auto& shape = mixer_shape<model::GqaShape>();
    const int heads = shape.heads / attention_ranks();
    const std::int64_t width = std::int64_t{heads} * shape.head_dim;
    for (int s = 0; s < rows_->sequences; ++s) {
        AttentionRows rows = attention_rows(s, heads, width, width);
        rows.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_dim)));
        const LayerCache& memory = cache(s);
        attend_gqa(rows, static_cast<int>(model::kv_heads_per_rank(shape.kv_heads, attention_ranks())), shape.head_dim,
                   memory.keys.data(), memory.values.data(), memory.slot_width, scratch_);
    }
}

void Rank::output_gate() {
    const auto& shape = mixer_shape<model::GqaShape>();
    const std::int64_t heads = shape.heads / attention_ranks();
    const std::int64_t dim = shape.head_dim;
    const std::int64_t stride = mixer<GqaWeights>().qkv.rows();
    for (std::int64_t i = 0; i < m_; ++i) {
        for (std::int64_t h = 0; h < heads; ++h) {
            sigmoid_multiply(projected_.data() + i * stride + (2 * h + 1) * dim, dim, attended_.data() + (i * heads + h) * dim);
        }
    }
}

void Rank::gqa_o_proj() {
    const auto& weights = mixer<GqaWeights>();
    // The bias is added once, by rank 0, before the sum over ranks.
    const float* bias = weights.o_bias.empty() || index_ != 0 ? nullptr : weights.o_bias.data();
    matmul(attended_.data(), m_, weights.o.columns, weights.o, bias, block_.data(), hidden_width_, scratch_);
    block_pending_ = true;
}

// Gated delta net ----------------------------------------------------------------------------------------------

void Rank::delta_net_in_proj() { project(mixer<DeltaNetWeights>().in_proj, normed_.data(), hidden_width_, projected_); }

void Rank::delta_net_core() {
    const DeltaNetSizes sizes = delta_net_sizes(mixer_shape<model::DeltaNetShape>(), attention_ranks());
    const auto& weights = mixer<DeltaNetWeights>();
    const DeltaNetParameters parameters{weights.conv.data(), weights.a_log.data(), weights.dt_bias.data()};
    const std::int64_t value_width = std::int64_t{sizes.value_heads} * sizes.value_dim;
    const std::int64_t stride = weights.in_proj.rows();  // channels | z | b | a
    const bool snapshots = rows_->pass != model::Pass::prefill && rows_->pass != model::Pass::decode;
    grow(attended_, m_ * value_width);
    for (int s = 0; s < rows_->sequences; ++s) {
        LayerCache& memory = cache(s);
        for (int t = 0; t < rows_->tokens; ++t) {
            const std::int64_t i = static_cast<std::int64_t>(s) * rows_->tokens + t;
            const int u = rows_->first_row[static_cast<std::size_t>(s)] + t;
            RecurrentState* from = &memory.committed;
            RecurrentState* to = &memory.committed;
            if (snapshots) {
                const std::int32_t parent = rows_->parents[static_cast<std::size_t>(s)][u];
                if (parent >= 0) from = &memory.snapshots[static_cast<std::size_t>(parent)];
                to = &memory.snapshots[static_cast<std::size_t>(u)];
            }
            const float* row = projected_.data() + i * stride;
            const float* b = row + sizes.channels() + value_width;
            delta_net_row(sizes, parameters, row, b, b + sizes.value_heads, from->state.data(), from->window.data(),
                          to->state.data(), to->window.data(), attended_.data() + i * value_width, scratch_);
        }
    }
}

void Rank::delta_net_gated_norm() {
    const DeltaNetSizes sizes = delta_net_sizes(mixer_shape<model::DeltaNetShape>(), attention_ranks());
    const auto& weights = mixer<DeltaNetWeights>();
    const std::int64_t value_width = std::int64_t{sizes.value_heads} * sizes.value_dim;
    for (std::int64_t i = 0; i < m_; ++i) {
        float* row = attended_.data() + i * value_width;
        gated_rms_norm(row, projected_.data() + i * weights.in_proj.rows() + sizes.channels(), weights.norm.data(),
                       sizes.value_heads, sizes.value_dim, shape_->numerics.norm_epsilon, row);
    }
}

void Rank::delta_net_out_proj() {
    const WeightMatrix& out = mixer<DeltaNetWeights>().out;
    matmul(attended_.data(), m_, out.columns, out, nullptr, block_.data(), hidden_width_, scratch_);
    block_pending_ = true;
}

}  // namespace draftboard::backend::cpu
