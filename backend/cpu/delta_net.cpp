// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/delta_net.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/delta_net.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backend/cpu/vector_math_inl.h"

HWY_BEFORE_NAMESPACE();
namespace draftboard::backend::cpu {
namespace HWY_NAMESPACE {

/// Vectors of a strip of columns: 128 keys x 64 columns of state are 32 KiB, read from memory by the first pass and from
/// L1 by the second.
constexpr int kStrip = 4;

/// c = silu(convolution) of all channels. taps: channels x kernel, oldest first.
void convolve(const float* taps, std::int64_t kernel, std::int64_t channels, const float* window, const float* input, float* c) {
    const Floats d;
    std::int64_t at = 0;
#if HWY_TARGET != HWY_SCALAR
    if (kernel == 4) {
        for (; at + static_cast<std::int64_t>(N) <= channels; at += static_cast<std::int64_t>(N)) {
            V tap[4];
            hn::LoadInterleaved4(d, taps + at * 4, tap[0], tap[1], tap[2], tap[3]);
            V sum = hn::Mul(tap[0], hn::LoadU(d, window + at));
            sum = hn::MulAdd(tap[1], hn::LoadU(d, window + channels + at), sum);
            sum = hn::MulAdd(tap[2], hn::LoadU(d, window + 2 * channels + at), sum);
            sum = hn::MulAdd(tap[3], hn::LoadU(d, input + at), sum);
            hn::StoreU(silu(sum), d, c + at);
        }
    }
#endif
    for (; at < channels; ++at) {
        float sum = 0;
        for (std::int64_t t = 0; t + 1 < kernel; ++t) sum += taps[at * kernel + t] * window[t * channels + at];
        sum += taps[at * kernel + kernel - 1] * input[at];
        c[at] = hn::GetLane(silu(hn::Set(d, sum)));
    }
}

/// x / sqrt(sum x^2 + 1e-6) * scale
void normalise(float* x, std::int64_t width, double scale) {
    const double squares = static_cast<double>(sum_of_squares(x, static_cast<std::size_t>(width)));
    const auto factor = static_cast<float>(scale / std::sqrt(squares + 1e-6));
    for (std::int64_t i = 0; i < width; ++i) x[i] *= factor;
}

/// C vectors of columns of one value head's state; `mask` covers the lanes that exist.
template <int C, class Mask>
HWY_INLINE void update_columns(std::int64_t keys, std::int64_t values, const float* q, const float* k, const float* v, float decay,
                               float beta, const float* state_in, float* state_out, float* output, const Mask& mask) {
    const Floats d;
    const V g = hn::Set(d, decay);
    V recalled[C];
    V sum[C];
    DRAFTBOARD_UNROLL
    for (int t = 0; t < C; ++t) recalled[t] = sum[t] = hn::Zero(d);
    for (std::int64_t i = 0; i < keys; ++i) {
        const V key = hn::Set(d, k[i]);
        DRAFTBOARD_UNROLL
        for (int t = 0; t < C; ++t) {
            const V state = mask.load(state_in + i * values + t * static_cast<std::int64_t>(N));
            recalled[t] = hn::MulAdd(key, hn::Mul(state, g), recalled[t]);
        }
    }
    DRAFTBOARD_UNROLL
    for (int t = 0; t < C; ++t) {
        recalled[t] = hn::Mul(hn::Set(d, beta), hn::Sub(mask.load(v + t * static_cast<std::int64_t>(N)), recalled[t]));
    }
    for (std::int64_t i = 0; i < keys; ++i) {
        const V key = hn::Set(d, k[i]);
        const V query = hn::Set(d, q[i]);
        DRAFTBOARD_UNROLL
        for (int t = 0; t < C; ++t) {
            const std::int64_t at = i * values + t * static_cast<std::int64_t>(N);
            const V state = hn::MulAdd(key, recalled[t], hn::Mul(mask.load(state_in + at), g));
            mask.store(state, state_out + at);
            sum[t] = hn::MulAdd(query, state, sum[t]);
        }
    }
    DRAFTBOARD_UNROLL
    for (int t = 0; t < C; ++t) mask.store(sum[t], output + t * static_cast<std::int64_t>(N));
}

struct AllLanes {
    HWY_INLINE V load(const float* x) const { return hn::LoadU(Floats(), x); }
    HWY_INLINE void store(V v, float* x) const { hn::StoreU(v, Floats(), x); }
};
struct FirstLanes {
    hn::Mask<Floats> mask;
    HWY_INLINE V load(const float* x) const { return hn::MaskedLoad(mask, Floats(), x); }
    HWY_INLINE void store(V v, float* x) const { hn::BlendedStore(v, mask, Floats(), x); }
};

void update_state(std::int64_t keys, std::int64_t values, const float* q, const float* k, const float* v, float decay, float beta,
                  const float* state_in, float* state_out, float* output) {
    constexpr auto kLanes = static_cast<std::int64_t>(N);
    std::int64_t c = 0;
    for (; c + kStrip * kLanes <= values; c += kStrip * kLanes) {
        update_columns<kStrip>(keys, values, q, k, v + c, decay, beta, state_in + c, state_out + c, output + c, AllLanes{});
    }
    for (; c + kLanes <= values; c += kLanes) {
        update_columns<1>(keys, values, q, k, v + c, decay, beta, state_in + c, state_out + c, output + c, AllLanes{});
    }
    if (c < values) {
        const FirstLanes lanes{hn::FirstN(Floats(), static_cast<std::size_t>(values - c))};
        update_columns<1>(keys, values, q, k, v + c, decay, beta, state_in + c, state_out + c, output + c, lanes);
    }
}

void gated_rms_norm(const float* x, const float* z, const float* weight, int heads, int width, double epsilon, float* y) {
    const Floats d;
    for (int h = 0; h < heads; ++h) {
        const std::int64_t at = std::int64_t{h} * width;
        const double squares = static_cast<double>(sum_of_squares(x + at, static_cast<std::size_t>(width)));
        const V scale = hn::Set(d, static_cast<float>(1.0 / std::sqrt(squares / width + epsilon)));
        const auto count = static_cast<std::size_t>(width);
        for (std::size_t c = 0; c < count; c += N) {
            const FirstLanes lanes{hn::FirstN(d, std::min(count - c, N))};
            const V normed = hn::Mul(hn::Mul(lanes.load(x + at + c), scale), lanes.load(weight + c));
            lanes.store(hn::Mul(normed, silu(lanes.load(z + at + c))), y + at + c);
        }
    }
}

}  // namespace HWY_NAMESPACE
}  // namespace draftboard::backend::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace draftboard::backend::cpu {

namespace {

/// ln(1 + e^x), x itself where e^x drowns the 1.
double softplus(double x) { return x > 20 ? x : std::log1p(std::exp(x)); }

}  // namespace

void delta_net_row(const DeltaNetSizes& sizes, const DeltaNetParameters& parameters, const float* channels, const float* b,
                   const float* a, const float* state_in, const float* window_in, float* state_out, float* window_out,
                   float* output, Scratch& scratch) {
    const InstructionSet set = scratch.instruction_set;
    const std::int64_t count = sizes.channels();
    const std::int64_t key_dim = sizes.key_dim;
    const std::int64_t value_dim = sizes.value_dim;
    float* q = scratch.sums.get(static_cast<std::size_t>(count));
    float* k = q + sizes.key_heads * key_dim;
    const float* v = k + sizes.key_heads * key_dim;
    DRAFTBOARD_DISPATCH(set, convolve)(parameters.conv, sizes.conv_kernel, count, window_in, channels, q);
    // The window moves on by one row; front to back, so that it may move in place.
    for (std::int64_t t = 0; t + 2 < sizes.conv_kernel; ++t) {
        std::copy_n(window_in + (t + 1) * count, count, window_out + t * count);
    }
    if (sizes.conv_kernel > 1) std::copy_n(channels, count, window_out + (sizes.conv_kernel - 2) * count);

    const auto normalise = DRAFTBOARD_DISPATCH(set, normalise);
    for (std::int64_t h = 0; h < sizes.key_heads; ++h) {
        normalise(q + h * key_dim, key_dim, 1.0 / std::sqrt(static_cast<double>(key_dim)));
        normalise(k + h * key_dim, key_dim, 1.0);
    }
    const auto update = DRAFTBOARD_DISPATCH(set, update_state);
    const std::int64_t heads_a_key = sizes.value_heads / std::max(1, sizes.key_heads);
    for (std::int64_t h = 0; h < sizes.value_heads; ++h) {
        const double rate = softplus(static_cast<double>(a[h]) + static_cast<double>(parameters.dt_bias[h]));
        const auto decay = static_cast<float>(std::exp(-std::exp(static_cast<double>(parameters.a_log[h])) * rate));
        const auto beta = static_cast<float>(1.0 / (1.0 + std::exp(-static_cast<double>(b[h]))));
        const std::int64_t from = h / heads_a_key * key_dim;
        const std::int64_t at = h * key_dim * value_dim;
        update(key_dim, value_dim, q + from, k + from, v + h * value_dim, decay, beta, state_in + at, state_out + at,
               output + h * value_dim);
    }
}

void gated_rms_norm(const float* x, const float* z, const float* weight, int heads, int width, double epsilon, float* y,
                    InstructionSet set) {
    DRAFTBOARD_DISPATCH(set, gated_rms_norm)(x, z, weight, heads, width, epsilon, y);
}

}  // namespace draftboard::backend::cpu
#endif
