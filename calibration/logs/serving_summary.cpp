// SPDX-License-Identifier: Apache-2.0
#include "calibration/logs/serving_summary.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace draftboard::calibration {

namespace {

constexpr double kNormal90 = 1.645;
constexpr std::size_t kFewForOrder = 6;

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const std::size_t n = values.size();
    return n % 2 == 1 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

using Windows = std::vector<const ServingSample*>;

/// Rates by position, weighted with drafts; windows of another depth than most are short of positions and count as zero there.
void add_rates(const Windows& windows, BatchSummary& out) {
    std::vector<double> sums;
    double cycles = 0;
    for (const ServingSample* window : windows) {
        if (!(window->cycles > 0)) continue;
        cycles += window->cycles;
        if (window->per_position.size() > sums.size()) sums.resize(window->per_position.size());
        for (std::size_t i = 0; i < window->per_position.size(); ++i) {
            sums[i] += window->cycles * static_cast<double>(window->per_position[i]);
        }
    }
    if (!(cycles > 0)) return;
    out.cycles = cycles;
    double before = 1;
    for (const double sum : sums) {
        before = std::min(before, sum / cycles);
        out.per_position.push_back(before);
    }
}

void add_acceptance(const Windows& all, BatchSummary& out) {
    Windows windows;
    for (const ServingSample* window : all) {
        if (window->acceptance_length > 0) windows.push_back(window);
    }
    if (windows.empty()) return;
    add_rates(windows, out);
    double weights = 0;
    double sum = 0;
    for (const ServingSample* window : windows) {
        if (out.cycles > 0 && !(window->cycles > 0)) continue;
        const double weight = out.cycles > 0 ? window->cycles : 1.0;
        weights += weight;
        sum += weight * window->acceptance_length;
    }
    const double length = sum / weights;
    double squares = 0;  // of weighted deviations: the error of a ratio of sums over n windows
    for (const ServingSample* window : windows) {
        const double weight = out.cycles > 0 ? window->cycles : 1.0;
        squares += std::pow(weight * (window->acceptance_length - length), 2);
    }
    const double n = static_cast<double>(windows.size());
    const double scatter = n > 1 ? std::sqrt(squares * n / (n - 1)) / weights : 0;
    const int positions = static_cast<int>(out.per_position.size());
    const int depth = std::max(1, positions > 0 ? positions : static_cast<int>(std::ceil(length)));
    model::Acceptance counted;
    counted.per_position = out.per_position;
    if (counted.per_position.empty()) {
        const auto spread = model::acceptance_from_length(std::min(length, depth + 1.0), depth);
        if (spread) counted.per_position = spread->per_position;
    }
    counted.observed_cycles = out.cycles;
    const model::Interval sampled = model::acceptance_length_interval(counted, length, depth);
    const double sampling = out.cycles > 0 ? std::max(sampled.high - length, length - sampled.low) / kNormal90 : 0;
    out.acceptance_length = length;
    out.relative_error = std::sqrt(std::max(0.0, scatter * scatter - sampling * sampling)) / length;
    const double half = kNormal90 * std::max(scatter, sampling);
    out.acceptance_interval = {length, std::max(1.0, length - half), length + half};
}

BatchSummary summarize(int running, const Windows& windows) {
    BatchSummary out;
    out.running = running;
    out.windows = static_cast<int>(windows.size());
    std::vector<double> rates;
    std::vector<double> contexts;
    int graphs = 0;
    int said = 0;
    for (const ServingSample* window : windows) {
        rates.push_back(window->tokens_per_second);
        if (window->context_tokens > 0) contexts.push_back(window->context_tokens / running);
        if (window->graph) ++said;
        if (window->graph.value_or(false)) ++graphs;
    }
    out.tokens_per_second = median_interval(std::move(rates));
    if (!contexts.empty()) out.context_tokens = median(std::move(contexts));
    if (said > 0) {
        out.graph_share = static_cast<double>(graphs) / said;
        if (graphs == said || graphs == 0) out.graph = graphs == said;
    }
    add_acceptance(windows, out);
    return out;
}

}  // namespace

model::Interval median_interval(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const std::size_t n = values.size();
    const double middle = median(values);
    if (n < kFewForOrder) return {middle, values.front(), values.back()};
    const double half = kNormal90 * std::sqrt(static_cast<double>(n)) / 2;
    const double low = std::max(1.0, std::floor(static_cast<double>(n) / 2 - half) + 1);
    const std::size_t below = static_cast<std::size_t>(low);  // counted from 1
    return {middle, values[below - 1], values[n - below]};
}

ServingSummary summarize_serving_log(const ServingLog& log) {
    ServingSummary out;
    std::map<int, Windows> steady;
    std::map<int, Windows> mixed;  // with prompts
    for (const ServingSample& sample : log.samples) {
        if (sample.warm_up) {
            ++out.warm_up;
        } else if (!sample.same_batch) {
            ++out.changed;
        } else if (sample.prefill) {
            ++out.prefill;
            mixed[sample.running].push_back(&sample);
        } else {
            ++out.steady;
            steady[sample.running].push_back(&sample);
        }
    }
    std::map<int, Windows> batches = steady;
    for (const auto& entry : mixed) {
        Windows& windows = batches[entry.first];
        if (windows.size() >= static_cast<std::size_t>(kFewWindows)) continue;
        windows.insert(windows.end(), entry.second.begin(), entry.second.end());
    }
    for (const auto& entry : batches) {
        BatchSummary batch = summarize(entry.first, entry.second);
        batch.prefill_inside =
            std::any_of(entry.second.begin(), entry.second.end(), [](const ServingSample* window) { return window->prefill; });
        out.batches.push_back(std::move(batch));
    }
    return out;
}

}  // namespace draftboard::calibration
