// SPDX-License-Identifier: Apache-2.0
#pragma once
// The host's half of the tiles (row_tile.cuh): which matrices they can take, how a matrix is cut over blocks and warps, where
// things lie in shared memory, and the launch. No device code but the two instructions by which kernels follow each other.

#include <algorithm>
#include <cstdint>

#include <cuda_runtime.h>

#include "backend/cuda/check.h"
#include "backend/cuda/launch_ahead.cuh"
#include "backend/cuda/shared_memory.h"
#include "backend/cuda/device_matrix.h"

namespace draftboard::backend::cuda {

inline constexpr int kTileRows = 32;
inline constexpr int kWarps = 8;
inline constexpr int kParts = 3;
inline constexpr int kMostRows = 8;
inline constexpr int kSumSets = 3;

constexpr int step_columns(Stored format) { return format == Stored::bf16 ? 32 : format == Stored::fp8_e4m3 ? 64 : 128; }

/// The two halves of a tile, 16 rows each: halves of the same matrix, or the same rows of gate and up.
struct TileSource {
    const unsigned char* data[2] = {nullptr, nullptr};
    const float* scales[2] = {nullptr, nullptr};
    int row_offset[2] = {0, 0};
    std::int64_t row_bytes = 0;
    int rows = 0;
    int columns = 0;
    int pitch = kTileRows;  ///< matrix rows from one tile to the next
    int second = 16;        ///< and from the first half to the second
    int scale_columns = 0;
    int row_shift = 0;      ///< block_rows = 2^row_shift
    int column_shift = -1;  ///< block_columns = 2^column_shift; -1: one scale, or none
    int column_offset = 0;
};

/// How a matrix is cut: of its shape alone.
struct Cut {
    int slices = 1;   ///< of the columns, one a block of a cluster
    int warps_k = 1;  ///< warps that share a slice's steps; kWarps / warps_k tiles are worked on at a time
};

inline int log2_of(int power) {
    int shift = 0;
    while ((1 << shift) < power) ++shift;
    return shift;
}

inline bool is_power(int value) { return value > 0 && (value & (value - 1)) == 0; }

/// Whether the tiles below can read a matrix.
inline bool fits_tiles(const DeviceMatrix& w) {
    if (w.rows * w.row_bytes >= std::int64_t{1} << 32) return false;  // offsets are 32 bits
    if (w.row_bytes % 64 != 0 || (reinterpret_cast<std::uintptr_t>(w.data) & 15U) != 0) return false;
    const bool grid = w.scales != nullptr && w.block_rows > 0 && w.block_columns > 0;
    switch (w.format) {
        case Stored::bf16: return true;
        case Stored::fp8_e4m3:
            return !grid ||
                   (is_power(w.block_rows) && is_power(w.block_columns) && w.block_columns >= 64 && w.column_offset % 64 == 0);
        case Stored::int4: return grid && is_power(w.block_rows) && w.block_columns == 32 && w.column_offset % 32 == 0;
        default: return false;
    }
}

inline TileSource tile_source(const DeviceMatrix& first, const DeviceMatrix& second) {
    TileSource source;
    source.data[0] = static_cast<const unsigned char*>(first.data);
    source.data[1] = static_cast<const unsigned char*>(second.data);
    source.scales[0] = first.scales;
    source.scales[1] = second.scales;
    source.row_offset[0] = first.row_offset;
    source.row_offset[1] = second.row_offset;
    source.row_bytes = first.row_bytes;
    source.rows = static_cast<int>(first.rows);
    source.columns = static_cast<int>(first.columns);
    if (first.scales != nullptr && first.block_rows > 0 && first.block_columns > 0) {
        source.scale_columns = first.scale_columns;
        source.row_shift = log2_of(first.block_rows);
        source.column_shift = log2_of(first.block_columns);
        source.column_offset = first.column_offset;
    }
    return source;
}

inline std::int64_t steps_of(const DeviceMatrix& w) { return (w.columns + step_columns(w.format) - 1) / step_columns(w.format); }

inline Cut cut_into(const DeviceMatrix& w, int slices) {
    Cut cut;
    cut.slices = slices;
    const std::int64_t of_slice = (steps_of(w) + slices - 1) / slices;
    while (cut.warps_k < kWarps && 4 * cut.warps_k <= of_slice) cut.warps_k *= 2;  // two steps a warp at least
    return cut;
}

/// slice_columns: the most a slice should have. tiles: that the product has; small matrices are cut further to keep all SMs busy.
inline Cut cut_of(const DeviceMatrix& w, std::int64_t slice_columns, std::int64_t tiles) {
    constexpr int kEnoughBlocks = 128;
    auto slices = static_cast<int>(std::min<std::int64_t>(8, (w.columns + slice_columns - 1) / slice_columns));
    while (slices <= 4 && tiles * slices < kEnoughBlocks && steps_of(w) >= 4 * kWarps * slices) slices *= 2;
    return cut_into(w, slices);
}

/// Where things lie in a block's shared memory, bytes.
struct TileMemory {
    int ring = 0;      ///< of one warp
    int x_stride = 0;  ///< of one column of the product, = 64 mod 128: eight threads that read together meet no bank twice
    int x = 0;         ///< offset
    int partial = 0;   ///< offset of the warps' sums
    int sums = 0;      ///< offset of the block's sums, kSumSets of them
    int total = 0;
};

inline TileMemory tile_memory(Stored format, std::int64_t columns, const Cut& cut, int rows, int stages) {
    const auto steps = static_cast<int>((columns + step_columns(format) - 1) / step_columns(format));
    const int of_slice = (steps + cut.slices - 1) / cut.slices;
    TileMemory memory;
    memory.ring = stages * (4 * 512 + (format == Stored::int4 ? 4 * 128 : 0));
    memory.x_stride = of_slice * (step_columns(format) * 2);
    memory.x_stride += memory.x_stride % 128 == 0 ? 64 : 0;
    memory.x = kWarps * memory.ring;
    memory.partial = memory.x + kParts * rows * memory.x_stride;
    memory.sums = memory.partial + kWarps * kTileRows * kParts * rows * 4;
    memory.total = memory.sums + kSumSets * (kWarps / cut.warps_k) * kTileRows * rows * 4;
    return memory;
}

/// The most rows of x, of `wanted`, that fit beside a ring.
inline int rows_that_fit(Stored format, std::int64_t columns, const Cut& cut, int wanted, int stages, int shared_bytes) {
    int rows = wanted < kMostRows ? wanted : kMostRows;
    while (rows > 0 && tile_memory(format, columns, cut, rows, stages).total > shared_bytes) --rows;
    return rows;
}

/// Shared memory that a block of the current device may have, and its multiprocessors.
struct DeviceLimits {
    int shared_bytes = 0;
    int shared_bytes_sm = 0;
    int multiprocessors = 0;
};

inline DeviceLimits device_limits() {
    DeviceLimits limits;
    int device = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    check(cudaDeviceGetAttribute(&limits.shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
          "cudaDeviceGetAttribute");
    limits.shared_bytes -= 256;  // for what kernels declare themselves
    check(cudaDeviceGetAttribute(&limits.shared_bytes_sm, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device),
          "cudaDeviceGetAttribute");
    check(cudaDeviceGetAttribute(&limits.multiprocessors, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
    return limits;
}

/// Clusters of `slices` blocks of a kernel that run at a time on the current device.
template <class... Parameters>
int clusters_at_a_time(void (*kernel)(Parameters...), int slices, int shared_bytes) {
    permit_shared_memory(kernel);
    int found = 0;
    if (slices == 1) {
        check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&found, kernel, kWarps * 32, static_cast<std::size_t>(shared_bytes)),
              "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
        return found * device_limits().multiprocessors;
    }
    // Not multiprocessors / slices: a cluster lives within one group of multiprocessors, and groups differ in size.
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(slices));
    config.blockDim = dim3(kWarps * 32);
    config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = static_cast<unsigned>(slices);
    attribute.val.clusterDim.y = 1;
    attribute.val.clusterDim.z = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
    check(cudaOccupancyMaxActiveClusters(&found, kernel, &config), "cudaOccupancyMaxActiveClusters");
    return found;
}

/// Launches a kernel of clusters of `slices` blocks. It may begin before its predecessor in the stream has ended, and waits
/// for it with wait_for_predecessor() before it reads what is not a weight and before it writes.
template <class... Parameters, class... Arguments>
void launch_tiles(const char* what, void (*kernel)(Parameters...), dim3 grid, int slices, int shared_bytes, cudaStream_t stream,
                  Arguments... arguments) {
    permit_shared_memory(kernel);
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3(kWarps * 32);
    config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
    config.stream = stream;
    cudaLaunchAttribute attributes[2];
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim.x = static_cast<unsigned>(slices);
    attributes[1].val.clusterDim.y = 1;
    attributes[1].val.clusterDim.z = 1;
    config.attrs = attributes;
    config.numAttrs = slices > 1 ? 2 : 1;
    check(cudaLaunchKernelEx(&config, kernel, arguments...), what);
}

}  // namespace draftboard::backend::cuda
