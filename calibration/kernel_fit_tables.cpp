// SPDX-License-Identifier: Apache-2.0
// Which rows are fitted together, under which key, and what stands in where nothing was measured.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "calibration/kernel_fit.h"

namespace draftboard::calibration {

namespace {

using model::Expected;
using model::GpuSpec;
using model::NumberFormat;
using model::OperationKind;

// Pooling engines may cost a table this much of its own mean error.
constexpr double kPoolingFactor = 1.15;

FitShape shape_of(OperationKind kind) {
    FitShape shape;
    switch (kind) {
        case OperationKind::experts:
            shape.items = true;
            shape.serial = true;
            break;
        case OperationKind::gemm:
            shape.serial = true;
            shape.copies = {1, 2, 3, 4, 6, 8};
            shape.serial_limits = {0, 512, 1024, 2048, 4096, 8192};
            break;
        case OperationKind::attention:
            shape.items = true;
            shape.serial = true;
            shape.residuals = false;
            shape.serial_limits = {0, 2048, 4096, 8192, 16384, 32768};
            break;
        default:
            shape.flops = false;
            shape.residuals = false;
            break;
    }
    return shape;
}

double peak_tflops(NumberFormat format, const GpuSpec& gpu) {
    switch (format) {
        case NumberFormat::fp8_e4m3:
        case NumberFormat::int8: return gpu.fp8_tflops > 0 ? gpu.fp8_tflops : gpu.bf16_tflops;
        case NumberFormat::nvfp4: return gpu.fp4_tflops > 0 ? gpu.fp4_tflops : gpu.bf16_tflops;
        default: return gpu.bf16_tflops;  // weight-only formats multiply in bf16
    }
}

struct Group {
    std::vector<std::size_t> rows;  // into the measurements
};

struct Fitted {
    KernelFit fit;
    std::vector<std::size_t> rows;
};

Expected<Fitted> fit_rows(const KernelMeasurements& measurements, std::vector<std::size_t> rows,
                          const GpuSpec& gpu) {
    std::vector<FitRow> samples;
    for (const std::size_t at : rows) {
        const KernelMeasurement& one = measurements.rows[at];
        samples.push_back({sim::kernel_work(one.operation), one.resident_bytes, one.us, 0});
    }
    const auto& first = measurements.rows[rows.front()].operation;
    auto fit = fit_kernel(samples, shape_of(first.kind), gpu,
                          peak_tflops(first.weight_format.format, gpu));
    if (!fit) return tl::unexpected(fit.error());
    return Fitted{std::move(*fit), std::move(rows)};
}

// How far one engine's rows are met by a fit: mean |leave-out error|, each at most 0.5.
double mean_error(const KernelMeasurements& measurements, const Fitted& fitted, const std::string& engine) {
    double sum = 0;
    double count = 0;
    for (std::size_t i = 0; i < fitted.rows.size(); ++i) {
        if (measurements.rows[fitted.rows[i]].engine != engine) continue;
        if (fitted.fit.residence[i] == Residence::between) continue;
        sum += std::min(0.5, std::abs(fitted.fit.left_out_error[i]));
        count += 1;
    }
    return count > 0 ? sum / count : 0;
}

void report_tables(const KernelMeasurements& measurements, const Fitted& fitted, const sim::KernelKey& key,
                   bool pooled, FitReport& report) {
    std::map<std::string, std::vector<std::size_t>> tables;
    for (std::size_t i = 0; i < fitted.rows.size(); ++i) {
        tables[measurements.rows[fitted.rows[i]].table].push_back(i);
    }
    for (const auto& [name, members] : tables) {
        TableFit table;
        table.table = name;
        table.key = key;
        table.pooled = pooled;
        table.rows = static_cast<int>(members.size());
        table.copies = fitted.fit.copies;
        std::vector<double> cold;
        std::vector<double> warm;
        std::map<double, std::vector<double>> by_m;
        double worst = -1;
        for (const std::size_t i : members) {
            const KernelMeasurement& one = measurements.rows[fitted.rows[i]];
            const double error = fitted.fit.left_out_error[i];
            switch (fitted.fit.residence[i]) {
                case Residence::between: ++table.between; continue;
                case Residence::warm: warm.push_back(error); break;
                case Residence::cold:
                    cold.push_back(error);
                    by_m[static_cast<double>(one.operation.m)].push_back(error);
                    break;
            }
            if (std::abs(error) > worst) {
                worst = std::abs(error);
                table.worst_row = fmt::format("{} (line {}): measured {:.1f} us, predicted {:.1f}", one.shape,
                                              one.line, one.us, one.us * (1 + error));
            }
        }
        table.cold = static_cast<int>(cold.size());
        table.warm = static_cast<int>(warm.size());
        std::vector<double> both = cold;
        both.insert(both.end(), warm.begin(), warm.end());
        table.all_errors = summarize(std::move(both));
        table.cold_errors = summarize(std::move(cold));
        table.warm_errors = summarize(std::move(warm));
        for (auto& [m, errors] : by_m) table.cold_by_m.push_back({m, summarize(std::move(errors))});
        report.tables.push_back(std::move(table));
    }
}

void add_entry(const KernelMeasurements& measurements, Fitted fitted, const sim::KernelKey& key, bool pooled,
               FitReport& report) {
    std::set<std::string> sources;
    for (const std::size_t at : fitted.rows) sources.insert(measurements.rows[at].table);
    fitted.fit.constants.source = fmt::format("fit to {}", fmt::join(sources, "; "));
    report_tables(measurements, fitted, key, pooled, report);
    report.kernels.entries[key] = std::move(fitted.fit.constants);
}

// What no table measures: kernels that move little and compute little. They take the time of the smallest kernel that was
// measured; how many kernels each is made of is as in sim::datasheet_kernels().
void add_small_kernels(double smallest_us, double bandwidth_gb_s, FitReport& report) {
    if (!(smallest_us > 0) || !(bandwidth_gb_s > 0)) return;
    const std::map<std::string, int> kernels = {
        {"batched_gemm", 1}, {"norm", 1},   {"elementwise", 1}, {"router", 1},
        {"embedding", 1},    {"sample", 2}, {"accept", 1},      {"copy", 1}};
    for (const auto& [name, count] : kernels) {
        sim::KernelConstants constants;
        constants.fixed_us = count * smallest_us;
        constants.bandwidth_gb_s = bandwidth_gb_s;
        constants.relative_error = 0.4;  // own judgement: kernels of this size are measured between 1.5 and 3 us
        constants.coverage = sim::Coverage::extrapolated;
        constants.source = fmt::format(
            "not measured: {} kernel(s) of {:.2f} us, the median of the fastest tenth of bf16 GEMMs, and their bandwidth", 
            count, smallest_us);
        report.kernels.entries[name + "/any/any"] = constants;
    }
    report.notes.push_back(fmt::format("batched_gemm, norm, elementwise, router, embedding, sample, accept and copy are not "
                                       "measured; they take {:.2f} us a kernel", smallest_us));
}

}  // namespace

Expected<FitReport> fit_kernel_measurements(const KernelMeasurements& measurements, const GpuSpec& gpu) {
    FitReport report;
    report.notes = measurements.notes;
    // subkind/format/implementation -> engine -> rows; maps, so that the order is the same every time.
    std::map<std::string, std::map<std::string, std::vector<std::size_t>>> groups;
    for (std::size_t i = 0; i < measurements.rows.size(); ++i) {
        const KernelMeasurement& one = measurements.rows[i];
        auto kind = sim::kernel_subkind(one.operation);
        if (one.operation.kind == OperationKind::delta_net) kind = "delta_net/any";
        groups[kind + "/" + one.implementation][one.engine].push_back(i);
    }
    for (const auto& [key, engines] : groups) {
        std::map<std::string, Fitted> apart;
        std::vector<std::size_t> all;
        for (const auto& [engine, rows] : engines) {
            auto fitted = fit_rows(measurements, rows, gpu);
            if (!fitted) {
                report.notes.push_back(fmt::format("{} ({}) is left out: {}", key,
                                                   engine.empty() ? "one engine" : engine,
                                                   fitted.error().to_text()));
                continue;
            }
            all.insert(all.end(), rows.begin(), rows.end());
            apart.emplace(engine, std::move(*fitted));
        }
        if (apart.size() <= 1) {
            for (auto& [engine, fitted] : apart) add_entry(measurements, std::move(fitted), key, false, report);
            continue;
        }
        std::sort(all.begin(), all.end());
        auto pooled = fit_rows(measurements, std::move(all), gpu);
        bool pool = pooled.has_value();
        for (const auto& [engine, fitted] : apart) {
            if (!pool) break;
            const double own = mean_error(measurements, fitted, engine);
            const double together = mean_error(measurements, *pooled, engine);
            if (together > kPoolingFactor * own) pool = false;
        }
        if (pool) {
            add_entry(measurements, std::move(*pooled), key, true, report);
        } else {
            for (auto& [engine, fitted] : apart) {
                add_entry(measurements, std::move(fitted), key + "@" + engine, false, report);
            }
        }
    }
    if (report.kernels.entries.empty()) {
        return model::fail(model::ErrorCode::invalid_input, "no kernel could be fitted", {},
                           report.notes.empty() ? "" : report.notes.back());
    }

    const auto gemm = report.kernels.entries.find("gemm/bf16/torch");
    if (gemm != report.kernels.entries.end()) {
        std::vector<double> times;
        for (const auto& one : measurements.rows) {
            if (one.operation.kind == OperationKind::gemm &&
                one.operation.weight_format.format == NumberFormat::bf16) {
                times.push_back(one.us);
            }
        }
        std::sort(times.begin(), times.end());
        add_small_kernels(times[times.size() / 20], gemm->second.bandwidth_gb_s, report);
    }
    report.kernels.source = fmt::format("fit to {} measured kernel times", measurements.rows.size());
    return report;
}

Expected<FitReport> fit_kernel_tables(const std::vector<std::string>& csv_paths, const GpuSpec& gpu,
                                      const std::vector<std::string>& systems) {
    KernelMeasurements all;
    for (const auto& path : csv_paths) {
        auto part = read_kernel_measurements(path, systems);
        if (!part) return tl::unexpected(part.error());
        all.rows.insert(all.rows.end(), std::make_move_iterator(part->rows.begin()),
                        std::make_move_iterator(part->rows.end()));
        all.notes.insert(all.notes.end(), part->notes.begin(), part->notes.end());
    }
    return fit_kernel_measurements(all, gpu);
}

int add_scaled_kernels(sim::KernelTable& kernels, const sim::KernelTable& from, const GpuSpec& from_gpu,
                       const GpuSpec& to_gpu) {
    constexpr double kMovedError = 0.3;  // as for datasheet figures, which this rests on
    int added = 0;
    for (const auto& [key, source] : from.entries) {
        const auto parts = sim::parse_kernel_key(key);
        if (!parts) continue;
        if (parts->format.rfind("nvfp4", 0) == 0 && !(to_gpu.fp4_tflops > 0)) continue;
        // An own measurement of the same kind and format, whatever its implementation, is worth more.
        const std::string prefix = parts->subkind + "/" + parts->format + "/";
        const auto near = kernels.entries.lower_bound(prefix);
        if (near != kernels.entries.end() && near->first.rfind(prefix, 0) == 0 &&
            near->second.coverage != sim::Coverage::datasheet) {
            continue;
        }
        if (!(from_gpu.memory_gb_s > 0) || !(from_gpu.bf16_tflops > 0)) continue;
        const auto format = model::number_format_from_name(parts->format.substr(0, parts->format.find('_')));
        const NumberFormat number = format.value_or(NumberFormat::bf16);
        const double bandwidth = to_gpu.memory_gb_s / from_gpu.memory_gb_s;
        const double rate = peak_tflops(number, to_gpu) / peak_tflops(number, from_gpu);
        sim::KernelConstants moved = source;
        moved.bandwidth_gb_s *= bandwidth;
        moved.warm_bandwidth_gb_s = 0;
        moved.rate_tflops *= rate;
        moved.residuals.clear();
        moved.points = 0;
        moved.relative_error = std::hypot(source.relative_error, kMovedError);
        moved.coverage = sim::Coverage::datasheet;
        moved.source = fmt::format("not measured here: {} of {}, bandwidth x {:.3f} and rate x {:.3f} by datasheet",
                                   key, from_gpu.name, bandwidth, rate);
        kernels.entries[key] = std::move(moved);
        ++added;
    }
    return added;
}

}  // namespace draftboard::calibration
