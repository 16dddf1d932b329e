// SPDX-License-Identifier: Apache-2.0
#pragma once
// Routing and the grouped experts of one MoE layer, for few tokens:
//
//   route          logits -> k experts a row with their weights; the rules of cpu/route.cpp (softmax or sigmoid, correction bias,
//                  groups, normalisation, scaling; ties go to the lower index; NaN is lowest)
//   run_experts    out[pair] = down(silu(gate x) * up x) for every (row, chosen expert) pair; each touched expert's weights are
//                  read once from memory, whatever the number of its rows. Pairs of experts of other ranks give zeros.
//   combine        block = shared * sigmoid(gate)  (or shared, or 0)  + sum_j weight[j] * out[j], j ascending
//
// Bytes of run_experts: distinct experts x 3 width hidden x stored bytes. Flops: 6 m k width hidden.
// A row's result has the same bits whatever other rows the pass has.

#include <cstdint>

#include <cuda_runtime_api.h>

#include "backend/cuda/device_matrix.h"

namespace draftboard::backend::cuda {

struct RouterRule {
    int experts = 0;
    int k = 1;
    bool sigmoid = false;  ///< else softmax
    int groups = 1;
    int top_groups = 1;
    bool normalise = true;
    float scaling = 1;
    const float* correction_bias = nullptr;  ///< device, experts; or nullptr
};

/// ids, weights: m x k.
void route(const float* logits, int m, const RouterRule& rule, std::int32_t* ids, float* weights, cudaStream_t stream);

struct ExpertLayer {
    ExpertMatrices gate;   ///< width x hidden
    ExpertMatrices up;     ///< width x hidden
    ExpertMatrices down;   ///< hidden x width
    int first_expert = 0;  ///< of this rank
};

/// Device memory that run_experts needs for up to max_pairs pairs, bytes.
[[nodiscard]] std::int64_t experts_workspace_bytes(std::int64_t max_pairs, std::int64_t width, int experts);
/// x: m x hidden (row stride hidden); ids: m x k; output: m x k x hidden.
void run_experts(const float* x, int m, std::int64_t hidden, const ExpertLayer& layer, const std::int32_t* ids, int k,
                 float* output, void* workspace, cudaStream_t stream);

/// shared: m x hidden or nullptr; shared_gate: m numbers before the sigmoid, or nullptr.
void combine(const float* expert_outputs, const float* weights, int m, int k, std::int64_t hidden, const float* shared,
             const float* shared_gate, float* block, cudaStream_t stream);

/// What a residual stream goes through between two blocks: elementwise.h, add_rms_norm.
struct ResidualNorm {
    float* hidden = nullptr;        ///< m x width, the stream
    const float* weight = nullptr;  ///< width
    float epsilon = 0;
    float* normed = nullptr;  ///< rows normed_stride apart
    std::int64_t normed_stride = 0;
    float* kept = nullptr;  ///< a copy of the stream, or nullptr
    std::int64_t kept_stride = 0;
};

/// Whether a row is aligned to 16 bytes and fits where the two functions below keep it.
[[nodiscard]] bool can_norm_in_place(std::int64_t hidden);

/// The stream gets `block` added (where it is not null) and what combine() gives, and is normed: in one kernel, with the bits of
/// one after the other. For rows with can_norm_in_place(); all pointers aligned to 16 bytes.
void combine_add_norm(const float* expert_outputs, const float* weights, int m, int k, std::int64_t hidden, const float* shared,
                      const float* shared_gate, const float* block, const ResidualNorm& norm, cudaStream_t stream);

/// Whether a router's matrix is bf16 or fp32, small (every row of x reads it again, from L2), and has rows with
/// can_norm_in_place(). It depends on the matrix alone, so that decoding and verifying score alike.
[[nodiscard]] bool can_score_few_rows(const DeviceMatrix& router);
/// scores (m x experts) = the router's matrix times normed rows, for few rows; a row's bits do not depend on m. With norm.weight
/// the rows are normed first, with `block` added to the stream where it is not null: normed is written, the stream is NOT, so that
/// combine_add_norm() has to add `block` too. Without it normed is read. For matrices with can_score_few_rows().
void score_few_rows(const ResidualNorm& norm, const float* block, int m, const DeviceMatrix& router, float* scores,
                                  cudaStream_t stream);

}  // namespace draftboard::backend::cuda
