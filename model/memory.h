// SPDX-License-Identifier: Apache-2.0
#pragma once
// Does it fit? Bytes on the fullest GPU of a layout, part by part, and the verdict. Weights follow the
// plan's sharding, because they are read off a plan: every operation's weight bytes, with all of a rank's
// experts in place of the touched ones and the whole table in place of the looked-up rows. With pipeline
// stages the fullest stage counts; embedding lies on the first, head and drafter on the last.
//
//   kv_cache         layers x bytes a token x ceil(context / DCP) x ceil(sequences / attention_data);
//                    MLA: (kv_lora + rope), the same on every rank; GQA: 2 kv_heads/rank x head_dim;
//                    sliding windows hold min(context, window); plus the sparse indexer's keys
//   recurrent_state  layers x (state + convolution window) x sequences x (1 + n), n draft tokens: one snapshot
//                    for each position of a verify pass (SGLang's intermediate_ssm); 1 without speculation
//   activations      t x (4 hidden + widest) x bytes + rows x vocabulary x 4: t tokens of the largest pass (a
//                    prefill chunk of kPrefillChunk or the verify batch), widest operation output a token, rows
//                    of logits in fp32
//   nccl_buffers     by group size, see kNcclBytes in memory.cpp
//   cuda_context     kCudaContextBytes, an assumption
// Worked example: Kimi-K2.5, TP8, bf16 cache: 61 x 576 x 2 = 70 272 bytes a token on every GPU.

#include <string>
#include <vector>

#include "model/architecture.h"
#include "model/layout.h"
#include "model/speculation.h"

namespace draftboard::model {

inline constexpr std::int64_t kPrefillChunk = 8192;  ///< tokens; SGLang's and vLLM's usual chunk on large GPUs
/// Assumed: context, libraries and loaded kernels of a CUDA 12/13 process, commonly 0.4-0.6 GB in nvidia-smi.
inline constexpr double kCudaContextBytes = 0.5e9;
inline constexpr int kMaxBatchSearched = 1 << 16;  ///< bound of the search for the largest batch

struct MemoryDemand {
    int sequences = 1;
    std::int64_t context = 0;  ///< cached tokens per sequence at the end
    NumberFormat kv_format = NumberFormat::bf16;
    double capacity_bytes = 0;      ///< of one GPU
    double usable_fraction = 0.92;  ///< what an engine may claim (vLLM's gpu-memory-utilization)
};

struct MemoryPart {
    std::string name;  ///< "routed_experts", "attention", "kv_cache", "recurrent_state", "drafter", ...
    double bytes = 0;
    std::string formula;
};

struct MemoryFit {
    bool fits = false;
    std::vector<MemoryPart> parts;  ///< per GPU, the fullest
    double total_bytes = 0;
    double usable_bytes = 0;
    std::int64_t max_context = 0;  ///< longest context at this batch that still fits, 0: none
    int max_sequences = 0;         ///< largest batch at this context
    std::string verdict;           ///< a sentence
};

/// Never fails: what can't be laid out (layout or speculation refused, sizes out of bounds) does not fit, and
/// the verdict says why.
[[nodiscard]] MemoryFit memory_fit(const Architecture& architecture, const Layout& layout,
                                   const Speculation& speculation, const MemoryDemand& demand);

/// KV-cache bytes per token and GPU, and recurrent-state bytes per sequence and GPU.
[[nodiscard]] double kv_bytes_per_token(const Architecture& architecture, const Layout& layout,
                                        NumberFormat kv_format);
[[nodiscard]] double recurrent_state_bytes_per_sequence(const Architecture& architecture,
                                                        const Layout& layout);

}  // namespace draftboard::model
