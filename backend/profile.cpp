// SPDX-License-Identifier: Apache-2.0
#include "backend/profile.h"

#include <algorithm>
#include <cmath>

namespace draftboard::backend {

PassSamples& Profile::pass(model::Pass pass, int sequences, int tokens, std::size_t operations) {
    PassSamples& samples = passes_[{pass, sequences, tokens}];
    if (samples.operations.size() < operations) samples.operations.resize(operations);
    return samples;
}

double quantile(std::span<const float> samples, double q) {
    if (samples.empty()) return 0;
    std::vector<float> sorted(samples.begin(), samples.end());
    std::ranges::sort(sorted);
    const double at = q * static_cast<double>(sorted.size() - 1);
    const auto low = static_cast<std::size_t>(std::floor(at));
    const std::size_t high = std::min(low + 1, sorted.size() - 1);
    const double share = at - static_cast<double>(low);
    return (1 - share) * sorted[low] + share * sorted[high];
}

model::Json to_json(const PassSamples& samples, const model::Plan& plan, int sequences, int tokens) {
    model::Json operations = model::Json::array();
    for (std::size_t i = 0; i < plan.operations.size() && i < samples.operations.size(); ++i) {
        const model::Operation& operation = plan.operations[i];
        const OperationSamples& measured = samples.operations[i];
        operations.push_back({{"key", operation.key(plan.pass)},
                              {"kind", to_name(operation.kind)},
                              {"m", operation.m},
                              {"n", operation.n},
                              {"k", operation.k},
                              {"batch", operation.batch},
                              {"weight_format", operation.weight_format.name()},
                              {"weight_bytes", operation.weight_bytes},
                              {"activation_bytes", operation.activation_bytes},
                              {"cache_bytes", operation.cache_bytes},
                              {"flops", operation.flops},
                              {"distinct_experts", operation.distinct_experts},
                              {"expert_tokens", operation.expert_tokens},
                              {"message_bytes", operation.message_bytes},
                              {"group", operation.group},
                              {"median_us", quantile(measured.us, 0.5)},
                              {"p10_us", quantile(measured.us, 0.1)},
                              {"p90_us", quantile(measured.us, 0.9)},
                              {"wait_us", quantile(measured.wait_us, 0.5)}});
    }
    return {{"pass", to_name(plan.pass)},
            {"sequences", sequences},
            {"tokens", tokens},
            {"context", samples.count > 0 ? samples.context_sum / static_cast<double>(samples.count) : 0.0},
            {"count", samples.count},
            {"total_us", quantile(samples.total_us, 0.5)},
            {"operations", std::move(operations)}};
}

}  // namespace draftboard::backend
