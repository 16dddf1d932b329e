// SPDX-License-Identifier: Apache-2.0
// Dense matrices times few rows of x (matmul.h): one launch that streams W once. row_tile.cuh has the tensor-core path,
// load_weights.cuh the plain one; this file cuts the work over blocks. More rows than kFewRows are DenseMath's (matmul.cu).
#include <stdexcept>

#include <cuda_runtime.h>

#include "backend/cuda/check.h"
#include "backend/cuda/load_weights.cuh"
#include "backend/cuda/matmul.h"
#include "backend/cuda/row_tile.cuh"

namespace draftboard::backend::cuda {

namespace {

/// Columns of a slice. Up to 2048, eight rows of x (48 bytes a column) fit into shared memory beside the ring. int4 has so few
/// bytes in as many columns that putting slices together costs more than a second pass over W, which comes from L2.
constexpr std::int64_t slice_columns(Stored format) { return format == Stored::int4 ? 4096 : 2048; }

struct FewRows {
    const float* x = nullptr;
    std::int64_t x_stride = 0;
    int m = 0;
    const float* bias = nullptr;
    float* y = nullptr;
    std::int64_t y_stride = 0;
    int pass_rows = 0;  ///< rows of x that a block takes
    int passes = 1;     ///< blocks of all passes over the same tiles run side by side: the later ones find W in L2
    int clusters = 1;   ///< that share the tiles, of one pass
    Cut cut;
    TileMemory memory;
};

/// Bytes: W, and m x slice x 4 of x a block. Flops: row_tile.cuh.
template <Stored F, int NT, int kStages>
__global__ void __launch_bounds__(kWarps * 32, NT < 3 ? 2 : 1)
    few_rows_tiles(const __grid_constant__ TileSource source, const __grid_constant__ FewRows product) {
    extern __shared__ __align__(128) unsigned char shared[];
    const int slices = product.cut.slices;
    const int slice = static_cast<int>(blockIdx.x) % slices;
    const int pass = static_cast<int>(blockIdx.x) / slices % product.passes;
    const int first_row = pass * product.pass_rows;
    const int group_rows = kWarps / product.cut.warps_k * kTileRows;
    TileWork work;
    work.m = min(product.pass_rows, product.m - first_row);
    work.slice = slice;
    work.slices = slices;
    work.warps_k = product.cut.warps_k;
    work.first = static_cast<int>(blockIdx.x) / (slices * product.passes);
    work.next = product.clusters;
    work.groups = (source.rows + group_rows - 1) / group_rows;
    const float* x = product.x + first_row * product.x_stride;
    const bool aligned = is_aligned(x, product.x_stride);
    run_tiles<F, NT, kStages>(
        source, work, product.memory, shared,
        [&](int i, int column, float* values) { load_x(x + i * product.x_stride, column, source.columns, aligned, values); },
        [&](int group, auto total) {
            for (int at = slice * kWarps * 32 + static_cast<int>(threadIdx.x); at < group_rows * work.m;
                 at += slices * kWarps * 32) {
                const int i = at / group_rows;
                const int row = group * group_rows + at % group_rows;
                if (row >= source.rows) continue;
                const float sum = total(at % group_rows, i);
                product.y[(first_row + i) * product.y_stride + row] = product.bias != nullptr ? sum + product.bias[row] : sum;
            }
        });
}

template <Stored F, int NT, int kStages>
void launch_few_rows(const TileSource& source, FewRows& product, std::int64_t groups, cudaStream_t stream) {
    product.memory = tile_memory(F, source.columns, product.cut, product.pass_rows, kStages);
    // As many clusters as run at a time, evenly loaded.
    const auto kernel = few_rows_tiles<F, NT, kStages>;
    const int at_a_time = clusters_at_a_time(kernel, product.cut.slices, product.memory.total) / product.passes;
    const std::int64_t running = at_a_time < 1 ? 1 : at_a_time;
    const std::int64_t rounds = (groups + running - 1) / running;
    product.clusters = static_cast<int>((groups + rounds - 1) / rounds);
    const dim3 grid(static_cast<unsigned>(product.clusters * product.passes * product.cut.slices));
    launch_tiles("few_rows_tiles", kernel, grid, product.cut.slices, product.memory.total, stream, source, product);
}

template <Stored F>
bool by_tiles(const DeviceMatrix& w, FewRows product, cudaStream_t stream) {
    const DeviceLimits limits = device_limits();
    product.cut = cut_of(w, slice_columns(F), (w.rows + kTileRows - 1) / kTileRows);
    const int fitting = rows_that_fit(F, w.columns, product.cut, product.m, 3, limits.shared_bytes);
    if (fitting == 0) return false;
    product.passes = (product.m + fitting - 1) / fitting;
    product.pass_rows = (product.m + product.passes - 1) / product.passes;
    TileSource source = tile_source(w, w);
    const int group_rows = kWarps / product.cut.warps_k * kTileRows;
    const std::int64_t groups = (w.rows + group_rows - 1) / group_rows;
    if (kParts * product.pass_rows <= 8) {
        // Steps in flight are also what is read before the predecessor has ended: as many as let two blocks live side by side.
        const auto two_fit = [&](int stages) {
            return tile_memory(F, w.columns, product.cut, product.pass_rows, stages).total <= limits.shared_bytes_sm / 2 - 2048;
        };
        two_fit(5) ? launch_few_rows<F, 1, 5>(source, product, groups, stream)
                   : launch_few_rows<F, 1, 3>(source, product, groups, stream);
    } else if (kParts * product.pass_rows <= 16) {
        launch_few_rows<F, 2, 3>(source, product, groups, stream);
    } else {
        launch_few_rows<F, 3, 3>(source, product, groups, stream);
    }
    return true;
}

}  // namespace

void few_rows_matmul(const float* x, int m, std::int64_t x_stride, const DeviceMatrix& w, const float* bias, float* y,
                     std::int64_t y_stride, cudaStream_t stream) {
    if (m <= 0 || w.rows <= 0) return;
    if (m > kFewRows) throw std::runtime_error("few_rows_matmul: more rows than kFewRows");
    FewRows product;
    product.x = x;
    product.x_stride = x_stride;
    product.m = m;
    product.bias = bias;
    product.y = y;
    product.y_stride = y_stride;
    if (w.columns > 0 && fits_tiles(w)) {
        const bool done = w.format == Stored::bf16       ? by_tiles<Stored::bf16>(w, product, stream)
                          : w.format == Stored::fp8_e4m3 ? by_tiles<Stored::fp8_e4m3>(w, product, stream)
                                                         : by_tiles<Stored::int4>(w, product, stream);
        if (done) return;
    }
    plain_matmul(x, m, 1, x_stride, 0, w, 0, 0, static_cast<int>(w.rows), bias, y, y_stride, 0, stream);
}

}  // namespace draftboard::backend::cuda
