// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which slots of the cache the rows of one block see, in steps of kTile positions. The counterpart
// of cpu/attention_slots.h: committed positions are slots of the same number and common to all
// rows; behind them position committed + j of a row is the slot of its j-th ancestor. Rows whose
// mask is a prefix (a chain) share their steps all the same; every other row has steps of its own
// for the uncommitted part. attention_core.cuh walks the steps.

#include <cstdint>

#include <cuda_runtime.h>

#include "backend/cuda/attention.h"
#include "backend/cuda/pass_view.h"

namespace draftboard::backend::cuda {

/// Positions a step. Steps begin at multiples of it.
inline constexpr int kTile = 32;
inline constexpr int kTilesOfSplit = kSplit / kTile;
static_assert(kSplit % kTile == 0, "");

/// The j-th set bit of a mask, j below their number.
__device__ inline int nth_set_bit(const std::uint32_t* mask, int j) {
    for (int w = 0; w < kMaskWords; ++w) {
        std::uint32_t word = mask[w];
        const int count = __popc(word);
        if (j >= count) {
            j -= count;
            continue;
        }
        int at = 32 * w;
        for (int step = 16; step > 0; step /= 2) {
            const int below = __popc(word & ((1u << step) - 1u));
            if (j < below) continue;
            j -= below;
            word >>= step;
            at += step;
        }
        return at;
    }
    return -1;
}

/// Number of positions that a row sees.
__device__ inline int visible_positions(const PassView& pass, int sequence,
                                        const std::uint32_t* mask) {
    int count = pass.committed[sequence];
    for (int w = 0; w < kMaskWords; ++w) count += __popc(mask[w]);
    return count;
}

/// Whose positions a step holds: a row of the block (0, 1, ...), or:
inline constexpr int kAllRows = -1;    ///< committed positions
inline constexpr int kChainRows = -2;  ///< slots are positions, rows see different numbers of them

struct Step {
    int first = 0;  ///< position
    int owner = kAllRows;
};

/// What up to kRows rows of one sequence see of one split; in shared memory.
template <int kRows>
struct Sight {
    std::uint32_t masks[kRows][kMaskWords];
    int visible[kRows];
    bool chain[kRows];
    int committed;
    int chain_visible;  ///< of the longest row that is a chain
    int steps;
    std::uint16_t step[kTilesOfSplit * (kRows + 1)];  ///< tile * 256 + owner + 2

    /// By all threads of the block, at least 8 kRows of them; `rows` <= kRows rows. word(): loaded
    /// early, so that what lies between hides its latency.
    [[nodiscard]] __device__ static std::uint32_t word(const PassView& pass, int first_row,
                                                       int rows) {
        const int thread = static_cast<int>(threadIdx.x);
        return thread < rows * kMaskWords
                   ? pass.masks[std::int64_t{first_row} * kMaskWords + thread]
                   : 0u;
    }
    __device__ void prepare(std::uint32_t word, int committed_positions, int rows,
                            int first_position) {
        const int thread = static_cast<int>(threadIdx.x);
        if (thread < rows * kMaskWords) masks[thread / kMaskWords][thread % kMaskWords] = word;
        if (thread == 0) committed = committed_positions;
        __syncthreads();
        if (thread < rows) {
            int count = 0;
            for (int w = 0; w < kMaskWords; ++w) count += __popc(masks[thread][w]);
            visible[thread] = committed_positions + count;
            // A prefix: no bit lies beyond as many bits as there are.
            chain[thread] = count == 0 || nth_set_bit(masks[thread], count - 1) == count - 1;
        }
        __syncthreads();
        if (thread == 0) make_steps(rows, first_position);
        __syncthreads();
    }

    [[nodiscard]] __device__ Step at(int index) const {
        const int code = step[index];
        return {code / 256 * kTile, code % 256 - 2};
    }
    /// The slot at a position, -1 where no row of the step sees it.
    [[nodiscard]] __device__ std::int64_t slot(int owner, int position) const {
        if (owner == kAllRows) return position;
        if (owner == kChainRows) return position < chain_visible ? position : -1;
        if (position >= visible[owner]) return -1;
        return position < committed ? position
                                    : committed + nth_set_bit(masks[owner], position - committed);
    }

   private:
    __device__ void push(int tile, int owner) {
        step[steps++] = static_cast<std::uint16_t>(tile * 256 + owner + 2);
    }

    __device__ void make_steps(int rows, int first_position) {
        chain_visible = 0;
        for (int r = 0; r < rows; ++r) {
            if (chain[r]) chain_visible = max(chain_visible, visible[r]);
        }
        steps = 0;
        for (int tile = 0; tile < kTilesOfSplit; ++tile) {
            const int first = first_position + tile * kTile;
            if (first + kTile <= committed) {
                push(tile, kAllRows);
                continue;
            }
            if (first < chain_visible) push(tile, kChainRows);
            for (int r = 0; r < rows; ++r) {
                if (!chain[r] && first < visible[r]) push(tile, r);
            }
        }
    }
};

}  // namespace draftboard::backend::cuda
