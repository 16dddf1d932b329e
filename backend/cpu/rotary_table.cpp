// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numbers>

#include "backend/cpu/elementwise.h"

namespace draftboard::backend::cpu {

namespace {

/// m(s) of numerics.h.
double magnitude_factor(double factor, double scale) {
    return factor <= 1 || scale == 0 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0;
}

/// The pair (as a real number) that turns `rotations` times within the original context: where theta^(-2 i / dim)
/// original / (2 pi) = rotations.
double pair_of_rotations(double rotations, int dim, double theta, double original) {
    return dim * std::log(original / (rotations * 2 * std::numbers::pi)) / (2 * std::log(theta));
}

std::vector<float> inverse_frequencies(const Numerics& numerics, int dim) {
    std::vector<float> result(static_cast<std::size_t>(dim / 2));
    double low = 0;
    double high = 0;
    if (numerics.yarn) {
        const Yarn& yarn = *numerics.yarn;
        low = std::floor(pair_of_rotations(yarn.beta_fast, dim, numerics.rope_theta, yarn.original_max_position));
        high = std::ceil(pair_of_rotations(yarn.beta_slow, dim, numerics.rope_theta, yarn.original_max_position));
        low = std::max(low, 0.0);
        high = std::min(high, dim - 1.0);
        if (low == high) high += 0.001;
    }
    for (int i = 0; i < dim / 2; ++i) {
        double frequency = std::pow(numerics.rope_theta, -2.0 * i / dim);
        if (numerics.yarn) {
            // 0 below `low` (turns often: kept), 1 above `high` (turns less than once: stretched by the factor)
            const double stretched = std::clamp((i - low) / (high - low), 0.0, 1.0);
            frequency *= (1 - stretched) + stretched / numerics.yarn->factor;
        }
        result[static_cast<std::size_t>(i)] = static_cast<float>(frequency);
    }
    return result;
}

}  // namespace

RotaryTable::RotaryTable(const Numerics& numerics, int dim, std::int64_t positions)
    : dim_(std::max(dim, 0) / 2 * 2), interleaved_(numerics.rope_interleaved), positions_(std::max<std::int64_t>(positions, 0)) {
    double length = 1;
    if (numerics.yarn) {
        const Yarn& yarn = *numerics.yarn;
        const double all = magnitude_factor(yarn.factor, yarn.mscale_all_dim);
        length = magnitude_factor(yarn.factor, yarn.mscale) / all;
        softmax_factor_ = all * all;
    }
    const auto frequencies = inverse_frequencies(numerics, dim_);
    cos_.reserve(static_cast<std::size_t>(positions_) * frequencies.size());
    sin_.reserve(cos_.capacity());
    for (std::int64_t position = 0; position < positions_; ++position) {
        for (const float frequency : frequencies) {
            const float angle = static_cast<float>(position) * frequency;
            cos_.push_back(static_cast<float>(std::cos(static_cast<double>(angle)) * length));
            sin_.push_back(static_cast<float>(std::sin(static_cast<double>(angle)) * length));
        }
    }
}

void RotaryTable::rotate(float* x, std::int64_t position) const {
    const int half = dim_ / 2;
    const float* c = cos_.data() + position * half;
    const float* s = sin_.data() + position * half;
    if (interleaved_) {
        for (int i = 0; i < half; ++i) {
            const float a = x[2 * i];
            const float b = x[2 * i + 1];
            x[2 * i] = a * c[i] - b * s[i];
            x[2 * i + 1] = b * c[i] + a * s[i];
        }
        return;
    }
    for (int i = 0; i < half; ++i) {
        const float a = x[i];
        const float b = x[i + half];
        x[i] = a * c[i] - b * s[i];
        x[i + half] = b * c[i] + a * s[i];
    }
}

}  // namespace draftboard::backend::cpu
