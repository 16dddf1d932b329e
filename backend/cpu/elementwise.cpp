// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/elementwise.h"

#include <cmath>

#include "backend/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/elementwise.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backend/cpu/vector_math_inl.h"

HWY_BEFORE_NAMESPACE();
namespace draftboard::backend::cpu {
namespace HWY_NAMESPACE {

/// y[i] = f(a[i], b[i]); y may be a or b.
template <class Function>
HWY_INLINE void transform(const float* a, const float* b, std::int64_t width, float* y, const Function& f) {
    const Floats d;
    const auto count = static_cast<std::size_t>(width);
    std::size_t c = 0;
    for (; c + N <= count; c += N) hn::StoreU(f(hn::LoadU(d, a + c), hn::LoadU(d, b + c)), d, y + c);
    if (c < count) {
        const auto mask = hn::FirstN(d, count - c);
        hn::BlendedStore(f(hn::MaskedLoad(mask, d, a + c), hn::MaskedLoad(mask, d, b + c)), mask, d, y + c);
    }
}

struct ScaledProduct {
    V scale;
    HWY_INLINE V operator()(V x, V weight) const { return hn::Mul(hn::Mul(x, scale), weight); }
};
struct SiluProduct {
    HWY_INLINE V operator()(V gate, V up) const { return hn::Mul(silu(gate), up); }
};
struct SigmoidProduct {
    HWY_INLINE V operator()(V gate, V y) const { return hn::Mul(y, sigmoid(gate)); }
};
struct Sum {
    HWY_INLINE V operator()(V x, V y) const { return hn::Add(y, x); }
};
struct FirstSigmoid {
    HWY_INLINE V operator()(V x, V) const { return sigmoid(x); }
};
struct FirstExponential {
    V shift;
    HWY_INLINE V operator()(V x, V) const { return exponential(hn::Sub(x, shift)); }
};

void rms_norm(const float* x, const float* weight, std::int64_t width, double epsilon, float* y) {
    const float squares = sum_of_squares(x, static_cast<std::size_t>(width));
    const double mean = static_cast<double>(squares) / static_cast<double>(width);
    transform(x, weight, width, y, ScaledProduct{hn::Set(Floats(), static_cast<float>(1.0 / std::sqrt(mean + epsilon)))});
}

void silu_multiply(const float* gate, const float* up, std::int64_t width, float* y) { transform(gate, up, width, y, SiluProduct{}); }
void sigmoid_multiply(const float* gate, std::int64_t width, float* y) { transform(gate, y, width, y, SigmoidProduct{}); }
void add(const float* x, std::int64_t width, float* y) { transform(x, y, width, y, Sum{}); }
void sigmoids(const float* x, std::int64_t width, float* y) { transform(x, x, width, y, FirstSigmoid{}); }
void exponentials(const float* x, float shift, std::int64_t width, float* y) {
    transform(x, x, width, y, FirstExponential{hn::Set(Floats(), shift)});
}

}  // namespace HWY_NAMESPACE
}  // namespace draftboard::backend::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace draftboard::backend::cpu {

void rms_norm(const float* x, const float* weight, std::int64_t width, double epsilon, float* y, InstructionSet set) {
    DRAFTBOARD_DISPATCH(set, rms_norm)(x, weight, width, epsilon, y);
}
void silu_multiply(const float* gate, const float* up, std::int64_t width, float* y, InstructionSet set) {
    DRAFTBOARD_DISPATCH(set, silu_multiply)(gate, up, width, y);
}
void sigmoid_multiply(const float* gate, std::int64_t width, float* y, InstructionSet set) {
    DRAFTBOARD_DISPATCH(set, sigmoid_multiply)(gate, width, y);
}
void add(const float* x, std::int64_t width, float* y, InstructionSet set) { DRAFTBOARD_DISPATCH(set, add)(x, width, y); }
void sigmoids(const float* x, std::int64_t width, float* y, InstructionSet set) { DRAFTBOARD_DISPATCH(set, sigmoids)(x, width, y); }
void exponentials(const float* x, float shift, std::int64_t width, float* y, InstructionSet set) {
    DRAFTBOARD_DISPATCH(set, exponentials)(x, shift, width, y);
}

}  // namespace draftboard::backend::cpu
#endif
