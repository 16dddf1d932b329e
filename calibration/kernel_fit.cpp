// SPDX-License-Identifier: Apache-2.0
#include "calibration/kernel_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>

#include <fmt/format.h>

#include "calibration/nnls.h"

namespace draftboard::calibration {

namespace {

using model::ErrorCode;
using model::Expected;
using model::fail;

constexpr std::size_t kUnknowns = 6;
using Unknowns = std::array<double, kUnknowns>;  // fixed, per_item, serial, 1/cold, 1/warm, 1/rate
constexpr int kIterations = 30;
constexpr int kFolds = 5;
constexpr double kWarmBelow = 0.8;  // of L2: the rest of it holds activations and other kernels' data
constexpr double kColdAbove = 1.2;  // LRU keeps next to nothing of a loop that is a fifth larger

// One row in the units of the unknowns: us, items, 1024 of length, MB and GFLOP.
struct Sample {
    double items = 0;
    double length = 0;
    double megabytes = 0;
    double gflop = 0;
    double us = 0;
    double m = 1;
    double l2_share = 0;  // resident bytes / L2
    double samples = 1;
};

struct Settings {
    FitShape shape;
    double l2_bytes = 0;
    double least_us_per_mb = 0;     // 1 / datasheet bandwidth
    double least_us_per_gflop = 0;  // 1 / datasheet rate
    int copies = 1;
    double serial_limit = 0;  // in 1024 of length
};

Residence residence_of(const Sample& sample, int copies) {
    const double share = sample.l2_share * copies;
    if (share < kWarmBelow) return Residence::warm;
    return share > kColdAbove ? Residence::cold : Residence::between;
}

double loop_of(const Sample& sample, const Settings& settings) {
    return settings.serial_limit > 0 ? std::min(sample.length, settings.serial_limit) : sample.length;
}

double predict(const Sample& sample, const Unknowns& x, const Settings& settings, bool warm) {
    return x[0] + x[1] * sample.items +
           std::hypot(x[2] * loop_of(sample, settings), x[warm ? 4 : 3] * sample.megabytes,
                      x[5] * sample.gflop);
}

// Where the data can't tell an unknown it starts and stays near these: a third of the smallest time for
// what is fixed, 80 % of the datasheet's bandwidth, three times that for L2, a third of the rate.
Unknowns start_of(const std::vector<Sample>& samples, const Settings& settings) {
    double smallest = samples.front().us;
    for (const Sample& sample : samples) smallest = std::min(smallest, sample.us);
    return {smallest / 3,
            settings.shape.items ? 0.1 : 0.0,
            settings.shape.serial ? smallest / 6 : 0.0,
            settings.least_us_per_mb / 0.8,
            settings.least_us_per_mb / 2.4,
            settings.shape.flops ? 3 * settings.least_us_per_gflop : 0.0};
}

// The core loop: linearise (the time is homogeneous of degree one in x, so t = J x), weight, solve, damp.
Unknowns fit(const std::vector<Sample>& samples, const std::vector<char>& used, const Settings& settings) {
    const Unknowns start = start_of(samples, settings);
    const Unknowns least = {0, 0, 0, settings.least_us_per_mb, settings.least_us_per_mb / 10,
                            settings.shape.flops ? settings.least_us_per_gflop : 0};
    Unknowns x = start;
    std::vector<double> matrix;
    std::vector<double> right;
    std::vector<double> errors;
    for (int iteration = 0; iteration < kIterations; ++iteration) {
        errors.clear();
        for (std::size_t i = 0; i < samples.size(); ++i) {
            if (used[i] == 0) continue;
            const bool warm = residence_of(samples[i], settings.copies) == Residence::warm;
            errors.push_back(std::abs(predict(samples[i], x, settings, warm) / samples[i].us - 1));
        }
        auto sorted = errors;
        std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2),
                         sorted.end());
        const double turn = 1.5 * sorted[sorted.size() / 2] + 0.01;

        matrix.clear();
        right.clear();
        std::size_t row = 0;
        for (std::size_t i = 0; i < samples.size(); ++i) {
            if (used[i] == 0) continue;
            const Sample& sample = samples[i];
            const double error = errors[row++];
            const double weight = std::sqrt(std::min(1.0, turn / std::max(error, 1e-12))) / sample.us;
            const bool warm = residence_of(sample, settings.copies) == Residence::warm;
            const std::size_t bandwidth = warm ? 4 : 3;
            // A term at zero has no slope and could never come back: it is linearised a little above.
            const auto at = [&](std::size_t j) { return std::max(x[j], 1e-4 * start[j]); };
            const double serial = loop_of(sample, settings) * at(2);
            const double bytes = sample.megabytes * at(bandwidth);
            const double flops = sample.gflop * at(5);
            const double root = std::hypot(serial, bytes, flops) + 1e-12;
            std::array<double, kUnknowns> slope = {};
            slope[0] = 1;
            slope[1] = sample.items;
            slope[2] = serial / root * loop_of(sample, settings);
            slope[bandwidth] = bytes / root * sample.megabytes;
            slope[5] = flops / root * sample.gflop;
            double target = sample.us;
            for (std::size_t j = 0; j < kUnknowns; ++j) {
                target -= slope[j] * least[j];  // unknowns are least + something non-negative
                matrix.push_back(slope[j] * weight);
            }
            right.push_back(target * weight);
        }
        const auto solved = solve_nnls(matrix, right, kUnknowns);
        if (!solved) break;  // figures were checked to be finite; keep what there is
        for (std::size_t j = 0; j < kUnknowns; ++j) {
            x[j] = 0.5 * x[j] + 0.5 * ((*solved)[j] + least[j]);
        }
    }
    return x;
}

// Corrections by m: the median of measured / predicted over cold rows of equal m, drawn towards 1 by one
// measurement's worth of doubt; only where at least two measurements stand behind it.
std::vector<sim::ResidualPoint> residuals_of(const std::vector<Sample>& samples,
                                             const std::vector<char>& used, const Unknowns& x,
                                             const Settings& settings) {
    std::map<double, std::vector<double>> ratios;
    std::map<double, double> counts;
    for (std::size_t i = 0; i < samples.size(); ++i) {
        if (used[i] == 0 || residence_of(samples[i], settings.copies) != Residence::cold) continue;
        ratios[samples[i].m].push_back(
            std::log(samples[i].us / predict(samples[i], x, settings, false)));
        counts[samples[i].m] += samples[i].samples;
    }
    std::vector<sim::ResidualPoint> points;
    for (auto& [m, logs] : ratios) {
        const double n = counts[m];
        if (n < 2) continue;
        const auto middle = logs.begin() + static_cast<std::ptrdiff_t>(logs.size() / 2);
        std::nth_element(logs.begin(), middle, logs.end());
        points.push_back({std::log2(m), std::exp(*middle * n / (n + 1))});
    }
    return points;
}

sim::KernelConstants constants_of(const Unknowns& x, const Settings& settings) {
    sim::KernelConstants constants;
    constants.fixed_us = x[0];
    constants.per_item_us = x[1];
    constants.serial_us = x[2];
    constants.serial_limit = settings.serial_limit * 1024;
    constants.bandwidth_gb_s = 1e3 / x[3];
    constants.warm_bandwidth_gb_s = x[4] > 0 ? 1e3 / x[4] : 0;
    constants.rate_tflops = x[5] > 0 ? 1e3 / x[5] : 0;
    return constants;
}

double error_of(const sim::KernelConstants& constants, const FitRow& row, bool warm) {
    return sim::kernel_us(constants, row.work, warm) / row.us - 1;
}

// How badly settings explain the rows: mean |error|, each at most 0.5. Rows between warm and cold
// count only as far as they lie outside of the two.
double loss_of(const std::vector<Sample>& samples, const std::vector<char>& used,
               const Settings& settings) {
    std::vector<char> fitted = used;
    for (std::size_t i = 0; i < samples.size(); ++i) {
        if (residence_of(samples[i], settings.copies) == Residence::between) fitted[i] = 0;
    }
    if (std::count(fitted.begin(), fitted.end(), 1) < static_cast<std::ptrdiff_t>(kMinFitRows)) return 1;
    const Unknowns x = fit(samples, fitted, settings);
    double sum = 0;
    double count = 0;
    for (std::size_t i = 0; i < samples.size(); ++i) {
        if (used[i] == 0) continue;
        const double cold = std::log(predict(samples[i], x, settings, false) / samples[i].us);
        const double warm = std::log(predict(samples[i], x, settings, true) / samples[i].us);
        double error = std::abs(cold);
        switch (residence_of(samples[i], settings.copies)) {
            case Residence::cold: break;
            case Residence::warm: error = std::abs(warm); break;
            case Residence::between:
                error = cold * warm < 0 ? 0 : std::min(std::abs(cold), std::abs(warm));
                break;
        }
        sum += std::min(error, 0.5);
        count += 1;
    }
    return sum / count;
}

}  // namespace

ErrorSummary summarize(std::vector<double> errors) {
    ErrorSummary summary;
    if (errors.empty()) return summary;
    const auto quantile = [](std::vector<double>& values, double q) {
        const auto at = values.begin() + static_cast<std::ptrdiff_t>(
                                             q * static_cast<double>(values.size() - 1) + 0.5);
        std::nth_element(values.begin(), at, values.end());
        return *at;
    };
    summary.rows = static_cast<int>(errors.size());
    summary.bias = quantile(errors, 0.5);
    for (double& error : errors) error = std::abs(error);
    summary.median = quantile(errors, 0.5);
    summary.p90 = quantile(errors, 0.9);
    summary.worst = *std::max_element(errors.begin(), errors.end());
    return summary;
}

Expected<KernelFit> fit_kernel(const std::vector<FitRow>& rows, const FitShape& shape,
                               const model::GpuSpec& gpu, double peak_tflops) {
    if (rows.size() < kMinFitRows) {
        return fail(ErrorCode::invalid_input,
                    fmt::format("{} rows are too few to fit a kernel", rows.size()), {},
                    fmt::format("at least {} are needed", kMinFitRows));
    }
    if (!(gpu.memory_gb_s > 0) || !(gpu.l2_bytes > 0) || !std::isfinite(gpu.memory_gb_s) ||
        !std::isfinite(gpu.l2_bytes)) {
        return fail(ErrorCode::invalid_input, "the GPU's memory bandwidth and L2 size must be known", gpu.name);
    }
    Settings settings;
    settings.shape = shape;
    settings.l2_bytes = gpu.l2_bytes;
    settings.least_us_per_mb = 1e3 / gpu.memory_gb_s;
    settings.shape.flops = shape.flops && peak_tflops > 0 && std::isfinite(peak_tflops);
    settings.least_us_per_gflop = settings.shape.flops ? 1e3 / peak_tflops : 0;

    std::vector<Sample> samples;
    samples.reserve(rows.size());
    for (const FitRow& row : rows) {
        const sim::KernelWork& work = row.work;
        const bool sound = row.us > 0 && std::isfinite(row.us + work.items + work.length + work.bytes +
                                                       work.flops + work.m + row.resident_bytes);
        if (!sound) return fail(ErrorCode::invalid_input, "a row has a time or size that is no positive number");
        samples.push_back({shape.items ? work.items : 0, shape.serial ? work.length / 1024 : 0,
                           work.bytes * 1e-6, settings.shape.flops ? work.flops * 1e-9 : 0, row.us, work.m,
                           row.resident_bytes / gpu.l2_bytes, row.samples});
    }

    // Settings are searched one after the other, each at the best of the others; with one candidate there is no search.
    const std::vector<char> all(samples.size(), 1);
    if (shape.copies.size() * shape.serial_limits.size() > 1) {
        double least = loss_of(samples, all, settings);
        for (int round = 0; round < 2; ++round) {
            for (const int copies : shape.copies) {
                Settings trial = settings;
                trial.copies = copies;
                const double loss = loss_of(samples, all, trial);
                if (loss < least) {
                    least = loss;
                    settings = trial;
                }
            }
            for (const double limit : shape.serial_limits) {
                Settings trial = settings;
                trial.serial_limit = limit / 1024;
                const double loss = loss_of(samples, all, trial);
                if (loss < least) {
                    least = loss;
                    settings = trial;
                }
            }
        }
    } else {
        settings.copies = shape.copies.front();
        settings.serial_limit = shape.serial_limits.front() / 1024;
    }

    KernelFit result;
    result.copies = settings.copies;
    std::vector<char> used(samples.size(), 1);
    for (std::size_t i = 0; i < samples.size(); ++i) {
        result.residence.push_back(residence_of(samples[i], settings.copies));
        if (result.residence[i] == Residence::between) used[i] = 0;
    }
    if (std::count(used.begin(), used.end(), 1) < static_cast<std::ptrdiff_t>(kMinFitRows)) {
        return fail(ErrorCode::invalid_input, "too few rows are clearly inside or outside of L2", {},
                    "measure sizes well above and well below the L2 size");
    }
    const auto fitted = [&](const std::vector<char>& rows_used) {
        const Unknowns x = fit(samples, rows_used, settings);
        auto constants = constants_of(x, settings);
        if (shape.residuals) constants.residuals = residuals_of(samples, rows_used, x, settings);
        return constants;
    };
    result.left_out_error.assign(samples.size(), 0);
    for (int fold = 0; fold < kFolds; ++fold) {
        std::vector<char> others = used;
        for (std::size_t i = 0; i < samples.size(); ++i) {
            if (static_cast<int>(i % kFolds) == fold) others[i] = 0;
        }
        const auto constants = fitted(others);
        for (std::size_t i = 0; i < samples.size(); ++i) {
            if (static_cast<int>(i % kFolds) != fold) continue;
            result.left_out_error[i] =
                error_of(constants, rows[i], result.residence[i] == Residence::warm);
        }
    }

    result.constants = fitted(used);
    sim::KernelConstants& constants = result.constants;
    double squares = 0;
    int cold = 0;
    constants.m_low = samples.front().m;
    constants.m_high = samples.front().m;
    constants.floor_us = samples.front().us;
    for (std::size_t i = 0; i < samples.size(); ++i) {
        constants.m_low = std::min(constants.m_low, samples[i].m);
        constants.m_high = std::max(constants.m_high, samples[i].m);
        constants.floor_us = std::min(constants.floor_us, samples[i].us);
        if (result.residence[i] != Residence::cold) continue;
        const double log_error = std::log1p(std::max(-0.95, result.left_out_error[i]));
        squares += log_error * log_error;
        ++cold;
    }
    constants.points = static_cast<int>(samples.size());
    // Without cold rows the bandwidth is the datasheet's and nothing has tested it.
    constants.relative_error = cold > 0 ? std::max(0.01, std::sqrt(squares / cold)) : 0.3;
    constants.coverage = cold > 0 ? sim::Coverage::interpolated : sim::Coverage::extrapolated;
    return result;
}

}  // namespace draftboard::calibration
