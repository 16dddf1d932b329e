// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the kernels of the routed experts share: chunks of (row, expert) pairs, the workspace that holds them, and the plain path
// for matrices that tiles can't take. experts.cu puts them together, sort_pairs.cu makes chunks, plain_experts.cu is the plain
// path.

#include <climits>
#include <cstdint>

#include <cuda_runtime.h>

#include "backend/cuda/device_matrix.h"
#include "backend/cuda/tile_plan.cuh"

namespace draftboard::backend::cuda {

/// Pairs sorted[first .. first + count) of local expert `expert`.
struct __align__(16) Chunk {
    int expert;
    int first;
    int count;
    int unused;
};

/// The workspace of a call of `pairs` pairs.
struct Workspace {
    int* chunk_count = nullptr;
    Chunk* chunks = nullptr;  ///< pairs of them
    int* sorted = nullptr;    ///< pairs, by expert, then ascending
    float* inner = nullptr;   ///< silu(gate x) up x: `width` numbers for each of the sorted pairs
};

constexpr std::int64_t rounded(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

inline Workspace workspace_of(void* memory, std::int64_t pairs) {
    auto* bytes = static_cast<unsigned char*>(memory);
    Workspace workspace;
    workspace.chunk_count = reinterpret_cast<int*>(bytes);
    bytes += 256;
    workspace.chunks = reinterpret_cast<Chunk*>(bytes);
    bytes += rounded(pairs * static_cast<std::int64_t>(sizeof(Chunk)));
    workspace.sorted = reinterpret_cast<int*>(bytes);
    bytes += rounded(pairs * 4);
    workspace.inner = reinterpret_cast<float*>(bytes);
    return workspace;
}

/// A chunk, and the pairs of its rows.
struct Rows {
    Chunk chunk;
    int pairs[kMostRows];
};

/// Up to kFewPairs pairs need no sorting beforehand: each warp counts the places of all, one a lane. Chunk `slot` of them; count
/// 0: none.
constexpr int kFewPairs = 32;
__device__ inline void find_chunk(const std::int32_t* ids, int pairs, int first_expert, int experts, int chunk_rows, int slot,
                                  Rows& rows) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int local = lane < pairs ? ids[lane] - first_expert : -1;
    const bool here = local >= 0 && local < experts;
    const int id = here ? local : INT_MAX;
    const unsigned same = __match_any_sync(0xFFFFFFFFU, id);
    const int same_before = __popc(same & ((1U << lane) - 1U));
    const bool leads = here && same_before % chunk_rows == 0;
    const unsigned leaders = __ballot_sync(0xFFFFFFFFU, leads);
    int smaller = 0, chunk = 0;
    for (int q = 0; q < pairs; ++q) {
        const int other = __shfl_sync(0xFFFFFFFFU, id, q);
        smaller += other < id ? 1 : 0;
        chunk += (leaders >> q & 1U) != 0 && (other < id || (other == id && q < lane)) ? 1 : 0;
    }
    const unsigned found = __ballot_sync(0xFFFFFFFFU, leads && chunk == slot);
    if (threadIdx.x >= 32) return;  // all warps found the same
    if (found == 0) {
        if (lane == 0) rows.chunk.count = 0;
        return;
    }
    const int leader = __ffs(static_cast<int>(found)) - 1;
    const int expert = __shfl_sync(0xFFFFFFFFU, id, leader);
    const int begin = __shfl_sync(0xFFFFFFFFU, same_before, leader);
    if (id == expert && same_before >= begin && same_before < begin + chunk_rows) rows.pairs[same_before - begin] = lane;
    if (lane == leader) rows.chunk = {id, smaller + same_before, min(chunk_rows, __popc(same) - same_before), 0};
}

/// Writes zeros for a pair whose expert is not here.
__device__ inline void zero_stranger(const std::int32_t* ids, std::int64_t pair, int first_expert, int experts, float* output,
                                     std::int64_t hidden) {
    const int local = ids[pair] - first_expert;
    if (local >= 0 && local < experts) return;
    for (std::int64_t c = threadIdx.x; c < hidden; c += blockDim.x) output[pair * hidden + c] = 0;
}

__device__ inline Chunk read_chunk(const Workspace& workspace, int at) {
    const int4 value = __ldcg(reinterpret_cast<const int4*>(workspace.chunks + at));
    return {value.x, value.y, value.z, value.w};
}

/// Fills the workspace's chunks, of at most chunk_rows pairs each, and writes zeros for pairs of experts that are not here.
void launch_sort(const std::int32_t* ids, int pairs, int first_expert, int experts, int chunk_rows, const Workspace& workspace,
                 float* output, std::int64_t hidden, cudaStream_t stream);

constexpr int kPlainChunk = 4;

struct PlainExperts {
    DeviceMatrix gate, up, down;  ///< of expert 0
    std::int64_t stride[3] = {};
    std::int64_t scale_stride[3] = {};
    const float* x = nullptr;
    float* output = nullptr;
    int k = 1;
    Workspace workspace;
};

/// Gate, up and down of chunks of at most kPlainChunk pairs; slots: as many as there may be.
void launch_plain_experts(const PlainExperts& layer, std::int64_t slots, cudaStream_t stream);

}  // namespace draftboard::backend::cuda
