// SPDX-License-Identifier: Apache-2.0
#pragma once
// One rank of a model: executes the plan of model/plan.h, operation by operation, with its share of the weights and caches.
// A plan is compiled once into a program (each operation's role becomes the member function that computes it), so a plan with
// an operation that this engine does not know is an error before anything runs: what is priced is what is executed.
// rank.cpp compiles, and computes what lies outside of layers; rank_attention.cpp and rank_feed_forward.cpp the layers.
//
// Not here: which rows run and what becomes of them (engine.h, decode_loop.h).

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "backend/cpu/attention.h"
#include "backend/cpu/communicator.h"
#include "backend/cpu/elementwise.h"
#include "backend/cpu/matmul.h"
#include "backend/cpu/model_weights.h"
#include "backend/cpu/rank_cache.h"
#include "backend/engine.h"
#include "backend/role_table.h"
#include "model/plan.h"

namespace draftboard::backend::cpu {

/// How ranks compute, beside what the model is.
struct RankOptions {
    AllReduceAlgorithm all_reduce = AllReduceAlgorithm::one_shot;
    /// MLA in prefill expands keys and values a head from the latents, instead of absorbing kv_b into query and output.
    bool expand_latents = false;
};

/// Where rank 0 leaves the results; others get nullptr.
struct PassResults {
    float* logits = nullptr;    ///< logits_rows x vocabulary
    float* hidden = nullptr;    ///< rows x hidden, after the final norm; of an EAGLE-3 head before it
    float* features = nullptr;  ///< rows x feature_layers x hidden
    std::vector<std::uint16_t>* routing = nullptr;  ///< appended to: (MoE layer, row, k) experts
};

/// Makes room; buffers never shrink.
template <class Number>
void grow(std::vector<Number>& buffer, std::int64_t size) {
    if (buffer.size() < static_cast<std::size_t>(size)) buffer.resize(static_cast<std::size_t>(size));
}

class Rank {
   public:
    Rank(const ModelShape& shape, const RankOptions& options, int index, ModelWeights weights, int sequences, std::int64_t max_length,
         Communicator& communicator);

    [[nodiscard]] static model::Expected<Program<Rank>> compile(const model::Plan& plan, const ModelShape& shape);

    /// Caches take over accepted rows; its time counts as the plan's delta_net.rollback.
    void commit(std::span<const PendingCommit> commits);
    void clear(int slot);
    /// `times`: one entry an operation of the plan, or empty: not measured.
    void run(const Program<Rank>& program, const PassRows& rows, const PassResults& results, std::span<OperationTime> times);
    [[nodiscard]] std::int64_t commit_ns() const { return commit_ns_; }
    [[nodiscard]] const ModelWeights& weights() const { return weights_; }

   private:
    friend struct RoleTable<Rank>;
    void embedding();
    void embedding_all_reduce();
    void eagle3_fc();
    void mtp_norm();
    void mtp_projection();
    void mixer_norm();
    void qkv_a_proj();
    void a_norm();
    void q_b_proj();
    void q_proj();
    void kv_a_proj();
    void absorb_q();
    void mla_rope_cache();
    void mla();
    void absorb_v();
    void mla_o_proj();
    void qkv_proj();
    void qk_norm();
    void gqa_rope_cache();
    void gqa();
    void output_gate();
    void gqa_o_proj();
    void delta_net_in_proj();
    void delta_net_core();
    void delta_net_gated_norm();
    void delta_net_out_proj();
    void block_all_reduce();
    void feed_forward_norm();
    void gate_up_proj();
    void activation();
    void down_proj();
    void router_proj();
    void top_k();
    void experts();
    void shared_gate_up_proj();
    void shared_activation();
    void shared_down_proj();
    void combine();
    void final_norm();
    void lm_head();
    void logits_all_gather();
    void hand_over();  ///< sample, accept, draft.top_k: the loop chooses from the logits
    void nothing() {}  ///< delta_net.rollback: done by commit()

    [[nodiscard]] const LayerWeights& layer() const { return weights_.layers[static_cast<std::size_t>(layer_)]; }
    [[nodiscard]] const model::Layer& layer_shape() const {
        return shape_->architecture.layers[static_cast<std::size_t>(layer_)];
    }
    template <class Mixer>
    [[nodiscard]] const Mixer& mixer() const {
        return std::get<Mixer>(layer().mixer);
    }
    template <class Shape>
    [[nodiscard]] const Shape& mixer_shape() const {
        return std::get<Shape>(layer_shape().mixer);
    }
    [[nodiscard]] LayerCache& cache(int sequence) {
        return caches_[static_cast<std::size_t>(rows_->slots[static_cast<std::size_t>(sequence)])].layer(layer_);
    }
    [[nodiscard]] int attention_ranks() const { return shape_->layout.tensor; }
    [[nodiscard]] bool expanded() const { return options_.expand_latents && rows_->pass == model::Pass::prefill; }
    void project(const Projection& projection, const float* x, std::int64_t x_stride, std::vector<float>& y);
    /// One part of a projection of normed_ into its columns of projected_.
    void project_part(const Projection& projection, std::size_t part);
    void activate(std::int64_t width);  ///< silu(gate) * up of projected_ into activated_
    void add_block();  ///< the residual stream takes up the last block's output
    void keep_features(int layer);
    void collective(CollectiveTime time) { collective_ = time; }
    [[nodiscard]] AttentionRows attention_rows(int sequence, int heads, std::int64_t query_width, std::int64_t output_width);
    void expanded_mla(int sequence);

    const ModelShape* shape_;
    RankOptions options_;
    int index_;
    ModelWeights weights_;
    std::vector<SequenceCache> caches_;
    Communicator* communicator_;
    RotaryTable rotary_;
    std::int64_t commit_ns_ = 0;

    // Of the pass in progress.
    const PassRows* rows_ = nullptr;
    const PassResults* results_ = nullptr;
    int layer_ = -1;
    std::int64_t m_ = 0;
    bool block_pending_ = false;
    CollectiveTime collective_;

    // Buffers, one row a token.
    std::int64_t hidden_width_ = 0;
    std::vector<float> hidden_;      // residual stream
    std::vector<float> embedded_;    // drafters: embedding of the row's token
    std::vector<float> normed_;
    std::vector<float> block_;       // output of mixer or feed-forward
    std::vector<float> projected_;   // qkv, qkv_a, delta-net channels | z | b | a, gate | up
    std::vector<float> latent_;      // MLA: normalised q_a | kv_a
    std::vector<float> query_;
    std::vector<float> attended_;
    std::vector<float> value_;       // heads x v
    std::vector<float> activated_;
    std::vector<float> scores_;
    std::vector<std::int32_t> chosen_;
    std::vector<float> chosen_weights_;
    std::vector<float> expert_outputs_;
    std::vector<float> shared_;
    std::vector<float> shared_gate_;
    std::vector<float> logits_;      // of this rank's share of the vocabulary
    std::vector<float> all_logits_;
    std::vector<float> expanded_keys_;
    std::vector<float> expanded_values_;
    Scratch scratch_;
};

}  // namespace draftboard::backend::cpu
