// SPDX-License-Identifier: Apache-2.0
#pragma once
// Counts an architecture: parameters and stored bytes, by part, whole model. The text model only: a
// vision tower is left out (the reader notes it), MTP modules are counted apart, as the publishers do.

#include <cstdint>
#include <string>
#include <vector>

#include "model/architecture.h"

namespace draftboard::model {

struct PartCount {
    std::string name;  ///< "embedding", "attention", "dense_mlp", "routed_experts", "shared_experts", "router", "norms", "lm_head"
    std::int64_t parameters = 0;
    double bytes = 0;
    std::int64_t active_parameters = 0;  ///< used for one token
};

struct ParameterCount {
    std::vector<PartCount> parts;
    std::int64_t total = 0;            ///< without MTP modules
    std::int64_t active = 0;           ///< parameters a token's forward uses; see docs/architecture.md for the embedding
    std::int64_t mtp = 0;
    double bytes = 0;
    double mtp_bytes = 0;
};

[[nodiscard]] ParameterCount count_parameters(const Architecture& architecture);

/// Parameters of one layer's mixer, for tests and memory.
[[nodiscard]] std::int64_t mixer_parameters(const TokenMixer& mixer, int hidden);

/// All-reduces of one forward pass under TP > 1: decoder (2 a layer), embedding, logits all-gathers.
struct CollectiveCount {
    int decoder_all_reduces = 0;
    int embedding_all_reduces = 0;
    int logits_all_gathers = 0;
};
[[nodiscard]] CollectiveCount count_collectives(const Architecture& architecture);

}  // namespace draftboard::model
