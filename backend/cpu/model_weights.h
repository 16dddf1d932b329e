// SPDX-License-Identifier: Apache-2.0
#pragma once
// The weights of one rank, sorted by what they are for, cut as model/sharding.h says. load_weights() takes them from a
// checkpoint by their Hugging Face names, random_weights() makes them up (for tests and for timing shapes without a
// checkpoint). rank.h executes the plan with them. weight_builder.h knows names and shares, checkpoint_source.h storage,
// engine_limits.h what is refused.
//
// Shares of rank r of A attention ranks (r mod A) or T tensor ranks; A = T without data-parallel attention:
//   rows (output features)     q heads, kv heads (replicated when fewer than ranks), gate/up widths, LM head's vocabulary / T,
//                              embedding's vocabulary / A
//   columns (input features)   o_proj, out_proj, down_proj
//   whole                      norms, MLA's a projections, routers, shared gates, EAGLE-3's fc, MTP's projection
//   experts                    T-sharded widths (EP 1), or whole experts [r E/EP, (r+1) E/EP)
// fp16 tensors are held as fp32; other formats stay as stored.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "backend/checkpoint.h"
#include "backend/cpu/random_source.h"
#include "backend/cpu/weight_matrix.h"
#include "backend/numerics.h"
#include "model/architecture.h"
#include "model/layout.h"
#include "model/speculation.h"

namespace draftboard::backend::cpu {

/// Matrices that read the same input and write one after the other: q, k and v, or gate and up.
struct Projection {
    std::vector<WeightMatrix> parts;
    std::vector<float> bias;  ///< over all parts' rows; empty: none
    [[nodiscard]] std::int64_t rows() const;
};

struct MlaWeights {
    Projection qkv_a;               ///< q_a, kv_a (q_lora_rank > 0); else q, kv_a
    std::vector<float> q_a_norm;    ///< empty without q_lora
    std::vector<float> kv_a_norm;
    Projection q_b;                 ///< empty without q_lora
    WeightMatrix kv_b;              ///< local heads x (nope + v) rows, kv_lora columns
    WeightMatrix o;                 ///< hidden x local heads * v
};

struct GqaWeights {
    Projection qkv;             ///< q (per head: query, then gate if the model has an output gate), k, v
    std::vector<float> q_norm;  ///< head_dim (per head) or empty
    std::vector<float> k_norm;
    WeightMatrix o;
    std::vector<float> o_bias;  ///< of attention rank 0 alone, because the ranks' outputs are summed
};

/// Projected channels of one row: q | k | v (2 key_width + value_width), z (value_width), b, a (value heads each).
/// qwen3_next's fused, per-key-head interleaved matrices are unpacked to this order while loading.
struct DeltaNetWeights {
    Projection in_proj;              ///< qkv, z, b, a: local rows
    std::vector<float> conv;         ///< channels x conv_kernel
    std::vector<float> a_log;        ///< value heads
    std::vector<float> dt_bias;      ///< value heads
    std::vector<float> norm;         ///< value_head_dim
    WeightMatrix out;
};

struct DenseWeights {
    Projection gate_up;
    WeightMatrix down;
    WeightMatrix down_by_input;  ///< narrow experts: down transposed (experts.h, store_by_input), which then holds no data
};

struct MoeWeights {
    WeightMatrix router;
    std::vector<float> correction_bias;  ///< experts, or empty
    int first_expert = 0;                ///< of this rank, under expert parallelism
    std::vector<DenseWeights> experts;   ///< of this rank
    std::optional<DenseWeights> shared;
    std::vector<float> shared_gate;      ///< hidden, or empty
};

struct LayerWeights {
    std::vector<float> mixer_norm;         ///< empty in an EAGLE-3 head: see DraftFusion
    std::vector<float> feed_forward_norm;
    std::variant<MlaWeights, GqaWeights, DeltaNetWeights> mixer;
    std::variant<DenseWeights, MoeWeights> feed_forward;
};

/// What a drafter that reads the target adds to an ordinary model.
struct DraftFusion {
    WeightMatrix projection;                ///< EAGLE-3: fc, hidden x aux hidden; MTP: hidden x 2 hidden
    std::vector<float> embedding_norm;      ///< EAGLE-3: the first layer's input norm; MTP: pre_fc_norm_embedding
    std::vector<float> hidden_norm;         ///< EAGLE-3: hidden_norm; MTP: pre_fc_norm_hidden
    std::vector<int> target_of_draft;       ///< EAGLE-3: target token of each draft token (d2t); empty: the same
};

struct ModelWeights {
    std::shared_ptr<const WeightMatrix> embedding;  ///< rows [a V/A, (a+1) V/A), a = rank mod A
    std::vector<LayerWeights> layers;
    std::vector<float> final_norm;
    std::shared_ptr<const WeightMatrix> lm_head;    ///< rows of this rank
    std::optional<DraftFusion> fusion;
};

/// Of the target. Errors name the tensor: missing, of another shape or type than the architecture says.
[[nodiscard]] model::Expected<ModelWeights> load_weights(const Checkpoint& checkpoint, const model::Architecture& architecture,
                                                         const Numerics& numerics, const model::Layout& layout, int rank);
/// The first MTP module stored with the target. `target` lends its embedding and LM head; copies of them in the module
/// (DeepSeek-V3 has them) are read only where they differ.
[[nodiscard]] model::Expected<ModelWeights> load_mtp(const Checkpoint& checkpoint, const model::Architecture& architecture,
                                                     const Numerics& numerics, const model::Layout& layout, int rank,
                                                     const ModelWeights& target);
/// An EAGLE-3 head; lends the target's embedding unless the head has its own. `head_architecture` is
/// model::drafter_architecture(target, speculation).
[[nodiscard]] model::Expected<ModelWeights> load_eagle3(const Checkpoint& head, const model::Architecture& head_architecture,
                                                        const model::Architecture& target_architecture,
                                                        const model::Layout& layout, int rank, const ModelWeights& target);

/// Tensors that none of the above reads, by name: of a target with its MTP module, or of a head. Rotary tables, vision
/// parts and scales of activations and caches, which the engine does without, are not listed. Reads no data.
[[nodiscard]] model::Expected<std::vector<std::string>> unread_tensors(const Checkpoint& checkpoint,
                                                                       const model::Architecture& architecture,
                                                                       const Numerics& numerics);
[[nodiscard]] model::Expected<std::vector<std::string>> unread_eagle3_tensors(const Checkpoint& head,
                                                                              const model::Architecture& head_architecture,
                                                                              const model::Architecture& target_architecture);

/// Weights of standard deviation 1/sqrt(columns), norms 1: the same function whatever the layout, because each element
/// depends on (seed, tensor, place) alone (random_source.h). Formats as the architecture says.
[[nodiscard]] model::Expected<ModelWeights> random_weights(const model::Architecture& architecture, const model::Layout& layout,
                                                           int rank, std::uint64_t seed, RandomNumbers numbers = RandomNumbers::made);
[[nodiscard]] model::Expected<ModelWeights> random_mtp(const model::Architecture& architecture, const model::Layout& layout,
                                                       int rank, std::uint64_t seed, const ModelWeights& target,
                                                       RandomNumbers numbers = RandomNumbers::made);
/// `aux_layers`: hidden states of the target that fc reads. The draft vocabulary is spread evenly over the target's.
[[nodiscard]] model::Expected<ModelWeights> random_eagle3(const model::Architecture& head_architecture, int aux_layers,
                                                          const model::Architecture& target_architecture,
                                                          const model::Layout& layout, int rank, std::uint64_t seed,
                                                          const ModelWeights& target,
                                                          RandomNumbers numbers = RandomNumbers::made);

}  // namespace draftboard::backend::cpu
