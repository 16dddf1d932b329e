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
constexpr double kLeastCache = 32 * 1024;  // an L1, about
/// Bandwidth of bytes in a core's own cache over that of the others, candidates: an L2 gives a core up to four times what an
/// L3 does (64 and some 16 bytes a cycle), where arithmetic is not in the way.
constexpr std::array kNearFactors = {1.0, 1.5, 2.0, 3.0, 4.0, 6.0};
constexpr double kCachePays = 0.9;          // of the mean error: what a second price of bytes has to save

/// Which terms a kind of kernel has on a core: no loop that other units would share.
FitShape shape_of(OperationKind kind) {
    FitShape shape;
    shape.items = kind == OperationKind::experts || kind == OperationKind::attention;
    shape.flops = kind != OperationKind::norm && kind != OperationKind::elementwise && kind != OperationKind::embedding &&
                  kind != OperationKind::sample && kind != OperationKind::accept && kind != OperationKind::copy;
    shape.residuals = kind != OperationKind::attention && kind != OperationKind::delta_net && kind != OperationKind::copy;
    return shape;
}

struct Row {
    std::string_view role;
    FitRow fit;
    model::Pass pass = model::Pass::verify;
    double noise = 0;
};

/// Rows of equal work become one: a layer more of the same shape is no further evidence of the formula.
std::vector<Row> merged(const std::vector<Row>& rows) {
    std::map<std::tuple<std::string_view, double, double, double, double>, Row> by_work;
    for (const Row& row : rows) {
        const sim::KernelWork& work = row.fit.work;
        // Contexts and experts differ a little from layer to layer and round to round: three digits tell them apart.
        const auto digits = [](double value) { return value > 0 ? std::round(std::log(value) * 200) : 0.0; };
        const double near = std::round(work.near_share * 50);
        auto [at, fresh] = by_work.try_emplace({row.role, work.m, digits(work.bytes), digits(work.flops), near}, row);
        if (fresh) continue;
        Row& sum = at->second;
        const double n = sum.fit.samples + 1;
        const auto mean = [n](double& into, double value) { into += (value - into) / n; };
        mean(sum.fit.us, row.fit.us);
        mean(sum.fit.work.bytes, work.bytes);
        mean(sum.fit.work.flops, work.flops);
        mean(sum.fit.work.items, work.items);
        mean(sum.fit.work.length, work.length);
        mean(sum.fit.work.near_share, work.near_share);
        sum.fit.samples = n;
    }
    std::vector<Row> out;
    for (auto& [key, row] : by_work) out.push_back(std::move(row));
    return out;
}

std::vector<FitRow> fit_rows(const std::vector<Row>& rows) {
    std::vector<FitRow> out;
    for (const Row& row : rows) out.push_back(row.fit);
    return out;
}

double mean_error(const std::vector<double>& errors) {
    double sum = 0;
    for (const double error : errors) sum += std::min(0.5, std::abs(error));
    return errors.empty() ? 0 : sum / static_cast<double>(errors.size());
}

/// The fit, with bytes of two prices where that explains the rows better: sizes of cache and factors are searched.
Expected<KernelFit> fit_with_cache(const std::vector<Row>& rows, const FitShape& shape, const model::GpuSpec& gpu, double peak) {
    auto best = fit_kernel(fit_rows(rows), shape, gpu, peak);
    if (!best) return best;
    double least = kCachePays * mean_error(best->left_out_error);
    double most_bytes = 0;
    for (const Row& row : rows) most_bytes = std::max(most_bytes, row.fit.work.bytes);
    for (double near = kLeastCache; near < most_bytes; near *= 2) {
        for (const double factor : {2.0, 4.0, 8.0}) {
            sim::KernelConstants cache;
            cache.near_bytes = near;
            cache.far_factor = factor;
            std::vector<FitRow> priced = fit_rows(rows);
            for (FitRow& row : priced) row.work.bytes = sim::priced_bytes(cache, row.work.bytes);
            auto fit = fit_kernel(priced, shape, gpu, peak);
            if (!fit || mean_error(fit->left_out_error) >= least) continue;
            least = mean_error(fit->left_out_error);
            best = std::move(fit);
            best->constants.near_bytes = near;
            best->constants.far_factor = factor;
        }
    }
    return best;
}

using Rows = std::vector<Row>;

Rows rows_where(const Rows& rows, const std::function<bool(const Row&)>& wanted) {
    Rows out;
    std::copy_if(rows.begin(), rows.end(), std::back_inserter(out), wanted);
    return out;
}

/// Corrections by m over what constants say without any: medians of log(measured / predicted) of equal m, drawn towards 1 by one
/// measurement's worth of doubt.
std::vector<sim::ResidualPoint> corrections(sim::KernelConstants constants, const Rows& rows) {
    constants.residuals.clear();
    std::map<double, std::vector<double>> logs;
    for (const Row& row : rows) logs[row.fit.work.m].push_back(std::log(row.fit.us / sim::kernel_us(constants, row.fit.work)));
    std::vector<sim::ResidualPoint> points;
    for (const auto& [m, of_m] : logs) {
        const double n = static_cast<double>(of_m.size());
        points.push_back({std::log2(m), std::exp(median_of(of_m) * n / (n + 1))});
    }
    return points;
}

/// log(predicted / measured) of each row. A row between the smallest and the largest m is predicted by its neighbours in m: a
/// shape that nobody measured.
std::vector<double> errors_of(const sim::KernelConstants& constants, const Rows& rows) {
    std::vector<double> errors;
    for (const Row& row : rows) {
        sim::KernelConstants left = constants;
        const double x = std::log2(row.fit.work.m);
        const auto at = std::find_if(left.residuals.begin(), left.residuals.end(),
                                     [&](const auto& point) { return point.log2_m == x; });
        const bool inside = at != left.residuals.begin() && at != left.residuals.end() && at + 1 != left.residuals.end();
        if (inside) left.residuals.erase(at);
        errors.push_back(std::log(std::max(sim::kernel_us(left, row.fit.work), kLeastUs) / row.fit.us));
    }
    return errors;
}

void add_entry(const std::string& key, sim::KernelConstants constants, const Rows& rows, const std::string& source, CpuFit& out) {
    const std::vector<double> errors = errors_of(constants, rows);
    double squares = 0;
    double noise = 0;
    constants.m_low = rows.front().fit.work.m;
    constants.m_high = rows.front().fit.work.m;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        squares += errors[i] * errors[i];
        noise += rows[i].noise * rows[i].noise;
        constants.m_low = std::min(constants.m_low, rows[i].fit.work.m);
        constants.m_high = std::max(constants.m_high, rows[i].fit.work.m);
    }
    for (const sim::ResidualPoint& point : constants.residuals) {  // a warm pass takes the others' beyond its own
        constants.m_high = std::max(constants.m_high, std::exp2(point.log2_m));
    }
    constants.relative_error = std::max(kLeastError, std::sqrt((squares + noise) / static_cast<double>(rows.size())));
    constants.head_tile = 1;
    constants.points = static_cast<int>(rows.size());
    constants.source = source;
    constants.coverage = sim::Coverage::measured;
    TableFit table;
    table.table = "cpu";
    table.key = key;
    table.rows = static_cast<int>(rows.size());
    table.cold = table.rows;
    std::vector<double> relative;
    std::size_t worst = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        relative.push_back(std::expm1(errors[i]));
        if (std::abs(errors[i]) > std::abs(errors[worst])) worst = i;
    }
    table.all_errors = summarize(relative);
    table.cold_errors = table.all_errors;
    table.worst_row = fmt::format("{} at m = {:g}: measured {:.2f} us, predicted {:.2f}", rows[worst].role, rows[worst].fit.work.m,
                                  rows[worst].fit.us, rows[worst].fit.us * std::exp(errors[worst]));
    out.tables.push_back(std::move(table));
    out.kernels.entries[key] = std::move(constants);
}

/// What a warm pass costs of a role: the others' constants, with the bandwidth of bytes that are near (sim::near_share) and
/// corrections by m of its own. The near bandwidth is searched: what leaves the least mean error.
sim::KernelConstants warm_constants(const sim::KernelConstants& cold, const Rows& rows) {
    sim::KernelConstants best;
    double least = 0;
    for (const double factor : kNearFactors) {
        sim::KernelConstants warm = cold;
        warm.floor_us = 0;
        warm.warm_bandwidth_gb_s = factor * cold.bandwidth_gb_s;
        warm.residuals = corrections(warm, rows);
        double sum = 0;
        for (const Row& row : rows) sum += std::abs(std::log(sim::kernel_us(warm, row.fit.work) / row.fit.us));
        if (factor > kNearFactors.front() && sum >= least) continue;
        least = sum;
        const double largest = warm.residuals.back().log2_m;
        for (const sim::ResidualPoint& point : cold.residuals) {
            if (point.log2_m > largest) warm.residuals.push_back(point);
        }
        best = std::move(warm);
    }
    return best;
}

/// One (kind, format, ranks): the kind's entry, one of each role, and those of warm passes.
void fit_group(const std::string& subkind_and_format, int ranks, OperationKind kind, const Rows& all,
               const model::GpuSpec& gpu, CpuFit& out) {
    const FitShape shape = shape_of(kind);
    const double peak = gpu.bf16_tflops;
    const auto cold_of = [&](const Rows& rows) {
        Rows cold = rows_where(rows, [](const Row& row) { return !has_own_cache(row.pass); });
        if (merged(cold).size() < kMinFitRows) {
            cold = rows_where(rows, [](const Row& row) { return row.pass != model::Pass::draft; });
        }
        return cold.empty() ? rows : cold;
    };
    const Rows cold = cold_of(all);
    Rows distinct = merged(cold);
    if (distinct.size() < kMinFitRows) distinct = cold;
    auto pooled = fit_with_cache(distinct, shape, gpu, peak);
    if (!pooled) {
        out.notes.push_back(fmt::format("{}/{} is left out: {}", subkind_and_format, cpu_implementation(ranks),
                                        pooled.error().to_text()));
        return;
    }
    pooled->constants.warm_bandwidth_gb_s = 0;
    const auto bar = subkind_and_format.find('/');
    const std::string on_ranks = fmt::format("fit to passes of the engine on {} rank(s)", ranks);
    const auto role_key = [&](std::string_view role, model::Pass pass) {
        return fmt::format("{}@{}{}/{}", subkind_and_format.substr(0, bar), role, subkind_and_format.substr(bar),
                           cpu_implementation(ranks, pass));
    };
    std::set<std::string_view> roles;
    for (const Row& row : all) roles.insert(row.role);
    for (const std::string_view role : roles) {
        const Rows of_role = rows_where(all, [&](const Row& row) { return row.role == role; });
        const Rows own = cold_of(of_role);
        sim::KernelConstants constants = pooled->constants;
        if (roles.size() > 1) {
            std::vector<double> errors;
            for (std::size_t i = 0; i < distinct.size(); ++i) {
                if (distinct[i].role == role) errors.push_back(pooled->left_out_error[i]);
            }
            Rows own_distinct = merged(own);
            if (own_distinct.size() < kMinFitRows) own_distinct = own;
            const auto apart = fit_with_cache(own_distinct, shape, gpu, peak);
            const double bar_of_pooling = apart ? kRolePooling * mean_error(apart->left_out_error) + kRoleTolerance : 0;
            if (apart && (errors.empty() || mean_error(errors) > bar_of_pooling)) {
                constants = apart->constants;
                constants.warm_bandwidth_gb_s = 0;
            }
        }
        constants.floor_us = 0;
        if (shape.residuals) constants.residuals = corrections(constants, own);
        add_entry(role_key(role, model::Pass::verify), constants, own, on_ranks + ", this role alone", out);
        for (const model::Pass pass : kOwnCachePasses) {
            const Rows warm = rows_where(of_role, [&](const Row& row) { return row.pass == pass; });
            if (warm.empty()) continue;
            add_entry(role_key(role, pass), warm_constants(constants, warm), warm,
                      fmt::format("{}, this role in {} passes", on_ranks, to_name(pass)), out);
        }
    }
    add_entry(fmt::format("{}/{}", subkind_and_format, cpu_implementation(ranks)), pooled->constants, cold, on_ranks, out);
}

}  // namespace

CpuMeasuredPass measured_pass(const CpuPassKey& key, const CpuPassSamples& samples, model::Plan plan) {
    CpuMeasuredPass pass;
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

double run_sigma_of(const std::vector<CpuMeasuredPass>& passes) {
    double squares = 0;
    double count = 0;
    for (const CpuMeasuredPass& pass : passes) {
        if (!(pass.early_us > 0) || !(pass.late_us > 0)) continue;
        const double log_ratio = std::log(pass.late_us / pass.early_us);
        squares += std::min(log_ratio * log_ratio, 0.25) / 2;
        count += 1;
    }
    return count > 0 ? std::sqrt(squares / count) : 0.0;
}

Expected<std::vector<sim::SharedMemoryConstants>> fit_collectives(const std::vector<CpuCollectiveSample>& samples) {
    constexpr std::size_t kUnknowns = 5;
    std::map<int, std::vector<const CpuCollectiveSample*>> by_ranks;
    for (const CpuCollectiveSample& sample : samples) {
        if (sample.us > 0) by_ranks[sample.ranks].push_back(&sample);
    }
    std::vector<sim::SharedMemoryConstants> out;
    for (const auto& entry : by_ranks) {  // no structured binding: clang 14 can't capture one
        const auto ranks = entry.first;
        const auto& rows = entry.second;
        const double others = ranks - 1.0;
        const auto terms_of = [&](const CpuCollectiveSample& sample) {
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

CpuPassOverhead fit_pass_overhead(const std::vector<const CpuMeasuredPass*>& passes) {
    constexpr std::size_t kUnknowns = 3;
    std::vector<double> matrix;
    std::vector<double> right;
    std::vector<std::array<double, kUnknowns>> rows;
    std::vector<std::pair<double, double>> targets;  // overhead, total
    for (const CpuMeasuredPass* pass : passes) {
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
void state_common_errors(const std::vector<CpuMeasuredPass>& passes, const model::GpuSpec& gpu, sim::KernelTable& kernels) {
    std::map<std::pair<int, model::Pass>, sim::KernelModel> models;
    std::map<sim::KernelKey, std::pair<double, double>> squares;  // sum, count
    for (const CpuMeasuredPass& pass : passes) {
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
void fit_host(const std::vector<CpuHostSample>& samples, int ranks, std::map<std::string, double>& values) {
    constexpr std::size_t kUnknowns = 4;  // step, cycle, draft call, sequence
    std::vector<double> matrix;
    std::vector<double> right;
    for (const CpuHostSample& sample : samples) {
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

Expected<CpuFit> fit_cpu(const std::vector<CpuMeasuredPass>& passes, const CpuMeasurements& measurements, const model::GpuSpec& gpu) {
    if (passes.empty()) {
        return model::fail(ErrorCode::invalid_input, "no pass was measured", "calibration", "give at least one model");
    }
    CpuFit out;
    // A load for each multiply-add is the most that a core can read: 4 bytes in 2 flops.
    model::GpuSpec bounds = gpu;
    bounds.memory_gb_s = std::max(gpu.memory_gb_s, 2 * gpu.bf16_tflops * 1e3);
    bounds.l2_bytes = std::max(gpu.l2_bytes, 1.0);
    std::map<std::tuple<std::string, int, OperationKind>, std::vector<Row>> groups;
    std::vector<CpuCollectiveSample> collectives = measurements.collectives;
    std::map<int, std::vector<const CpuMeasuredPass*>> by_ranks;
    for (const CpuMeasuredPass& pass : passes) {
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
            Row row;
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
    for (const auto& [key, rows] : groups) fit_group(std::get<0>(key), std::get<1>(key), std::get<2>(key), rows, bounds, out);
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
