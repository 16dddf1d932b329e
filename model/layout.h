// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parallel layout: how one model is laid over GPUs. Degrees follow the engines' own names. The
// sharding of single tensors follows from these numbers in sharding.h; plan_layers.h applies it.
// layout_json.h reads and writes it.
//
//   GPUs used = tensor * pipeline * replicas
//   attention_data and decode_context divide the tensor-parallel group; expert is 1 or `tensor`
//   (SGLang's --ep, vLLM's --enable-expert-parallel: experts placed whole on ranks of the TP group).

#include <string>
#include <vector>

#include "model/error.h"

namespace draftboard::model {

struct Architecture;

/// Upper bound of every degree: no box or cluster in view is larger, and products stay within int.
inline constexpr int kMaxParallelDegree = 1024;

struct Layout {
    int tensor = 1;          ///< TP
    int expert = 1;          ///< EP: ranks over which whole experts are spread; 1: experts are TP-sharded
    bool all_to_all = false; ///< EP with an all-to-all backend (else EP still ends in an all-reduce)
    int pipeline = 1;        ///< PP
    int attention_data = 1;  ///< DP attention inside the TP group
    int decode_context = 1;  ///< DCP: KV cache split along the context inside the TP group
    int replicas = 1;        ///< independent copies of the whole layout
    /// What if one all-reduce ended mixer and feed-forward together? Both then read the same input, which
    /// is another function: a model has to be trained for it. Halves the decoder's all-reduces.
    bool parallel_blocks = false;

    [[nodiscard]] int gpus_per_replica() const { return tensor * pipeline; }
    [[nodiscard]] int gpus() const { return gpus_per_replica() * replicas; }

    /// Problems with their JSON pointer below /layout, e.g. heads not divisible by TP. Refused:
    ///   heads, delta-net heads, intermediate widths, vocabulary that do not divide by their ranks
    ///   (kv heads fewer than ranks are replicated if the ranks divide by them);
    ///   shards that cut a quantization block (MXFP4 experts are padded instead, see sharding.h);
    ///   experts that do not divide by EP; EP other than 1 or TP; an all-to-all without EP;
    ///   DCP over ranks that hold different KV heads; more stages than layers.
    /// Each message is given once, for the first layer that violates it.
    [[nodiscard]] std::vector<Problem> validate(const Architecture& architecture) const;

    /// "TP8", "TP8 EP8 all-to-all", "TP4 PP2 x2": for reports.
    [[nodiscard]] std::string name() const;
    bool operator==(const Layout&) const = default;
};

}  // namespace draftboard::model
