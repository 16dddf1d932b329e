// SPDX-License-Identifier: Apache-2.0
#include "calibration/role_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "calibration/engine_measurements.h"

namespace draftboard::calibration {

using model::Expected;

namespace {

using Rows = std::vector<RoleRow>;

constexpr double kLeastUs = 1e-3;      // below the clock's step a median may be 0
constexpr double kLeastError = 0.02;
constexpr double kLeastFactor = 0.01;  // what a calibration file may hold as a correction
constexpr double kMostFactor = 100;
constexpr double kLeastCache = 32 * 1024;  // an L1, about
/// Bandwidth of bytes in a core's own cache over that of the others, candidates: an L2 gives a core up to four times what an
/// L3 does (64 and some 16 bytes a cycle), where arithmetic is not in the way.
constexpr std::array kNearFactors = {1.0, 1.5, 2.0, 3.0, 4.0, 6.0};
constexpr double kCachePays = 0.9;          // of the mean error: what a second price of bytes has to save

/// Rows of equal work become one: a layer more of the same shape is no further evidence of the formula.
std::vector<RoleRow> merged(const std::vector<RoleRow>& rows) {
    std::map<std::tuple<std::string_view, double, double, double, double>, RoleRow> by_work;
    for (const RoleRow& row : rows) {
        const sim::KernelWork& work = row.fit.work;
        // Contexts and experts differ a little from layer to layer and round to round: three digits tell them apart.
        const auto digits = [](double value) { return value > 0 ? std::round(std::log(value) * 200) : 0.0; };
        const double near = std::round(work.near_share * 50);
        auto [at, fresh] = by_work.try_emplace({row.role, work.m, digits(work.bytes), digits(work.flops), near}, row);
        if (fresh) continue;
        RoleRow& sum = at->second;
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
    std::vector<RoleRow> out;
    for (auto& [key, row] : by_work) out.push_back(std::move(row));
    return out;
}

std::vector<FitRow> fit_rows(const std::vector<RoleRow>& rows) {
    std::vector<FitRow> out;
    for (const RoleRow& row : rows) out.push_back(row.fit);
    return out;
}

double mean_error(const std::vector<double>& errors) {
    double sum = 0;
    for (const double error : errors) sum += std::min(0.5, std::abs(error));
    return errors.empty() ? 0 : sum / static_cast<double>(errors.size());
}

/// The fit, with bytes of two prices where that explains the rows better: sizes of cache and factors are searched.
Expected<KernelFit> fit_with_cache(const std::vector<RoleRow>& rows, const RoleFitting& how) {
    const FitShape& shape = how.shape;
    const model::GpuSpec& gpu = how.gpu;
    const double peak = how.peak_tflops;
    auto best = fit_kernel(fit_rows(rows), shape, gpu, peak);
    if (!best || !how.searches_caches) return best;
    double least = kCachePays * mean_error(best->left_out_error);
    double most_bytes = 0;
    for (const RoleRow& row : rows) most_bytes = std::max(most_bytes, row.fit.work.bytes);
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

Rows rows_where(const Rows& rows, const std::function<bool(const RoleRow&)>& wanted) {
    Rows out;
    std::copy_if(rows.begin(), rows.end(), std::back_inserter(out), wanted);
    return out;
}

/// Corrections by m over what constants say without any: medians of log(measured / predicted) of equal m, drawn towards 1 by one
/// measurement's worth of doubt.
std::vector<sim::ResidualPoint> corrections(sim::KernelConstants constants, const Rows& rows) {
    constants.residuals.clear();
    std::map<double, std::vector<double>> logs;
    for (const RoleRow& row : rows) logs[row.fit.work.m].push_back(std::log(row.fit.us / sim::kernel_us(constants, row.fit.work)));
    std::vector<sim::ResidualPoint> points;
    for (const auto& [m, of_m] : logs) {
        const double n = static_cast<double>(of_m.size());
        points.push_back({std::log2(m), std::clamp(std::exp(median_of(of_m) * n / (n + 1)), kLeastFactor, kMostFactor)});
    }
    return points;
}

/// log(predicted / measured) of each row. A row between the smallest and the largest m is predicted by its neighbours in m: a
/// shape that nobody measured.
std::vector<double> errors_of(const sim::KernelConstants& constants, const Rows& rows) {
    std::vector<double> errors;
    for (const RoleRow& row : rows) {
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

void add_entry(const RoleFitting& how, const std::string& key, sim::KernelConstants constants, const Rows& rows, const std::string& source,
               RoleFits& out) {
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
    constants.head_tile = how.head_tile;
    constants.points = static_cast<int>(rows.size());
    constants.source = source;
    constants.coverage = sim::Coverage::measured;
    TableFit table;
    table.table = how.table;
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
        for (const RoleRow& row : rows) sum += std::abs(std::log(sim::kernel_us(warm, row.fit.work) / row.fit.us));
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


/// Fitted alone or with the others of its kind; nothing: too few rows.
sim::KernelConstants constants_of_role(const RoleFitting& how, std::string_view role, const Rows& own, const Rows& distinct,
                                       const KernelFit& pooled) {
    std::vector<double> errors;
    for (std::size_t i = 0; i < distinct.size(); ++i) {
        if (distinct[i].role == role) errors.push_back(pooled.left_out_error[i]);
    }
    Rows own_distinct = merged(own);
    if (own_distinct.size() < kMinFitRows) own_distinct = own;
    auto apart = fit_with_cache(own_distinct, how);
    const double bar = apart ? kRolePooling * mean_error(apart->left_out_error) + kRoleTolerance : 0;
    if (!apart || (!errors.empty() && mean_error(errors) <= bar)) return pooled.constants;
    apart->constants.warm_bandwidth_gb_s = 0;
    return apart->constants;
}

}  // namespace

void fit_roles(const RoleFitting& how, const std::vector<RoleRow>& all, RoleFits& out) {
    const auto has_own = [&](model::Pass pass) {
        return std::find(how.own_caches.begin(), how.own_caches.end(), pass) != how.own_caches.end();
    };
    const auto cold_of = [&](const Rows& rows) {
        Rows cold = rows_where(rows, [&](const RoleRow& row) { return !row.warm && !has_own(row.pass); });
        if (merged(cold).size() < kMinFitRows) {
            cold = rows_where(rows, [](const RoleRow& row) { return !row.warm && row.pass != model::Pass::draft; });
        }
        return cold.empty() ? rows : cold;
    };
    const auto bar = how.group.find('/');
    const std::string subkind = how.group.substr(0, bar);
    const std::string format = how.group.substr(bar);
    const Rows cold = cold_of(all);
    Rows distinct = merged(cold);
    if (distinct.size() < kMinFitRows) distinct = cold;
    auto pooled = fit_with_cache(distinct, how);
    if (!pooled) {
        out.notes.push_back(fmt::format("{}/{} is left out: {}", how.group, how.implementation(model::Pass::verify),
                                        pooled.error().to_text()));
        return;
    }
    pooled->constants.warm_bandwidth_gb_s = 0;
    std::set<std::string_view> roles;
    for (const RoleRow& row : all) roles.insert(row.role);
    for (const std::string_view role : roles) {
        const auto role_key = [&](model::Pass pass) {
            return fmt::format("{}@{}{}/{}", subkind, role, format, how.implementation(pass));
        };
        const Rows of_role = rows_where(all, [&](const RoleRow& row) { return row.role == role; });
        const Rows own = cold_of(of_role);
        sim::KernelConstants constants =
            roles.size() > 1 ? constants_of_role(how, role, own, distinct, *pooled) : pooled->constants;
        constants.floor_us = 0;
        if (how.shape.residuals) constants.residuals = corrections(constants, own);
        add_entry(how, role_key(model::Pass::verify), constants, own, how.source + ", this role alone", out);
        for (const model::Pass pass : how.own_caches) {
            const Rows warm = rows_where(of_role, [&](const RoleRow& row) { return row.pass == pass; });
            if (warm.empty()) continue;
            add_entry(how, role_key(pass), warm_constants(constants, warm), warm,
                      fmt::format("{}, this role in {} passes", how.source, to_name(pass)), out);
        }
    }
    add_entry(how, fmt::format("{}/{}", how.group, how.implementation(model::Pass::verify)), pooled->constants, cold, how.source, out);
}

}  // namespace draftboard::calibration
