// SPDX-License-Identifier: Apache-2.0
#pragma once
// The config.json of an EAGLE-3 head as SafeAILab/EAGLE and SpecForge publish it: which layers of the target it reads, its
// one layer (Llama-style, or MLA-style where kv_lora_rank is given), its draft vocabulary. The tensors are read by
// cpu/model_weights.h.
//
// Which hidden states. The head reads the residual stream of the target at the *input* of some layers; engines name them so
// (2, L/2 and L - 3 of L layers, unless the head says otherwise). A head names them in one of two ways:
//   "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 29, 57]}   layers whose *output* is read: input of the next, id + 1
//   "eagle_aux_hidden_state_layer_ids": [2, 30, 58]                     the inputs themselves (vLLM's own numbering)

#include <string>
#include <string_view>
#include <vector>

#include "backend/numerics.h"
#include "model/architecture.h"
#include "model/error.h"
#include "model/speculation.h"

namespace draftboard::backend {

struct Eagle3Description {
    model::Eagle3Head head;
    std::vector<int> aux_layers;  ///< hidden states at the input of these target layers, ascending
    Numerics numerics;            ///< of the head
};

/// "architectures" names an EAGLE-3 head.
[[nodiscard]] bool is_eagle3_config(std::string_view config);

/// `config`: the text of config.json, `name` stands in errors. head.format and head.own_embedding are left as they are.
[[nodiscard]] model::Expected<Eagle3Description> read_eagle3_config(std::string_view config, const std::string& name,
                                                                    const model::Architecture& target);

}  // namespace draftboard::backend
