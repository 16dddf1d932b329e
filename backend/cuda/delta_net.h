// SPDX-License-Identifier: Apache-2.0
#pragma once
// The gated delta net on the GPU, with a state for every uncommitted row, so that any row can become the committed state.
// Formulae in cpu/delta_net.h. Rows of a pass run in order within a sequence; value columns of a head are independent of each
// other.
//
// Bytes a row: state read and written, 8 value_heads key_dim value_dim; flops: 7 a state element.

#include <cstdint>

#include <cuda_runtime_api.h>

#include "backend/cuda/pass_view.h"

namespace draftboard::backend::cuda {

struct DeltaNetShape {
    int key_heads = 0;
    int value_heads = 0;
    int key_dim = 0;
    int value_dim = 0;
    int conv_kernel = 0;
    [[nodiscard]] __host__ __device__ std::int64_t channels() const {
        return std::int64_t{2} * key_heads * key_dim + std::int64_t{value_heads} * value_dim;
    }
    [[nodiscard]] __host__ __device__ std::int64_t state() const { return std::int64_t{value_heads} * key_dim * value_dim; }
};

/// Of one layer, all sequences. A sequence has one committed state and window, and `snapshots` states and rows of convolution
/// inputs, one an uncommitted row.
struct DeltaNetCache {
    float* state = nullptr;           ///< sequences x state()
    float* window = nullptr;          ///< sequences x (conv_kernel - 1) x channels(), oldest first
    float* snapshot_state = nullptr;  ///< sequences x snapshots x state()
    float* snapshot_input = nullptr;  ///< sequences x snapshots x channels(): what the row put into the convolution
    int snapshots = 0;
};

/// projected: rows x stride: channels | z | b | a. output: rows x value_heads x value_dim. `convolved`: rows x channels(),
/// scratch. Passes that keep rows uncommitted read the parent's snapshot (or the committed state) and write their own; others
/// move the committed state and window on.
void delta_net(const PassView& pass, const DeltaNetShape& shape, const float* projected, std::int64_t stride, const float* conv,
               const float* a_log, const float* dt_bias, const DeltaNetCache& cache, float* convolved, float* output,
               cudaStream_t stream);
/// x = rms_norm(x by head) * weight * silu(z), in place; x: m x heads x width, z of row i at z + i * z_stride
void gated_rms_norm(float* x, const float* z, std::int64_t z_stride, const float* weight, int m, int heads, int width,
                    float epsilon, cudaStream_t stream);

/// Rows that the loop accepted: of each of `count` sequences, `length` uncommitted rows of `path` become the tokens from slot
/// `committed` on. Arrays in device memory; a length of 0 does nothing.
struct CommitView {
    int count = 0;
    const std::int32_t* slots = nullptr;
    const std::int32_t* committed = nullptr;
    const std::int32_t* lengths = nullptr;
    const std::int32_t* paths = nullptr;  ///< count x kMaxUncommitted, ascending
};
void commit_delta_net(const CommitView& commit, const DeltaNetShape& shape, const DeltaNetCache& cache, cudaStream_t stream);
/// Moves the keys and values (and MLA's latents) of the paths of all `layers` caches (an array in device memory).
void commit_caches(const CommitView& commit, const KeyValueCache* caches, int layers, cudaStream_t stream);

}  // namespace draftboard::backend::cuda
