// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/experts.h"

#include <algorithm>
#include <vector>

#include "backend/cpu/elementwise.h"

namespace draftboard::backend::cpu {

namespace {

/// `tokens` rows of x through one expert: down(silu(gate x) * up x).
void run_expert(const float* x, std::int64_t tokens, std::int64_t hidden, const DenseWeights& expert, float* output,
                Scratch& scratch) {
    const WeightMatrix& gate = expert.gate_up.parts[0];
    const WeightMatrix& up = expert.gate_up.parts[1];
    const std::int64_t width = gate.rows;
    float* gates = scratch.hidden.get(static_cast<std::size_t>(2 * tokens * width));
    float* ups = gates + tokens * width;
    matmul(x, tokens, hidden, gate, nullptr, gates, width, scratch);
    matmul(x, tokens, hidden, up, nullptr, ups, width, scratch);
    silu_multiply(gates, ups, tokens * width, gates, scratch.instruction_set);
    if (expert.down_by_input.rows > 0) {
        matmul_transposed(gates, tokens, width, expert.down_by_input, 0, width, output, hidden, scratch);
    } else {
        matmul(gates, tokens, width, expert.down, nullptr, output, hidden, scratch);
    }
}

}  // namespace

void store_by_input(DenseWeights& expert) {
    WeightMatrix& down = expert.down;
    const model::NumberFormat format = down.format.format;
    const bool plain = format == model::NumberFormat::bf16 || format == model::NumberFormat::fp32;
    if (!plain || down.columns > kNarrowExpert || down.data.size() == 0) return;
    std::vector<float> row(static_cast<std::size_t>(down.columns));
    std::vector<float> turned(static_cast<std::size_t>(down.rows * down.columns));
    for (std::int64_t r = 0; r < down.rows; ++r) {
        down.dequantize_row(r, row.data());
        for (std::int64_t c = 0; c < down.columns; ++c) turned[static_cast<std::size_t>(c * down.rows + r)] = row[static_cast<std::size_t>(c)];
    }
    expert.down_by_input = matrix_from_floats(turned, down.columns, down.rows, format);  // exact: the floats came from this format
    down.data = AlignedBytes();
}

int run_experts(const float* x, std::int64_t m, std::int64_t hidden, const MoeWeights& weights, const std::int32_t* ids, int k,
                float* outputs, Scratch& scratch) {
    const auto experts = static_cast<std::int32_t>(weights.experts.size());
    const std::int64_t pairs = m * k;
    // Pairs sorted by expert: start[e] .. start[e + 1] are those of local expert e.
    std::int32_t* start = scratch.slots.get(static_cast<std::size_t>(experts + 2 + pairs));
    std::int32_t* sorted = start + experts + 2;
    std::fill_n(start, experts + 2, 0);
    for (std::int64_t p = 0; p < pairs; ++p) {
        const std::int32_t local = ids[p] - weights.first_expert;
        if (local >= 0 && local < experts) {
            ++start[local + 2];
        } else {
            std::fill_n(outputs + p * hidden, hidden, 0.0F);
        }
    }
    for (std::int32_t e = 0; e < experts; ++e) start[e + 2] += start[e + 1];
    for (std::int64_t p = 0; p < pairs; ++p) {
        const std::int32_t local = ids[p] - weights.first_expert;
        if (local >= 0 && local < experts) sorted[start[local + 1]++] = static_cast<std::int32_t>(p);
    }

    int distinct = 0;
    for (std::int32_t e = 0; e < experts; ++e) {
        const std::int32_t* mine = sorted + start[e];
        const std::int64_t tokens = start[e + 1] - start[e];
        if (tokens == 0) continue;
        ++distinct;
        const DenseWeights& expert = weights.experts[static_cast<std::size_t>(e)];
        if (tokens == 1) {
            run_expert(x + mine[0] / k * hidden, 1, hidden, expert, outputs + mine[0] * hidden, scratch);
            continue;
        }
        float* inputs = scratch.tokens.get(static_cast<std::size_t>(2 * tokens * hidden));
        float* results = inputs + tokens * hidden;
        for (std::int64_t t = 0; t < tokens; ++t) std::copy_n(x + mine[t] / k * hidden, hidden, inputs + t * hidden);
        run_expert(inputs, tokens, hidden, expert, results, scratch);
        for (std::int64_t t = 0; t < tokens; ++t) std::copy_n(results + t * hidden, hidden, outputs + mine[t] * hidden);
    }
    return distinct;
}

}  // namespace draftboard::backend::cpu
