// SPDX-License-Identifier: Apache-2.0
// The two inner loops of all dense kernels, for the target that is being compiled (simd_targets.h): a tile of dot
// products and a tile of scaled sums. Their operands are floats in memory; matmul_inl.h has the versions for stored weights.
//
//   dot_tile      y[i][r] = sum_c x_i[c] w_r[c]       M x R sums, each one vector of partial sums, folded by sum4()
//   update_tile   y_i[c] += sum_s p[i][s] v_s[c]      M rows of y, over a strip of C vectors
//
// Flops: 2 M R columns. A sum's order is fixed by its columns alone: lane l of the partial sums takes columns l, l + N,
// l + 2 N, ... in that order, whatever M and R, so that a row's result does not depend on the rows beside it.
#if defined(DRAFTBOARD_BACKEND_CPU_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DRAFTBOARD_BACKEND_CPU_TILES_INL_H_
#undef DRAFTBOARD_BACKEND_CPU_TILES_INL_H_
#else
#define DRAFTBOARD_BACKEND_CPU_TILES_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include <hwy/highway.h>

#include "backend/cpu/simd_targets.h"

HWY_BEFORE_NAMESPACE();
namespace draftboard::backend::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using V = hn::Vec<Floats>;
inline constexpr std::size_t N = hn::MaxLanes(Floats());
#if HWY_TARGET == HWY_SCALAR
/// Targets of one lane have nothing to fold.
HWY_INLINE void store_sum4(V a, V b, V c, V d, float* sums) {
    sums[0] = hn::GetLane(a);
    sums[1] = hn::GetLane(b);
    sums[2] = hn::GetLane(c);
    sums[3] = hn::GetLane(d);
}
#else
using Floats4 = hn::FixedTag<float, 4>;
using V4 = hn::Vec<Floats4>;

/// Upper half added to lower half until four lanes are left.
template <class D, class Vector>
HWY_INLINE V4 fold_to_4(D, Vector v) {
    if constexpr (hn::MaxLanes(D()) == 4) {
        return v;
    } else {
        const hn::Half<D> half;
        return fold_to_4(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
    }
}

/// The four sums of lanes, side by side; each adds ((0 + 2) + (1 + 3)) of its four folded lanes.
HWY_INLINE void store_sum4(V a, V b, V c, V d, float* sums) {
    const Floats4 d4;
    const Floats tag;
    const V4 a4 = fold_to_4(tag, a);
    const V4 b4 = fold_to_4(tag, b);
    const V4 c4 = fold_to_4(tag, c);
    const V4 e4 = fold_to_4(tag, d);
    const V4 ab = hn::Add(hn::InterleaveLower(d4, a4, b4), hn::InterleaveUpper(d4, a4, b4));
    const V4 cd = hn::Add(hn::InterleaveLower(d4, c4, e4), hn::InterleaveUpper(d4, c4, e4));
    hn::StoreU(hn::Add(hn::ConcatLowerLower(d4, cd, ab), hn::ConcatUpperUpper(d4, cd, ab)), d4, sums);
}
#endif

/// Sum of the lanes of v in the same order.
HWY_INLINE float sum_lanes(V v) {
    const V zero = hn::Zero(Floats());
    float sums[4];
    store_sum4(v, zero, zero, zero, sums);
    return sums[0];
}

/// Writes the sums of acc[i][0, R) to y + i * y_stride, `count` <= R of them. R is a multiple of 4.
template <int M, int R>
HWY_INLINE void store_sums(const V (&acc)[M][R], float* y, std::ptrdiff_t y_stride, int count) {
    static_assert(R % 4 == 0);
    DRAFTBOARD_UNROLL
    for (int i = 0; i < M; ++i) {
        float* target = y + i * y_stride;
        DRAFTBOARD_UNROLL
        for (int r = 0; r < R; r += 4) {
            if (count >= r + 4) {
                store_sum4(acc[i][r], acc[i][r + 1], acc[i][r + 2], acc[i][r + 3], target + r);
            } else {
                float sums[4];
                store_sum4(acc[i][r], acc[i][r + 1], acc[i][r + 2], acc[i][r + 3], sums);
                for (int t = r; t < count; ++t) target[t] = sums[t - r];
            }
        }
    }
}

/// x: M rows, x_stride apart; w: R pointers (repeat the last one beyond `count`); `columns` may be any number: a last part
/// of a vector is loaded under a mask. y[i * y_stride + r] for r < count.
template <int M, int R>
HWY_INLINE void dot_tile(const float* x, std::ptrdiff_t x_stride, const float* const (&w)[R], std::size_t columns, float* y,
                         std::ptrdiff_t y_stride, int count) {
    const Floats d;
    V acc[M][R];
    DRAFTBOARD_UNROLL
    for (int i = 0; i < M; ++i) {
        DRAFTBOARD_UNROLL
        for (int r = 0; r < R; ++r) acc[i][r] = hn::Zero(d);
    }
    std::size_t c = 0;
    for (; c + N <= columns; c += N) {
        V weight[R];
        DRAFTBOARD_UNROLL
        for (int r = 0; r < R; ++r) weight[r] = hn::LoadU(d, w[r] + c);
        DRAFTBOARD_UNROLL
        for (int i = 0; i < M; ++i) {
            const V input = hn::LoadU(d, x + i * x_stride + c);
            DRAFTBOARD_UNROLL
            for (int r = 0; r < R; ++r) acc[i][r] = hn::MulAdd(input, weight[r], acc[i][r]);
        }
    }
    if (c < columns) {
        const auto mask = hn::FirstN(d, columns - c);
        DRAFTBOARD_UNROLL
        for (int i = 0; i < M; ++i) {
            const V input = hn::MaskedLoad(mask, d, x + i * x_stride + c);
            DRAFTBOARD_UNROLL
            for (int r = 0; r < R; ++r) {
                acc[i][r] = hn::MulAdd(input, hn::MaskedLoad(mask, d, w[r] + c), acc[i][r]);
            }
        }
    }
    store_sums<M, R>(acc, y, y_stride, count);
}

/// C whole vectors of y, at column c. p: M rows, p_stride apart; v: pointers to `count` rows.
template <int M, int C>
HWY_INLINE void update_tile(const float* p, std::ptrdiff_t p_stride, const float* const* v, std::size_t count, std::size_t c,
                            float* y, std::ptrdiff_t y_stride) {
    const Floats d;
    V acc[M][C];
    DRAFTBOARD_UNROLL
    for (int i = 0; i < M; ++i) {
        DRAFTBOARD_UNROLL
        for (int t = 0; t < C; ++t) acc[i][t] = hn::LoadU(d, y + i * y_stride + c + t * N);
    }
    for (std::size_t s = 0; s < count; ++s) {
        V row[C];
        DRAFTBOARD_UNROLL
        for (int t = 0; t < C; ++t) row[t] = hn::LoadU(d, v[s] + c + t * N);
        DRAFTBOARD_UNROLL
        for (int i = 0; i < M; ++i) {
            const V factor = hn::Set(d, p[i * p_stride + static_cast<std::ptrdiff_t>(s)]);
            DRAFTBOARD_UNROLL
            for (int t = 0; t < C; ++t) acc[i][t] = hn::MulAdd(factor, row[t], acc[i][t]);
        }
    }
    DRAFTBOARD_UNROLL
    for (int i = 0; i < M; ++i) {
        DRAFTBOARD_UNROLL
        for (int t = 0; t < C; ++t) hn::StoreU(acc[i][t], d, y + i * y_stride + c + t * N);
    }
}

/// All columns of y, in strips; a last part of a vector under a mask.
template <int M>
HWY_INLINE void update_rows(const float* p, std::ptrdiff_t p_stride, const float* const* v, std::size_t count,
                            std::size_t columns, float* y, std::ptrdiff_t y_stride) {
    constexpr int kStrip = N == 16 ? 4 : 2;
    std::size_t c = 0;
    for (; c + kStrip * N <= columns; c += kStrip * N) update_tile<M, kStrip>(p, p_stride, v, count, c, y, y_stride);
    for (; c + N <= columns; c += N) update_tile<M, 1>(p, p_stride, v, count, c, y, y_stride);
    if (c == columns) return;
    const Floats d;
    const auto mask = hn::FirstN(d, columns - c);
    for (int i = 0; i < M; ++i) {
        float* target = y + i * y_stride + c;
        V acc = hn::MaskedLoad(mask, d, target);
        for (std::size_t s = 0; s < count; ++s) {
            acc = hn::MulAdd(hn::Set(d, p[i * p_stride + static_cast<std::ptrdiff_t>(s)]), hn::MaskedLoad(mask, d, v[s] + c), acc);
        }
        hn::BlendedStore(acc, mask, d, target);
    }
}

}  // namespace HWY_NAMESPACE
}  // namespace draftboard::backend::cpu
HWY_AFTER_NAMESPACE();
#endif
