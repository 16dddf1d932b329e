// SPDX-License-Identifier: Apache-2.0
#pragma once
// What decode_loop.cpp and model_drafter.cpp do on the host between the passes of a greedy cycle, sequence by sequence, for words
// that lie where kernels read them (pass_block.h). Plain functions of both host and device: chain_kernels.cu runs them on the
// GPU, a thread a sequence, and the tests hold their words against those that the host lays out. No launch and no memory: those
// are chain_cycle.cpp's.
//
// Of a sequence with `committed` rows in the target and `drafted` rows in the drafter, after a verify pass that kept k rows (the
// root and the accepted drafts):
//   verify   committed + k, positions from there; root = the target's own token; commits its k rows when it runs next
//   extend   its rows are the k tokens that the target has just chosen, each beside the target's state at the row before, the
//            last repeated to fill the width; logits at row k - 1
//   drafts   on drafted + k rows; the first commits the extend pass's k rows; without further steps the next extend pass does
//
// Example: width 3, committed 9, drafted 9, drafts (5, 6), the target chooses (5, 8, 2): k = 2, and the next root is 8. Extend
// runs 5 8 8 at 9 10 11 with logits at row 1, the one further step stands at 11, the next verify pass at 11 12 13.

#include <cmath>
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

/// The best two tokens of each row of the verify pass, with their logits; `sums` as in vocabulary.h.
struct ChainChoices {
    const std::int32_t* tokens = nullptr;
    const float* values = nullptr;
    const float* sums = nullptr;
};

/// Rows that a row of the next cycle may see, itself included, where the host knows `committed` rows and has not read the cycle
/// before: that one may add its width, and this one looks its width further. The drafter's further steps, width - 2 of them,
/// stand behind all of these.
[[nodiscard]] constexpr std::int64_t most_chain_rows(std::int64_t committed, int width) {
    return committed + 2 * std::int64_t{width} + (width > 2 ? width - 2 : 0);
}

/// One commit, of sequence s in its own entry.
__host__ __device__ inline void set_commit(const PassWords& words, int s, int committed, int length) {
    words.commit_slots[s] = words.slots[s];
    words.commit_committed[s] = committed;
    words.commit_lengths[s] = length;
}

/// The passes of the drafter after accept_sequence() wrote the sequence's record.
__host__ __device__ inline void lay_out_drafter(const ChainState& state, int s, const std::int32_t* record) {
    const int accepted = record[0];
    const int kept = accepted + 1;
    const int first = s * state.width;
    const int drafted = state.drafted[s];
    const bool further = state.width > 2;
    set_commit(state.extend, s, drafted - state.kept[s], further ? 0 : state.kept[s]);
    state.extend.committed[s] = drafted;
    for (int row = 0; row < state.width; ++row) {  // what follows a row can't change it
        const int from = row < accepted ? row : accepted;
        state.extend.token_ids[first + row] = record[1 + from] > 0 ? record[1 + from] : 0;
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

/// After the verify pass: what it accepts of sequence s, and the words of all passes until the one after the next.
__host__ __device__ inline void accept_sequence(const ChainState& state, int s, const ChainChoices& choices) {
    const int width = state.width;
    const int first = s * width;
    std::int32_t* record = state.record + s * (1 + width);
    for (int row = 0; row < width; ++row) {
        const int at = first + row;
        // A sum that is no number: some logit was none.
        record[1 + row] = std::isfinite(choices.values[2 * at]) && std::isfinite(choices.sums[at]) ? choices.tokens[2 * at] : -1;
        state.gaps[at] = choices.values[2 * at] - choices.values[2 * at + 1];
    }
    int accepted = 0;
    while (accepted + 1 < width && record[1 + accepted] == state.verify.token_ids[first + accepted + 1]) ++accepted;
    record[0] = accepted;

    const int committed = state.verify.committed[s];
    const int kept = accepted + 1;
    set_commit(state.verify, s, committed, width > 1 ? kept : 0);
    state.verify.committed[s] = committed + kept;
    state.verify.token_ids[first] = record[1 + accepted] > 0 ? record[1 + accepted] : 0;
    for (int row = 0; row < width; ++row) state.verify.positions[first + row] = committed + kept + row;
    if (width > 1) lay_out_drafter(state, s, record);
}

/// Entries of commits that belong to no sequence of the cycle, from sequences + `begin` on, every `step`th.
__host__ __device__ inline void empty_commits(const ChainState& state, int begin, int step) {
    for (int entry = state.sequences + begin; entry < state.verify.commits; entry += step) state.verify.commit_lengths[entry] = 0;
    if (state.width == 1) return;
    for (int entry = state.sequences + begin; entry < state.extend.commits; entry += step) state.extend.commit_lengths[entry] = 0;
}

/// The drafter's best token of sequence s, `own`, becomes draft `draft` of the next verify pass and the token of the next step.
__host__ __device__ inline void take_sequence(const ChainState& state, int draft, int s, std::int32_t own,
                                              const std::int32_t* target_of_draft) {
    const std::int32_t token = target_of_draft == nullptr ? own : target_of_draft[own];
    state.verify.token_ids[s * state.width + draft + 1] = token;
    if (draft < state.width - 2) state.drafts[draft].token_ids[s] = token;
}

}  // namespace draftboard::backend::cuda
