// SPDX-License-Identifier: Apache-2.0
// One block over the sequences of a cycle: the functions of chain_layout.h, a sequence a thread.
#include "backend/cuda/chain_kernels.h"

#include <cuda_runtime.h>

#include "backend/cuda/check.h"
#include "backend/cuda/launch_ahead.cuh"

namespace draftboard::backend::cuda {

namespace {

constexpr int kThreads = 128;

/// Bytes a sequence: some 60 width, 4 a commit's entry. No flops to speak of.
__global__ void __launch_bounds__(kThreads) accept(const __grid_constant__ ChainState state, ChainChoices choices) {
    begin_behind_predecessor();
    for (int s = static_cast<int>(threadIdx.x); s < state.sequences; s += kThreads) accept_sequence(state, s, choices);
    empty_commits(state, static_cast<int>(threadIdx.x), kThreads);
}

/// Bytes a sequence: 16.
__global__ void __launch_bounds__(kThreads) take(const __grid_constant__ ChainState state, int draft, const std::int32_t* tokens,
                                                 const std::int32_t* target_of_draft) {
    begin_behind_predecessor();
    for (int s = static_cast<int>(threadIdx.x); s < state.sequences; s += kThreads)
        take_sequence(state, draft, s, tokens[2 * s], target_of_draft);
}

}  // namespace

void accept_chain(const ChainState& state, const ChainChoices& choices, cudaStream_t stream) {
    launch_ahead("accept_chain", accept, dim3(1), kThreads, 0, stream, state, choices);
}

void take_draft(const ChainState& state, int draft, const std::int32_t* tokens, const std::int32_t* target_of_draft,
                cudaStream_t stream) {
    launch_ahead("take_draft", take, dim3(1), kThreads, 0, stream, state, draft, tokens, target_of_draft);
}

}  // namespace draftboard::backend::cuda
