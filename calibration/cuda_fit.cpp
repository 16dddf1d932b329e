// SPDX-License-Identifier: Apache-2.0
#include "calibration/cuda_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "calibration/nnls.h"
#include "sim/pass_cost.h"

namespace draftboard::calibration {

using model::Expected;
using model::OperationKind;
using model::Pass;

namespace {

/// Below it an operation launched nothing: it runs inside of another's kernel. An empty kernel takes some 1 us between events.
constexpr double kLeastKernelUs = 0.25;
constexpr double kMostSavingUs = 6;
constexpr double kSavingStepUs = 0.05;
constexpr double kLeastShare = 0.3;
constexpr double kShareStep = 0.05;
constexpr double kNothingGbS = 1e9;
constexpr double kLeastError = 0.02;
constexpr double kLeastSigma = 0.005;

std::string base_model(const std::string& model) { return model.substr(0, model.find('/')); }
bool of_drafter(const std::string& model) { return model.find('/') != std::string::npos; }

/// Which terms a kind of kernel has.
FitShape shape_of(OperationKind kind) {
    FitShape shape;
    shape.items = kind == OperationKind::experts || kind == OperationKind::attention;
    shape.serial = kind == OperationKind::attention;
    shape.flops = kind != OperationKind::norm && kind != OperationKind::elementwise && kind != OperationKind::embedding &&
                  kind != OperationKind::sample && kind != OperationKind::accept && kind != OperationKind::copy;
    shape.residuals = kind != OperationKind::copy;
    return shape;
}

double bytes_of(const model::Plan& plan) {
    double bytes = 0;
    for (const model::Operation& operation : plan.operations) bytes += operation.weight_bytes + operation.cache_bytes;
    return bytes;
}

bool in_graph(const EngineMeasuredPass& pass) { return pass.key.launch == "full"; }

std::string role_name(const model::Operation& operation) {
    return fmt::format("{}@{}", sim::kernel_subkind(operation), operation.role);
}

/// Roles that launch nothing, in every pass that has them.
std::map<std::string, bool> silent_roles(const std::vector<EngineMeasuredPass>& passes) {
    std::map<std::string, std::vector<double>> times;
    for (const EngineMeasuredPass& pass : passes) {
        if (!in_graph(pass)) continue;
        for (std::size_t i = 0; i < pass.plan.operations.size(); ++i) {
            const model::Operation& operation = pass.plan.operations[i];
            if (!model::is_collective(operation.kind)) times[role_name(operation)].push_back(pass.us[i]);
        }
    }
    std::map<std::string, bool> silent;
    for (const auto& [role, us] : times) silent[role] = median_of(us) < kLeastKernelUs;
    return silent;
}

sim::KernelConstants nothing(const std::string& source, int points) {
    sim::KernelConstants constants;
    constants.bandwidth_gb_s = kNothingGbS;
    constants.relative_error = kLeastError;
    constants.points = points;
    constants.head_tile = 1;
    constants.coverage = sim::Coverage::measured;
    constants.source = source;
    return constants;
}

void fit_kernels(const std::vector<EngineMeasuredPass>& passes, const model::GpuSpec& gpu, CudaFit& out) {
    const auto silent = silent_roles(passes);
    std::map<std::string, double> target_bytes;
    for (const EngineMeasuredPass& pass : passes) {
        double& most = target_bytes[base_model(pass.key.model)];
        most = std::max(most, bytes_of(pass.plan));
    }
    std::map<std::pair<std::string, OperationKind>, std::vector<RoleRow>> groups;
    for (const EngineMeasuredPass& pass : passes) {
        if (!in_graph(pass)) continue;
        // A drafter's further steps follow one another; every other pass comes back to its weights after all of the target's.
        const double own = bytes_of(pass.plan);
        const double resident = pass.key.pass == Pass::draft ? own : std::max(own, target_bytes[base_model(pass.key.model)]);
        for (std::size_t i = 0; i < pass.plan.operations.size(); ++i) {
            const model::Operation& operation = pass.plan.operations[i];
            if (model::is_collective(operation.kind)) continue;
            const std::string subkind = sim::kernel_subkind(operation);
            if (silent.at(role_name(operation)) || pass.us[i] < kLeastKernelUs) continue;
            RoleRow row;
            row.role = operation.role;
            row.pass = pass.key.pass;
            row.noise = pass.noise[i];
            row.warm = resident < gpu.l2_bytes;
            row.fit.work = sim::kernel_work(operation, 1);
            row.fit.resident_bytes = resident;
            row.fit.us = pass.us[i];
            groups[{subkind, operation.kind}].push_back(row);
        }
    }
    for (const auto& [key, rows] : groups) {
        RoleFitting how;
        how.gpu = gpu;
        how.peak_tflops = gpu.bf16_tflops;
        how.shape = shape_of(key.second);
        how.group = key.first;
        how.table = "cuda";
        how.source = "fit to passes of the engine in graphs";
        how.implementation = [](Pass) { return std::string(kCudaImplementation); };
        fit_roles(how, rows, out);
    }
    for (const auto& [role, is_silent] : silent) {
        if (!is_silent) continue;
        const auto at = role.find('@');
        const auto bar = role.find('/');
        const std::string key = fmt::format("{}{}{}/{}", role.substr(0, bar), role.substr(at), role.substr(bar, at - bar), kCudaImplementation);
        out.kernels.entries[key] = nothing("measured: runs inside of another kernel", 1);
    }
}

/// Numbers a row of what each model's drafter reads of it: EAGLE-3 three layers' states, MTP one.
std::map<std::string, double> states_read(const std::vector<EngineMeasuredPass>& passes) {
    std::map<std::string, double> numbers;
    for (const EngineMeasuredPass& pass : passes) {
        if (!of_drafter(pass.key.model)) continue;
        for (const model::Operation& operation : pass.plan.operations) {
            double& read = numbers[base_model(pass.key.model)];
            if (operation.role == "eagle3.fc") read = static_cast<double>(operation.k);
            if (operation.role == "mtp.projection") read = static_cast<double>(operation.k) / 2;
        }
    }
    return numbers;
}

/// States that travel between host and device in a pass that the host drives.
double moved_mb(const EngineMeasuredPass& pass, double read) {
    const double rows = pass.key.sequences * pass.key.tokens;
    if (!of_drafter(pass.key.model)) return read * rows * 4e-6;
    double hidden = 0;
    for (const model::Operation& operation : pass.plan.operations) {
        if (operation.role == "final.norm") hidden = static_cast<double>(operation.n);
    }
    return ((pass.key.pass == Pass::draft ? hidden : read) + hidden) * rows * 4e-6;
}

GraphPass graph_pass(const EngineMeasuredPass& pass, double read) {
    GraphPass out;
    out.total_us = pass.total_us;
    out.moved_mb = moved_mb(pass, read);
    for (std::size_t i = 0; i < pass.plan.operations.size(); ++i) {
        if (model::is_collective(pass.plan.operations[i].kind) || pass.us[i] < kLeastKernelUs) continue;
        out.kernel_us.push_back(pass.us[i]);
    }
    return out;
}

/// Experts that rows of a model touch, as a share of what the plan expects.
class TouchedExperts {
   public:
    TouchedExperts(const std::vector<EngineMeasuredPass>& passes, const PlanOf& plan_of) {
        for (const EngineMeasuredPass& pass : passes) {
            if (!in_graph(pass)) continue;
            const auto expected = plan_of(base_model(pass.key.model), of_drafter(pass.key.model), pass.key.pass, pass.key.sequences,
                                          pass.key.tokens, pass.key.context);
            if (!expected) continue;
            const double share = distinct(pass.plan) / distinct(*expected);
            if (!(share > 0)) continue;
            auto& [sum, count] = shares_[pass.key.model][pass.key.sequences * pass.key.tokens];
            sum += share;
            count += 1;
        }
    }
    void apply(const std::string& model, int rows, model::Plan& plan) const {
        const auto known = shares_.find(model);
        if (known == shares_.end()) return;
        const auto nearest = std::min_element(known->second.begin(), known->second.end(), [rows](const auto& a, const auto& b) {
            return std::abs(std::log(1.0 * a.first / rows)) < std::abs(std::log(1.0 * b.first / rows));
        });
        const double share = nearest->second.first / nearest->second.second;
        for (model::Operation& operation : plan.operations) {
            if (operation.kind != OperationKind::experts) continue;
            operation.weight_bytes *= share;
            operation.distinct_experts *= share;
        }
    }

   private:
    static double distinct(const model::Plan& plan) {
        double sum = 0;
        for (const model::Operation& operation : plan.operations) sum += operation.distinct_experts;
        return sum;
    }
    std::map<std::string, std::map<int, std::pair<double, double>>> shares_;  // by model and rows: sum, count
};

/// Passes simulated with fitted constants, on one rank alone.
class Simulator {
   public:
    Simulator(const model::GpuSpec& gpu, const sim::KernelTable& table) : kernels_(gpu, table, {}) {
        pricer_.kernels = &kernels_;
        pricer_.gpus = {0};
        pricer_.rank_alone = true;
    }
    [[nodiscard]] const sim::KernelModel& kernels() const { return kernels_; }
    [[nodiscard]] Expected<double> us(const model::Plan& plan, model::LaunchMode mode, sim::HostConstants host) const {
        auto priced = pricer_.price(plan, mode);
        if (!priced) return tl::unexpected(priced.error());
        host.launch_jitter = host.rank_spread = host.kernel_jitter = 0;
        return sim::to_us(sim::simulate_pass(priced->operations, 1, mode, host, model::Random(1)).total);
    }

   private:
    sim::KernelModel kernels_;
    sim::PassPricer pricer_;
};

sim::HostConstants host_of(const CudaTerms& terms, std::string_view engine) {
    auto host = sim::with_overrides({}, [&] {
        auto values = terms.host;
        values.erase("host.run_sigma");
        const auto own = terms.engines.find(std::string(engine));
        if (own != terms.engines.end()) {
            for (const auto& [name, value] : own->second) values[name] = value;
        }
        return values;
    }());
    return host ? *host : sim::HostConstants{};
}

double clamped(std::string_view name, double value) {
    const auto* info = sim::find_host_constant(name);
    return info == nullptr ? value : std::clamp(value, info->low, info->high);
}

double device_cost(const EngineMeasurements& measurements, const char* name) {
    const model::Json& costs = measurements.device_costs;
    return costs.is_object() && costs.contains(name) && costs[name].is_number() ? costs[name].get<double>() : 0.0;
}

/// The host's time a launch that makes eager passes come out right; 0: none was measured.
Expected<double> fit_eager_launch(const std::vector<EngineMeasuredPass>& passes, const Simulator& simulator, sim::HostConstants host) {
    double best = 0;
    double least = 0;
    for (double us = 0.5; us < 40; us *= 1.03) {
        host.eager_launch_us = us;
        double loss = 0;
        int count = 0;
        for (const EngineMeasuredPass& pass : passes) {
            if (pass.key.launch != "eager" || !(pass.total_us > 0)) continue;
            const auto simulated = simulator.us(pass.plan, model::LaunchMode::eager, host);
            if (!simulated) return tl::unexpected(simulated.error());
            loss += std::min(1.0, std::abs(std::log(std::max(*simulated, 1e-3) / pass.total_us)));
            ++count;
        }
        if (count == 0) return 0.0;
        if (best > 0 && loss >= least) continue;
        best = us;
        least = loss;
    }
    return best;
}

/// The passes of a cycle, in microseconds. Negative: the model has no plan for them.
Expected<double> cycle_passes_us(const EngineCycleSample& cycle, const PlanOf& plan_of, const Simulator& simulator,
                                 const sim::HostConstants& host, model::LaunchMode mode) {
    const auto context = static_cast<std::int64_t>(cycle.context + 0.5);
    double us = 0;
    const auto add = [&](bool drafter, Pass pass, int tokens, int repeat) -> Expected<void> {
        if (repeat < 1) return {};
        auto plan = plan_of(cycle.model, drafter, pass, cycle.sequences, tokens, context);
        if (!plan) return tl::unexpected(plan.error());
        auto one = simulator.us(*plan, mode, host);
        if (!one) return tl::unexpected(one.error());
        us += repeat * *one;
        return {};
    };
    const bool speculates = cycle.steps > 0;
    if (auto ok = add(false, speculates ? Pass::verify : Pass::decode, cycle.steps + 1, 1); !ok) return tl::unexpected(ok.error());
    if (speculates && cycle.method != "scripted" && cycle.method != "ngram") {
        if (auto ok = add(true, Pass::draft_extend, cycle.steps + 1, 1); !ok) return tl::unexpected(ok.error());
        if (auto ok = add(true, Pass::draft, 1, cycle.steps - 1); !ok) return tl::unexpected(ok.error());
    }
    return us;
}

std::string name_of(const EngineMeasuredPass& pass) {
    return fmt::format("{} {} {} x {} at {}, {}", pass.key.model, to_name(pass.key.pass), pass.key.sequences, pass.key.tokens,
                       pass.key.context, pass.key.launch);
}

/// Host work of one of the two loops, from its cycles; what the fit leaves goes into out.cycles.
Expected<void> fit_loop(const EngineMeasurements& measurements, std::string_view launch, std::string_view engine, const PlanOf& plan_of,
                        const Simulator& simulator, CudaFit& out) {
    constexpr std::size_t kUnknowns = 4;  // step, cycle, draft call, sequence
    const model::LaunchMode mode = launch == "eager" ? model::LaunchMode::eager : model::LaunchMode::graph;
    const sim::HostConstants host = host_of(out.terms, engine);
    std::vector<double> matrix;
    std::vector<double> right;
    std::vector<std::array<double, kUnknowns>> rows;
    std::vector<std::pair<double, double>> times;  // cycle, its passes
    std::vector<std::string> names;
    double shorter = 0;
    for (const EngineCycleSample& cycle : measurements.cycles) {
        if (cycle.launch != launch || !(cycle.cycle_us > 0)) continue;
        auto passes = cycle_passes_us(cycle, plan_of, simulator, host, mode);
        if (!passes) return tl::unexpected(passes.error());
        const bool drafts = cycle.steps > 0 && cycle.method != "scripted" && cycle.method != "ngram";
        rows.push_back({cycle.steps > 0 ? 0.0 : 1.0, cycle.steps > 0 ? 1.0 : 0.0, drafts ? static_cast<double>(cycle.steps) : 0.0,
                        static_cast<double>(cycle.sequences)});
        times.emplace_back(cycle.cycle_us, *passes);
        names.push_back(fmt::format("{} {} x{}, {} sequence(s) at {:.0f}, {}", cycle.model, cycle.method, cycle.steps, cycle.sequences,
                                    cycle.context, cycle.launch));
        for (const double term : rows.back()) matrix.push_back(term / cycle.cycle_us);
        right.push_back((cycle.cycle_us - *passes) / cycle.cycle_us);
        if (*passes > cycle.cycle_us) shorter += 1;
    }
    if (rows.empty()) return {};
    if (shorter > 0) {
        out.notes.push_back(fmt::format("{:.0f} of {} {} cycles are shorter than their fitted passes", shorter, rows.size(), launch));
    }
    const auto solved = solve_nnls(matrix, right, kUnknowns);
    if (!solved) return tl::unexpected(solved.error());
    constexpr std::array<const char*, kUnknowns> kNames = {"host.step_us", "host.cycle_us", "host.draft_call_us", "host.sequence_us"};
    for (std::size_t j = 0; j < kUnknowns; ++j) out.terms.engines[std::string(engine)][kNames[j]] = clamped(kNames[j], (*solved)[j]);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        double us = times[i].second;
        for (std::size_t j = 0; j < kUnknowns; ++j) us += rows[i][j] * (*solved)[j];
        out.cycles.push_back({names[i], times[i].first, us, times[i].second});
    }
    return {};
}

void state_fit(const std::vector<EngineMeasuredPass>& passes, const Simulator& simulator, CudaFit& out) {
    std::map<sim::KernelKey, std::pair<double, double>> squares;  // sum, count
    for (const EngineMeasuredPass& pass : passes) {
        if (!in_graph(pass)) continue;
        std::map<sim::KernelKey, std::pair<double, double>> sums;  // fitted, measured
        std::map<std::string, FittedRole> roles;
        for (std::size_t i = 0; i < pass.plan.operations.size(); ++i) {
            const model::Operation& operation = pass.plan.operations[i];
            if (model::is_collective(operation.kind)) continue;
            const sim::KernelTime time = simulator.kernels().time(operation);
            FittedRole& role = roles[std::string(operation.role)];
            ++role.count;
            role.measured_us += pass.us[i];
            role.fitted_us += time.us;
            if (pass.us[i] < kLeastKernelUs) continue;
            auto& [fitted, measured] = sums[time.key];
            fitted += time.us;
            measured += pass.us[i];
        }
        for (auto& [name, role] : roles) {
            role.pass = name_of(pass);
            role.role = name;
            out.roles.push_back(std::move(role));
        }
        for (const auto& [key, sum] : sums) {
            const double error = std::log(std::max(sum.first, 1e-3) / sum.second);
            auto& [square, count] = squares[key];
            square += error * error;
            count += 1;
        }
    }
    for (const auto& [key, sum] : squares) {
        const auto entry = out.kernels.entries.find(key);
        if (entry != out.kernels.entries.end()) entry->second.common_error = std::max(kLeastError, std::sqrt(sum.first / sum.second));
    }
}

}  // namespace

GraphCosts fit_graph(const std::vector<GraphPass>& passes) {
    constexpr std::size_t kUnknowns = 3;  // launch, gap, us a MB
    GraphCosts best;
    double least = -1;
    if (passes.empty()) return best;
    std::vector<double> matrix;
    for (const GraphPass& pass : passes) {
        const double terms[kUnknowns] = {1, std::max(0.0, static_cast<double>(pass.kernel_us.size()) - 1), pass.moved_mb};
        for (const double term : terms) matrix.push_back(term / pass.total_us);
    }
    const auto attempt = [&](double saving, double share) {
        std::vector<double> right;
        std::vector<double> chained;
        for (const GraphPass& pass : passes) {
            double us = 0;
            for (std::size_t i = 0; i < pass.kernel_us.size(); ++i) {
                us += pass.kernel_us[i] - (i > 0 ? std::min(saving, share * pass.kernel_us[i]) : 0.0);
            }
            chained.push_back(us);
            right.push_back((pass.total_us - us) / pass.total_us);
        }
        const auto solved = solve_nnls(matrix, right, kUnknowns);
        if (!solved) return;
        double loss = 0;
        double squares = 0;
        for (std::size_t p = 0; p < passes.size(); ++p) {
            double us = chained[p];
            for (std::size_t j = 0; j < kUnknowns; ++j) us += matrix[p * kUnknowns + j] * passes[p].total_us * (*solved)[j];
            const double error = std::log(std::max(us, 1e-3) / passes[p].total_us);
            squares += error * error;
            loss += std::min(0.3, std::abs(error));
        }
        if (least >= 0 && loss >= least) return;
        least = loss;
        best = {(*solved)[0], (*solved)[1], saving, share, (*solved)[2], std::sqrt(squares / static_cast<double>(passes.size()))};
    };
    for (int step = 0; step * kSavingStepUs <= kMostSavingUs; ++step) {
        for (int part = 0; kLeastShare + part * kShareStep <= 1.0 + 1e-9; ++part) {
            attempt(step * kSavingStepUs, kLeastShare + part * kShareStep);
        }
    }
    return best;
}

Expected<CudaFit> fit_cuda(const std::vector<EngineMeasuredPass>& measured, const EngineMeasurements& measurements,
                           const PlanOf& expected_plan, const model::GpuSpec& gpu) {
    const TouchedExperts touched(measured, expected_plan);
    std::vector<EngineMeasuredPass> passes = measured;
    for (EngineMeasuredPass& pass : passes) {
        if (!in_graph(pass)) touched.apply(pass.key.model, pass.key.sequences * pass.key.tokens, pass.plan);
    }
    const PlanOf plan_of = [&](const std::string& model, bool drafter, Pass pass, int sequences, int tokens, std::int64_t context) {
        auto plan = expected_plan(model, drafter, pass, sequences, tokens, context);
        if (plan) touched.apply(drafter ? model + "/drafter" : model, sequences * tokens, *plan);
        return plan;
    };
    if (std::none_of(passes.begin(), passes.end(), in_graph)) {
        return model::fail(model::ErrorCode::invalid_input, "no pass was measured in a graph", "calibration", "give at least one model");
    }
    CudaFit out;
    fit_kernels(passes, gpu, out);
    if (out.kernels.entries.empty()) {
        return model::fail(model::ErrorCode::invalid_input, "no kernel could be fitted", "calibration",
                           out.notes.empty() ? "" : out.notes.back());
    }
    out.kernels.source = fmt::format("fit to {} passes of the GPU engine", passes.size());
    const Simulator simulator(gpu, out.kernels);
    std::vector<GraphPass> graphs;
    const auto states = states_read(passes);
    for (const EngineMeasuredPass& pass : passes) {
        if (!in_graph(pass) || !(pass.total_us > 0)) continue;
        const auto read = states.find(base_model(pass.key.model));
        graphs.push_back(graph_pass(pass, read == states.end() ? 0 : read->second));
    }
    const GraphCosts costs = fit_graph(graphs);
    const double graph_launch = std::min(costs.launch_us, device_cost(measurements, "graph_launch_us"));
    out.terms.host = {{"host.kernel_gap_us", clamped("host.kernel_gap_us", costs.kernel_gap_us)},
                      {"host.chain_saving_us", clamped("host.chain_saving_us", costs.chain_saving_us)},
                      {"host.chain_share", clamped("host.chain_share", costs.chain_share)},
                      {"host.graph_launch_us", clamped("host.graph_launch_us", graph_launch)},
                      {"host.launch_latency_us", clamped("host.launch_latency_us", costs.launch_us - graph_launch)},
                      {"host.rank_spread", 0},
                      {"host.kernel_jitter", 0},
                      {"host.relative_uncertainty", std::clamp(costs.relative_error, 0.05, 2.0)},
                      {"host.run_sigma", std::clamp(run_sigma_of(passes), kLeastSigma, 2.0)}};
    if (const double gap = device_cost(measurements, "stream_gap_us"); gap > 0) out.terms.host["host.stream_gap_us"] = clamped("host.stream_gap_us", gap);
    if (const double sync = device_cost(measurements, "sync_us"); sync > 0) out.terms.host["host.sync_us"] = clamped("host.sync_us", sync);
    out.notes.push_back(fmt::format("graphs: launch {:.2f} us, {:.3f} us a kernel more, {:.2f} us saved in a chain, at most {:.0f} % of a kernel, "
                                    "{:.1f} us a MB of states, rms error {:.1f} %",
                                    costs.launch_us, costs.kernel_gap_us, costs.chain_saving_us, 100 * costs.chain_share, costs.us_per_mb,
                                    100 * costs.relative_error));
    const auto eager = fit_eager_launch(passes, simulator, host_of(out.terms, ""));
    if (!eager) return tl::unexpected(eager.error());
    if (*eager > 0) out.terms.host["host.eager_launch_us"] = clamped("host.eager_launch_us", *eager);
    out.terms.engines[std::string(kCudaFusedEngine)] = {{"host.graph_launch_us", 0}, {"host.launch_latency_us", 0}};
    if (auto ok = fit_loop(measurements, "fused", kCudaFusedEngine, plan_of, simulator, out); !ok) return tl::unexpected(ok.error());
    if (auto ok = fit_loop(measurements, "full", kCudaEngine, plan_of, simulator, out); !ok) return tl::unexpected(ok.error());
    state_fit(passes, simulator, out);
    const sim::HostConstants host = host_of(out.terms, kCudaEngine);
    for (const EngineMeasuredPass& pass : passes) {
        if (!(pass.total_us > 0)) continue;
        const auto fitted = simulator.us(pass.plan, in_graph(pass) ? model::LaunchMode::graph : model::LaunchMode::eager, host);
        if (!fitted) return tl::unexpected(fitted.error());
        double operations = 0;
        for (const double us : pass.us) operations += us;
        out.passes.push_back({name_of(pass), pass.total_us, *fitted, operations});
    }
    return out;
}

}  // namespace draftboard::calibration
