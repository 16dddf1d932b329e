// SPDX-License-Identifier: Apache-2.0
#pragma once
// A language model as shapes: what each layer is made of and how its weights are stored. Nothing here
// knows files (import/hf_config.h reads a Hugging Face config.json into this), parallel layouts
// (layout.h) or time. parameter_count.h counts it, plan.h turns it into operations.
//
// Shapes are per model, not per GPU. Weight matrices are (output features x input features).

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "model/error.h"
#include "model/limits.h"
#include "model/number_format.h"

namespace draftboard::model {

/// DeepSeek sparse attention: a small indexer scores the whole context and attention reads `top_k` of it.
struct SparseIndexer {
    int heads = 0;
    int head_dim = 0;
    int top_k = 0;
};

/// Multi-head latent attention. Cached per token: kv_lora_rank + qk_rope_head_dim numbers, replicated
/// on every TP rank.
struct MlaShape {
    int heads = 0;
    int q_lora_rank = 0;  ///< 0: one full q_proj instead of q_a/q_b
    int kv_lora_rank = 0;
    int qk_nope_head_dim = 0;
    int qk_rope_head_dim = 0;
    int v_head_dim = 0;
    std::optional<SparseIndexer> indexer;
};

enum class QkNorm { none, per_head, per_layer };

/// Grouped-query attention. Cached per token: 2 * kv_heads * head_dim numbers.
struct GqaShape {
    int heads = 0;
    int kv_heads = 0;
    int head_dim = 0;
    int rotary_dim = 0;
    QkNorm qk_norm = QkNorm::none;
    bool output_gate = false;  ///< q_proj is twice as wide; its second half gates the output
    bool qkv_bias = false;
    bool output_bias = false;
    bool sinks = false;      ///< one learned logit a head
    int sliding_window = 0;  ///< 0: full attention
};

/// Gated delta net (linear attention): recurrent state value_heads x key_head_dim x value_head_dim per
/// sequence, plus a causal convolution over q, k, v.
struct DeltaNetShape {
    int key_heads = 0;
    int value_heads = 0;
    int key_head_dim = 0;
    int value_head_dim = 0;
    int conv_kernel = 0;
    bool fused_projections = false;  ///< qwen3_next stores in_proj_qkvz/in_proj_ba; qwen3_5 four matrices. Sizes agree.
    NumberFormat state_format = NumberFormat::fp32;
};

using TokenMixer = std::variant<MlaShape, GqaShape, DeltaNetShape>;

/// Gated MLP: gate and up (intermediate x hidden each), down (hidden x intermediate).
struct DenseFeedForward {
    int intermediate = 0;
};

enum class RouterScoring { softmax, sigmoid };

struct MoeFeedForward {
    int experts = 0;            ///< E
    int experts_per_token = 0;  ///< k
    int intermediate = 0;       ///< of one routed expert
    int shared_intermediate = 0;  ///< total width of the shared expert(s), 0: none
    bool shared_gate = false;     ///< a hidden -> 1 gate on the shared expert
    RouterScoring scoring = RouterScoring::softmax;
    bool correction_bias = false;
    int groups = 1;
    int top_groups = 1;
    bool biases = false;  ///< router and expert matrices carry biases (gpt-oss)
};

using FeedForward = std::variant<DenseFeedForward, MoeFeedForward>;

/// Storage of each part of a layer, resolved from the checkpoint's quantization and its ignore list.
struct LayerFormats {
    WeightFormat mixer;            ///< attention or delta-net projections
    WeightFormat feed_forward;     ///< dense MLP
    WeightFormat shared_expert;
    WeightFormat routed_experts;
    WeightFormat router;
};

struct Layer {
    TokenMixer mixer;
    FeedForward feed_forward;
    LayerFormats formats;
};

/// Multi-token prediction (MTP/NEXTN) module stored with the checkpoint: combines the embedding of the
/// last token with the target's hidden state (eh_proj: hidden x 2 hidden), then one ordinary layer.
struct MtpModule {
    Layer layer;
    bool own_embedding = false;  ///< else the target's embedding and LM head are shared
    WeightFormat projection;
};

struct Architecture {
    std::string name;        ///< display name, e.g. "Kimi-K2.5"
    std::string model_type;  ///< Hugging Face model_type the shapes came from
    std::string source;      ///< file or preset it was read from
    int hidden = 0;
    std::int64_t vocabulary = 0;
    std::int64_t max_context = 0;
    bool tied_embeddings = false;
    std::vector<Layer> layers;
    std::vector<MtpModule> mtp;
    WeightFormat embedding_format;
    WeightFormat lm_head_format;
    NumberFormat activation_format = NumberFormat::bf16;
    NumberFormat kv_format = NumberFormat::bf16;  ///< what the checkpoint asks for; a scenario may override
    std::vector<std::string> notes;  ///< what was assumed or left out (vision tower, ...), for reports

    /// Every violated invariant with its place ("/layers/3/feed_forward/experts"). Empty: sound.
    [[nodiscard]] std::vector<Problem> validate() const;
};

[[nodiscard]] inline const MoeFeedForward* moe_of(const Layer& layer) {
    return std::get_if<MoeFeedForward>(&layer.feed_forward);
}

}  // namespace draftboard::model
