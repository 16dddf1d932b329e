// SPDX-License-Identifier: Apache-2.0
#pragma once
// One rank of a model on its GPU: executes the plan, operation by operation, with its share of the weights and caches. The
// counterpart of cpu/rank.h, whose operations do the same in the same order; here each enqueues its kernels on the rank's stream,
// and a pass is launched eagerly, in pieces between the attentions, or as one captured graph (LaunchMode). rank.cpp has what lies
// outside of layers, rank_layers.cpp the layers, rank_launch.cpp graphs and times.
//
// The first time that a pass of some shape runs, it runs eagerly: modules are loaded and algorithms chosen outside of any
// capture. The second time it is captured.

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

#include <cuda_runtime_api.h>

#include "backend/cuda/communicator.h"
#include "backend/cuda/delta_net.h"
#include "backend/cuda/device_buffer.h"
#include "backend/cuda/device_weights.h"
#include "backend/cuda/elementwise.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/matmul.h"
#include "backend/cuda/pass_block.h"
#include "backend/cuda/pass_view.h"
#include "backend/cuda/vocabulary.h"
#include "backend/engine.h"
#include "backend/role_table.h"

namespace draftboard::backend::cuda {

/// How ranks compute, beside what the model is.
struct RankOptions {
    int sequences = 1;
    std::int64_t max_length = 4096;
    int max_rows = 256;  ///< of a pass
    Precision precision = Precision::fp32;
    CacheFormat cache = CacheFormat::fp32;
    DenseChoice dense = DenseChoice::few_rows;
    bool fuse_norm = true;
    bool outputs_hidden = false;  ///< hidden states go to the host after every pass: a drafter reads them
    LaunchModes launch;
};

/// What a pass leaves on the host, in pinned memory of rank 0.
struct HostResults {
    PinnedBuffer<float> logits;          ///< rows of logits x vocabulary
    PinnedBuffer<float> hidden;          ///< rows x hidden
    PinnedBuffer<float> features;        ///< rows x feature layers x hidden
    PinnedBuffer<std::int32_t> tokens;   ///< rows of logits x 2: the best two
    PinnedBuffer<float> values;          ///< rows of logits x 2
    PinnedBuffer<float> sums;            ///< rows of logits: of exp(logit - best), which is no number where a logit is none
    PinnedBuffer<std::int32_t> routing;  ///< MoE layers x rows x k
};

/// The rows of a pass on their way to the devices: written by the engine, read by all ranks.
struct HostRows {
    PinnedBuffer<std::int32_t> words;
    PinnedBuffer<float> features;
};

/// Numbers of a head in the queries and the cache: attention takes multiples of 8.
[[nodiscard]] constexpr int padded_head(int dim) { return (dim + 7) / 8 * 8; }

/// A rank's share of a delta net.
[[nodiscard]] inline DeltaNetShape delta_net_shape(const model::DeltaNetShape& shape, int ranks) {
    return {static_cast<int>(shape.key_heads) / ranks, static_cast<int>(shape.value_heads) / ranks,
            static_cast<int>(shape.key_head_dim), static_cast<int>(shape.value_head_dim), static_cast<int>(shape.conv_kernel)};
}

/// Whether an operation norms the residual stream, which what is before it may take along.
[[nodiscard]] inline bool norms_stream(std::string_view role) { return role.ends_with(".norm") && role != "delta_net.gated_norm"; }

class Rank;

using CompiledPass = backend::CompiledPass<Rank>;

/// What the captured graphs of a rank differ by.
struct PassKey {
    model::Pass pass = model::Pass::decode;
    int sequences = 1;
    int tokens = 1;
    int logits_count = 1;
    std::int64_t visible = 0;    ///< bucket
    bool logits_to_host = true;  ///< else the best two tokens of each row
    bool timed = false;
    bool routing = false;
    auto operator<=>(const PassKey&) const = default;
};

/// The graphs of one shape of pass, and the eager stretches between them.
struct CapturedPass {
    struct Piece {
        cudaGraphExec_t graph = nullptr;  ///< null: eager
        std::size_t first = 0;            ///< instructions
        std::size_t last = 0;
    };
    std::vector<Piece> pieces;
    int runs = 0;
    CapturedPass() = default;
    CapturedPass(const CapturedPass&) = delete;
    CapturedPass& operator=(const CapturedPass&) = delete;
    ~CapturedPass() {
        for (const Piece& piece : pieces) {
            if (piece.graph != nullptr) cudaGraphExecDestroy(piece.graph);
        }
    }
};

class Rank {
   public:
    /// On the current device. `communicator` null: alone, whatever the layout says; collectives then move nothing.
    Rank(const ModelShape& shape, const RankOptions& options, int index, DeviceWeights weights, Communicator* communicator,
         const HostRows& rows, HostResults* results);
    ~Rank();
    Rank(const Rank&) = delete;
    Rank& operator=(const Rank&) = delete;

    [[nodiscard]] static model::Expected<Program<Rank>> compile(const model::Plan& plan, const ModelShape& shape);

    /// Whether the next launch() of this shape needs a graph that is not there yet; capture() makes it. All ranks capture before
    /// any launches: a rank that waits in a collective must not keep another one, on the same GPU, from making its graph.
    [[nodiscard]] bool wants_capture(const PassKey& key) const;
    void capture(const PassKey& key, const CompiledPass& pass);
    /// Enqueues the pass; its rows lie in HostRows already. Throws where CUDA refuses.
    void launch(const PassKey& key, const CompiledPass& pass);
    /// Enqueues a pass whose words the device has laid out itself, on another rank's stream or this one's; nothing travels. Its
    /// best tokens are chosen on every rank.
    void enqueue_on_device(const PassKey& key, const CompiledPass& pass, const std::int32_t* words, cudaStream_t stream);
    [[nodiscard]] cudaStream_t stream() const { return stream_; }
    [[nodiscard]] const std::int32_t* best_tokens() const { return best_tokens_; }
    [[nodiscard]] const float* best_values() const { return best_values_; }
    [[nodiscard]] const float* best_sums() const { return best_sums_; }
    [[nodiscard]] const float* features() const { return features_; }  ///< of the last pass: rows x feature layers x hidden
    [[nodiscard]] const float* states() const {
        return shape_->kind == ModelKind::eagle3 ? hidden_ : normed_;
    }                                                                  ///< rows x hidden
    [[nodiscard]] float* features_in() const { return features_in_; }  ///< of the next pass
    /// Waits for it. `times`: one entry an operation; empty: not wanted. Call on the thread of launch().
    [[nodiscard]] model::Expected<void> finish(std::span<OperationTime> times);
    /// Time of the commits before the last timed pass.
    [[nodiscard]] std::int64_t commit_ns() const { return commit_ns_; }
    void clear(int slot);
    [[nodiscard]] const DeviceWeights& weights() const { return weights_; }

   private:
    friend struct RoleTable<Rank>;
    // rank.cpp
    void embedding();
    void embedding_all_reduce();
    void eagle3_fc();
    void mtp_norm();
    void mtp_projection();
    void final_norm();
    void lm_head();
    void logits_all_gather();
    void hand_over();
    void nothing() {}
    // rank_layers.cpp
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

    /// A norm that an all-reduce before it may take along.
    struct NormPlace {
        const float* weight = nullptr;
        float* kept = nullptr;
    };
    [[nodiscard]] NormPlace norm_of(std::string_view role, int layer) const;
    void add_norm(const NormPlace& place);
    [[nodiscard]] ResidualNorm residual_norm(const NormPlace& place) const;
    /// Role of the instruction `distance` after this one, "" beyond the last.
    [[nodiscard]] std::string_view role_after(std::size_t distance) const;
    /// Whether the sum over experts to come (or at hand) takes the norm behind it along.
    [[nodiscard]] bool combine_norms() const;
    [[nodiscard]] float* kept_features(int layer) const;
    [[nodiscard]] std::int64_t kept_stride() const;

    [[nodiscard]] const DeviceLayer& layer() const { return weights_.layers[static_cast<std::size_t>(layer_)]; }
    template <class Mixer>
    [[nodiscard]] const Mixer& mixer() const {
        return std::get<Mixer>(layer().mixer);
    }
    template <class Shape>
    [[nodiscard]] const Shape& mixer_shape() const {
        return std::get<Shape>(shape_->architecture.layers[static_cast<std::size_t>(layer_)].mixer);
    }
    [[nodiscard]] int attention_ranks() const { return shape_->layout.tensor; }
    [[nodiscard]] float epsilon() const { return static_cast<float>(shape_->numerics.norm_epsilon); }
    [[nodiscard]] GqaRows gqa_rows() const;
    [[nodiscard]] const float* mla_queries(std::int64_t& stride) const;
    void project(const DeviceProjection& projection, const float* x, std::int64_t x_stride, float* y);
    void project_part(std::size_t part);
    void activate(const DeviceMatrix& down);
    void take_buffers();
    void take_caches();
    template <class Number>
    Number* take(std::int64_t count);

    // rank_launch.cpp
    void set_pass(const PassKey& key, const CompiledPass& pass, const std::int32_t* words);
    /// Commits that wait, and the begin of the pass.
    void enqueue_before(const CommitView& commits);
    void enqueue_begin(const PassKey& key);
    void enqueue_operation(const Instruction<Rank>& instruction);
    void enqueue_end(const PassKey& key);
    void enqueue(const PassKey& key, const CompiledPass& pass, std::size_t first, std::size_t last);
    void mark(std::size_t index);
    [[nodiscard]] CapturedPass::Piece capture_piece(const PassKey& key, const CompiledPass& pass, std::size_t first,
                                                    std::size_t last);
    [[nodiscard]] LaunchMode mode_of(const PassKey& key) const;

    const ModelShape* shape_;
    RankOptions options_;
    int index_;
    DeviceWeights weights_;
    Communicator* communicator_;
    const HostRows* host_rows_;
    HostResults* results_;  ///< null on ranks other than 0
    cudaStream_t stream_ = nullptr;
    std::unique_ptr<DenseMath> dense_;
    double softmax_factor_ = 1;
    RotaryView rotary_;
    std::vector<KeyValueCache> caches_;      // by layer; no keys where it has none
    std::vector<DeltaNetCache> delta_nets_;  // by layer; no state where it has none
    const KeyValueCache* caches_on_device_ = nullptr;
    int key_value_layers_ = 0;

    // Of the pass in progress.
    const Program<Rank>* program_ = nullptr;
    const model::Plan* plan_ = nullptr;
    std::size_t at_ = 0;  // instruction
    PassView view_;
    std::int64_t visible_ = 0;
    model::Pass pass_ = model::Pass::decode;
    bool logits_to_host_ = true;
    bool routing_ = false;
    bool on_device_ = false;      // its words were laid out by the device
    bool norm_done_ = false;      // by the all-reduce before it
    bool norms_queries_ = false;  // q and k of the layer still to be normed
    bool norm_waits_ = false;     // for the router, which takes it along
    int layer_ = -1;
    int m_ = 0;
    int moe_layer_ = 0;
    bool block_pending_ = false;

    std::map<PassKey, CapturedPass> captured_;
    std::vector<cudaEvent_t> events_;  // of timed passes: one before each operation, one at the end, one before the commits
    bool capturing_ = false;
    std::int64_t commit_ns_ = 0;
    std::size_t timed_operations_ = 0;

    // Buffers, one row a token; fixed, because graphs keep them.
    std::vector<DeviceBuffer<std::byte>> memory_;
    int width_ = 0;  // hidden
    std::int32_t* words_ = nullptr;
    float* features_in_ = nullptr;
    float* hidden_ = nullptr;
    float* embedded_ = nullptr;
    float* normed_ = nullptr;
    float* block_ = nullptr;
    float* projected_ = nullptr;
    float* latent_ = nullptr;
    float* query_ = nullptr;
    float* attended_ = nullptr;
    float* padded_ = nullptr;  // attended, of heads that are no multiple of 8 numbers
    float* value_ = nullptr;
    float* activated_ = nullptr;
    float* convolved_ = nullptr;
    float* scores_ = nullptr;
    std::int32_t* chosen_ = nullptr;
    float* chosen_weights_ = nullptr;
    float* expert_outputs_ = nullptr;
    float* shared_ = nullptr;
    float* shared_gate_ = nullptr;
    float* logits_in_ = nullptr;
    float* logits_ = nullptr;
    float* all_logits_ = nullptr;
    float* features_ = nullptr;
    std::int32_t* best_tokens_ = nullptr;
    float* best_values_ = nullptr;
    float* best_sums_ = nullptr;
    void* attention_workspace_ = nullptr;
    void* experts_workspace_ = nullptr;
};

}  // namespace draftboard::backend::cuda
