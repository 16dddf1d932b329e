// SPDX-License-Identifier: Apache-2.0
#pragma once
// Norms, activations and rotary embedding: everything that is bound by its activations.
//
//   rms_norm      y = x / sqrt(mean(x^2) + epsilon) * w         (w already holds 1 + stored where Numerics::norm_plus_one)
//   silu          s(x) = x / (1 + e^-x)
//   rope          (a, b) -> (a cos - b sin, b cos + a sin) for each pair of the first `dim` numbers; pairs are (2i, 2i+1) if
//                 interleaved, else (i, i + dim/2); angle = position * inverse_frequency[i]
// Bytes: inputs and outputs once, 4 a number. exp is a polynomial of our own (vector_math_inl.h), relative error < 1e-6.
// An output may be one of the inputs.

#include <cstdint>
#include <vector>

#include "backend/cpu/instruction_set.h"
#include "backend/numerics.h"

namespace draftboard::backend::cpu {

void rms_norm(const float* x, const float* weight, std::int64_t width, double epsilon, float* y,
              InstructionSet set = best_instruction_set());
/// y[i] = silu(gate[i]) * up[i]
void silu_multiply(const float* gate, const float* up, std::int64_t width, float* y, InstructionSet set = best_instruction_set());
/// y[i] *= sigmoid(gate[i])
void sigmoid_multiply(const float* gate, std::int64_t width, float* y, InstructionSet set = best_instruction_set());
/// y += x
void add(const float* x, std::int64_t width, float* y, InstructionSet set = best_instruction_set());

/// y[i] = sigmoid(x[i])
void sigmoids(const float* x, std::int64_t width, float* y, InstructionSet set = best_instruction_set());
/// y[i] = e^(x[i] - shift)
void exponentials(const float* x, float shift, std::int64_t width, float* y, InstructionSet set = best_instruction_set());

/// Inverse frequencies and the factor on cos and sin, after YaRN. Frequencies and angles are rounded to float before
/// cos and sin are taken, as the models were trained.
class RotaryTable {
   public:
    RotaryTable() = default;
    RotaryTable(const Numerics& numerics, int dim, std::int64_t positions);
    [[nodiscard]] int dim() const { return dim_; }
    [[nodiscard]] std::int64_t positions() const { return positions_; }
    /// Rotates the first dim() of x in place; 0 <= position < positions().
    void rotate(float* x, std::int64_t position) const;
    /// m(mscale_all_dim)^2: what MLA multiplies its softmax scale by; 1 without YaRN.
    [[nodiscard]] double softmax_factor() const { return softmax_factor_; }
    [[nodiscard]] bool interleaved() const { return interleaved_; }
    [[nodiscard]] const std::vector<float>& cosines() const { return cos_; }  ///< positions() x dim() / 2
    [[nodiscard]] const std::vector<float>& sines() const { return sin_; }

   private:
    int dim_ = 0;
    bool interleaved_ = false;
    std::int64_t positions_ = 0;
    double softmax_factor_ = 1;
    std::vector<float> cos_;  // positions x dim/2
    std::vector<float> sin_;
};

}  // namespace draftboard::backend::cpu
