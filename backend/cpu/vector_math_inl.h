// SPDX-License-Identifier: Apache-2.0
// Exponential, sigmoid and silu of vectors, for the target that is being compiled (simd_targets.h).
//
//   e^x = 2^n e^r,  n = round(x / ln 2),  r = x - n ln 2 in [-ln 2 / 2, ln 2 / 2]
//   e^r = 1 + r + r^2 (1/2 + r/6 + r^2/24 + r^3/120 + r^4/720 + r^5/5040)
// The series' remainder is below |r|^8 / 8! = 5e-9; with rounding the relative error is below 2e-7 (tested: 1e-6) where the
// result is a normal number. Results overflow to infinity above x = 88.73, underflow to 0 below -104; a NaN stays one.
#if defined(DRAFTBOARD_BACKEND_CPU_VECTOR_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DRAFTBOARD_BACKEND_CPU_VECTOR_MATH_INL_H_
#undef DRAFTBOARD_BACKEND_CPU_VECTOR_MATH_INL_H_
#else
#define DRAFTBOARD_BACKEND_CPU_VECTOR_MATH_INL_H_
#endif

#include "backend/cpu/tiles_inl.h"

HWY_BEFORE_NAMESPACE();
namespace draftboard::backend::cpu {
namespace HWY_NAMESPACE {

/// 2^n for |n| <= 126.
HWY_INLINE V power_of_two(hn::Vec<hn::ScalableTag<std::int32_t>> n) {
    const hn::ScalableTag<std::int32_t> ints;
    return hn::BitCast(Floats(), hn::ShiftLeft<23>(hn::Add(n, hn::Set(ints, 127))));
}

HWY_INLINE V exponential(V x) {
    const Floats d;
    // Beyond these the result is infinite or 0 in any case; within, n fits two factors of power_of_two().
    const V bounded = hn::Min(hn::Max(x, hn::Set(d, -105.0F)), hn::Set(d, 90.0F));
    const auto n = hn::NearestInt(hn::Mul(bounded, hn::Set(d, 1.44269504F)));
    const V nf = hn::ConvertTo(d, n);
    // ln 2 in two parts; the first has 9 bits, so that its product with n is exact.
    V r = hn::Sub(bounded, hn::Mul(nf, hn::Set(d, 0.693359375F)));
    r = hn::Sub(r, hn::Mul(nf, hn::Set(d, -2.12194440e-4F)));
    V series = hn::Set(d, 1.0F / 5040.0F);
    series = hn::MulAdd(series, r, hn::Set(d, 1.0F / 720.0F));
    series = hn::MulAdd(series, r, hn::Set(d, 1.0F / 120.0F));
    series = hn::MulAdd(series, r, hn::Set(d, 1.0F / 24.0F));
    series = hn::MulAdd(series, r, hn::Set(d, 1.0F / 6.0F));
    series = hn::MulAdd(series, r, hn::Set(d, 0.5F));
    series = hn::Add(hn::MulAdd(series, hn::Mul(r, r), r), hn::Set(d, 1.0F));
    const auto half = hn::ShiftRight<1>(n);
    const V result = hn::Mul(hn::Mul(series, power_of_two(half)), power_of_two(hn::Sub(n, half)));
    return hn::IfThenElse(hn::Eq(x, x), result, x);
}

HWY_INLINE V sigmoid(V x) {
    const Floats d;
    return hn::Div(hn::Set(d, 1.0F), hn::Add(hn::Set(d, 1.0F), exponential(hn::Neg(x))));
}

/// x / (1 + e^-x)
HWY_INLINE V silu(V x) {
    const Floats d;
    return hn::Div(x, hn::Add(hn::Set(d, 1.0F), exponential(hn::Neg(x))));
}

/// sum of x[i]^2
HWY_INLINE float sum_of_squares(const float* x, std::size_t width) {
    const Floats d;
    V sum[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    std::size_t c = 0;
    for (; c + 4 * N <= width; c += 4 * N) {
        for (std::size_t t = 0; t < 4; ++t) {
            const V v = hn::LoadU(d, x + c + t * N);
            sum[t] = hn::MulAdd(v, v, sum[t]);
        }
    }
    for (; c + N <= width; c += N) {
        const V v = hn::LoadU(d, x + c);
        sum[0] = hn::MulAdd(v, v, sum[0]);
    }
    if (c < width) {
        const V v = hn::MaskedLoad(hn::FirstN(d, width - c), d, x + c);
        sum[1] = hn::MulAdd(v, v, sum[1]);
    }
    return sum_lanes(hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3])));
}

}  // namespace HWY_NAMESPACE
}  // namespace draftboard::backend::cpu
HWY_AFTER_NAMESPACE();
#endif
