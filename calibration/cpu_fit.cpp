// SPDX-License-Identifier: Apache-2.0
#include "calibration/cpu_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <iterator>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "calibration/nnls.h"

namespace draftboard::calibration {

using model::ErrorCode;
using model::Expected;
using model::OperationKind;

namespace {

constexpr double kLeastUs = 1e-3;      // below the clock's step a median may be 0
constexpr std::size_t kFolds = 5;
constexpr double kLeastError = 0.02;

/// Which terms a kind of kernel has on a core: no loop that other units would share.
FitShape shape_of(OperationKind kind) {
    FitShape shape;
    shape.items = kind == OperationKind::experts || kind == OperationKind::attention;
    shape.flops = kind != OperationKind::norm && kind != OperationKind::elementwise && kind != OperationKind::embedding &&
                  kind != OperationKind::sample && kind != OperationKind::accept && kind != OperationKind::copy;
    shape.residuals = kind != OperationKind::attention && kind != OperationKind::delta_net && kind != OperationKind::copy;
    return shape;
}

/// One (kind, format, ranks).
RoleFitting fitting_of(const std::string& group, int ranks, OperationKind kind, const model::GpuSpec& gpu) {
    RoleFitting how;
    how.gpu = gpu;
    how.peak_tflops = gpu.bf16_tflops;
    how.shape = shape_of(kind);
    how.group = group;
    how.table = "cpu";
    how.source = fmt::format("fit to passes of the engine on {} rank(s)", ranks);
    how.implementation = [ranks](model::Pass pass) { return cpu_implementation(ranks, pass); };
    how.own_caches.assign(kOwnCachePasses.begin(), kOwnCachePasses.end());
    how.searches_caches = true;
    return how;
}

}  // namespace

Expected<std::vector<sim::SharedMemoryConstants>> fit_collectives(const std::vector<EngineCollectiveSample>& samples) {
    constexpr std::size_t kUnknowns = 5;
    std::map<int, std::vector<const EngineCollectiveSample*>> by_ranks;
    for (const EngineCollectiveSample& sample : samples) {
        if (sample.us > 0) by_ranks[sample.ranks].push_back(&sample);
    }
    std::vector<sim::SharedMemoryConstants> out;
    for (const auto& entry : by_ranks) {  // no structured binding: clang 14 can't capture one
        const auto ranks = entry.first;
        const auto& rows = entry.second;
        const double others = ranks - 1.0;
        const auto terms_of = [&](const EngineCollectiveSample& sample) {
            std::array<double, kUnknowns> terms{};
            const double bytes = static_cast<double>(sample.bytes) * 1e-3;  // 1/B in us a kB: 1 / (GB/s)
            const bool gather = sample.operation == OperationKind::all_gather;
            terms[0] = 1;
            terms[1] = sample.ring && !gather ? ranks + 1.0 : 2.0;
            terms[gather ? 4 : sample.ring ? 3 : 2] = (sample.ring && !gather ? 2 * others / ranks : others) * bytes;
            return terms;
        };
        const auto solve = [&](std::size_t left_out) -> Expected<std::vector<double>> {
            std::vector<double> matrix;
            std::vector<double> right;
            for (std::size_t i = 0; i < rows.size(); ++i) {
                if (i % kFolds == left_out) continue;
                for (const double term : terms_of(*rows[i])) matrix.push_back(term / rows[i]->us);
                right.push_back(1);
            }
            return solve_nnls(matrix, right, kUnknowns);
        };
        const auto whole = solve(kFolds);
        if (!whole) return tl::unexpected(whole.error());
        double squares = 0;
        for (std::size_t fold = 0; fold < kFolds; ++fold) {
            const auto others_fit = solve(fold);
            if (!others_fit) continue;
            for (std::size_t i = fold; i < rows.size(); i += kFolds) {
                double predicted = 0;
                const auto terms = terms_of(*rows[i]);
                for (std::size_t j = 0; j < kUnknowns; ++j) predicted += terms[j] * (*others_fit)[j];
                const double error = std::log(std::max(predicted, kLeastUs) / rows[i]->us);
                squares += error * error;
            }
        }
        sim::SharedMemoryConstants c;
        const auto rate = [](double us_per_kb) { return us_per_kb > 1e-6 ? 1 / us_per_kb : 1e6; };
        c.ranks = ranks;
        c.call_us = (*whole)[0];
        c.barrier_us = (*whole)[1];
        c.one_shot_gb_s = rate((*whole)[2]);
        c.ring_gb_s = rate((*whole)[3]);
        c.gather_gb_s = rate((*whole)[4]);
        c.points = static_cast<double>(rows.size());
        c.relative_error = std::max(kLeastError, std::sqrt(squares / c.points));
        const auto [low, high] = std::minmax_element(rows.begin(), rows.end(), [](auto* a, auto* b) { return a->bytes < b->bytes; });
        c.bytes_low = static_cast<double>((*low)->bytes);
        c.bytes_high = static_cast<double>((*high)->bytes);
        out.push_back(c);
    }
    return out;
}

CpuPassOverhead fit_pass_overhead(const std::vector<const EngineMeasuredPass*>& passes) {
    constexpr std::size_t kUnknowns = 3;
    std::vector<double> matrix;
    std::vector<double> right;
    std::vector<std::array<double, kUnknowns>> rows;
    std::vector<std::pair<double, double>> targets;  // overhead, total
    for (const EngineMeasuredPass* pass : passes) {
        double operations = 0;
        double kernels = 0;
        double since_collective = 0;
        double collectives = 0;
        for (std::size_t i = 0; i < pass->plan.operations.size(); ++i) {
            operations += pass->us[i];
            if (!model::is_collective(pass->plan.operations[i].kind)) {
                since_collective += pass->us[i];
                continue;
            }
            kernels += since_collective;
            since_collective = 0;
            collectives += 1;
        }
        if (!(pass->total_us > 0)) continue;
        rows.push_back({1, collectives, kernels});
        targets.emplace_back(pass->total_us - operations, pass->total_us);
        for (const double term : rows.back()) matrix.push_back(term / pass->total_us);
        right.push_back(targets.back().first / pass->total_us);
    }
    CpuPassOverhead overhead;
    const auto solved = rows.empty() ? Expected<std::vector<double>>(std::vector<double>(kUnknowns, 0.0)) : solve_nnls(matrix, right, kUnknowns);
    if (!solved) return overhead;
    overhead.launch_us = (*solved)[0];
    overhead.skew_us = (*solved)[1];
    overhead.skew_share = (*solved)[2];
    double squares = 0;
    double sum = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        double predicted = 0;
        for (std::size_t j = 0; j < kUnknowns; ++j) predicted += rows[i][j] * (*solved)[j];
        squares += (predicted - targets[i].first) * (predicted - targets[i].first);
        sum += predicted;
    }
    const double n = static_cast<double>(rows.size());
    if (sum > 0) overhead.relative_error = std::min(2.0, std::sqrt(squares / n) / (sum / n));
    return overhead;
}

namespace {

/// How well each entry meets the sum of its operations over a pass: rms of log(predicted / measured), by the whole fit.
void state_common_errors(const std::vector<EngineMeasuredPass>& passes, const model::GpuSpec& gpu, sim::KernelTable& kernels) {
    std::map<std::pair<int, model::Pass>, sim::KernelModel> models;
    std::map<sim::KernelKey, std::pair<double, double>> squares;  // sum, count
    for (const EngineMeasuredPass& pass : passes) {
        const int ranks = pass.key.ranks;
        const model::Pass kind = has_own_cache(pass.key.pass) ? pass.key.pass : model::Pass::verify;
        auto model = models.find({ranks, kind});
        if (model == models.end()) {
            const sim::KernelTable table = kernels_for_ranks(kernels, ranks, kind);
            model = models.try_emplace({ranks, kind}, gpu, table, sim::ImplementationChoice{}).first;
        }
        const double near = sim::near_share(pass.plan, gpu.l2_bytes);
        std::map<sim::KernelKey, std::pair<double, double>> sums;  // predicted, measured
        for (std::size_t i = 0; i < pass.plan.operations.size(); ++i) {
            if (model::is_collective(pass.plan.operations[i].kind) || !(pass.us[i] > kLeastUs)) continue;
            const sim::KernelTime time = model->second.time(pass.plan.operations[i], near);
            auto& [predicted, measured] = sums[time.key];
            predicted += time.us;
            measured += pass.us[i];
        }
        for (const auto& [key, sum] : sums) {
            const double error = std::log(std::max(sum.first, kLeastUs) / sum.second);
            auto& [square, count] = squares[fmt::format("{}@{}", key, ranks)];
            square += error * error;
            count += 1;
        }
    }
    for (const auto& [key, sum] : squares) {
        const auto entry = kernels.entries.find(key);
        if (entry != kernels.entries.end()) entry->second.common_error = std::max(kLeastError, std::sqrt(sum.first / sum.second));
    }
}

/// Host constants of one number of ranks.
void fit_host(const std::vector<EngineHostSample>& samples, int ranks, std::map<std::string, double>& values) {
    constexpr std::size_t kUnknowns = 4;  // step, cycle, draft call, sequence
    std::vector<double> matrix;
    std::vector<double> right;
    for (const EngineHostSample& sample : samples) {
        if (sample.ranks != ranks || !(sample.cycle_us > 0)) continue;
        const std::array<double, kUnknowns> terms = {sample.speculates ? 0.0 : 1.0, sample.speculates ? 1.0 : 0.0,
                                                     static_cast<double>(sample.draft_calls), static_cast<double>(sample.sequences)};
        for (const double term : terms) matrix.push_back(term / sample.cycle_us);
        right.push_back(std::max(0.0, sample.us) / sample.cycle_us);
    }
    const auto solved = right.empty() ? Expected<std::vector<double>>(std::vector<double>(kUnknowns, 0.0)) : solve_nnls(matrix, right, kUnknowns);
    if (!solved) return;
    values["host.step_us"] = (*solved)[0];
    values["host.cycle_us"] = (*solved)[1];
    values["host.draft_call_us"] = (*solved)[2];
    values["host.sequence_us"] = (*solved)[3];
}

}  // namespace

Expected<CpuFit> fit_cpu(const std::vector<EngineMeasuredPass>& passes, const EngineMeasurements& measurements, const model::GpuSpec& gpu) {
    if (passes.empty()) {
        return model::fail(ErrorCode::invalid_input, "no pass was measured", "calibration", "give at least one model");
    }
    CpuFit out;
    // A load for each multiply-add is the most that a core can read: 4 bytes in 2 flops.
    model::GpuSpec bounds = gpu;
    bounds.memory_gb_s = std::max(gpu.memory_gb_s, 2 * gpu.bf16_tflops * 1e3);
    bounds.l2_bytes = std::max(gpu.l2_bytes, 1.0);
    std::map<std::tuple<std::string, int, OperationKind>, std::vector<RoleRow>> groups;
    std::vector<EngineCollectiveSample> collectives = measurements.collectives;
    std::map<int, std::vector<const EngineMeasuredPass*>> by_ranks;
    for (const EngineMeasuredPass& pass : passes) {
        by_ranks[pass.key.ranks].push_back(&pass);
        const double near = sim::near_share(pass.plan, gpu.l2_bytes);
        for (std::size_t i = 0; i < pass.plan.operations.size(); ++i) {
            const model::Operation& operation = pass.plan.operations[i];
            if (model::is_collective(operation.kind)) {
                if (pass.us[i] > kLeastUs) {
                    collectives.push_back({operation.kind, false, pass.key.ranks, operation.message_bytes, pass.us[i]});
                }
                continue;
            }
            if (!(pass.us[i] > kLeastUs)) continue;
            RoleRow row;
            row.role = operation.role;
            row.pass = pass.key.pass;
            row.noise = i < pass.noise.size() ? pass.noise[i] : 0;
            row.fit.work = sim::kernel_work(operation, 1);
            row.fit.work.near_share = near;
            row.fit.resident_bytes = 1e3 * bounds.l2_bytes;  // a pass comes back to a layer after all others
            row.fit.us = pass.us[i];
            groups[{sim::kernel_subkind(operation), pass.key.ranks, operation.kind}].push_back(row);
        }
    }
    for (const auto& [key, rows] : groups) fit_roles(fitting_of(std::get<0>(key), std::get<1>(key), std::get<2>(key), bounds), rows, out);
    if (out.kernels.entries.empty()) {
        return model::fail(ErrorCode::invalid_input, "no kernel could be fitted", "calibration",
                           out.notes.empty() ? "" : out.notes.back());
    }
    state_common_errors(passes, gpu, out.kernels);
    auto shared = fit_collectives(collectives);
    if (!shared) return tl::unexpected(shared.error());
    const double sigma = run_sigma_of(passes);
    for (const auto& [ranks, of_ranks] : by_ranks) {
        const CpuPassOverhead overhead = fit_pass_overhead(of_ranks);
        CpuHostTerms host;
        host.ranks = ranks;
        host.values = {{"host.launch_latency_us", overhead.launch_us},
                       {"host.graph_launch_us", 0},
                       {"host.kernel_gap_us", 0},
                       {"host.rank_spread", 0},
                       {"host.kernel_jitter", 0},
                       {"host.relative_uncertainty", std::clamp(overhead.relative_error, 0.05, 2.0)},
                       {"host.run_sigma", std::min(sigma, 2.0)}};
        fit_host(measurements.hosts, ranks, host.values);
        out.terms.host.push_back(std::move(host));
        for (sim::SharedMemoryConstants& one : *shared) {
            if (static_cast<int>(one.ranks) != ranks) continue;
            one.skew_us = overhead.skew_us;
            one.skew_share = overhead.skew_share;
        }
    }
    out.terms.collectives = std::move(*shared);
    out.kernels.source = fmt::format("fit to {} passes of the CPU engine", passes.size());
    return out;
}

}  // namespace draftboard::calibration
