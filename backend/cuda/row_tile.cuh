// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tiles of 32 stored rows times up to 8 rows of x on the tensor cores, float in and out: the fast path of bf16, fp8 and int4. Not
// a kernel: few_rows.cu and experts.cu put one round it. What it can't take (fp32, grids of scales that begin inside a step) goes
// by load_weights.cuh.
//
//   W      streams through shared memory: each warp keeps kStages steps of 32 rows x 64 bytes in flight (cp.async), across the
//   ends of tiles.
//          A thread copies what it will use itself, so that no barrier is needed. A step is 32 columns of bf16, 64 of fp8, 128 of
//          int4.
//   x      is split into three bf16 numbers, x = high + middle + low, exactly (3 x 8 bits of fraction hold a float's 24), and
//   lies in shared
//          memory for the whole block: 3 m columns of the product that the tensor cores take 8 at a time.
//   scales multiply the sums of their own columns: of a group of int4, of a step of fp8. Codes are exact in bf16.
//
// Order of a row's sum: the columns are cut into slices (one a block of a cluster), a slice's steps go round the warps, a warp's
// steps are summed by the tensor cores in ascending order, then warps, parts and slices in ascending order. The cut depends on
// the matrix alone (cut_of()), and a column of a tensor core's product does not depend on its neighbours: so a row of x gives the
// same bits beside any others.
//
// Bytes: W and its scales once, x once a block. Tensor flops: 2 x 32 x 8 ceil(3 m / 8) a column of a tile.
// Other operations an element of W: bf16 0, fp8 2, int4 1.5.

#include <algorithm>
#include <cstdint>

#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "backend/cuda/check.h"
#include "backend/cuda/device_matrix.h"
#include "backend/cuda/load_weights.cuh"

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
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes), "cudaFuncSetAttribute");
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
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes), "cudaFuncSetAttribute");
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

__device__ inline void wait_for_predecessor() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ inline void let_successor_begin() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

__device__ inline void cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
__device__ inline void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }

__device__ inline unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

__device__ inline void copy_16(unsigned target, const void* source) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(target), "l"(source));
}

/// Four bytes, zeros where not `there`.
__device__ inline void copy_4(unsigned target, const void* source, bool there) {
    const int bytes = there ? 4 : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(target), "l"(source), "r"(bytes));
}

__device__ inline void end_of_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int kLeft>
__device__ inline void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

/// c += A B: A 16 x 16 of W, B 16 x 8 of x.
__device__ inline void multiply(float (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/// c = A B
__device__ inline void multiply_first(float (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                                      unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
        : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "f"(0.0F));
}

__device__ inline unsigned bits_of(__nv_bfloat162 pair) { return *reinterpret_cast<unsigned*>(&pair); }
__device__ inline __nv_bfloat162 pair_of(unsigned bits) { return *reinterpret_cast<__nv_bfloat162*>(&bits); }

/// Four fp8 codes of a word as bf16: elements 0 and 2, then 1 and 3. Sign, exponent and fraction move to their places; that is
/// 2^120 too small (the biases are 7 and 127), subnormals included, which x and the sums make up for, kFp8Scale each: products
/// stay in the middle of a float's range. A NaN's code looks like 480: see sees_nan().
constexpr float kFp8Scale = 0x1p60F;
__device__ inline uint2 fp8_pairs(unsigned word) {
    const unsigned up = word << 8;
    return make_uint2(((up >> 4) & 0x07F007F0U) | (up & 0x80008000U), ((word >> 4) & 0x07F007F0U) | (word & 0x80008000U));
}

/// Bit 7 of a byte says that its code is a NaN (kNanBits). Adding 1 to seven ones, and only to these, carries into the eighth
/// bit.
constexpr unsigned kNanBits = 0x80808080U;
__device__ inline unsigned sees_nan(unsigned word) { return (word & 0x7F7F7F7FU) + 0x01010101U; }

/// Codes e and e + 4 of a word of int4, less 8: as bf16, 128 + code has the code in its last bits.
__device__ inline unsigned int4_pair(unsigned word, int e) {
    const unsigned bits = ((word >> (4 * e)) & 0x000F000FU) | 0x43004300U;
    return bits_of(__hsub2(pair_of(bits), pair_of(0x43084308U)));  // 136
}

/// Where a step keeps the 16 bytes that a lane copies of eight rows, in units of 16 bytes: shuffled, so that the same quarter of
/// eight rows touches all banks once.
__device__ inline int int4_place(int row, int quarter) { return 4 * row + (quarter ^ (row / 2 % 4)); }

/// Of eight rows of 64 bytes: thread (g, t) gets row g's words t, 4 + t, 8 + t and 12 + t, one of each group of 32 codes.
__device__ inline uint4 int4_words(unsigned place, int lane) {
    uint4 v;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(place + 16 * int4_place(lane % 8, lane / 8))
                 : "memory");
    return v;
}

/// One warp's walk over its steps of its tiles, and the copies that run ahead of it.
template <Stored F, int kStages>
class StepStream {
 public:
    static constexpr int kStageBytes = 4 * 512 + (F == Stored::int4 ? 4 * 128 : 0);

    /// Steps begin, begin + step, ... (count of them) of tiles first, first + next, ... (tiles of them).
    __device__ StepStream(const TileSource& source, unsigned char* ring, int begin, int step, int count, int first, int next,
                          int tiles)
        : source_(source),
          ring_(ring),
          begin_(begin),
          step_(step),
          count_(count),
          next_(next),
          tile_(first),
          left_(count > 0 ? tiles : 0) {
        const int lane = static_cast<int>(threadIdx.x) % 32;
        target_ = shared_address(ring) + 16 * (F == Stored::int4 ? int4_place(lane / 4, lane % 4) : lane);
        if (left_ > 0) begin_tile();
    }

    __device__ void fill() {
#pragma unroll
        for (int s = 0; s < kStages - 1; ++s) copy_next(s);
    }
    /// Waits for the oldest step, asks for one more, and gives the oldest one's place.
    __device__ const unsigned char* take() {
        wait_for_copies<kStages - 2>();
        __syncwarp();  // other lanes' copies are here too, and all have done with the place that is overwritten next
        const int out = out_;
        copy_next(out == 0 ? kStages - 1 : out - 1);
        out_ = out + 1 == kStages ? 0 : out + 1;
        return ring_ + out * kStageBytes;
    }

 private:
    __device__ void begin_tile() {
        const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
        for (int q = 0; q < 4; ++q) {
            const int row = min(tile_ * source_.pitch + (q / 2) * source_.second + (q % 2) * 8 + lane / 4, source_.rows - 1);
            offset_[q] = static_cast<unsigned>(row) * static_cast<unsigned>(source_.row_bytes) + begin_ * 64 + lane % 4 * 16;
            if constexpr (F == Stored::int4) {
                const int down = (row + source_.row_offset[q / 2]) >> source_.row_shift;
                scale_offset_[q] = static_cast<unsigned>(down * source_.scale_columns);
            }
        }
        if constexpr (F == Stored::int4) group_ = 4 * begin_ + lane % 4 + source_.column_offset / 32;
        at_ = 0;
    }
    __device__ void copy_next(int stage) {
        if (left_ > 0) {
            const unsigned target = target_ + stage * kStageBytes;
#pragma unroll
            for (int q = 0; q < 4; ++q) {
                copy_16(target + q * 512, source_.data[q / 2] + offset_[q]);
                offset_[q] += step_ * 64;
            }
            if constexpr (F == Stored::int4) {
                const bool there = group_ < source_.scale_columns;
                const unsigned group = there ? group_ : 0;
                const unsigned scales = shared_address(ring_) + stage * kStageBytes + 2048 + threadIdx.x % 32 * 4;
#pragma unroll
                for (int q = 0; q < 4; ++q) copy_4(scales + q * 128, source_.scales[q / 2] + (scale_offset_[q] + group), there);
                group_ += 4 * step_;
            }
            if (++at_ == count_) {
                tile_ += next_;
                if (--left_ > 0) begin_tile();
            }
        }
        end_of_copies();
    }

    const TileSource& source_;
    unsigned char* ring_;
    unsigned target_;
    int begin_, step_, count_, next_, tile_, left_;
    int at_ = 0, out_ = 0;
    unsigned offset_[4] = {};
    unsigned scale_offset_[4] = {};
    int group_ = 0;
};

/// Adds one step of 32 rows to the sums of NT x 8 columns. `x`: of this thread's column and place in the step, by groups of 8
/// columns. acc[h][n]: rows g and g + 8 of half h (g = lane / 4), columns 2 t and 2 t + 1 (t = lane % 4) of group n.
template <Stored F, int NT>
__device__ inline void add_step(const unsigned char* place, const unsigned char* const (&x)[NT], const float (&step_scales)[4],
                                float (&acc)[2][NT][4], unsigned (&nan)[4]) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    uint4 w[4];
#pragma unroll
    for (int q = 0; q < 4; ++q) {
        if constexpr (F == Stored::int4) {
            w[q] = int4_words(shared_address(place) + q * 512, lane);
        } else {
            w[q] = *reinterpret_cast<const uint4*>(place + q * 512 + lane * 16);
        }
    }
    if constexpr (F == Stored::bf16) {
#pragma unroll
        for (int n = 0; n < NT; ++n) {
            const uint4 b = *reinterpret_cast<const uint4*>(x[n]);
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                multiply(acc[h][n], w[2 * h].x, w[2 * h + 1].x, w[2 * h].y, w[2 * h + 1].y, b.x, b.y);
                multiply(acc[h][n], w[2 * h].z, w[2 * h + 1].z, w[2 * h].w, w[2 * h + 1].w, b.z, b.w);
            }
        }
    } else if constexpr (F == Stored::fp8_e4m3) {
        float part[2][NT][4];
#pragma unroll
        for (int q = 0; q < 4; ++q) nan[q] |= sees_nan(w[q].x) | sees_nan(w[q].y) | sees_nan(w[q].z) | sees_nan(w[q].w);
#pragma unroll
        for (int s = 0; s < 2; ++s) {
            uint4 b[NT];
#pragma unroll
            for (int n = 0; n < NT; ++n) b[n] = *reinterpret_cast<const uint4*>(x[n] + 64 * s);
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const uint2 g0 = fp8_pairs(s == 0 ? w[2 * h].x : w[2 * h].z);
                const uint2 g1 = fp8_pairs(s == 0 ? w[2 * h].y : w[2 * h].w);
                const uint2 h0 = fp8_pairs(s == 0 ? w[2 * h + 1].x : w[2 * h + 1].z);
                const uint2 h1 = fp8_pairs(s == 0 ? w[2 * h + 1].y : w[2 * h + 1].w);
#pragma unroll
                for (int n = 0; n < NT; ++n) {
                    if (s == 0) {
                        multiply_first(part[h][n], g0.x, h0.x, g0.y, h0.y, b[n].x, b[n].y);
                    } else {
                        multiply(part[h][n], g0.x, h0.x, g0.y, h0.y, b[n].x, b[n].y);
                    }
                    multiply(part[h][n], g1.x, h1.x, g1.y, h1.y, b[n].z, b[n].w);
                }
            }
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) {
#pragma unroll
            for (int n = 0; n < NT; ++n) {
#pragma unroll
                for (int e = 0; e < 4; ++e) acc[h][n][e] = __fmaf_rn(step_scales[2 * h + e / 2], part[h][n][e], acc[h][n][e]);
            }
        }
    } else {
        float4 scales[4];
#pragma unroll
        for (int q = 0; q < 4; ++q) {
            scales[q] = *reinterpret_cast<const float4*>(place + 2048 + q * 128 + (lane / 4) * 16);
        }
#pragma unroll
        for (int group = 0; group < 4; ++group) {
            const auto word = [group](const uint4& v) { return group == 0 ? v.x : group == 1 ? v.y : group == 2 ? v.z : v.w; };
            const auto scale = [group](const float4& v) { return group == 0 ? v.x : group == 1 ? v.y : group == 2 ? v.z : v.w; };
            uint4 b[NT];
#pragma unroll
            for (int n = 0; n < NT; ++n) b[n] = *reinterpret_cast<const uint4*>(x[n] + 64 * group);
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const unsigned g = word(w[2 * h]);
                const unsigned g8 = word(w[2 * h + 1]);
                const unsigned a0 = int4_pair(g, 0), a2 = int4_pair(g, 1), a4 = int4_pair(g, 2), a6 = int4_pair(g, 3);
                const unsigned a1 = int4_pair(g8, 0), a3 = int4_pair(g8, 1), a5 = int4_pair(g8, 2), a7 = int4_pair(g8, 3);
#pragma unroll
                for (int n = 0; n < NT; ++n) {
                    float part[4];
                    multiply_first(part, a0, a1, a2, a3, b[n].x, b[n].y);
                    multiply(part, a4, a5, a6, a7, b[n].z, b[n].w);
#pragma unroll
                    for (int e = 0; e < 4; ++e) acc[h][n][e] = __fmaf_rn(scale(scales[2 * h + e / 2]), part[e], acc[h][n][e]);
                }
            }
        }
    }
}

/// Eight numbers of x, split into three bf16 numbers each, in the order in which a format's codes are unpacked.
template <Stored F>
__device__ inline void split(const float (&values)[8], uint4 (&parts)[kParts]) {
    constexpr int kFirst[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    constexpr int kFp8[8] = {0, 2, 1, 3, 4, 6, 5, 7};
    constexpr int kInt4[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    unsigned bits[kParts][4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
        const auto from = [e](int s) {
            return F == Stored::bf16 ? kFirst[2 * e + s] : F == Stored::fp8_e4m3 ? kFp8[2 * e + s] : kInt4[2 * e + s];
        };
        constexpr float kScale = F == Stored::fp8_e4m3 ? kFp8Scale : 1.0F;
        float low = values[from(0)] * kScale;
        float high = values[from(1)] * kScale;
#pragma unroll
        for (int p = 0; p < kParts; ++p) {
            bits[p][e] = bits_of(__floats2bfloat162_rn(low, high));
            const float low_taken = __uint_as_float(bits[p][e] << 16);
            const float high_taken = __uint_as_float(bits[p][e] & 0xFFFF0000U);
            // An infinity and a NaN are taken whole.
            low = p > 0 || fabsf(low_taken) < INFINITY ? low - low_taken : 0.0F;
            high = p > 0 || fabsf(high_taken) < INFINITY ? high - high_taken : 0.0F;
        }
    }
#pragma unroll
    for (int p = 0; p < kParts; ++p) parts[p] = make_uint4(bits[p][0], bits[p][1], bits[p][2], bits[p][3]);
}

/// Brings the columns of a slice's steps [begin, begin + steps) of m rows of x into shared memory. read(i, column, values): eight
/// numbers of row i, 0 beyond the last column.
template <Stored F, class Read>
__device__ inline void stage_x(unsigned char* x, int x_stride, int m, int begin, int steps, Read read) {
    constexpr int kGroups = step_columns(F) / 32;  // of 32 columns, 8 a thread
    constexpr int kAhead = 4;                      // reads in flight
    const int units = steps * kGroups * 4;
    const int all = m * units;
    const float inverse = 1.0F / static_cast<float>(units);
    for (int first = static_cast<int>(threadIdx.x); first < all; first += kAhead * kWarps * 32) {
        float values[kAhead][8];
        int row[kAhead], unit[kAhead];
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
            const int at = first + a * kWarps * 32;
            if (at >= all) break;
            row[a] = static_cast<int>((static_cast<float>(at) + 0.5F) * inverse);  // exact: at is far below 2^20
            unit[a] = at - row[a] * units;
            const int t = unit[a] % 4;
            const int group = unit[a] / 4 % kGroups;
            const int step = begin + unit[a] / (4 * kGroups);
            const int within = F == Stored::fp8_e4m3 ? 16 * t + 8 * group : 32 * group + 8 * t;
            read(row[a], step * step_columns(F) + within, values[a]);
        }
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
            if (first + a * kWarps * 32 >= all) break;
            uint4 parts[kParts];
            split<F>(values[a], parts);
#pragma unroll
            for (int p = 0; p < kParts; ++p) *reinterpret_cast<uint4*>(x + (p * m + row[a]) * x_stride + unit[a] * 16) = parts[p];
        }
    }
}

/// What a block has to do.
struct TileWork {
    int m = 0;      ///< rows of x, at most kMostRows
    int slice = 0;  ///< this block's, = its rank in the cluster
    int slices = 1;
    int warps_k = 1;
    int first = 0;   ///< of the product's groups of kWarps / warps_k tiles: this cluster's first,
    int next = 1;    ///< and how far to its next
    int groups = 0;  ///< all
};

/// The whole of a block. NT >= ceil(3 m / 8). read: as in stage_x. finish(tile, total): called by all threads once a group of
/// tiles; total(row, i) is the product of row `row` of the group (kTileRows rows a tile) with row i of x. Ranks of a cluster
/// share what there is to finish. Copies of W begin before the predecessor in the stream has ended; everything else waits for it.
template <Stored F, int NT, int kStages, class Read, class Finish>
__device__ inline void run_tiles(const TileSource& source, const TileWork& work, const TileMemory& memory, unsigned char* shared,
                                 Read read, Finish finish) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int warp_k = warp % work.warps_k;
    const int warp_row = warp / work.warps_k;
    const int tiles_a_group = kWarps / work.warps_k;
    const int all_steps = (source.columns + step_columns(F) - 1) / step_columns(F);
    const int begin = all_steps * work.slice / work.slices;
    const int steps = all_steps * (work.slice + 1) / work.slices - begin;
    const int mine = (steps - warp_k + work.warps_k - 1) / work.warps_k;
    const int rounds = work.first < work.groups ? (work.groups - work.first + work.next - 1) / work.next : 0;
    const int columns = kParts * work.m;

    StepStream<F, kStages> stream(source, shared + warp * memory.ring, begin + warp_k, work.warps_k, mine,
                                  work.first * tiles_a_group + warp_row, work.next * tiles_a_group, rounds);
    stream.fill();
    wait_for_predecessor();
    let_successor_begin();
    stage_x<F>(shared + memory.x, memory.x_stride, work.m, begin, steps, read);
    __syncthreads();

    const unsigned char* x_first[NT];
#pragma unroll
    for (int n = 0; n < NT; ++n) {
        x_first[n] = shared + memory.x + min(8 * n + lane / 4, columns - 1) * memory.x_stride + (lane % 4) * 16 +
                     warp_k * (step_columns(F) * 2);
    }
    auto* partial = reinterpret_cast<float*>(shared + memory.partial);
    const int sums_size = tiles_a_group * kTileRows * work.m;
    // A cluster's sums are put together one round late, so that its blocks need not wait for each other. While one writes round
    // r, others may still read rounds r - 1 and r - 2.
    const auto finish_cluster = [&](int round) {
        cluster_wait();
        float* sums = reinterpret_cast<float*>(shared + memory.sums) + round % kSumSets * sums_size;
        finish(work.first + round * work.next, [&](int row, int i) {
            float sum = 0;
            for (int rank = 0; rank < work.slices; ++rank) {
                sum += cooperative_groups::this_cluster().map_shared_rank(sums, rank)[row * work.m + i];
            }
            return sum;
        });
    };
    for (int round = 0; round < rounds; ++round) {
        const int group = work.first + round * work.next;
        float acc[2][NT][4] = {};
        unsigned nan[4] = {};
        const unsigned char* x[NT];
#pragma unroll
        for (int n = 0; n < NT; ++n) x[n] = x_first[n];
        const float* scale_rows[4] = {};
        if constexpr (F == Stored::fp8_e4m3) {
            const int tile = group * tiles_a_group + warp_row;
#pragma unroll
            for (int q = 0; q < 4; ++q) {
                const int row = min(tile * source.pitch + (q / 2) * source.second + (q % 2) * 8 + lane / 4, source.rows - 1);
                const int down = (row + source.row_offset[q / 2]) >> source.row_shift;
                scale_rows[q] =
                    source.scales[q / 2] + (source.column_shift < 0 ? 0 : static_cast<std::int64_t>(down) * source.scale_columns);
            }
        }
        for (int i = 0; i < mine; ++i) {
            float step_scales[4] = {1, 1, 1, 1};
            if constexpr (F == Stored::fp8_e4m3) {
                if (source.scales[0] != nullptr) {
                    const int column = (begin + warp_k + i * work.warps_k) * step_columns(F) + source.column_offset;
                    const int across = source.column_shift < 0 ? 0 : min(column >> source.column_shift, source.scale_columns - 1);
#pragma unroll
                    for (int q = 0; q < 4; ++q) step_scales[q] = __ldg(scale_rows[q] + across);
                }
            }
            add_step<F, NT>(stream.take(), x, step_scales, acc, nan);
#pragma unroll
            for (int n = 0; n < NT; ++n) x[n] += work.warps_k * (step_columns(F) * 2);
        }
        if constexpr (F == Stored::fp8_e4m3) {
#pragma unroll
            for (int q = 0; q < 4; ++q) {
                nan[q] |= __shfl_xor_sync(0xFFFFFFFFU, nan[q], 1);
                nan[q] |= __shfl_xor_sync(0xFFFFFFFFU, nan[q], 2);
            }
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) {
#pragma unroll
            for (int n = 0; n < NT; ++n) {
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    const int row = 16 * h + 8 * (e / 2) + lane / 4;
                    const int column = 8 * n + 2 * (lane % 4) + e % 2;
                    const float value = (nan[2 * h + e / 2] & kNanBits) != 0 ? __int_as_float(0x7FC00000)
                                        : F == Stored::fp8_e4m3              ? acc[h][n][e] * kFp8Scale
                                                                             : acc[h][n][e];
                    if (column < columns) partial[(warp * kTileRows + row) * columns + column] = value;
                }
            }
        }
        __syncthreads();
        float* sums = reinterpret_cast<float*>(shared + memory.sums) + round % kSumSets * sums_size;
        for (int at = static_cast<int>(threadIdx.x); at < sums_size; at += kWarps * 32) {
            const int row = at / work.m;  // of the group
            const int i = at % work.m;
            float sum = 0;
            for (int k = 0; k < work.warps_k; ++k) {
                const int from = (row / kTileRows) * work.warps_k + k;
                const float* of_warp = partial + (from * kTileRows + row % kTileRows) * columns + i;
                sum += of_warp[0] + (of_warp[work.m] + of_warp[2 * work.m]);
            }
            sums[at] = sum;
        }
        __syncthreads();
        if (work.slices == 1) {
            finish(group, [&](int row, int i) { return sums[row * work.m + i]; });
        } else {
            if (round > 0) finish_cluster(round - 1);
            cluster_arrive();
        }
    }
    if (work.slices > 1) {
        finish_cluster(rounds - 1);
        cluster_arrive();
        cluster_wait();  // others may still read this block's sums
    }
}

}  // namespace draftboard::backend::cuda
