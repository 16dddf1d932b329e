// SPDX-License-Identifier: Apache-2.0
// The routed experts on ordinary arithmetic units (load_weights.cuh), for formats and grids of scales that tiles can't take.
// Right first: experts.cu has the fast path.
#include <cuda_runtime.h>

#include "backend/cuda/check.h"
#include "backend/cuda/expert_chunks.cuh"
#include "backend/cuda/load_weights.cuh"

namespace draftboard::backend::cuda {

namespace {

__device__ inline DeviceMatrix moved(DeviceMatrix w, std::int64_t bytes, std::int64_t scales) {
    w.data = static_cast<const unsigned char*>(w.data) + bytes;
    if (w.scales != nullptr) w.scales += scales;
    return w;
}

/// The plain path of both halves: a block is kPlainRows rows of a chunk's matrix, its eight warps share the columns.
/// Bytes and flops as above.
template <Stored F, bool kDown>
__global__ void __launch_bounds__(kWarps * 32) plain_experts(const __grid_constant__ PlainExperts layer) {
    __shared__ float partial[2][kWarps][kPlainRows][kPlainChunk];
    if (static_cast<int>(blockIdx.y) >= __ldcg(layer.workspace.chunk_count)) return;
    const Chunk chunk = read_chunk(layer.workspace, static_cast<int>(blockIdx.y));
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int first = static_cast<int>(blockIdx.x) * kPlainRows;
    const DeviceMatrix& any = kDown ? layer.down : layer.gate;
    std::int64_t rows[kPlainRows];
#pragma unroll
    for (int j = 0; j < kPlainRows; ++j) rows[j] = min(std::int64_t{first} + j, any.rows - 1);
    const float* x[kPlainChunk];
    bool aligned = true;
#pragma unroll
    for (int i = 0; i < kPlainChunk; ++i) {
        const std::int64_t at = chunk.first + min(i, chunk.count - 1);
        x[i] = kDown ? layer.workspace.inner + at * any.columns
                     : layer.x + __ldcg(layer.workspace.sorted + at) / layer.k * any.columns;
        aligned = aligned && is_aligned(x[i], 0);
    }
#pragma unroll
    for (int part = 0; part < (kDown ? 1 : 2); ++part) {
        const int which = kDown ? 2 : part;
        const DeviceMatrix& base = kDown ? layer.down : part == 0 ? layer.gate : layer.up;
        const DeviceMatrix w = moved(base, chunk.expert * layer.stride[which], chunk.expert * layer.scale_stride[which]);
        float sums[kPlainRows][kPlainChunk] = {};
        add_dots<F, kPlainChunk>(w, rows, x, aligned, warp * 32 + lane, kWarps * 32, sums);
#pragma unroll
        for (int j = 0; j < kPlainRows; ++j) {
#pragma unroll
            for (int i = 0; i < kPlainChunk; ++i) {
                const float sum = warp_sum(sums[j][i]);
                if (lane == 0) partial[part][warp][j][i] = sum;
            }
        }
    }
    __syncthreads();
    const int j = static_cast<int>(threadIdx.x) % kPlainRows;
    const int i = static_cast<int>(threadIdx.x) / kPlainRows;
    if (i >= chunk.count || first + j >= any.rows) return;
    float sums[2] = {};
    for (int part = 0; part < (kDown ? 1 : 2); ++part) {
        for (int from = 0; from < kWarps; ++from) sums[part] += partial[part][from][j][i];
    }
    if constexpr (kDown) {
        layer.output[__ldcg(layer.workspace.sorted + chunk.first + i) * any.rows + first + j] = sums[0];
    } else {
        layer.workspace.inner[std::int64_t{chunk.first + i} * any.rows + first + j] = sums[0] / (1.0F + expf(-sums[0])) * sums[1];
    }
}

template <Stored F>
void launch_plain(const PlainExperts& layer, std::int64_t slots, cudaStream_t stream) {
    const auto blocks = [](std::int64_t rows) { return static_cast<unsigned>((rows + kPlainRows - 1) / kPlainRows); };
    const auto height = static_cast<unsigned>(slots);
    plain_experts<F, false><<<dim3(blocks(layer.gate.rows), height), kWarps * 32, 0, stream>>>(layer);
    check_launch("plain_experts, gate and up");
    plain_experts<F, true><<<dim3(blocks(layer.down.rows), height), kWarps * 32, 0, stream>>>(layer);
    check_launch("plain_experts, down");
}

}  // namespace

void launch_plain_experts(const PlainExperts& layer, std::int64_t slots, cudaStream_t stream) {
    switch (layer.gate.format) {
        case Stored::bf16: return launch_plain<Stored::bf16>(layer, slots, stream);
        case Stored::fp32: return launch_plain<Stored::fp32>(layer, slots, stream);
        case Stored::fp8_e4m3: return launch_plain<Stored::fp8_e4m3>(layer, slots, stream);
        case Stored::int4: return launch_plain<Stored::int4>(layer, slots, stream);
    }
}

}  // namespace draftboard::backend::cuda
