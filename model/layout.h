// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parallel layout: how one model is laid over GPUs. Degrees follow the engines' own names. The
// sharding of single tensors is decided in plan.cpp and memory.cpp from these numbers.
//
//   GPUs used = tensor * pipeline * replicas
//   attention_data and decode_context divide the tensor-parallel group; expert is 1 or `tensor`
//   (SGLang's --ep, vLLM's --enable-expert-parallel: experts placed whole on ranks of the TP group).

#include <vector>

#include "model/error.h"

namespace draftboard::model {

struct Architecture;

struct Layout {
    int tensor = 1;          ///< TP
    int expert = 1;          ///< EP: ranks over which whole experts are spread; 1: experts are TP-sharded
    bool all_to_all = false; ///< EP with an all-to-all backend (else EP still ends in an all-reduce)
    int pipeline = 1;        ///< PP
    int attention_data = 1;  ///< DP attention inside the TP group
    int decode_context = 1;  ///< DCP: KV cache split along the context inside the TP group
    int replicas = 1;        ///< independent copies of the whole layout

    [[nodiscard]] int gpus_per_replica() const { return tensor * pipeline; }
    [[nodiscard]] int gpus() const { return gpus_per_replica() * replicas; }

    /// Problems with their JSON pointer below /layout, e.g. heads not divisible by TP.
    [[nodiscard]] std::vector<Problem> validate(const Architecture& architecture) const;
};

}  // namespace draftboard::model
