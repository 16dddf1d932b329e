// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/chain_kernels.h"

#include <cuda_runtime.h>

#include "backend/cuda/check.h"
#include "backend/cuda/launch_ahead.cuh"

namespace draftboard::backend::cuda {

namespace {

constexpr int kThreads = 128;

/// One commit of sequence s; entries that belong to no sequence are emptied by the caller.
__device__ void set_commit(const PassWords& words, int s, int committed, int length) {
    words.commit_slots[s] = words.slots[s];
    words.commit_committed[s] = committed;
    words.commit_lengths[s] = length;
}

__device__ void empty_rest(const PassWords& words, int sequences) {
    for (int entry = sequences + static_cast<int>(threadIdx.x); entry < words.commits; entry += kThreads)
        words.commit_lengths[entry] = 0;
}

__device__ void lay_out_drafter(const ChainState& state, int s, const std::int32_t* record) {
    const int accepted = record[0];
    const int kept = accepted + 1;
    const int first = s * state.width;
    const int drafted = state.drafted[s];
    const bool further = state.width > 2;
    set_commit(state.extend, s, drafted - state.kept[s], further ? 0 : state.kept[s]);
    state.extend.committed[s] = drafted;
    for (int row = 0; row < state.width; ++row) {  // what follows a row can't change it
        const int from = min(row, accepted);
        state.extend.token_ids[first + row] = max(record[1 + from], 0);
        state.extend.positions[first + row] = drafted + row;
        state.extend_source[first + row] = first + from;
    }
    state.extend.logits_rows[s] = first + accepted;
    state.draft_source[s] = first + accepted;
    for (int step = 0; step < state.width - 2; ++step) {
        const PassWords& words = state.drafts[step];
        words.committed[s] = drafted + kept;
        words.positions[s] = drafted + kept + step;
        set_commit(words, s, drafted, step == 0 ? kept : 0);
    }
    state.drafted[s] = drafted + kept;
    state.kept[s] = kept;
}

__global__ void accept(ChainState state, const std::int32_t* tokens, const float* values, const float* sums) {
    begin_behind_predecessor();
    const int width = state.width;
    for (int s = static_cast<int>(threadIdx.x); s < state.sequences; s += kThreads) {
        const int first = s * width;
        std::int32_t* record = state.record + s * (1 + width);
        for (int row = 0; row < width; ++row) {
            const int at = first + row;
            // A sum that is no number: some logit was none.
            record[1 + row] = isfinite(values[2 * at]) && isfinite(sums[at]) ? tokens[2 * at] : -1;
            state.gaps[at] = values[2 * at] - values[2 * at + 1];
        }
        int accepted = 0;
        while (accepted + 1 < width && record[1 + accepted] == state.verify.token_ids[first + accepted + 1]) ++accepted;
        record[0] = accepted;

        const int committed = state.verify.committed[s];
        const int kept = accepted + 1;
        set_commit(state.verify, s, committed, width > 1 ? kept : 0);
        state.verify.committed[s] = committed + kept;
        state.verify.token_ids[first] = max(record[1 + accepted], 0);
        for (int row = 0; row < width; ++row) state.verify.positions[first + row] = committed + kept + row;
        if (width > 1) lay_out_drafter(state, s, record);
    }
    empty_rest(state.verify, state.sequences);
    if (width > 1) empty_rest(state.extend, state.sequences);
}

__global__ void take(ChainState state, int draft, const std::int32_t* tokens, const std::int32_t* target_of_draft) {
    begin_behind_predecessor();
    for (int s = static_cast<int>(threadIdx.x); s < state.sequences; s += kThreads) {
        const int own = tokens[2 * s];
        const int token = target_of_draft == nullptr ? own : target_of_draft[own];
        state.verify.token_ids[s * state.width + draft + 1] = token;
        if (draft < state.width - 2) state.drafts[draft].token_ids[s] = token;
    }
}

}  // namespace

void accept_chain(const ChainState& state, const std::int32_t* tokens, const float* values, const float* sums,
                  cudaStream_t stream) {
    launch_ahead("accept_chain", accept, dim3(1), kThreads, 0, stream, state, tokens, values, sums);
}

void take_draft(const ChainState& state, int draft, const std::int32_t* tokens, const std::int32_t* target_of_draft,
                cudaStream_t stream) {
    launch_ahead("take_draft", take, dim3(1), kThreads, 0, stream, state, draft, tokens, target_of_draft);
}

}  // namespace draftboard::backend::cuda
