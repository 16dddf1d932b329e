// SPDX-License-Identifier: Apache-2.0
#include "calibration/measured_pass.h"

#include <algorithm>
#include <cmath>

namespace draftboard::calibration {

using model::OperationKind;

namespace {

constexpr double kLeastUs = 1e-3;  // below the clock's step a median may be 0

}  // namespace

EngineMeasuredPass measured_pass(const EnginePassKey& key, const EnginePassSamples& samples, model::Plan plan) {
    EngineMeasuredPass pass;
    pass.key = key;
    pass.plan = std::move(plan);
    pass.total_us = median_of(samples.total_us);
    const auto half = static_cast<std::ptrdiff_t>(samples.total_us.size() / 2);
    pass.early_us = median_of(std::vector<float>(samples.total_us.begin(), samples.total_us.begin() + half));
    pass.late_us = median_of(std::vector<float>(samples.total_us.begin() + half, samples.total_us.end()));
    std::size_t mixture = 0;
    const auto noise_of = [](const std::vector<float>& us) {
        const auto middle = us.begin() + static_cast<std::ptrdiff_t>(us.size() / 2);
        const double early = median_of(std::vector<float>(us.begin(), middle));
        const double late = median_of(std::vector<float>(middle, us.end()));
        return early > kLeastUs && late > kLeastUs ? std::min(0.5, std::abs(std::log(late / early))) / std::sqrt(2.0) : 0.0;
    };
    for (std::size_t i = 0; i < pass.plan.operations.size(); ++i) {
        pass.us.push_back(i < samples.operation_us.size() ? median_of(samples.operation_us[i]) : 0);
        pass.noise.push_back(i < samples.operation_us.size() ? noise_of(samples.operation_us[i]) : 0);
        pass.wait_us.push_back(i < samples.wait_us.size() ? median_of(samples.wait_us[i]) : 0);
        model::Operation& operation = pass.plan.operations[i];
        if (operation.kind != OperationKind::experts) continue;
        const std::size_t layer = mixture++;
        if (layer >= samples.distinct_experts.size() || !(samples.expert_rounds > 0) || !(operation.distinct_experts > 0)) continue;
        const double counted = samples.distinct_experts[layer] / samples.expert_rounds;
        operation.weight_bytes *= counted / operation.distinct_experts;
        operation.distinct_experts = counted;
    }
    return pass;
}

double run_sigma_of(const std::vector<EngineMeasuredPass>& passes) {
    double squares = 0;
    double count = 0;
    for (const EngineMeasuredPass& pass : passes) {
        if (!(pass.early_us > 0) || !(pass.late_us > 0)) continue;
        const double log_ratio = std::log(pass.late_us / pass.early_us);
        squares += std::min(log_ratio * log_ratio, 0.25) / 2;
        count += 1;
    }
    return count > 0 ? std::sqrt(squares / count) : 0.0;
}

}  // namespace draftboard::calibration
