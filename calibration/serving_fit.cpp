// SPDX-License-Identifier: Apache-2.0
#include "calibration/serving_fit.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <Eigen/LU>

namespace draftboard::calibration {

using model::ErrorCode;
using model::Expected;

namespace {

constexpr double kCycleSigma = 0.03;   // of log cycle: what windows and batch sizes scatter by
constexpr double kHostPrior = 0.5;     // of the constant itself
constexpr double kFactorPrior = 0.15;  // of log f
constexpr double kHostStep = 0.05;     // for differences, of the constant
constexpr double kFactorStep = 0.02;
constexpr int kRounds = 6;
constexpr const char* kFactorName = "kernels x";

struct Point {
    double host_us = 0;
    double log_factor = 0;
};

/// Predicted over measured for all batch sizes of all logs.
class Cycles {
 public:
    Cycles(const std::vector<ServingLog>& logs, const ServingFitOptions& options, std::string engine, std::string host)
        : logs_(logs), options_(options), engine_(std::move(engine)), host_(std::move(host)) {}

    Expected<std::vector<ServingResidual>> at(const Point& point, std::vector<std::string>& notes) const {
        sim::CostConstants constants = options_.constants;
        constants.kernels = scaled_kernels(std::move(constants.kernels), std::exp(point.log_factor));
        constants.engines[engine_][host_] = point.host_us;
        std::vector<ServingResidual> out;
        for (const ServingLog& log : logs_) {
            ServingValidationOptions asked;
            asked.scenario = options_.scenario;
            asked.edits = options_.edits;
            asked.data_directory = options_.data_directory;
            asked.constants = &constants;
            auto validation = validate_serving_log(log, asked);
            if (!validation) return tl::unexpected(validation.error());
            for (const ServingComparison& one : validation->comparisons) {
                out.push_back({log.name, one.sequences, one.measured_cycle_ms, 0, one.predicted_cycle_ms});
            }
            for (std::string& text : validation->assumptions) {
                if (std::find(notes.begin(), notes.end(), text) == notes.end()) notes.push_back(std::move(text));
            }
        }
        return out;
    }

 private:
    const std::vector<ServingLog>& logs_;
    const ServingFitOptions& options_;
    std::string engine_;
    std::string host_;
};

Eigen::VectorXd logs_of(const std::vector<ServingResidual>& rows) {
    Eigen::VectorXd out(static_cast<Eigen::Index>(rows.size()));
    for (std::size_t i = 0; i < rows.size(); ++i)
        out[static_cast<Eigen::Index>(i)] = std::log(rows[i].fitted_ms / rows[i].measured_cycle_ms);
    return out;
}

bool speculates(const ServingLog& log) {
    return std::any_of(log.samples.begin(), log.samples.end(),
                       [](const ServingSample& sample) { return sample.acceptance_length > 0; });
}

}  // namespace

sim::KernelTable scaled_kernels(sim::KernelTable table, double factor) {
    if (factor == 1) return table;
    for (auto& [key, kernel] : table.entries) {
        for (double* us : {&kernel.floor_us, &kernel.fixed_us, &kernel.per_item_us, &kernel.serial_us, &kernel.verify_serial_us})
            *us *= factor;
        for (double* rate : {&kernel.bandwidth_gb_s, &kernel.warm_bandwidth_gb_s, &kernel.rate_tflops}) *rate /= factor;
    }
    return table;
}

double ServingFit::host_us(const std::string& name) const {
    const auto term = std::find_if(terms.begin(), terms.end(), [&](const ServingTerm& one) { return one.name == name; });
    return term != terms.end() && term->determined ? term->value : -1;
}

Expected<ServingFit> fit_serving_logs(const std::vector<ServingLog>& logs, const ServingFitOptions& options) {
    if (logs.empty())
        return model::fail(ErrorCode::invalid_input, "there is no serving log", options.scenario, "give a log of SGLang or vLLM");
    const bool with_drafts = speculates(logs.front());
    for (const ServingLog& log : logs) {
        if (speculates(log) == with_drafts) continue;
        return model::fail(ErrorCode::invalid_input, "one log speculates and another does not",
                           logs.front().name + ", " + log.name,
                           "import them one after the other, the second with --base and the first one's result");
    }
    const auto scenario = model::load_scenario(options.scenario, options.data_directory, options.edits);
    if (!scenario) return tl::unexpected(scenario.error());
    const std::string host = with_drafts ? "host.cycle_us" : "host.step_us";
    const auto before = sim::Predictor(options.constants).host_constants(*scenario);
    if (!before) return tl::unexpected(before.error());
    const Cycles cycles(logs, options, scenario->engine.name, host);
    ServingFit fit;
    fit.engine = scenario->engine.name;

    const auto* info = sim::find_host_constant(host);
    const double start_us = (*before).*(info->field);
    const bool host_free = scenario->constants.count(host) == 0 && !scenario->engine.name.empty();
    const bool factor_free = !options.constants.kernels.entries.empty();
    Point point{start_us, 0};
    auto rows = cycles.at(point, fit.notes);
    if (!rows) return tl::unexpected(rows.error());
    std::vector<double> first;
    for (const ServingResidual& row : *rows) first.push_back(row.fitted_ms);

    // Free parameters in units of what is assumed of them before.
    const double host_width = kHostPrior * std::max(start_us, 1.0);
    Eigen::Matrix2d normal = Eigen::Matrix2d::Identity();
    std::vector<std::string> ignored;
    for (int round = 0; round < kRounds; ++round) {
        const Eigen::VectorXd residuals = logs_of(*rows) / kCycleSigma;
        Eigen::MatrixXd slope = Eigen::MatrixXd::Zero(residuals.size(), 2);
        if (host_free) {
            const auto moved = cycles.at({point.host_us + kHostStep * host_width, point.log_factor}, ignored);
            if (!moved) return tl::unexpected(moved.error());
            slope.col(0) = (logs_of(*moved) / kCycleSigma - residuals) / kHostStep;
        }
        if (factor_free) {
            const auto moved = cycles.at({point.host_us, point.log_factor + kFactorStep}, ignored);
            if (!moved) return tl::unexpected(moved.error());
            slope.col(1) = (logs_of(*moved) / kCycleSigma - residuals) / (kFactorStep / kFactorPrior);
        }
        normal = slope.transpose() * slope + Eigen::Matrix2d::Identity();
        const Eigen::Vector2d off((point.host_us - start_us) / host_width, point.log_factor / kFactorPrior);
        const Eigen::Vector2d step = normal.ldlt().solve(slope.transpose() * residuals + off);
        Point next{std::clamp(point.host_us - step[0] * host_width, info->low, info->high),
                   point.log_factor - step[1] * kFactorPrior};
        if (!host_free) next.host_us = point.host_us;
        const bool settled = std::abs(step[0]) < 1e-3 && std::abs(step[1]) < 1e-3;
        point = next;
        rows = cycles.at(point, ignored);
        if (!rows) return tl::unexpected(rows.error());
        if (settled) break;
    }

    const Eigen::Matrix2d covariance = normal.inverse();
    ServingTerm host_term{host,
                          start_us,
                          point.host_us,
                          std::sqrt(covariance(0, 0)) * host_width,
                          host_free && std::sqrt(covariance(0, 0)) < kDetermined,
                          {}};
    if (!host_free) host_term.why_not = "the scenario sets it";
    ServingTerm factor_term{kFactorName,
                            1,
                            std::exp(point.log_factor),
                            std::sqrt(covariance(1, 1)) * kFactorPrior,
                            factor_free && std::sqrt(covariance(1, 1)) < kDetermined,
                            {}};
    if (!factor_free) factor_term.why_not = "no kernel is calibrated: datasheet times have no factor";
    // What the data don't determine stays as it was, and the other takes what it can alone.
    if (!host_term.determined) point.host_us = host_term.value = start_us;
    if (!factor_term.determined) point.log_factor = 0, factor_term.value = 1;
    if (host_term.determined != factor_term.determined) {
        const bool of_host = host_term.determined;
        for (int round = 0; round < kRounds; ++round) {
            rows = cycles.at(point, ignored);
            if (!rows) return tl::unexpected(rows.error());
            const double step = of_host ? kHostStep : kFactorStep / kFactorPrior;
            const auto moved = cycles.at(
                {point.host_us + (of_host ? step * host_width : 0), point.log_factor + (of_host ? 0 : kFactorStep)}, ignored);
            if (!moved) return tl::unexpected(moved.error());
            const Eigen::VectorXd residuals = logs_of(*rows) / kCycleSigma;
            const Eigen::VectorXd slope = (logs_of(*moved) / kCycleSigma - residuals) / step;
            const double off = of_host ? (point.host_us - start_us) / host_width : point.log_factor / kFactorPrior;
            const double move = (slope.dot(residuals) + off) / (slope.squaredNorm() + 1);
            if (of_host)
                point.host_us = std::clamp(point.host_us - move * host_width, info->low, info->high);
            else
                point.log_factor -= move * kFactorPrior;
            if (std::abs(move) < 1e-3) break;
        }
        host_term.value = point.host_us;
        factor_term.value = std::exp(point.log_factor);
    }
    fit.kernel_factor = factor_term.value;
    fit.terms = {std::move(host_term), std::move(factor_term)};
    rows = cycles.at(point, ignored);
    if (!rows) return tl::unexpected(rows.error());
    fit.residuals = std::move(*rows);
    for (std::size_t i = 0; i < fit.residuals.size(); ++i) fit.residuals[i].before_ms = first[i];
    std::stable_sort(fit.residuals.begin(), fit.residuals.end(),
                     [](const auto& a, const auto& b) { return std::abs(a.error()) > std::abs(b.error()); });
    return fit;
}

}  // namespace draftboard::calibration
