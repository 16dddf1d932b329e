// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/matmul.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "backend/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/matmul.cpp"
#include <hwy/foreach_target.h>
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "backend/cpu/stored_rows_inl.h"
#include "backend/cpu/tiles_inl.h"

HWY_BEFORE_NAMESPACE();
namespace draftboard::backend::cpu {
namespace HWY_NAMESPACE {

/// Up to this many rows of x, W is read as stored, once for every kDirectM rows; beyond, a panel of it is unpacked to floats
/// first. Where the two meet was measured (tests/bench/cpu_kernels_bench.cpp): the dearer a format's unpacking, the sooner.
template <class Format>
constexpr std::int64_t kDirectRows = Format::kElements <= 2 ? 24 : 8;
/// Rows up to this long are over before the processor's own prefetching has understood them: the next rows are asked for.
constexpr std::size_t kShortRow = 2048;
/// Floats of a panel: a quarter of a 1 MiB L2, so that x passes by it without pushing it out.
constexpr std::size_t kPanelFloats = std::size_t{1} << 16;
/// Tiles that fit the registers: 32 vectors with AVX-512, 16 elsewhere.
constexpr int kDirectM = N == 16 ? 4 : 2;
constexpr int kSingleR = N == 16 ? 8 : 4;
constexpr int kPanelM = N == 16 ? 6 : 3;
constexpr int kUpdateVectors = N == 16 ? 16 : 8;

/// Rows [first, first + count) of a matrix, ready to be read as units.
struct StoredRows {
    const WeightMatrix* matrix = nullptr;
    std::int64_t first = 0;
    std::size_t count = 0;
    std::size_t columns = 0;
    ScaleIndex index;

    HWY_INLINE const std::byte* row(std::size_t r) const { return matrix->row(first + static_cast<std::int64_t>(r)); }
    HWY_INLINE const float* scales(std::size_t r) const {
        static constexpr float kOne = 1;
        if (matrix->scales.empty()) return &kOne;
        if (matrix->format.block_rows <= 0) return matrix->scales.data();
        const std::int64_t down = (first + static_cast<std::int64_t>(r) + matrix->row_offset) / matrix->format.block_rows;
        return matrix->scales.data() + down * matrix->scale_columns;
    }
};

HWY_INLINE std::size_t units_of(std::size_t columns, std::size_t elements) { return (columns + elements * N - 1) / (elements * N); }

bool scales_below(const WeightMatrix& w, float limit) {
    return std::all_of(w.scales.begin(), w.scales.end(), [limit](float scale) { return scale < limit && scale > -limit; });
}

/// Fills the index of scales. False where a scale changes within the lanes that share one here: such shares are dequantised
/// element by element.
bool index_scales(const WeightMatrix& w, std::size_t elements, Scratch& scratch, ScaleIndex& index) {
    if (elements <= 2) return true;
    if (elements == 4 && !scales_below(w, 0x1p7F)) return false;  // Fp8Rows multiplies them by 2^120
    const std::size_t units = units_of(static_cast<std::size_t>(w.columns), elements);
    const std::size_t entries = elements == 8 ? units * N : units;
    const auto step = static_cast<std::int64_t>(elements == 8 ? elements : elements * N);  // columns an entry stands for
    std::int32_t* of = scratch.scales.get(entries);
    index.of = of;
    if (w.scales.empty() || w.format.block_rows <= 0 || w.format.block_columns <= 0) {
        std::fill_n(of, entries, 0);
        return true;
    }
    const std::int64_t block = w.format.block_columns;
    if (block % step != 0 || w.column_offset % step != 0) return false;
    for (std::size_t i = 0; i < entries; ++i) {
        const std::int64_t column = std::min(static_cast<std::int64_t>(i) * step, w.columns - 1) + w.column_offset;
        of[i] = static_cast<std::int32_t>(column / block);
    }
    index.groups_of_32 = block == 32 && w.column_offset % 32 == 0;
    index.full_units = static_cast<std::size_t>(w.columns) / (elements * N);
    return true;
}

template <class Format, int M, int R>
struct DotUnit {
    const float* x;
    std::ptrdiff_t x_stride;
    const typename Format::Unit (&unit)[R];
    V (&acc)[M][R];
    /// All rows' element E against element E of x.
    template <int E>
    HWY_INLINE void step() {
        V weight[R];
        DRAFTBOARD_UNROLL
        for (int r = 0; r < R; ++r) weight[r] = Format::template element<E>(unit[r]);
        DRAFTBOARD_UNROLL
        for (int i = 0; i < M; ++i) {
            const V input = hn::Load(Floats(), x + i * x_stride + static_cast<std::ptrdiff_t>(E * N));
            DRAFTBOARD_UNROLL
            for (int r = 0; r < R; ++r) acc[i][r] = hn::MulAdd(input, weight[r], acc[i][r]);
        }
        if constexpr (E + 1 < static_cast<int>(Format::kElements)) step<E + 1>();
    }
};

/// M rows of packed x against rows [r0, r0 + count) as stored, count <= R.
template <class Format, int M, int R>
void dot_stored(const float* x, std::ptrdiff_t x_stride, const StoredRows& w, std::size_t r0, int count, float* y,
                std::ptrdiff_t y_stride) {
    const std::byte* row[R];
    const float* scales[R];
    V acc[M][R];
    typename Format::Watch watch[R];
    for (int r = 0; r < R; ++r) {
        const std::size_t at = r0 + static_cast<std::size_t>(std::min(r, count - 1));
        row[r] = w.row(at);
        scales[r] = w.scales(at);
    }
    DRAFTBOARD_UNROLL
    for (int i = 0; i < M; ++i) {
        DRAFTBOARD_UNROLL
        for (int r = 0; r < R; ++r) acc[i][r] = hn::Zero(Floats());
    }
    const std::size_t units = units_of(w.columns, Format::kElements);
    const std::size_t ahead = w.matrix->row_bytes <= kShortRow ? R * w.matrix->row_bytes : 0;
    for (std::size_t u = 0; u < units; ++u) {
        typename Format::Unit unit[R];
        DRAFTBOARD_UNROLL
        for (int r = 0; r < R; ++r) {
            unit[r] = Format::load(row[r], scales[r], w.index, u);
            watch[r].look(unit[r]);
        }
        if (M == 1 && ahead != 0) {
            DRAFTBOARD_UNROLL
            for (int r = 0; r < R; ++r) hwy::Prefetch(row[r] + ahead + u * N * 4);
        }
        DotUnit<Format, M, R> dot{x + u * Format::kElements * N, x_stride, unit, acc};
        dot.template step<0>();
    }
    store_sums<M, R>(acc, y + r0, y_stride, count);
    for (int r = 0; r < count; ++r) {
        if (HWY_LIKELY(!watch[r].has_nan())) continue;
        for (int i = 0; i < M; ++i) y[i * y_stride + static_cast<std::ptrdiff_t>(r0) + r] = std::numeric_limits<float>::quiet_NaN();
    }
}

template <class Format>
void matmul_direct(const float* x, std::int64_t m, std::ptrdiff_t x_stride, const StoredRows& w, float* y, std::ptrdiff_t y_stride) {
    const std::size_t rows = m == 1 ? kSingleR : 4;
    for (std::size_t r = 0; r < w.count; r += rows) {
        const int count = static_cast<int>(std::min(rows, w.count - r));
        for (std::int64_t i = 0; i < m;) {
            const float* xi = x + i * x_stride;
            float* yi = y + i * y_stride;
            const std::int64_t left = std::min<std::int64_t>(m - i, kDirectM);
            if (m == 1) {
                dot_stored<Format, 1, kSingleR>(xi, x_stride, w, r, count, yi, y_stride);
            } else if (left == 1) {
                dot_stored<Format, 1, 4>(xi, x_stride, w, r, count, yi, y_stride);
            } else if (left == 2) {
                dot_stored<Format, 2, 4>(xi, x_stride, w, r, count, yi, y_stride);
            } else if constexpr (kDirectM >= 4) {
                if (left == 3) dot_stored<Format, 3, 4>(xi, x_stride, w, r, count, yi, y_stride);
                else dot_stored<Format, 4, 4>(xi, x_stride, w, r, count, yi, y_stride);
            }
            i += left;
        }
    }
}

/// m rows of x against `count` <= 4 rows of a panel, in tiles of M rows and what is left.
template <int M>
void dot_panel(const float* x, std::int64_t m, std::ptrdiff_t x_stride, const float* const (&w)[4], std::size_t columns, float* y,
               std::ptrdiff_t y_stride, int count) {
    std::int64_t i = 0;
    for (; i + M <= m; i += M) dot_tile<M, 4>(x + i * x_stride, x_stride, w, columns, y + i * y_stride, y_stride, count);
    if constexpr (M > 1) {
        if (i < m) dot_panel<M - 1>(x + i * x_stride, m - i, x_stride, w, columns, y + i * y_stride, y_stride, count);
    }
}

/// Rows far enough apart that they don't fall into the same sets of a cache: an odd number of 64-byte lines.
HWY_INLINE std::size_t apart(std::size_t floats) { return (floats + 15) / 16 * 16 + ((floats + 15) / 16 % 2 == 0 ? 16 : 0); }

/// `fill(r, target)` writes row r of W as floats in the order of packed x.
template <class Fill>
void matmul_panels(const float* x, std::int64_t m, std::ptrdiff_t x_stride, std::size_t columns, std::size_t count, const Fill& fill,
                   Buffer<float>& buffer, float* y, std::ptrdiff_t y_stride) {
    const std::size_t stride = apart(columns);
    const std::size_t height = std::min(std::max<std::size_t>(kPanelFloats / stride / 4 * 4, 4), (count + 3) / 4 * 4);
    float* panel = buffer.get(height * stride);
    // x passes the panel in blocks of rows that share a second quarter of L2.
    const std::int64_t block = std::max<std::int64_t>(static_cast<std::int64_t>(kPanelFloats / stride) / kPanelM * kPanelM, kPanelM);
    for (std::size_t r0 = 0; r0 < count; r0 += height) {
        const std::size_t rows = std::min(height, count - r0);
        for (std::size_t r = 0; r < rows; ++r) fill(r0 + r, panel + r * stride);
        for (std::int64_t i = 0; i < m; i += block) {
            for (std::size_t r = 0; r < rows; r += 4) {
                const int width = static_cast<int>(std::min<std::size_t>(4, rows - r));
                const float* w[4];
                for (int t = 0; t < 4; ++t) w[t] = panel + (r + static_cast<std::size_t>(std::min(t, width - 1))) * stride;
                dot_panel<kPanelM>(x + i * x_stride, std::min(block, m - i), x_stride, w, columns, y + i * y_stride + r0 + r,
                                   y_stride, width);
            }
        }
    }
}

template <class Format>
struct FillStored {
    const StoredRows& w;
    HWY_INLINE void operator()(std::size_t r, float* target) const {
        unpack_row<Format>(w.row(r), w.scales(r), w.index, units_of(w.columns, Format::kElements), target);
    }
};

struct FillDequantised {
    const StoredRows& w;
    HWY_INLINE void operator()(std::size_t r, float* target) const {
        w.matrix->dequantize_row(w.first + static_cast<std::int64_t>(r), target);
    }
};

/// x as the kernels want it: in the order of units, padded with zeros. Returns the stride.
template <std::size_t E>
std::size_t pack_inputs(const float* x, std::int64_t m, std::int64_t x_stride, std::size_t columns, Buffer<float>& buffer,
                        const float*& packed) {
    const std::size_t units = units_of(columns, E);
    const std::size_t stride = apart(units * E * N);
    float* target = buffer.get(static_cast<std::size_t>(m) * stride);
    for (std::int64_t i = 0; i < m; ++i) pack_row<E>(x + i * x_stride, columns, units, target + static_cast<std::size_t>(i) * stride);
    packed = target;
    return stride;
}

template <class Format>
void matmul_as(const float* x, std::int64_t m, std::int64_t x_stride, StoredRows w, float* y, std::int64_t y_stride,
               Scratch& scratch) {
    const float* packed = nullptr;
    if (!index_scales(*w.matrix, Format::kElements, scratch, w.index)) {
        const auto stride = static_cast<std::ptrdiff_t>(pack_inputs<1>(x, m, x_stride, w.columns, scratch.inputs, packed));
        matmul_panels(packed, m, stride, w.columns, w.count, FillDequantised{w}, scratch.panel, y, y_stride);
        return;
    }
    const auto stride = static_cast<std::ptrdiff_t>(pack_inputs<Format::kElements>(x, m, x_stride, w.columns, scratch.inputs, packed));
    if (m <= kDirectRows<Format>) {
        matmul_direct<Format>(packed, m, stride, w, y, y_stride);
    } else {
        const std::size_t padded = units_of(w.columns, Format::kElements) * Format::kElements * N;
        using Filled = std::conditional_t<std::is_same_v<Format, Fp8Rows>, Fp8RowsWithNan, Format>;
        matmul_panels(packed, m, stride, padded, w.count, FillStored<Filled>{w}, scratch.panel, y, y_stride);
    }
}

void matmul_rows(const float* x, std::int64_t m, std::int64_t x_stride, const WeightMatrix& w, std::int64_t first,
                 std::int64_t count, float* y, std::int64_t y_stride, Scratch& scratch) {
    const StoredRows rows{&w, first, static_cast<std::size_t>(count), static_cast<std::size_t>(w.columns), {}};
    switch (w.format.format) {
        case model::NumberFormat::fp32: matmul_as<Fp32Rows>(x, m, x_stride, rows, y, y_stride, scratch); break;
        case model::NumberFormat::bf16: matmul_as<Bf16Rows>(x, m, x_stride, rows, y, y_stride, scratch); break;
        case model::NumberFormat::fp8_e4m3: matmul_as<Fp8Rows>(x, m, x_stride, rows, y, y_stride, scratch); break;
        default: matmul_as<Int4Rows>(x, m, x_stride, rows, y, y_stride, scratch); break;
    }
}

// ---- transposed: y_i[c] = sum_r x[i][r] W[r][c], over strips of C units and M rows of x

template <class Format, int M, int C>
struct UpdateUnit {
    const V (&factor)[M];
    V (&acc)[M][C * static_cast<int>(Format::kElements)];
    int at;
    template <int E>
    HWY_INLINE void operator()(V weight) {
        DRAFTBOARD_UNROLL
        for (int i = 0; i < M; ++i) acc[i][at + E] = hn::MulAdd(factor[i], weight, acc[i][at + E]);
    }
};

/// Elements of a unit back in their order, `columns` of them.
template <std::size_t E>
HWY_INLINE void store_unit(const V* element, std::size_t columns, float* y) {
    alignas(64) float buffer[E * N];
    for (std::size_t e = 0; e < E; ++e) hn::Store(element[e], Floats(), buffer + e * N);
    if (columns >= E * N) {
        if constexpr (E == 1) {
            hn::StoreU(element[0], Floats(), y);
            return;
#if HWY_TARGET != HWY_SCALAR
        } else if constexpr (E == 2) {
            hn::StoreInterleaved2(element[0], element[1], Floats(), y);
            return;
        } else if constexpr (E == 4) {
            hn::StoreInterleaved4(element[0], element[1], element[2], element[3], Floats(), y);
            return;
#endif
        }
    }
    const std::size_t count = std::min(columns, E * N);
    for (std::size_t c = 0; c < count; ++c) y[c] = buffer[c % E * N + c / E];
}

template <class Format, int M, int C>
void update_stored(const float* x, std::ptrdiff_t x_stride, const StoredRows& w, std::size_t u0, float* y, std::ptrdiff_t y_stride) {
    constexpr int kElements = static_cast<int>(Format::kElements);
    V acc[M][C * kElements];
    DRAFTBOARD_UNROLL
    for (int i = 0; i < M; ++i) {
        DRAFTBOARD_UNROLL
        for (int t = 0; t < C * kElements; ++t) acc[i][t] = hn::Zero(Floats());
    }
    for (std::size_t r = 0; r < w.count; ++r) {
        const std::byte* row = w.row(r);
        const float* scales = w.scales(r);
        V factor[M];
        DRAFTBOARD_UNROLL
        for (int i = 0; i < M; ++i) factor[i] = hn::Set(Floats(), x[i * x_stride + static_cast<std::ptrdiff_t>(r)]);
        DRAFTBOARD_UNROLL
        for (int t = 0; t < C; ++t) {
            const auto unit = Format::load(row, scales, w.index, u0 + static_cast<std::size_t>(t));
            UpdateUnit<Format, M, C> update{factor, acc, t * kElements};
            for_each_element<Format>(unit, update);
        }
    }
    for (int i = 0; i < M; ++i) {
        for (int t = 0; t < C; ++t) {
            const std::size_t column = (u0 + static_cast<std::size_t>(t)) * Format::kElements * N;
            store_unit<Format::kElements>(&acc[i][t * kElements], w.columns - column, y + i * y_stride + static_cast<std::ptrdiff_t>(column));
        }
    }
}

template <class Format, int M>
void update_strips(const float* x, std::ptrdiff_t x_stride, const StoredRows& w, float* y, std::ptrdiff_t y_stride) {
    constexpr int kUnits = std::max(1, kUpdateVectors / M / static_cast<int>(Format::kElements));
    const std::size_t units = units_of(w.columns, Format::kElements);
    std::size_t u = 0;
    for (; u + kUnits <= units; u += kUnits) update_stored<Format, M, kUnits>(x, x_stride, w, u, y, y_stride);
    for (; u < units; ++u) update_stored<Format, M, 1>(x, x_stride, w, u, y, y_stride);
}

template <class Format>
void transposed_as(const float* x, std::int64_t m, std::int64_t x_stride, StoredRows w, float* y, std::int64_t y_stride,
                   Scratch& scratch) {
    // Rows of x at once: as many as leave room for a unit of sums each.
    constexpr int kMost = std::min(4, std::max(1, kUpdateVectors / static_cast<int>(Format::kElements)));
    if (!index_scales(*w.matrix, Format::kElements, scratch, w.index)) {
        float* row = scratch.row.get(w.columns);
        for (std::int64_t i = 0; i < m; ++i) std::fill_n(y + i * y_stride, w.columns, 0.0F);
        for (std::size_t r = 0; r < w.count; ++r) {
            w.matrix->dequantize_row(w.first + static_cast<std::int64_t>(r), row);
            for (std::int64_t i = 0; i < m; ++i) {
                update_rows<1>(x + i * x_stride + static_cast<std::ptrdiff_t>(r), x_stride, &row, 1, w.columns, y + i * y_stride, y_stride);
            }
        }
        return;
    }
    std::int64_t i = 0;
    if constexpr (kMost == 4) {
        for (; i + 4 <= m; i += 4) update_strips<Format, 4>(x + i * x_stride, x_stride, w, y + i * y_stride, y_stride);
    }
    if constexpr (kMost >= 2) {
        for (; i + 2 <= m; i += 2) update_strips<Format, 2>(x + i * x_stride, x_stride, w, y + i * y_stride, y_stride);
    }
    for (; i < m; ++i) update_strips<Format, 1>(x + i * x_stride, x_stride, w, y + i * y_stride, y_stride);
}

void matmul_transposed(const float* x, std::int64_t m, std::int64_t x_stride, const WeightMatrix& w, std::int64_t first,
                       std::int64_t count, float* y, std::int64_t y_stride, Scratch& scratch) {
    const StoredRows rows{&w, first, static_cast<std::size_t>(count), static_cast<std::size_t>(w.columns), {}};
    switch (w.format.format) {
        case model::NumberFormat::fp32: transposed_as<Fp32Rows>(x, m, x_stride, rows, y, y_stride, scratch); break;
        case model::NumberFormat::bf16: transposed_as<Bf16Rows>(x, m, x_stride, rows, y, y_stride, scratch); break;
        case model::NumberFormat::fp8_e4m3: transposed_as<Fp8RowsWithNan>(x, m, x_stride, rows, y, y_stride, scratch); break;
        default: transposed_as<Int4Rows>(x, m, x_stride, rows, y, y_stride, scratch); break;
    }
}

}  // namespace HWY_NAMESPACE
}  // namespace draftboard::backend::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace draftboard::backend::cpu {

void matmul_rows(const float* x, std::int64_t m, std::int64_t x_stride, const WeightMatrix& w, std::int64_t first,
                 std::int64_t count, float* y, std::int64_t y_stride, Scratch& scratch) {
    if (m <= 0 || count <= 0) return;
    DRAFTBOARD_DISPATCH(scratch.instruction_set, matmul_rows)(x, m, x_stride, w, first, count, y, y_stride, scratch);
}

void matmul(const float* x, std::int64_t m, std::int64_t x_stride, const WeightMatrix& w, const float* bias, float* y,
            std::int64_t y_stride, Scratch& scratch) {
    matmul_rows(x, m, x_stride, w, 0, w.rows, y, y_stride, scratch);
    if (bias == nullptr) return;
    for (std::int64_t i = 0; i < m; ++i) {
        for (std::int64_t r = 0; r < w.rows; ++r) y[i * y_stride + r] += bias[r];
    }
}

void matmul_transposed(const float* x, std::int64_t m, std::int64_t x_stride, const WeightMatrix& w, std::int64_t first,
                       std::int64_t count, float* y, std::int64_t y_stride, Scratch& scratch) {
    if (m <= 0 || w.columns <= 0) return;
    DRAFTBOARD_DISPATCH(scratch.instruction_set, matmul_transposed)(x, m, x_stride, w, first, count, y, y_stride, scratch);
}

const char* instruction_set() { return to_name(best_instruction_set()); }

}  // namespace draftboard::backend::cpu
#endif
