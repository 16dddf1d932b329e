// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tiles of 32 stored rows times up to 8 rows of x on the tensor cores, float in and out: the fast path of bf16, fp8 and int4. Not
// a kernel: few_rows.cu and experts.cu put one round it. What it can't take (fp32, grids of scales that begin inside a step) goes
// by load_weights.cuh. tile_plan.cuh has the host's half, tensor_step.cuh what happens to one step.
//
//   W       streams through shared memory: each warp keeps kStages steps of 32 rows x 64 bytes in flight (cp.async), across the
//           ends of tiles. Only its own lanes use them, so that no barrier of the block is needed. A step is 32 columns of bf16,
//           64 of fp8, 128 of int4.
//   x       is split into three bf16 numbers, x = high + middle + low, exactly (3 x 8 bits of fraction hold a float's 24), and
//           lies in shared memory for the whole block: 3 m columns of the product, which the tensor cores take 8 at a time.
//   scales  multiply the sums of their own columns: of a group of int4, of a step of fp8. Codes are exact in bf16.
//
// Order of a row's sum: the columns are cut into slices (one a block of a cluster), a slice's steps go round the warps, a warp's
// steps are summed by the tensor cores in ascending order, then warps, parts and slices in ascending order. The cut depends on
// the matrix alone (of experts also on k), and a column of a tensor core's product does not depend on its neighbours: so a row of
// x gives the same bits beside any others.
//
// Bytes: W and its scales once, x once a block. Tensor flops: 2 x 32 x 8 ceil(3 m / 8) a column of a tile.
// Other operations an element of W: bf16 0, fp8 2, int4 1.5.

#include <cstdint>

#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include "backend/cuda/device_matrix.h"
#include "backend/cuda/tensor_step.cuh"
#include "backend/cuda/tile_plan.cuh"

namespace draftboard::backend::cuda {

__device__ inline void cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
__device__ inline void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }

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
