// SPDX-License-Identifier: Apache-2.0
#pragma once
// The steps between the passes of a fused cycle (chain_cycle.h): what the host does in decode_loop.cpp and model_drafter.cpp for greedy
// chains, on the device. They write the words of the passes to come (pass_block.h) where the host would have laid them. Each is one
// small block: a sequence a thread; bytes and flops do not count beside the launch.

#include <cstdint>

#include <cuda_runtime_api.h>

#include "backend/cuda/pass_view.h"

namespace draftboard::backend::cuda {

/// The words of one pass that change from cycle to cycle, writable.
struct PassWords {
    std::int32_t* token_ids = nullptr;
    std::int32_t* positions = nullptr;
    std::int32_t* committed = nullptr;
    std::int32_t* logits_rows = nullptr;
    std::int32_t* commit_committed = nullptr;
    std::int32_t* commit_lengths = nullptr;
};

inline constexpr int kMaxDraftSteps = 64;

struct ChainState {
    int sequences = 1;
    int width = 1;                 ///< verified rows a sequence: drafts + 1
    PassWords verify;              ///< or the decode pass, whose rows are committed at once
    PassWords extend;              ///< width 1: not used, and so the drafts
    PassWords drafts[kMaxDraftSteps];  ///< width - 2 further steps
    std::int32_t* extend_source = nullptr;  ///< sequences x width: row of the verify pass whose state a row of the extend pass reads
    std::int32_t* draft_source = nullptr;   ///< sequences: row of the extend pass that the first further step goes on from
    /// What the host reads of a cycle: a sequence, 1 + accepted | width tokens; and width gaps.
    std::int32_t* record = nullptr;         ///< sequences x (1 + width)
    float* record_gaps = nullptr;           ///< sequences x width
};

/// After the verify pass: accepts, moves all lengths on, lays out the extend pass and the further steps.
/// `tokens`, `values`, `sums`: the best two of each row (vocabulary.h).
void accept_chain(const ChainState& state, const std::int32_t* tokens, const float* values, const float* sums, cudaStream_t stream);

/// After the extend pass (draft 0) or further step `draft`: its best token becomes draft number `draft` of the next verify pass and the token of
/// the next step. `target_of_draft`: on the device, or nullptr.
void take_draft(const ChainState& state, int draft, const std::int32_t* tokens, const std::int32_t* target_of_draft, cudaStream_t stream);

}  // namespace draftboard::backend::cuda
