// SPDX-License-Identifier: Apache-2.0
#pragma once
// Does it fit? Bytes on the fullest GPU of a layout, part by part, and the verdict. Weights follow the
// plan's sharding; everything that is not weights is stated with its formula in memory.cpp.

#include <string>
#include <vector>

#include "model/architecture.h"
#include "model/layout.h"
#include "model/speculation.h"

namespace draftboard::model {

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

[[nodiscard]] MemoryFit memory_fit(const Architecture& architecture, const Layout& layout,
                                   const Speculation& speculation, const MemoryDemand& demand);

/// KV-cache bytes per token and GPU, and recurrent-state bytes per sequence and GPU.
[[nodiscard]] double kv_bytes_per_token(const Architecture& architecture, const Layout& layout,
                                        NumberFormat kv_format);
[[nodiscard]] double recurrent_state_bytes_per_sequence(const Architecture& architecture,
                                                        const Layout& layout);

}  // namespace draftboard::model
