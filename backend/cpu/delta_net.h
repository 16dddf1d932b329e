// SPDX-License-Identifier: Apache-2.0
#pragma once
// The gated delta net's recurrence (Yang et al. 2024, "Gated Delta Networks"), one row of one sequence.
//
//   c   = silu(causal convolution of q|k|v over the last conv_kernel rows)
//   q, k normalised to length 1 a key head (epsilon 1e-6), q scaled by 1/sqrt(key_dim)
//   g   = exp(-exp(A_log) softplus(a + dt_bias)),  beta = sigmoid(b)          one number a value head
//   S   = g S;   S += k (beta (v - S^T k))^T;   o = S^T q                     S: key_dim x value_dim a value head
//   value head h reads key head h / (value_heads / key_heads)
//
// State: value_heads x key_dim x value_dim floats. Window: (conv_kernel - 1) x channels, oldest first, of the inputs of the
// convolution. Bytes a row: state read and written (8 value_heads key_dim value_dim); flops: 7 a state element.

#include <cstdint>

#include "backend/cpu/matmul.h"

namespace draftboard::backend::cpu {

struct DeltaNetSizes {
    int key_heads = 0;
    int value_heads = 0;
    int key_dim = 0;
    int value_dim = 0;
    int conv_kernel = 0;
    [[nodiscard]] std::int64_t channels() const {
        return std::int64_t{2} * key_heads * key_dim + std::int64_t{value_heads} * value_dim;
    }
    [[nodiscard]] std::int64_t state() const { return std::int64_t{value_heads} * key_dim * value_dim; }
    [[nodiscard]] std::int64_t window() const { return (conv_kernel - 1) * channels(); }
};

struct DeltaNetParameters {
    const float* conv = nullptr;     ///< channels x conv_kernel, oldest tap first
    const float* a_log = nullptr;
    const float* dt_bias = nullptr;
};

/// `channels`: q | k | v before the convolution; b, a: value_heads each; output: value_heads x value_dim.
/// state_out may be state_in, window_out may be window_in.
void delta_net_row(const DeltaNetSizes& sizes, const DeltaNetParameters& parameters, const float* channels, const float* b,
                   const float* a, const float* state_in, const float* window_in, float* state_out, float* window_out,
                   float* output, Scratch& scratch);

/// y = rms_norm(x) * w * silu(z), head by head.
void gated_rms_norm(const float* x, const float* z, const float* weight, int heads, int width, double epsilon, float* y,
                    InstructionSet set = best_instruction_set());

}  // namespace draftboard::backend::cpu
