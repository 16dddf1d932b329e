// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/chain_kernels.h"

#include <cuda_runtime.h>

#include "backend/cuda/check.h"

namespace draftboard::backend::cuda {

namespace {

constexpr int kThreads = 128;

__global__ void accept(ChainState state, const std::int32_t* tokens, const float* values, const float* sums) {
    const int width = state.width;
    for (int s = static_cast<int>(threadIdx.x); s < state.sequences; s += kThreads) {
        const int first = s * width;
        std::int32_t* record = state.record + s * (1 + width);
        int accepted = 0;
        for (int row = 0; row < width; ++row) {
            const int at = first + row;
            // A sum that is no number: some logit was none.
            const bool usable = isfinite(values[2 * at]) && isfinite(sums[at]);
            record[1 + row] = usable ? tokens[2 * at] : -1;
            state.record_gaps[s * width + row] = values[2 * at] - values[2 * at + 1];
        }
        while (accepted + 1 < width && record[1 + accepted] == state.verify.token_ids[first + accepted + 1]) ++accepted;
        record[0] = accepted;
        const int kept = accepted + 1;  // rows, the root's included
        const int next = max(record[1 + accepted], 0);

        const int committed = state.verify.committed[s];
        if (width > 1) {  // a decode pass has committed its row by itself
            state.verify.commit_committed[s] = committed;
            state.verify.commit_lengths[s] = kept;
        }
        state.verify.committed[s] = committed + kept;
        state.verify.token_ids[first] = next;
        for (int row = 0; row < width; ++row) state.verify.positions[first + row] = committed + kept + row;
        if (width == 1) continue;

        const int drafted = state.extend.committed[s] + state.extend.commit_lengths[s];  // see below: what the drafter holds by now
        state.extend.committed[s] = drafted;
        state.extend.commit_lengths[s] = 0;
        for (int row = 0; row < width; ++row) {  // rows beyond the kept ones repeat the last: what follows a row can't change it
            const int from = min(row, accepted);
            state.extend.token_ids[first + row] = max(record[1 + from], 0);
            state.extend.positions[first + row] = drafted + row;
            state.extend_source[first + row] = first + from;
        }
        state.extend.logits_rows[s] = first + accepted;
        state.draft_source[s] = first + accepted;
        for (int draft = 0; draft < width - 2; ++draft) {
            const PassWords& words = state.drafts[draft];
            words.committed[s] = drafted + kept;
            words.positions[s] = drafted + kept + draft;
            if (draft > 0) continue;  // the first further step commits the rows of the extend pass
            words.commit_committed[s] = drafted;
            words.commit_lengths[s] = kept;
        }
    }
}

__global__ void advance_extend(ChainState state) {
    // The first further step has committed the extend pass's rows; without one the next extend pass does.
    for (int s = static_cast<int>(threadIdx.x); s < state.sequences; s += kThreads) {
        const int kept = state.record[s * (1 + state.width)] + 1;
        state.extend.committed[s] += kept;
    }
}

__global__ void take(ChainState state, int draft, const std::int32_t* tokens, const std::int32_t* target_of_draft) {
    for (int s = static_cast<int>(threadIdx.x); s < state.sequences; s += kThreads) {
        const int own = tokens[2 * s];
        const int token = target_of_draft == nullptr ? own : target_of_draft[own];
        state.verify.token_ids[s * state.width + draft + 1] = token;
        if (draft < state.width - 2) state.drafts[draft].token_ids[s] = token;
    }
}

}  // namespace

void accept_chain(const ChainState& state, const std::int32_t* tokens, const float* values, const float* sums, cudaStream_t stream) {
    accept<<<1, kThreads, 0, stream>>>(state, tokens, values, sums);
    check_launch("accept_chain");
}

void take_draft(const ChainState& state, int draft, const std::int32_t* tokens, const std::int32_t* target_of_draft, cudaStream_t stream) {
    take<<<1, kThreads, 0, stream>>>(state, draft, tokens, target_of_draft);
    check_launch("take_draft");
}

}  // namespace draftboard::backend::cuda
