// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/elementwise.h"
#include "backend/cpu/experts.h"

namespace draftboard::backend::cpu {

namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

/// The k largest of values[0, count), in descending order, ties to the lower index. k <= count.
void largest(const float* values, int count, int k, std::int32_t* ids) {
    int kept = 0;
    for (int e = 0; e < count; ++e) {
        if (kept == k && !(values[e] > values[ids[k - 1]])) continue;
        int at = kept < k ? kept++ : k - 1;
        for (; at > 0 && values[e] > values[ids[at - 1]]; --at) ids[at] = ids[at - 1];
        ids[at] = e;
    }
}

/// Lowers the choice values of all groups but the best `kept` ones, ranked by the sum of their two best.
void keep_groups(float* choice, int experts, int groups, int kept, float* totals, std::int32_t* best) {
    const int width = experts / groups;
    for (int g = 0; g < groups; ++g) {
        float first = kLowest;
        float second = kLowest;
        for (int e = g * width; e < (g + 1) * width; ++e) {
            if (choice[e] > first) {
                second = first;
                first = choice[e];
            } else {
                second = std::max(second, choice[e]);
            }
        }
        totals[g] = width > 1 ? first + second : first;
    }
    largest(totals, groups, kept, best);
    for (int g = 0; g < groups; ++g) {
        if (std::find(best, best + kept, g) == best + kept) std::fill_n(choice + g * width, width, kLowest);
    }
}

}  // namespace

void route(const float* logits, std::int64_t m, const model::MoeFeedForward& moe, const Numerics& numerics,
           const float* correction_bias, std::int32_t* ids, float* weights, Scratch& scratch) {
    const int experts = moe.experts;
    const int k = std::min(moe.experts_per_token, experts);
    if (k <= 0) return;
    const bool sigmoid = moe.scoring == model::RouterScoring::sigmoid;
    const bool grouped = sigmoid && moe.groups > 1 && moe.top_groups < moe.groups && experts % moe.groups == 0;
    float* score = scratch.scores.get(static_cast<std::size_t>(3 * experts));
    float* choice = score + experts;
    float* totals = choice + experts;
    std::int32_t* groups = scratch.slots.get(static_cast<std::size_t>(std::max(1, moe.groups)));
    for (std::int64_t i = 0; i < m; ++i) {
        const float* row = logits + i * experts;
        std::int32_t* chosen = ids + i * k;
        for (int e = 0; e < experts; ++e) choice[e] = std::isnan(row[e]) ? kLowest : row[e];
        if (sigmoid) {
            sigmoids(row, experts, score, scratch.instruction_set);
            for (int e = 0; e < experts; ++e) {
                const float value = score[e] + (correction_bias != nullptr ? correction_bias[e] : 0.0F);
                choice[e] = std::isnan(value) ? kLowest : value;
            }
        } else {
            // s grows with the logit, which keeps apart what rounding would make equal.
            exponentials(row, *std::max_element(choice, choice + experts), experts, score, scratch.instruction_set);
        }
        if (grouped) keep_groups(choice, experts, moe.groups, std::max(1, moe.top_groups), totals, groups);
        largest(choice, experts, k, chosen);
        float of_chosen = 0;
        for (int j = 0; j < k; ++j) of_chosen += score[chosen[j]];
        float divisor = 1;
        if (sigmoid) {
            if (numerics.normalise_top_k) divisor = of_chosen + 1e-20F;
        } else if (numerics.normalise_top_k) {
            divisor = of_chosen;
        } else {
            divisor = 0;
            for (int e = 0; e < experts; ++e) divisor += score[e];
        }
        for (int j = 0; j < k; ++j) {
            weights[i * k + j] = score[chosen[j]] / divisor * static_cast<float>(numerics.routed_scaling);
        }
    }
}

}  // namespace draftboard::backend::cpu
