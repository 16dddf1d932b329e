// SPDX-License-Identifier: Apache-2.0
// The routed experts (experts.h) as two launches on tiles (row_tile.cuh): gate, up and silu; down. Pairs that share an expert's
// weights are put into chunks before, by sort_pairs.cu, or where pairs are few by the kernels themselves (expert_chunks.cuh). A
// chunk is read by as many blocks as fill the GPU. Matrices that tiles can't take go by plain_experts.cu; routing before and the
// weighted sum after are in route.cu.
#include <algorithm>
#include <stdexcept>

#include <cuda_runtime.h>

#include "backend/cuda/check.h"
#include "backend/cuda/expert_chunks.cuh"
#include "backend/cuda/experts.h"
#include "backend/cuda/load_weights.cuh"
#include "backend/cuda/row_tile.cuh"

namespace draftboard::backend::cuda {

namespace {

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
    const auto write_zeros = [&] {  // last, since it is seldom wanted
        if (product.ids == nullptr || blockIdx.x > 0) return;
        for (int pair = static_cast<int>(blockIdx.y); pair < product.pairs; pair += static_cast<int>(gridDim.y)) {
            zero_stranger(product.ids, pair, product.first_expert, product.experts, product.output, product.hidden);
        }
    };
    __shared__ Rows rows;
    if (!find_rows(product, rows)) return write_zeros();
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
    write_zeros();
}

/// output[pair] = down inner[pair]. Bytes: hidden width stored, once a chunk. Flops: 2 rows width hidden.
/// Its predecessor is gate_up_tiles, whose blocks let it begin only when what went before them has ended: chunks and ids can be
/// read at once.
template <Stored F, int kMost, int kStages>
__global__ void __launch_bounds__(kWarps * 32, kMost < 3 ? 2 : 1) down_tiles(const __grid_constant__ ExpertProduct product) {
    extern __shared__ __align__(128) unsigned char shared[];
    __shared__ Rows rows;
    if (!find_rows(product, rows)) return wait_for_predecessor();  // where no block has a chunk, there are zeros to wait for
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

/// As few slices as may be, since blocks of a cluster wait for each other; but gate and up of one token's k experts in two where
/// their tiles leave most of a large GPU idle. On an H200: two slices instead of one make a decode step of Qwen3-30B (384 blocks
/// in one slice) 7 % longer and one of four rows 8 %, and one of Qwen3.5-397B at TP8 (80 blocks) 8 % shorter.
Cut expert_cut(const DeviceMatrix& w, int tile_rows, int k) {
    constexpr std::int64_t kFewBlocks = 132;
    const std::int64_t most = slice_columns(w.format);
    const Cut least = cut_into(w, static_cast<int>(std::min<std::int64_t>(8, (w.columns + most - 1) / most)));
    const std::int64_t group_rows = std::int64_t{tile_rows} * (kWarps / least.warps_k);
    const std::int64_t blocks = k * least.slices * ((w.rows + group_rows - 1) / group_rows);
    const bool divides = steps_of(w) >= 4 * kWarps;  // two steps a warp of each half
    return least.slices == 1 && blocks < kFewBlocks && divides ? cut_into(w, 2) : least;
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
        const auto two_blocks_fit = [&](const ExpertProduct& product, int stages) {
            return tile_memory(F, product.source.columns, product.cut, chunk_rows, stages).total + 1024 <= limits.shared_bytes_sm / 2;
        };
        if (two_blocks_fit(gate_up, 5) && two_blocks_fit(down, 5))
            return launch_tiled<F, 1, 5>(layer, gate_up, down, chunk_rows, slots, limits, stream);
        return launch_tiled<F, 1, 3>(layer, gate_up, down, chunk_rows, slots, limits, stream);
    }
    if (kParts * chunk_rows <= 16) return launch_tiled<F, 2, 3>(layer, gate_up, down, chunk_rows, slots, limits, stream);
    launch_tiled<F, 3, 3>(layer, gate_up, down, chunk_rows, slots, limits, stream);
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
        gate_up.cut = expert_cut(layer.gate.first, 16, k);
        down.source = tile_source(layer.down.first, layer.down.first);
        down.data_stride = layer.down.stride_bytes;
        down.scale_stride = layer.down.scale_stride;
        down.cut = expert_cut(layer.down.first, kTileRows, k);
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
    launch_plain_experts(plain, slots, stream);
}

}  // namespace draftboard::backend::cuda
