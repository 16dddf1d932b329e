// SPDX-License-Identifier: Apache-2.0
#pragma once
// The steps between the passes of a fused cycle (chain_cycle.h): what decode_loop.cpp and model_drafter.cpp do on the host for
// greedy chains, on the device. They write the words of the passes to come where the host would have laid them (pass_block.h).
// Each is one small block, a sequence a thread: a launch is all that they cost.
//
// Of a sequence with `committed` rows in the target and `drafted` rows in the drafter, after a verify pass that kept k rows (the
// root and the accepted drafts):
//   verify   committed + k, positions from there; root = the target's own token; commits its k rows when it runs next
//   extend   its rows are the k tokens that the target has just chosen, each beside the target's state at the row before, the
//            last repeated to fill the width; logits at row k - 1
//   drafts   on drafted + k rows; the first commits the extend pass's k rows; without further steps the next extend pass does

#include <cstdint>

#include <cuda_runtime_api.h>

#include "backend/cuda/pass_view.h"

namespace draftboard::backend::cuda {

inline constexpr int kMaxFurtherSteps = 15;

struct ChainState {
    int sequences = 1;
    int width = 1;  ///< verified rows a sequence: drafts + 1; 1: plain decoding, whose passes commit by themselves
    PassWords verify;
    PassWords extend;
    PassWords drafts[kMaxFurtherSteps];  ///< width - 2 of them
    std::int32_t* drafted = nullptr;     ///< by sequence: rows in the drafter's cache, those of the last extend pass included
    std::int32_t* kept = nullptr;        ///< by sequence: rows of the last extend pass that are text
    std::int32_t* extend_source =
        nullptr;  ///< sequences x width: row of the verify pass whose state a row of the extend pass reads
    std::int32_t* draft_source = nullptr;  ///< sequences: row of the extend pass that the first further step goes on from
    std::int32_t* record =
        nullptr;            ///< for the host: sequences x (1 + width): accepted | the best token of each row, -1: not usable
    float* gaps = nullptr;  ///< for the host: sequences x width: best minus second best
};

/// After the verify pass. `tokens`, `values`: the best two of each row; `sums` as in vocabulary.h.
void accept_chain(const ChainState& state, const std::int32_t* tokens, const float* values, const float* sums,
                  cudaStream_t stream);

/// After the extend pass (draft 0) or the further step `draft`: the best of each sequence becomes that draft of the next verify
/// pass and the token of the next step. `tokens`: the best two of each sequence. `target_of_draft`: on the device, or nullptr.
void take_draft(const ChainState& state, int draft, const std::int32_t* tokens, const std::int32_t* target_of_draft,
                cudaStream_t stream);

}  // namespace draftboard::backend::cuda
