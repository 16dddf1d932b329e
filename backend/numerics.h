// SPDX-License-Identifier: Apache-2.0
#pragma once
// The numbers of a checkpoint's config.json that change results but not shapes: norm epsilon, rotary base and scaling,
// router scaling. model/architecture.h holds the shapes; together they define the function a model computes.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/architecture.h"
#include "model/error.h"

namespace draftboard::backend {

/// YaRN (Peng et al. 2023) as DeepSeek applies it. Frequencies between the two betas are blended between 1 and 1/factor;
/// cos and sin are scaled by m(mscale) / m(mscale_all_dim), and MLA's softmax by m(mscale_all_dim)^2, where
///   m(s) = 0.1 s ln(factor) + 1   (1 for factor <= 1 or s = 0)
struct Yarn {
    double factor = 1;
    double original_max_position = 4096;
    double beta_fast = 32;
    double beta_slow = 1;
    double mscale = 1;
    double mscale_all_dim = 0;
};

struct Numerics {
    double norm_epsilon = 1e-6;
    /// Of MLA's q_a and kv_a norms: DeepSeek's code builds them with its class default whatever rms_norm_eps says.
    double latent_norm_epsilon = 1e-6;
    /// Norm weights are stored as their difference from 1 (Qwen3-Next, Qwen3.5): y = x / rms (1 + w).
    bool norm_plus_one = false;
    double rope_theta = 10000;
    bool rope_interleaved = false;  ///< pairs (2i, 2i+1) are rotated (DeepSeek); else (i, i + d/2)
    std::optional<Yarn> yarn;
    double routed_scaling = 1;
    bool normalise_top_k = true;
    std::vector<int> end_tokens;    ///< eos_token_id
    int begin_token = -1;           ///< bos_token_id, -1: none
};

/// `config` is the text of config.json; `architecture` what model/import/hf_config.h made of it (model_type, max_context
/// and the kind of the first mixer are used). Errors name the file, the field and what is supported (rope types other
/// than default and yarn, activations other than silu are not).
[[nodiscard]] model::Expected<Numerics> read_numerics(std::string_view config, const std::string& name,
                                                      const model::Architecture& architecture);

}  // namespace draftboard::backend
