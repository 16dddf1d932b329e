// SPDX-License-Identifier: Apache-2.0
// Rows that the loop accepted become committed: attention's caches move the slots of the path to
// the end of the committed ones, the delta net's last row becomes the state and its inputs the
// window. Kernels that make these rows are in rope_cache.cu and delta_net.cu.
#include <cuda_runtime.h>

#include "backend/cuda/check.h"
#include "backend/cuda/launch_ahead.cuh"
#include "backend/cuda/delta_net.h"

namespace draftboard::backend::cuda {

namespace {

constexpr int kThreads = 128;
constexpr int kTogether = 4;  ///< depths read before the first of them is written

/// Slot path[depth] to slot depth, for one column of Units. Paths ascend, so path[depth] >= depth,
/// and what a depth overwrites has been moved by then: one thread does all depths of its columns in
/// order, and threads need not wait for each other.
template <class Unit>
__device__ void move_slots(Unit* uncommitted, std::int64_t slot_units, const std::int32_t* path,
                           int length) {
    for (std::int64_t c = threadIdx.x; c < slot_units; c += kThreads) {
        for (int depth = 0; depth < length; depth += kTogether) {
            Unit moved[kTogether];
#pragma unroll
            for (int i = 0; i < kTogether; ++i) {
                if (depth + i < length) moved[i] = uncommitted[path[depth + i] * slot_units + c];
            }
#pragma unroll
            for (int i = 0; i < kTogether; ++i) {
                if (depth + i < length && path[depth + i] != depth + i)
                    uncommitted[(depth + i) * slot_units + c] = moved[i];
            }
        }
    }
}

/// Block x: layer, y: sequence, z: keys or values. Bytes: 2 length slot_width x cache bytes, at
/// most.
__global__ void __launch_bounds__(kThreads)
    commit_caches_kernel(CommitView commit, const KeyValueCache* caches) {
    begin_behind_predecessor();
    const int length = commit.lengths[blockIdx.y];
    if (length <= 0) return;
    const KeyValueCache cache = caches[blockIdx.x];
    void* numbers = blockIdx.z == 0 ? cache.keys : cache.values;
    if (numbers == nullptr) return;
    const std::int32_t* path = commit.paths + std::int64_t{blockIdx.y} * kMaxUncommitted;
    if (path[length - 1] == length - 1) return;  // every slot is where it has to be
    const std::int64_t bytes = cache.format == CacheFormat::bf16 ? 2 : 4;
    const std::int64_t start = (commit.slots[blockIdx.y] * cache.sequence_stride +
                                commit.committed[blockIdx.y] * cache.slot_width) *
                               bytes;
    auto* uncommitted = static_cast<unsigned char*>(numbers) + start;
    const std::int64_t slot_bytes = cache.slot_width * bytes;
    if (slot_bytes % 16 == 0 && reinterpret_cast<std::uintptr_t>(uncommitted) % 16 == 0) {
        move_slots(reinterpret_cast<uint4*>(uncommitted), slot_bytes / 16, path, length);
    } else {
        move_slots(reinterpret_cast<std::uint16_t*>(uncommitted), slot_bytes / 2, path, length);
    }
}

/// Block x: part of the state and window, y: sequence. Bytes: 8 state, 8 (conv_kernel - 1)
/// channels.
__global__ void __launch_bounds__(kThreads)
    commit_delta_net_kernel(CommitView commit, DeltaNetShape shape, DeltaNetCache cache) {
    begin_behind_predecessor();
    const int length = commit.lengths[blockIdx.y];
    if (length <= 0) return;
    const std::int64_t slot = commit.slots[blockIdx.y];
    const std::int32_t* path = commit.paths + std::int64_t{blockIdx.y} * kMaxUncommitted;
    const std::int64_t first = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
    const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
    const std::int64_t size = shape.state();
    float* to = cache.state + slot * size;
    const float* from = cache.snapshot_state + (slot * cache.snapshots + path[length - 1]) * size;
    if (size % 4 == 0) {
        for (std::int64_t i = first; i < size / 4; i += step)
            reinterpret_cast<float4*>(to)[i] = reinterpret_cast<const float4*>(from)[i];
    } else {
        for (std::int64_t i = first; i < size; i += step) to[i] = from[i];
    }
    const int kept = shape.conv_kernel - 1;
    const std::int64_t channels = shape.channels();
    const float* inputs = cache.snapshot_input + slot * cache.snapshots * channels;
    for (std::int64_t c = first; c < channels; c += step) {
        float* window = cache.window + slot * kept * channels + c;
        for (int j = 0; j < kept; ++j) {  // oldest first: it moves in place
            const int depth = length - kept + j;
            window[j * channels] =
                depth >= 0 ? inputs[path[depth] * channels + c] : window[(length + j) * channels];
        }
    }
}

__global__ void begin_pass_kernel() { let_successor_begin(); }

}  // namespace

void begin_pass(cudaStream_t stream) {
    begin_pass_kernel<<<1, 32, 0, stream>>>();
    check_launch("begin_pass_kernel");
}

void commit_delta_net(const CommitView& commit, const DeltaNetShape& shape,
                      const DeltaNetCache& cache, cudaStream_t stream) {
    if (commit.count <= 0) return;
    const std::int64_t blocks = (shape.state() / 4 + kThreads - 1) / kThreads;
    const dim3 grid(static_cast<unsigned>(blocks < 1     ? 1
                                          : blocks > 256 ? 256
                                                         : blocks),
                    static_cast<unsigned>(commit.count));
    launch_ahead("commit_delta_net", commit_delta_net_kernel, grid, kThreads, 0, stream, commit, shape, cache);
}

void commit_caches(const CommitView& commit, const KeyValueCache* caches, int layers,
                   cudaStream_t stream) {
    if (commit.count <= 0 || layers <= 0) return;
    const dim3 grid(static_cast<unsigned>(layers), static_cast<unsigned>(commit.count), 2);
    launch_ahead("commit_caches", commit_caches_kernel, grid, kThreads, 0, stream, commit, caches);
}

}  // namespace draftboard::backend::cuda
