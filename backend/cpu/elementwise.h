// SPDX-License-Identifier: Apache-2.0
#pragma once
// Norms, activations and rotary embedding: everything that is bound by its activations.
//
//   rms_norm      y = x / sqrt(mean(x^2) + epsilon) * w         (w already holds 1 + stored where Numerics::norm_plus_one)
//   silu          s(x) = x / (1 + e^-x)
//   rope          (a, b) -> (a cos - b sin, b cos + a sin) for each pair of the first `dim` numbers; pairs are (2i, 2i+1) if
//                 interleaved, else (i, i + dim/2); angle = position * inverse_frequency[i]

#include <cstdint>
#include <vector>

#include "backend/numerics.h"

namespace draftboard::backend::cpu {

void rms_norm(const float* x, const float* weight, std::int64_t width, double epsilon, float* y);
/// y[i] = silu(gate[i]) * up[i]
void silu_multiply(const float* gate, const float* up, std::int64_t width, float* y);
/// y[i] *= sigmoid(gate[i])
void sigmoid_multiply(const float* gate, std::int64_t width, float* y);
/// y += x
void add(const float* x, std::int64_t width, float* y);

/// Inverse frequencies and the factor on cos and sin, after YaRN.
class RotaryTable {
   public:
    RotaryTable() = default;
    RotaryTable(const Numerics& numerics, int dim, std::int64_t positions);
    [[nodiscard]] int dim() const { return dim_; }
    /// Rotates the first dim() of x in place.
    void rotate(float* x, std::int64_t position) const;
    /// m(mscale_all_dim)^2: what MLA multiplies its softmax scale by; 1 without YaRN.
    [[nodiscard]] double softmax_factor() const { return softmax_factor_; }

   private:
    int dim_ = 0;
    bool interleaved_ = false;
    double softmax_factor_ = 1;
    std::vector<float> cos_;  // positions x dim/2
    std::vector<float> sin_;
};

}  // namespace draftboard::backend::cpu
