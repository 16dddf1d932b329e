// SPDX-License-Identifier: Apache-2.0
// The routed experts (experts.h) as three launches: pairs sorted by expert into chunks of a few rows of x that share an expert's
// weights (the others do that themselves where pairs are few); gate, up and silu; down. A chunk is read by as many blocks as fill
// the GPU. Tiles are row_tile.cuh's; matrices that it can't take go by load_weights.cuh. Routing before and the weighted sum
// after are in route.cu.
#include <algorithm>
#include <climits>
#include <stdexcept>

#include <cuda_runtime.h>

#include "backend/cuda/check.h"
#include "backend/cuda/experts.h"
#include "backend/cuda/load_weights.cuh"
#include "backend/cuda/row_tile.cuh"

namespace draftboard::backend::cuda {

namespace {

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

Workspace workspace_of(void* memory, std::int64_t pairs) {
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

constexpr int kSortThreads = 256;

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

/// Block 0 sorts, stably; block 1 + p writes zeros for pair p if its expert is not here.
/// Bytes: ids, and what it writes: 20 a pair, and 4 hidden for each pair of other ranks.
__global__ void __launch_bounds__(kSortThreads)
    sort_pairs(const std::int32_t* ids, int pairs, int first_expert, int experts, int chunk_rows, Workspace workspace,
               float* output, std::int64_t hidden) {
    extern __shared__ int counts[];  // pairs by expert, then the place of the expert's next pair
    wait_for_predecessor();
    let_successor_begin();
    const int thread = static_cast<int>(threadIdx.x);
    if (blockIdx.x > 0)
        return zero_stranger(ids, static_cast<std::int64_t>(blockIdx.x) - 1, first_expert, experts, output, hidden);
    for (int e = thread; e < experts; e += kSortThreads) counts[e] = 0;
    __syncthreads();
    for (int p = thread; p < pairs; p += kSortThreads) {
        const int local = ids[p] - first_expert;
        if (local >= 0 && local < experts) atomicAdd(&counts[local], 1);
    }
    __syncthreads();
    if (thread >= 32) return;
    int place = 0, chunk = 0;  // of the next 32 experts
    for (int base = 0; base < experts; base += 32) {
        const int e = base + thread;
        const int count = e < experts ? counts[e] : 0;
        const int chunks = (count + chunk_rows - 1) / chunk_rows;
        int places = count, all_chunks = chunks;
#pragma unroll
        for (int distance = 1; distance < 32; distance *= 2) {
            const int a = __shfl_up_sync(0xFFFFFFFFU, places, distance);
            const int b = __shfl_up_sync(0xFFFFFFFFU, all_chunks, distance);
            if (thread >= distance) {
                places += a;
                all_chunks += b;
            }
        }
        const int first = place + places - count;
        for (int c = 0; c < chunks; ++c) {
            workspace.chunks[chunk + all_chunks - chunks + c] = {e, first + c * chunk_rows,
                                                                 min(chunk_rows, count - c * chunk_rows), 0};
        }
        if (e < experts) counts[e] = first;
        place += __shfl_sync(0xFFFFFFFFU, places, 31);
        chunk += __shfl_sync(0xFFFFFFFFU, all_chunks, 31);
    }
    if (thread == 0) *workspace.chunk_count = chunk;
    __syncwarp();
    for (int base = 0; base < pairs; base += 32) {
        const int p = base + thread;
        const int local = p < pairs ? ids[p] - first_expert : -1;
        const bool here = local >= 0 && local < experts;
        const unsigned same = __match_any_sync(0xFFFFFFFFU, here ? local : -1);
        const int before = __popc(same & ((1U << thread) - 1U));
        if (here) workspace.sorted[counts[local] + before] = p;
        __syncwarp();
        if (here && before == 0) counts[local] += __popc(same);
        __syncwarp();
    }
}

void launch_sort(const std::int32_t* ids, int pairs, int first_expert, int experts, int chunk_rows, const Workspace& workspace,
                 float* output, std::int64_t hidden, cudaStream_t stream) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(1 + pairs));
    config.blockDim = dim3(kSortThreads);
    config.dynamicSmemBytes = static_cast<std::size_t>(experts) * 4;
    config.stream = stream;
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
    check(cudaLaunchKernelEx(&config, sort_pairs, ids, pairs, first_expert, experts, chunk_rows, workspace, output, hidden),
          "sort_pairs");
}

struct ExpertProduct {
    TileSource source;  ///< of expert 0
    std::int64_t data_stride = 0;
    std::int64_t scale_stride = 0;
    const float* x = nullptr;  ///< gate and up: the layer's input
    float* output = nullptr;   ///< down: of pairs
    std::int64_t hidden = 0;
    int width = 0;
    int k = 1;
    int clusters = 1;  ///< that share the tiles of a chunk
    Cut cut;
    TileMemory memory;
    Workspace workspace;
    const std::int32_t* ids = nullptr;  ///< of few pairs; else nullptr, and the workspace has chunks
    int pairs = 0;
    int first_expert = 0;
    int experts = 0;
    int chunk_rows = 1;
};

__device__ inline Chunk read_chunk(const Workspace& workspace, int at) {
    const int4 value = __ldcg(reinterpret_cast<const int4*>(workspace.chunks + at));
    return {value.x, value.y, value.z, value.w};
}

/// The chunk of this block, and whether there is one.
__device__ inline bool find_rows(const ExpertProduct& product, Rows& rows) {
    const int slot = static_cast<int>(blockIdx.y);
    if (product.ids != nullptr) {
        find_chunk(product.ids, product.pairs, product.first_expert, product.experts, product.chunk_rows, slot, rows);
        __syncthreads();
        return rows.chunk.count > 0;
    }
    if (threadIdx.x < kMostRows) {
        const Chunk chunk = read_chunk(product.workspace, slot);  // both reads at once
        const bool there = slot < __ldcg(product.workspace.chunk_count);
        if (threadIdx.x == 0) {
            rows.chunk = chunk;
            if (!there) rows.chunk.count = 0;
        }
        if (there && static_cast<int>(threadIdx.x) < chunk.count) {
            rows.pairs[threadIdx.x] = __ldcg(product.workspace.sorted + chunk.first + threadIdx.x);
        }
    }
    __syncthreads();
    return rows.chunk.count > 0;
}

/// Calls run<NT> with as many groups of 8 columns as a chunk's rows need, up to kMost.
template <int kMost, class Run>
__device__ inline void for_rows(int rows, Run run) {
    if constexpr (kMost > 2) {
        if (kParts * rows > 16) return run(std::integral_constant<int, 3>());
    }
    if constexpr (kMost > 1) {
        if (kParts * rows > 8) return run(std::integral_constant<int, 2>());
    }
    run(std::integral_constant<int, 1>());
}

__device__ inline TileSource source_of(const ExpertProduct& product, int expert) {
    TileSource source = product.source;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        source.data[h] += expert * product.data_stride;
        if (source.scales[h] != nullptr) source.scales[h] += expert * product.scale_stride;
    }
    return source;
}

__device__ inline TileWork work_of(const ExpertProduct& product, int rows, int groups) {
    TileWork work;
    work.m = rows;
    work.slices = product.cut.slices;
    work.slice = static_cast<int>(blockIdx.x) % work.slices;
    work.warps_k = product.cut.warps_k;
    work.first = static_cast<int>(blockIdx.x) / work.slices;
    work.next = product.clusters;
    work.groups = groups;
    return work;
}

/// inner[pair] = silu(gate x) up x. A tile is 16 rows of gate beside the same rows of up.
/// Bytes: 2 width hidden stored, once a chunk. Flops: 4 rows width hidden.
template <Stored F, int kMost, int kStages>
__global__ void __launch_bounds__(kWarps * 32, kMost < 3 ? 2 : 1) gate_up_tiles(const __grid_constant__ ExpertProduct product) {
    extern __shared__ __align__(128) unsigned char shared[];
    wait_for_predecessor();
    if (product.ids != nullptr && blockIdx.x == 0) {
        for (int pair = static_cast<int>(blockIdx.y); pair < product.pairs; pair += static_cast<int>(gridDim.y)) {
            zero_stranger(product.ids, pair, product.first_expert, product.experts, product.output, product.hidden);
        }
    }
    __shared__ Rows rows;
    if (!find_rows(product, rows)) return;
    const Chunk chunk = rows.chunk;
    const TileSource source = source_of(product, chunk.expert);
    const int tiles = kWarps / product.cut.warps_k;
    const int group_rows = 16 * tiles;
    const TileWork work = work_of(product, chunk.count, (product.width + group_rows - 1) / group_rows);
    const auto read = [&](int i, int column, float* values) {
        const float* row = product.x + rows.pairs[i] / product.k * product.hidden;
        load_x(row, column, source.columns, is_aligned(row, 0), values);
    };
    const auto finish = [&](int group, auto total) {
        for (int at = work.slice * kWarps * 32 + static_cast<int>(threadIdx.x); at < group_rows * work.m;
             at += work.slices * kWarps * 32) {
            const int i = at / group_rows;
            const int row = group * group_rows + at % group_rows;
            if (row >= product.width) continue;
            const int of_gate = at % group_rows / 16 * kTileRows + at % 16;
            const float gate = total(of_gate, i);
            const float up = total(of_gate + 16, i);
            product.workspace.inner[std::int64_t{chunk.first + i} * product.width + row] = gate / (1.0F + expf(-gate)) * up;
        }
    };
    for_rows<kMost>(chunk.count, [&](auto groups_of_8) {
        run_tiles<F, decltype(groups_of_8)::value, kStages>(source, work, product.memory, shared, read, finish);
    });
}

/// output[pair] = down inner[pair]. Bytes: hidden width stored, once a chunk. Flops: 2 rows width hidden.
/// Its predecessor is gate_up_tiles, whose blocks let it begin only when what went before them has ended: chunks and ids can be
/// read at once.
template <Stored F, int kMost, int kStages>
__global__ void __launch_bounds__(kWarps * 32, kMost < 3 ? 2 : 1) down_tiles(const __grid_constant__ ExpertProduct product) {
    extern __shared__ __align__(128) unsigned char shared[];
    __shared__ Rows rows;
    if (!find_rows(product, rows)) return;
    const Chunk chunk = rows.chunk;
    const TileSource source = source_of(product, chunk.expert);
    const int group_rows = kWarps / product.cut.warps_k * kTileRows;
    const TileWork work = work_of(product, chunk.count, (source.rows + group_rows - 1) / group_rows);
    const auto read = [&](int i, int column, float* values) {
        const float* row = product.workspace.inner + std::int64_t{chunk.first + i} * product.width;
        load_x(row, column, source.columns, is_aligned(row, 0), values);
    };
    const auto finish = [&](int group, auto total) {
        for (int at = work.slice * kWarps * 32 + static_cast<int>(threadIdx.x); at < group_rows * work.m;
             at += work.slices * kWarps * 32) {
            const int i = at / group_rows;
            const int row = group * group_rows + at % group_rows;
            if (row >= source.rows) continue;
            product.output[rows.pairs[i] * product.hidden + row] = total(at % group_rows, i);
        }
    };
    for_rows<kMost>(chunk.count, [&](auto groups_of_8) {
        run_tiles<F, decltype(groups_of_8)::value, kStages>(source, work, product.memory, shared, read, finish);
    });
}

/// Columns of a slice: 4096 bytes of a row.
std::int64_t slice_columns(Stored format) { return 64 * step_columns(format); }

/// Blocks that a large GPU runs at a time, two a multiprocessor: what cuts are made for, whatever the GPU.
constexpr int kBlocksAtATime = 264;

/// One slice of gate and up or two, whichever lets one token's k experts fill the GPU more evenly. (Three and more lose more by
/// blocks that wait for each other than they win: 20 us, not 15, for ten fp8 experts of 4096 x 128 on an H200.)
Cut balanced_cut(const DeviceMatrix& gate, int k) {
    const auto least =
        static_cast<int>(std::min<std::int64_t>(8, (gate.columns + slice_columns(gate.format) - 1) / slice_columns(gate.format)));
    Cut best = cut_into(gate, least);
    double best_share = 0;
    for (int slices = least; slices <= 2 || slices == least; ++slices) {
        if (slices > least && steps_of(gate) < 2 * kWarps * slices) break;  // two steps a warp
        const Cut cut = cut_into(gate, slices);
        const std::int64_t group_rows = 16 * (kWarps / cut.warps_k);
        const std::int64_t groups = (gate.rows + group_rows - 1) / group_rows;
        const std::int64_t at_a_time = std::max(1, kBlocksAtATime / (k * slices));
        const std::int64_t rounds = (groups + at_a_time - 1) / at_a_time;
        const double share = static_cast<double>(groups * k * slices) / static_cast<double>(kBlocksAtATime * rounds);
        if (share > best_share + 0.05) {
            best = cut;
            best_share = share;
        }
    }
    return best;
}

/// Sets what follows from the matrix and the rows of a chunk, and launches. slots: chunks there may be.
template <Stored F, class Kernel>
void launch_chunks(const char* what, Kernel kernel, ExpertProduct& product, int chunk_rows, int stages, int tile_rows, int rows,
                   std::int64_t slots, const DeviceLimits& limits, cudaStream_t stream) {
    product.memory = tile_memory(F, product.source.columns, product.cut, chunk_rows, stages);
    const int group_rows = kWarps / product.cut.warps_k * tile_rows;
    const std::int64_t groups = (rows + group_rows - 1) / group_rows;
    // A few chunks: one even round of blocks. Many, of which some may be missing: two blocks for each that runs at a time.
    const std::int64_t blocks = std::int64_t{2} * limits.multiprocessors;
    const std::int64_t of_slot = slots * product.cut.slices;
    const std::int64_t wanted = blocks / of_slot >= 3 ? blocks / of_slot : (2 * blocks + of_slot - 1) / of_slot;
    const std::int64_t rounds = (groups + wanted - 1) / wanted;
    product.clusters = static_cast<int>((groups + rounds - 1) / rounds);
    const dim3 grid(static_cast<unsigned>(product.clusters * product.cut.slices), static_cast<unsigned>(slots));
    launch_tiles(what, kernel, grid, product.cut.slices, product.memory.total, stream, product);
}

template <Stored F, int kMost, int kStages>
void launch_tiled(const ExpertLayer& layer, ExpertProduct gate_up, ExpertProduct down, int chunk_rows, std::int64_t slots,
                  const DeviceLimits& limits, cudaStream_t stream) {
    launch_chunks<F>("gate_up_tiles", gate_up_tiles<F, kMost, kStages>, gate_up, chunk_rows, kStages, 16, gate_up.width, slots,
                     limits, stream);
    launch_chunks<F>("down_tiles", down_tiles<F, kMost, kStages>, down, chunk_rows, kStages, kTileRows,
                     static_cast<int>(layer.down.first.rows), slots, limits, stream);
}

template <Stored F>
void launch_format(const ExpertLayer& layer, const ExpertProduct& gate_up, const ExpertProduct& down, int chunk_rows,
                   std::int64_t slots, const DeviceLimits& limits, cudaStream_t stream) {
    if (kParts * chunk_rows <= 8) {
        const int bytes = tile_memory(F, gate_up.source.columns, gate_up.cut, chunk_rows, 4).total;
        if (bytes + 1024 <= limits.shared_bytes_sm / 2)
            return launch_tiled<F, 1, 4>(layer, gate_up, down, chunk_rows, slots, limits, stream);
        return launch_tiled<F, 1, 3>(layer, gate_up, down, chunk_rows, slots, limits, stream);
    }
    if (kParts * chunk_rows <= 16) return launch_tiled<F, 2, 3>(layer, gate_up, down, chunk_rows, slots, limits, stream);
    launch_tiled<F, 3, 3>(layer, gate_up, down, chunk_rows, slots, limits, stream);
}

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

/// Whether gate and up can stand side by side in a tile.
bool alike(const ExpertMatrices& a, const ExpertMatrices& b) {
    return a.first.format == b.first.format && a.first.row_bytes == b.first.row_bytes &&
           a.first.block_rows == b.first.block_rows && a.first.block_columns == b.first.block_columns &&
           a.first.scale_columns == b.first.scale_columns && a.first.column_offset == b.first.column_offset &&
           (a.first.scales == nullptr) == (b.first.scales == nullptr) && a.stride_bytes == b.stride_bytes &&
           a.scale_stride == b.scale_stride;
}

bool fits_tiles(const ExpertMatrices& matrices) {
    return draftboard::backend::cuda::fits_tiles(matrices.first) && matrices.stride_bytes % 16 == 0;
}

/// Rows of a chunk. Few tokens: as many as let two blocks live on a multiprocessor, since most experts have one or two. Many: all
/// that fit.
int chunk_rows_of(const ExpertProduct& gate_up, const ExpertProduct& down, Stored format, int m, const DeviceLimits& limits) {
    const auto fit = [&](int wanted, int bytes) {
        const int a = rows_that_fit(format, gate_up.source.columns, gate_up.cut, wanted, 3, bytes);
        const int b = rows_that_fit(format, down.source.columns, down.cut, wanted, 3, bytes);
        return a < b ? a : b;
    };
    const int most = fit(m < kMostRows ? m : kMostRows, limits.shared_bytes);
    if (m > 16) return most;
    const int two_blocks = fit(m < 4 ? m : 4, limits.shared_bytes_sm / 2 - 1024);
    return two_blocks > 0 ? two_blocks : most;
}

}  // namespace

std::int64_t experts_workspace_bytes(std::int64_t max_pairs, std::int64_t width, int /*experts*/) {
    return 256 + rounded(max_pairs * static_cast<std::int64_t>(sizeof(Chunk))) + rounded(max_pairs * 4) +
           rounded(max_pairs * width * 4);
}

void run_experts(const float* x, int m, std::int64_t hidden, const ExpertLayer& layer, const std::int32_t* ids, int k,
                 float* output, void* workspace_memory, cudaStream_t stream) {
    const std::int64_t pairs = std::int64_t{m} * k;
    if (pairs <= 0) return;
    const Stored format = layer.gate.first.format;
    if (layer.up.first.format != format) throw std::runtime_error("run_experts: gate and up are stored in different formats");
    const DeviceLimits limits = device_limits();
    const Workspace workspace = workspace_of(workspace_memory, pairs);
    const int width = static_cast<int>(layer.gate.first.rows);
    const int experts = layer.gate.experts;

    ExpertProduct gate_up;
    gate_up.x = x;
    gate_up.hidden = hidden;
    gate_up.width = width;
    gate_up.k = k;
    gate_up.output = output;
    gate_up.workspace = workspace;
    ExpertProduct down = gate_up;
    int chunk_rows = 0;
    if (fits_tiles(layer.gate) && fits_tiles(layer.up) && fits_tiles(layer.down) && alike(layer.gate, layer.up) &&
        layer.down.first.format == format) {
        gate_up.source = tile_source(layer.gate.first, layer.up.first);
        gate_up.source.pitch = 16;
        gate_up.source.second = 0;
        gate_up.data_stride = layer.gate.stride_bytes;
        gate_up.scale_stride = layer.gate.scale_stride;
        gate_up.cut = balanced_cut(layer.gate.first, k) down.source = tile_source(layer.down.first, layer.down.first);
        down.data_stride = layer.down.stride_bytes;
        down.scale_stride = layer.down.scale_stride;
        down.cut = cut_of(layer.down.first, slice_columns(format), 8 * ((layer.down.first.rows + kTileRows - 1) / kTileRows));
        chunk_rows = chunk_rows_of(gate_up, down, format, m, limits);
    }
    const bool tiled = chunk_rows > 0;
    if (!tiled) chunk_rows = kPlainChunk;

    const std::int64_t touched = pairs < experts ? pairs : experts;
    const std::int64_t slots = touched + pairs / chunk_rows < pairs ? touched + pairs / chunk_rows : pairs;
    if (tiled && pairs <= kFewPairs) {
        for (ExpertProduct* product : {&gate_up, &down}) {
            product->ids = ids;
            product->pairs = static_cast<int>(pairs);
            product->first_expert = layer.first_expert;
            product->experts = experts;
            product->chunk_rows = chunk_rows;
        }
    } else {
        launch_sort(ids, static_cast<int>(pairs), layer.first_expert, experts, chunk_rows, workspace, output, hidden, stream);
    }
    if (tiled) {
        switch (format) {
            case Stored::bf16: return launch_format<Stored::bf16>(layer, gate_up, down, chunk_rows, slots, limits, stream);
            case Stored::fp8_e4m3:
                return launch_format<Stored::fp8_e4m3>(layer, gate_up, down, chunk_rows, slots, limits, stream);
            default: return launch_format<Stored::int4>(layer, gate_up, down, chunk_rows, slots, limits, stream);
        }
    }
    if (layer.down.first.format != format) throw std::runtime_error("run_experts: gate and down are stored in different formats");
    PlainExperts plain;
    plain.gate = layer.gate.first;
    plain.up = layer.up.first;
    plain.down = layer.down.first;
    const ExpertMatrices* all[3] = {&layer.gate, &layer.up, &layer.down};
    for (int i = 0; i < 3; ++i) {
        plain.stride[i] = all[i]->stride_bytes;
        plain.scale_stride[i] = all[i]->scale_stride;
    }
    plain.x = x;
    plain.output = output;
    plain.k = k;
    plain.workspace = workspace;
    switch (format) {
        case Stored::bf16: return launch_plain<Stored::bf16>(plain, slots, stream);
        case Stored::fp32: return launch_plain<Stored::fp32>(plain, slots, stream);
        case Stored::fp8_e4m3: return launch_plain<Stored::fp8_e4m3>(plain, slots, stream);
        case Stored::int4: return launch_plain<Stored::int4>(plain, slots, stream);
    }
}

}  // namespace draftboard::backend::cuda
