// SPDX-License-Identifier: Apache-2.0
#pragma once
// Counts an architecture: parameters and stored bytes, by part, whole model. The text model only: a
// vision tower is left out (the reader notes it), MTP modules are counted apart, as the publishers
// do. The matrices of a token mixer are listed once, here; the reader of quantization resolves a
// format for each by the same names, and plan.cpp gives them to GPUs. What is printed is
// architecture_report.h.
//
//   total  = embedding + head + final norm + sum over layers of (mixer + feed-forward + 2 norms)
//   head   = vocabulary * hidden, or 0 where tied to the embedding
//   active = total - embedding - the (E - k) experts of each layer that a token does not visit;
//            of tied embeddings the one table stays in, as the LM head multiplies with it
//   MLA    = hidden*q_lora + q_lora*heads*(nope+rope) + hidden*(kv_lora+rope) +
//   kv_lora*heads*(nope+v)
//            + heads*v*hidden + q_lora + kv_lora (norms)
// Worked example: Kimi-K2.5's MLA: 11.0 M + 18.9 M + 4.1 M + 8.4 M + 58.7 M + 2048 = 101.1 M
// parameters; with 384 experts of 3 * 7168 * 2048 = 44.0 M a layer the model has 1026.4e9
// parameters, 31.7e9 of them active.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/architecture.h"

namespace draftboard::model {

/// One matrix of a token mixer, under the name its Hugging Face module has below self_attn /
/// linear_attn.
struct MixerMatrix {
    std::string_view name;  ///< static: "q_a_proj", "kv_b_proj", "in_proj_qkv", "indexer.wq_b", ...
    std::int64_t rows = 0;  ///< output features
    std::int64_t columns = 0;  ///< input features
    bool bias = false;
};

/// The projections of a mixer, in the order a forward pass meets them.
[[nodiscard]] std::vector<MixerMatrix> mixer_matrices(const TokenMixer& mixer, int hidden);

/// What a mixer holds beside matrices and their biases: norms, sinks, convolution, decay and step
/// vectors.
[[nodiscard]] std::int64_t mixer_vector_parameters(const TokenMixer& mixer);

struct PartCount {
    std::string name;  ///< "embedding", "attention", "dense_mlp", "routed_experts",
                       ///< "shared_experts", "router", "norms", "lm_head"
    std::int64_t parameters = 0;
    double bytes = 0;
    std::int64_t active_parameters =
        0;  ///< used for one token; 0 for an untied input embedding (a row is looked up)
};

struct ParameterCount {
    std::vector<PartCount> parts;
    std::int64_t total = 0;   ///< without MTP modules
    std::int64_t active = 0;  ///< parameters a token's forward multiplies with: LM head in, input
                              ///< embedding out; see docs/architecture.md
    std::int64_t active_with_embedding =
        0;  ///< the other convention: the embedding table counted as well
    std::int64_t mtp = 0;
    double bytes = 0;
    double mtp_bytes = 0;

    [[nodiscard]] const PartCount* part(std::string_view name) const;  ///< null where there is none
};

/// Saturates at the largest int64 for architectures that validate() would refuse.
[[nodiscard]] ParameterCount count_parameters(const Architecture& architecture);

/// Parameters of one layer's mixer, for tests and memory: matrices, biases and vectors.
[[nodiscard]] std::int64_t mixer_parameters(const TokenMixer& mixer, int hidden);

/// All-reduces of one forward pass under TP > 1: decoder (2 a layer), embedding, logits
/// all-gathers.
struct CollectiveCount {
    int decoder_all_reduces = 0;
    int embedding_all_reduces = 0;
    int logits_all_gathers = 0;
};
[[nodiscard]] CollectiveCount count_collectives(const Architecture& architecture);

}  // namespace draftboard::model
