// SPDX-License-Identifier: Apache-2.0
#pragma once
// Inputs and checks of collectives on the device, so that a graph can draw new inputs and check every result each time it is
// replayed. Number i of rank r in round n is a function of (r, n, i) alone: whoever checks computes all ranks' inputs anew. It
// uses nothing of what it checks.

#include <cstdint>

#include <cuda_runtime_api.h>

namespace draftboard::backend::cuda {

/// Of one rank, on its GPU.
struct CheckState {
    std::uint64_t round = 0;  ///< advanced by advance()
    std::uint64_t mismatches = 0;
};

/// Loads all kernels below onto the current GPU.
void load_checks();

/// In [-1, 1), about as many digits as a float has.
[[nodiscard]] float check_number(int rank, std::uint64_t round, std::uint64_t index);

/// After a pause of 0 ... max_skew_ns of its own: input = this round's numbers; poisoned[0, poisoned_count) = NaN (may be null).
void fill(const CheckState* state, int rank, std::uint32_t max_skew_ns, float* input, std::int64_t count, float* poisoned,
          std::int64_t poisoned_count, cudaStream_t stream);
/// Counts the numbers of `sum` that are not, to the bit, ((x0 + x1) + x2) + ...; x rounded to bf16 first where the message is.
void check_sum(CheckState* state, int ranks, bool bf16, const float* sum, std::int64_t count, cudaStream_t stream);
void check_gather(CheckState* state, int ranks, const float* output, int rows, std::int64_t width, cudaStream_t stream);
/// Counts i < rows, c < width where a[i a_stride + c] and b[i b_stride + c] have other bits.
void check_equal(CheckState* state, const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride, int rows,
                 std::int64_t width, cudaStream_t stream);
void advance(CheckState* state, cudaStream_t stream);

}  // namespace draftboard::backend::cuda
