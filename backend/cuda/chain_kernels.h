// SPDX-License-Identifier: Apache-2.0
#pragma once
// The steps between the passes of a fused cycle (chain_cycle.h), as kernels: what they write is chain_layout.h's. Each is one
// small block, a sequence a thread: a launch is all that they cost.

#include <cstdint>

#include <cuda_runtime_api.h>

#include "backend/cuda/chain_layout.h"

namespace draftboard::backend::cuda {

/// After the verify pass.
void accept_chain(const ChainState& state, const ChainChoices& choices, cudaStream_t stream);

/// After the extend pass (draft 0) or the further step `draft`: the best of each sequence becomes that draft of the next verify
/// pass and the token of the next step. `tokens`: the best two of each sequence. `target_of_draft`: on the device, or nullptr.
void take_draft(const ChainState& state, int draft, const std::int32_t* tokens, const std::int32_t* target_of_draft,
                cudaStream_t stream);

}  // namespace draftboard::backend::cuda
