// SPDX-License-Identifier: Apache-2.0
#include "calibration/collective_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>

#include <fmt/format.h>
#include <Eigen/Cholesky>
#include <Eigen/Core>

namespace draftboard::calibration {

using model::Error;
using model::ErrorCode;
using model::Expected;
using model::fail;
using model::Implementation;
using sim::CollectiveConstants;
using sim::NamedConstant;

namespace {

constexpr double kStep = 1e-3;            // of log(theta), for differences
constexpr double kEnough = 1e-5;          // relative gain of a round that ends the fit
constexpr double kEfficiencyLimit = 1.0;  // no kernel moves more than the link carries
constexpr int kScoutIterations = 8;       // rounds a candidate belief gets before it is judged

struct Row {
    const CollectiveMeasurement* measurement = nullptr;
    Implementation implementation = Implementation::nccl;
    sim::CollectiveRequest request;
};

/// The model's answer to all rows under one set of constants.
class Predictor {
 public:
    Predictor(const model::Machine& machine, const std::vector<Row>& rows)
        : machine_(machine), rows_(rows) {}

    [[nodiscard]] Expected<std::vector<sim::CollectiveTime>> times(
        const CollectiveConstants& constants) const {
        std::map<Implementation, sim::CollectiveModel> models;
        std::vector<sim::CollectiveTime> times;
        times.reserve(rows_.size());
        for (const Row& row : rows_) {
            auto model = models.find(row.implementation);
            if (model == models.end()) {
                model::CollectiveSettings settings;
                settings.implementation = row.implementation;
                settings.pull = true;  // the engines' custom kernels read from their peers
                model = models
                            .emplace(row.implementation,
                                     sim::CollectiveModel(machine_, settings, constants))
                            .first;
            }
            auto time = model->second.time(row.request);
            if (!time) return tl::unexpected(time.error());
            times.push_back(std::move(*time));
        }
        return times;
    }

    /// log(predicted / measured) of each row.
    [[nodiscard]] Expected<Eigen::VectorXd> residuals(const CollectiveConstants& constants) const {
        const auto priced = times(constants);
        if (!priced) return tl::unexpected(priced.error());
        Eigen::VectorXd residuals(static_cast<Eigen::Index>(rows_.size()));
        for (std::size_t i = 0; i < rows_.size(); ++i) {
            const double predicted = std::max(1e-6, sim::to_us((*priced)[i].total));
            residuals[static_cast<Eigen::Index>(i)] =
                std::log(predicted / rows_[i].measurement->latency_us);
        }
        return residuals;
    }

 private:
    const model::Machine& machine_;
    const std::vector<Row>& rows_;
};

bool is_efficiency(const std::string& name) { return name.find("efficiency") != std::string::npos; }

/// Which constants the rows can speak of: those of the transports, protocols and implementations in
/// use.
std::vector<NamedConstant> active_constants(const std::vector<Row>& rows,
                                            const std::vector<sim::CollectiveTime>& times,
                                            bool nvlink) {
    std::set<std::string> in_use;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const sim::CollectiveChoice& choice = times[i].choice;
        if (choice.implementation != Implementation::nccl) {
            in_use.insert({"custom_us", "custom_efficiency"});
            if (rows[i].measurement->gpus > 2) in_use.insert("custom_peer_us");
            if (choice.implementation == Implementation::two_shot) in_use.insert("custom_phase_us");
            continue;
        }
        const std::string transport =
            nvlink ? "nvlink." : (choice.through_host ? "staged." : "peer.");
        const bool exchange = rows[i].request.operation == model::OperationKind::all_to_all;
        if (choice.nvls) {
            in_use.insert({"nvls_us", "nvls_efficiency"});
        } else if (choice.protocol == model::Protocol::ll) {
            in_use.insert(
                {transport + "ll_hop_us", transport + "ll_trip_us", transport + "ll_efficiency"});
            in_use.insert(transport + "ll_ends_us");
            if (!exchange) in_use.insert("kernel_us");
        } else if (choice.protocol == model::Protocol::ll128) {
            in_use.insert({transport + "ll128_hop_us", transport + "ll128_trip_us", "kernel_us"});
        } else {
            in_use.insert({transport + "simple_hop_us", transport + "simple_efficiency"});
            if (!exchange) {
                in_use.insert({transport + "simple_slice_us", transport + "channel_gb_s",
                               "simple_drain", "kernel_us"});
            }
        }
        if (exchange) {
            in_use.insert({"exchange_us", "exchange_peer_us", "exchange_channel_gb_s", "exchange_efficiency"});
        }
    }
    std::vector<NamedConstant> active;
    for (const NamedConstant& constant : sim::named_constants()) {
        if (in_use.count(constant.name) != 0) active.push_back(constant);
    }
    return active;
}

struct Solution {
    CollectiveConstants constants;
    double loss = std::numeric_limits<double>::infinity();
    std::vector<FittedConstant> fitted;
};

class Fitter {
 public:
    Fitter(const Predictor& predictor, std::vector<NamedConstant> active,
           const CollectiveFitOptions& options)
        : predictor_(predictor), active_(std::move(active)), options_(options) {}

    /// Rows with weight 0 are left out.
    [[nodiscard]] Expected<Solution> solve(const CollectiveConstants& start,
                                           const CollectiveConstants& prior,
                                           const Eigen::VectorXd& use, int iterations) const {
        const auto k = static_cast<Eigen::Index>(active_.size());
        Eigen::VectorXd theta(k);
        Eigen::VectorXd center(k);
        for (Eigen::Index i = 0; i < k; ++i) {
            theta[i] = std::log(active_[static_cast<std::size_t>(i)].get(start));
            center[i] = std::log(active_[static_cast<std::size_t>(i)].get(prior));
        }
        Solution best;
        best.constants = start;
        auto residuals = predictor_.residuals(best.constants);
        if (!residuals) return tl::unexpected(residuals.error());
        best.loss = loss(*residuals, use, theta - center);
        double damping = 1e-2;
        Eigen::MatrixXd normal = Eigen::MatrixXd::Identity(k, k);
        for (int iteration = 0; iteration < iterations; ++iteration) {
            // Slopes of all rows by each constant, then one damped Gauss-Newton step on reweighted
            // rows.
            Eigen::MatrixXd slope(residuals->size(), k);
            for (Eigen::Index i = 0; i < k; ++i) {
                Eigen::VectorXd moved = theta;
                moved[i] += kStep;
                const auto there = predictor_.residuals(constants_at(best.constants, moved));
                if (!there) return tl::unexpected(there.error());
                slope.col(i) = (*there - *residuals) / kStep;
            }
            Eigen::VectorXd weights(residuals->size());
            for (Eigen::Index r = 0; r < weights.size(); ++r) {
                const double size = std::abs((*residuals)[r]);
                weights[r] =
                    use[r] * (size <= options_.huber_delta ? 1.0 : options_.huber_delta / size);
            }
            const double prior_weight = prior_weight_of(use);
            normal = slope.transpose() * weights.asDiagonal() * slope;
            normal.diagonal().array() += prior_weight;
            const Eigen::VectorXd gradient = slope.transpose() * weights.asDiagonal() * *residuals +
                                             prior_weight * (theta - center);
            bool improved = false;
            double gain = 0;
            for (int attempt = 0; attempt < 8 && !improved; ++attempt) {
                Eigen::MatrixXd damped = normal;
                damped.diagonal() *= 1 + damping;
                const Eigen::VectorXd step = damped.ldlt().solve(gradient);
                const Eigen::VectorXd next = bounded(theta - step);
                const CollectiveConstants there = constants_at(best.constants, next);
                auto new_residuals = predictor_.residuals(there);
                if (!new_residuals) return tl::unexpected(new_residuals.error());
                const double new_loss = loss(*new_residuals, use, next - center);
                if (new_loss < best.loss) {
                    gain = (best.loss - new_loss) / best.loss;
                    theta = next;
                    residuals = std::move(new_residuals);
                    best.constants = there;
                    best.loss = new_loss;
                    damping = std::max(1e-6, damping * 0.3);
                    improved = true;
                } else {
                    damping *= 5;
                }
            }
            if (!improved || gain < kEnough) break;
        }
        // Standard errors from the curvature, scaled by the rows' own scatter.
        double scatter = 0;
        for (Eigen::Index r = 0; r < residuals->size(); ++r) {
            scatter += use[r] * (*residuals)[r] * (*residuals)[r];
        }
        scatter /= std::max(1.0, use.sum() - static_cast<double>(k));
        const Eigen::MatrixXd covariance =
            normal.ldlt().solve(Eigen::MatrixXd::Identity(k, k)) * scatter;
        for (Eigen::Index i = 0; i < k; ++i) {
            const NamedConstant& constant = active_[static_cast<std::size_t>(i)];
            best.fitted.push_back({constant.name, constant.get(best.constants), constant.get(prior),
                                   std::sqrt(std::max(0.0, covariance(i, i)))});
        }
        return best;
    }

 private:
    // The prior is weighed as one row's worth of scatter of 0.05, whatever the number of rows.
    [[nodiscard]] double prior_weight_of(const Eigen::VectorXd&) const {
        constexpr double kScatter = 0.05;
        return kScatter * kScatter / (options_.prior_width * options_.prior_width);
    }

    [[nodiscard]] Eigen::VectorXd bounded(Eigen::VectorXd theta) const {
        for (Eigen::Index i = 0; i < theta.size(); ++i) {
            const double high = is_efficiency(active_[static_cast<std::size_t>(i)].name)
                                    ? std::log(kEfficiencyLimit)
                                    : std::log(1e4);
            theta[i] = std::clamp(theta[i], std::log(1e-3), high);
        }
        return theta;
    }

    [[nodiscard]] CollectiveConstants constants_at(const CollectiveConstants& base,
                                                   const Eigen::VectorXd& theta) const {
        CollectiveConstants constants = base;
        for (std::size_t i = 0; i < active_.size(); ++i) {
            active_[i].set(constants, std::exp(theta[static_cast<Eigen::Index>(i)]));
        }
        return constants;
    }

    [[nodiscard]] double loss(const Eigen::VectorXd& residuals, const Eigen::VectorXd& use,
                              const Eigen::VectorXd& off_center) const {
        double sum = prior_weight_of(use) * off_center.squaredNorm();
        const double delta = options_.huber_delta;
        for (Eigen::Index r = 0; r < residuals.size(); ++r) {
            const double size = std::abs(residuals[r]);
            sum += use[r] * (size <= delta ? size * size : 2 * delta * size - delta * delta);
        }
        return sum;
    }

    const Predictor& predictor_;
    std::vector<NamedConstant> active_;
    const CollectiveFitOptions& options_;
};

std::vector<BeliefEvidence> candidate_beliefs(const model::Machine& machine, bool nvlink) {
    // The machine's own, then NCCL's constants for sockets (16 AMD, 10 Skylake, 22 Sapphire Rapids,
    // 40 Emerald Rapids) with and without pairs that talk directly (AMD's rule, or two GPUs behind
    // one switch).
    std::vector<BeliefEvidence> candidates = {{0, 0, 0}};
    if (nvlink || !machine.peer.enabled) return candidates;
    for (const double inter_cpu : {0.0, 10.0, 16.0, 22.0, 40.0}) {
        for (const int ranks : {1, 2, 4}) candidates.push_back({inter_cpu, ranks, 0});
    }
    return candidates;
}

}  // namespace

Expected<CollectiveFit> fit_collectives(const std::vector<CollectiveMeasurement>& measurements,
                                        const model::Machine& machine,
                                        const CollectiveFitOptions& options) {
    bool nvlink = false;
    for (const model::MachineLink& link : machine.links) {
        nvlink = nvlink || link.kind == model::LinkKind::nvlink;
    }
    std::vector<Row> rows;
    const int available = static_cast<int>(machine.gpus().size());
    for (const CollectiveMeasurement& measurement : measurements) {
        if (measurement.system != measurements.front().system) {
            return fail(ErrorCode::invalid_input, "measurements of two systems",
                        measurements.front().system + ", " + measurement.system,
                        "fit one system at a time");
        }
        const auto implementation = implementation_of(measurement, nvlink);
        if (!implementation) continue;
        if (measurement.gpus > available) {
            return fail(ErrorCode::invalid_input,
                        fmt::format("a measurement over {} GPUs, the machine has {}",
                                    measurement.gpus, available),
                        machine.name, "name the machine that was measured");
        }
        if (measurement.gpus < 2 || measurement.bytes < measurement.gpus) continue;
        rows.push_back({&measurement, *implementation, request_of(measurement)});
    }
    if (rows.empty()) {
        return fail(ErrorCode::invalid_input, "no usable measurement", machine.name,
                    "give NCCL rows (label nccl...) of this system");
    }

    const Predictor predictor(machine, rows);
    const Eigen::VectorXd all = Eigen::VectorXd::Ones(static_cast<Eigen::Index>(rows.size()));
    CollectiveFit fit;
    // Scout every belief, keep the best. Ties go to the earlier candidate: the machine's own name
    // first.
    std::vector<std::pair<BeliefEvidence, CollectiveConstants>> scouted;
    for (BeliefEvidence candidate : candidate_beliefs(machine, nvlink)) {
        CollectiveConstants start;
        start.inter_cpu_gb_s = candidate.inter_cpu_gb_s;
        start.peer_ranks = candidate.peer_ranks;
        const auto times = predictor.times(start);
        if (!times) return tl::unexpected(times.error());
        const Fitter fitter(predictor, active_constants(rows, *times, nvlink), options);
        const auto solution = fitter.solve(start, start, all, kScoutIterations);
        if (!solution) return tl::unexpected(solution.error());
        candidate.loss = solution->loss;
        scouted.push_back({candidate, solution->constants});
    }
    std::stable_sort(scouted.begin(), scouted.end(),
                     [](const auto& a, const auto& b) { return a.first.loss < b.first.loss; });
    for (const auto& candidate : scouted) fit.evidence.push_back(candidate.first);

    CollectiveConstants prior;
    prior.inter_cpu_gb_s = scouted.front().first.inter_cpu_gb_s;
    prior.peer_ranks = scouted.front().first.peer_ranks;
    const auto first_times = predictor.times(prior);
    if (!first_times) return tl::unexpected(first_times.error());
    const Fitter fitter(predictor, active_constants(rows, *first_times, nvlink), options);
    const auto solution = fitter.solve(scouted.front().second, prior, all, options.max_iterations);
    if (!solution) return tl::unexpected(solution.error());
    fit.constants = solution->constants;
    fit.fitted = solution->fitted;
    // Four digits are all that the data hold; the file then says what was used, to the last bit.
    for (const NamedConstant& constant : sim::named_constants()) {
        constant.set(fit.constants, std::stod(fmt::format("{:.4g}", constant.get(fit.constants))));
    }

    const auto times = predictor.times(fit.constants);
    if (!times) return tl::unexpected(times.error());
    for (std::size_t i = 0; i < rows.size(); ++i) {
        fit.points.push_back({*rows[i].measurement, rows[i].implementation, (*times)[i].choice,
                              sim::to_us((*times)[i].total), 0});
    }
    if (options.leave_out) {
        std::set<std::int64_t> sizes;
        for (const Row& row : rows) sizes.insert(row.measurement->bytes);
        for (const std::int64_t size : sizes) {
            Eigen::VectorXd use = all;
            std::vector<std::size_t> held;
            for (std::size_t i = 0; i < rows.size(); ++i) {
                if (rows[i].measurement->bytes != size) continue;
                use[static_cast<Eigen::Index>(i)] = 0;
                held.push_back(i);
            }
            // From the defaults: the solution of all rows has seen this size.
            const auto without = fitter.solve(prior, prior, use, options.max_iterations);
            if (!without) return tl::unexpected(without.error());
            const auto held_times = predictor.times(without->constants);
            if (!held_times) return tl::unexpected(held_times.error());
            for (const std::size_t i : held)
                fit.points[i].held_out_us = sim::to_us((*held_times)[i].total);
        }
    }

    // Errors, and an entry for each implementation, operation and world size.
    std::map<std::tuple<std::string, model::OperationKind, int>,
             std::vector<const CollectiveFitPoint*>>
        groups;
    for (const CollectiveFitPoint& point : fit.points) {
        const double error = std::abs(point.fitted_us / point.measurement.latency_us - 1);
        fit.mean_error += error / static_cast<double>(fit.points.size());
        fit.worst_error = std::max(fit.worst_error, error);
        if (point.held_out_us > 0) {
            const double held = std::abs(point.held_out_us / point.measurement.latency_us - 1);
            fit.held_out_mean_error += held / static_cast<double>(fit.points.size());
            fit.held_out_worst_error = std::max(fit.held_out_worst_error, held);
        }
        groups[{std::string(model::to_name(point.implementation)), point.measurement.operation,
                point.measurement.gpus}]
            .push_back(&point);
    }
    for (const auto& [key, points] : groups) {
        sim::CollectiveFitEntry entry;
        entry.implementation = std::get<0>(key);
        entry.operation = std::get<1>(key);
        entry.gpus = std::get<2>(key);
        entry.bytes_low = std::numeric_limits<std::int64_t>::max();
        double squares = 0;
        for (const CollectiveFitPoint* point : points) {
            // The held-out error where there is one: it is what a new size will see.
            const double predicted = point->held_out_us > 0 ? point->held_out_us : point->fitted_us;
            const double off = std::log(point->measurement.latency_us / predicted);
            squares += off * off;
            entry.bytes_low = std::min(entry.bytes_low, point->measurement.bytes);
            entry.bytes_high = std::max(entry.bytes_high, point->measurement.bytes);
        }
        entry.points = static_cast<int>(points.size());
        entry.error = std::stod(
            fmt::format("{:.3g}", std::sqrt(squares / static_cast<double>(points.size()))));
        fit.constants.entries.push_back(std::move(entry));
    }
    fit.constants.system = measurements.front().system;
    fit.constants.name =
        options.name.empty() ? "collectives-" + fit.constants.system : options.name;
    fit.constants.machines = {machine.name};
    model::Json provenance;
    provenance["source"] = options.source;
    provenance["machine"] = machine.name;
    provenance["points"] = fit.points.size();
    const auto rounded = [](double value) { return std::stod(fmt::format("{:.3g}", value)); };
    provenance["mean_error"] = rounded(fit.mean_error);
    provenance["worst_error"] = rounded(fit.worst_error);
    provenance["held_out_mean_error"] = rounded(fit.held_out_mean_error);
    provenance["held_out_worst_error"] = rounded(fit.held_out_worst_error);
    model::Json evidence = model::Json::array();
    for (const BeliefEvidence& candidate : fit.evidence) {
        evidence.push_back({{"inter_cpu_gb_s", candidate.inter_cpu_gb_s},
                            {"peer_ranks", candidate.peer_ranks},
                            {"loss", rounded(candidate.loss)}});
    }
    // How tightly the rows hold each constant: one standard error of its logarithm. Near 1 and
    // above: its default.
    model::Json held = model::Json::object();
    for (const FittedConstant& constant : fit.fitted) {
        held[constant.name] = std::stod(fmt::format("{:.2g}", constant.standard_error));
    }
    provenance["relative_standard_errors"] = std::move(held);
    provenance["nccl_belief_evidence"] = std::move(evidence);
    fit.constants.provenance = std::move(provenance);
    return fit;
}

namespace {

/// Mean and worst held-out error of the points that `take` accepts.
struct HeldOut {
    int rows = 0;
    double sum = 0;
    double worst = 0;

    void add(const CollectiveFitPoint& point) {
        const double off = std::abs(point.held_out_us / point.measurement.latency_us - 1);
        ++rows;
        sum += off;
        worst = std::max(worst, off);
    }
    [[nodiscard]] std::string text() const {
        if (rows == 0) return fmt::format("{:>4} {:>7} {:>7}", "-", "-", "-");
        return fmt::format("{:>4} {:>7.1f} {:>7.1f}", rows, 100 * sum / rows, 100 * worst);
    }
};

}  // namespace

std::string left_out_text(const CollectiveFit& fit) {
    std::map<std::int64_t, std::pair<HeldOut, HeldOut>> sizes;  // all rows; all-reduces of most GPUs
    std::pair<HeldOut, HeldOut> total;
    int most = 0;
    for (const CollectiveFitPoint& point : fit.points) most = std::max(most, point.measurement.gpus);
    for (const CollectiveFitPoint& point : fit.points) {
        if (point.held_out_us <= 0) continue;
        auto& size = sizes[point.measurement.bytes];
        size.first.add(point);
        total.first.add(point);
        const bool reduce = point.measurement.operation == model::OperationKind::all_reduce &&
                            point.implementation == Implementation::nccl;
        if (!reduce || point.measurement.gpus != most) continue;
        size.second.add(point);
        total.second.add(point);
    }
    if (sizes.empty()) return {};
    std::string text = fmt::format(
        "{:>11}  {:^20}  NCCL all-reduce over {} GPUs\n{:>11}  {:>4} {:>7} {:>7}  {:>4} {:>7} {:>7}\n", "",
        "all rows", most, "left out, B", "rows", "mean %", "worst %", "rows", "mean %", "worst %");
    for (const auto& [bytes, held] : sizes) {
        text += fmt::format("{:>11}  {}  {}\n", bytes, held.first.text(), held.second.text());
    }
    return text + fmt::format("{:>11}  {}  {}\n", "all", total.first.text(), total.second.text());
}

std::string fit_text(const CollectiveFit& fit) {
    std::string text = fmt::format(
        "{} rows: mean error {:.1f} %, worst {:.1f} %; held out: mean {:.1f} %, worst {:.1f} %\n\n",
        fit.points.size(), 100 * fit.mean_error, 100 * fit.worst_error,
        100 * fit.held_out_mean_error, 100 * fit.held_out_worst_error);
    text += fmt::format("{:<26} {:>10} {:>10} {:>8}\n", "constant", "fitted", "default", "+- %");
    for (const FittedConstant& constant : fit.fitted) {
        text += fmt::format("{:<26} {:>10.4g} {:>10.4g} {:>8.1f}\n", constant.name, constant.value,
                            constant.default_value, 100 * constant.standard_error);
    }
    text += "\nwhat NCCL believes (least loss first; 0: by the CPU's name)\n";
    for (const BeliefEvidence& candidate : fit.evidence) {
        text += fmt::format("  socket link {:>4.0f} GB/s, direct up to {} GPUs: loss {:.4f}\n",
                            candidate.inter_cpu_gb_s, candidate.peer_ranks, candidate.loss);
    }
    text += "\n";
    for (const sim::CollectiveFitEntry& entry : fit.constants.entries) {
        text += fmt::format("{:<9} {:<14} {} GPUs: {} rows, {} .. {} B, error {:.1f} %\n",
                            entry.implementation, model::to_name(entry.operation), entry.gpus,
                            entry.points, entry.bytes_low, entry.bytes_high, 100 * entry.error);
    }
    text += fmt::format("\n{:<9} {:<14} {:>4} {:>11} {:<7} {:>3} {:>11} {:>11} {:>7} {:>7}\n",
                        "impl", "operation", "gpus", "bytes", "proto", "ch", "measured", "fitted",
                        "err %", "held %");
    for (const CollectiveFitPoint& point : fit.points) {
        const double measured = point.measurement.latency_us;
        const std::string held =
            point.held_out_us > 0 ? fmt::format("{:+.1f}", 100 * (point.held_out_us / measured - 1))
                                  : "-";
        text += fmt::format(
            "{:<9} {:<14} {:>4} {:>11} {:<7} {:>3} {:>11.2f} {:>11.2f} {:>+7.1f} {:>7}\n",
            model::to_name(point.implementation), model::to_name(point.measurement.operation),
            point.measurement.gpus, point.measurement.bytes,
            point.choice.nvls ? "nvls" : model::to_name(point.choice.protocol),
            point.choice.channels, measured, point.fitted_us,
            100 * (point.fitted_us / measured - 1), held);
    }
    return text;
}

}  // namespace draftboard::calibration
