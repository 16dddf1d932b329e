// SPDX-License-Identifier: Apache-2.0
#include "calibration/diagnosis.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <Eigen/Dense>

#include "calibration/diagnosis_candidates.h"

namespace draftboard::calibration {

using model::Expected;
using sim::Term;

namespace {

/// Components of less weight change no entropy that is printed.
constexpr double kNegligible = 1e-7;
constexpr std::size_t kRecommended = 3;
constexpr double kWorthMeasuring = 0.01;  ///< bits

double floor_of(const std::string& name) { return name.ends_with("_us") ? kResolutionMs : kResolutionMs * 0.5; }

/// Logarithm, gradient and own variance of one observable.
struct LogValue {
    double mean = 0;
    double own_variance = 0;
    std::map<std::string, double> gradient;
};

LogValue log_value(const std::string& name, const Observable& observable, double noise, double unknown_sigma = 0) {
    const double value = std::max(observable.value, floor_of(name));
    const bool time = name.ends_with("_ms") || name.starts_with("terms.");
    const double resolution = time ? kResolutionMs / value : 0;
    return {std::log(value), noise * noise + resolution * resolution + unknown_sigma * unknown_sigma, observable.gradient};
}

double covariance(const LogValue& a, const LogValue& b) {
    double sum = 0;
    for (const auto& [cause, sigma] : a.gradient) {
        const auto other = b.gradient.find(cause);
        if (other != b.gradient.end()) sum += sigma * other->second;
    }
    return sum;
}

/// One candidate at one factor.
struct Component {
    std::size_t candidate = 0;
    double factor = 1;
    Outcome outcome;
    double prior = 0;
    double log_weight = 0;
    double weight = 0;
    double distance = 0;
    std::vector<LogValue> given;
    std::vector<double> predicted;
    Eigen::MatrixXd inverse;  ///< of the covariance
    Eigen::VectorXd residual;
};

void weigh(Component& component, const Measured& measured) {
    const auto n = static_cast<Eigen::Index>(measured.values.size());
    component.residual.resize(n);
    for (const auto& [name, value] : measured.values) {
        const auto observable = find_observable(component.outcome, name);
        const Observable known = observable.value_or(Observable{});
        component.predicted.push_back(known.value);
        component.given.push_back(log_value(name, known, measured.noise, component.outcome.unknown_sigma));
        const auto i = static_cast<Eigen::Index>(component.given.size()) - 1;
        component.residual[i] = std::log(std::max(value, floor_of(name))) - component.given.back().mean;
    }
    Eigen::MatrixXd matrix(n, n);
    for (Eigen::Index i = 0; i < n; ++i) {
        for (Eigen::Index j = 0; j < n; ++j) {
            const LogValue& a = component.given[static_cast<std::size_t>(i)];
            matrix(i, j) = covariance(a, component.given[static_cast<std::size_t>(j)]) + (i == j ? a.own_variance : 0);
        }
    }
    const Eigen::LDLT<Eigen::MatrixXd> factors(matrix);
    component.inverse = factors.solve(Eigen::MatrixXd::Identity(n, n));
    component.distance = component.residual.dot(component.inverse * component.residual);
    const double log_determinant = factors.vectorD().array().abs().max(1e-300).log().sum();
    component.log_weight += -0.5 * (component.distance + log_determinant);
}

/// Mean and variance of a further measurement, given what was measured.
struct Forecast {
    std::size_t candidate = 0;
    double weight = 0;
    double mean = 0;
    double variance = 0;
};

Forecast forecast(const Component& component, const std::string& name, double noise) {
    const LogValue next =
        log_value(name, find_observable(component.outcome, name).value_or(Observable{}), noise, component.outcome.unknown_sigma);
    Eigen::VectorXd with(static_cast<Eigen::Index>(component.given.size()));
    for (std::size_t i = 0; i < component.given.size(); ++i) {
        with[static_cast<Eigen::Index>(i)] = covariance(next, component.given[i]);
    }
    const Eigen::VectorXd solved = component.inverse * with;
    const double variance = covariance(next, next) + next.own_variance - with.dot(solved);
    return {component.candidate, component.weight, next.mean + solved.dot(component.residual),
            std::max(variance, next.own_variance)};
}

double density_entropy_term(double p) { return p > 0 ? -p * std::log2(p) : 0; }

/// h(q) - sum_c share_c h(q | c) in bits, by the trapezoid rule on a fine grid: deterministic.
double information(const std::vector<Forecast>& forecasts, std::size_t candidates) {
    constexpr int kPoints = 600;
    double low = 1e300;
    double high = -1e300;
    for (const Forecast& f : forecasts) {
        low = std::min(low, f.mean - 5 * std::sqrt(f.variance));
        high = std::max(high, f.mean + 5 * std::sqrt(f.variance));
    }
    if (!(high > low)) return 0;
    std::vector<double> shares(candidates, 0.0);
    for (const Forecast& f : forecasts) shares[f.candidate] += f.weight;
    const double step = (high - low) / kPoints;
    double bits = 0;
    std::vector<double> density(candidates);
    for (int i = 0; i <= kPoints; ++i) {
        std::fill(density.begin(), density.end(), 0.0);
        const double x = low + i * step;
        double all = 0;
        for (const Forecast& f : forecasts) {
            // A peak narrower than the grid would be missed between two points.
            const double variance = std::max(f.variance, step * step);
            const double p =
                f.weight * std::exp(-0.5 * (x - f.mean) * (x - f.mean) / variance) / std::sqrt(2 * std::numbers::pi * variance);
            density[f.candidate] += p;
            all += p;
        }
        double here = density_entropy_term(all);
        for (std::size_t c = 0; c < candidates; ++c) {
            if (shares[c] > 0) here -= shares[c] * density_entropy_term(density[c] / shares[c]);
        }
        bits += here * step;
    }
    return std::max(bits, 0.0);
}

/// What can be measured next, and how.
struct Measurement {
    const char* name;
    const char* how;
};
constexpr Measurement kMeasurements[] = {
    {"plain_tokens_per_second", "run the same server without speculation"},
    {"tokens_per_second", "the server's log or a client at the scenario's concurrency: draftboard validate --log"},
    {"acceptance_length",
     "the server's log or metrics (SGLang: accept len; vLLM: spec decode metrics), or draftboard acceptance"},
    {"verify_ms", "profile some cycles (nsys, or draftboard run --profile): first kernel to last of a verify pass"},
    {"draft_ms", "profile some cycles (nsys, or draftboard run --profile): the drafter's kernels"},
    {"host_ms", "profile some cycles (nsys): GPU idle between passes"},
    {"plain_step_ms", "1000 / tok/s of one user without speculation, or a profile of plain steps"},
    {"all_reduce_us", "nccl-tests: all_reduce_perf -b 14K -e 64K -f 2 -G 1 on the same GPUs with the engine's NCCL variables"},
    {"terms.collectives", "profile some cycles (nsys): sum of the all-reduce kernels, waiting included"},
    {"terms.experts", "profile some cycles (nsys): sum of the experts' kernels"},
    {"terms.attention", "profile some cycles (nsys): sum of the attention kernels"},
    {"terms.dense", "profile some cycles (nsys): sum of the GEMM kernels"},
    {"terms.launch", "profile some cycles (nsys): idle time between kernels of a pass"},
};

/// The plain step and the plain rate are one measurement.
bool same_measurement(const std::string& a, const std::string& b) {
    const auto plain = [](const std::string& name) { return name == "plain_step_ms" || name == "plain_tokens_per_second"; };
    return a == b || (plain(a) && plain(b));
}

bool answered(const Measured& measured, const std::string& name) {
    return std::ranges::any_of(measured.values, [&](const auto& value) { return same_measurement(value.first, name); });
}

std::vector<TermChange> changes_of(const std::vector<Term>& from, const std::vector<Term>& to) {
    std::map<std::string, TermChange> changes;
    for (const Term& term : from) changes[term.name] = {term.name, term.ms, 0};
    for (const Term& term : to) {
        changes[term.name].name = term.name;
        changes[term.name].to_ms += term.ms;
    }
    std::vector<TermChange> list;
    for (const auto& [name, change] : changes) {
        if (std::abs(change.to_ms - change.from_ms) > 0.5 * kResolutionMs) list.push_back(change);
    }
    std::ranges::stable_sort(list, std::ranges::greater{}, [](const TermChange& c) { return std::abs(c.to_ms - c.from_ms); });
    if (list.size() > 3) list.resize(3);
    return list;
}

/// The outcome of one candidate at one factor; nothing: it does not apply. `why`: where it can't be predicted.
std::optional<Outcome> apply(const Candidate& candidate, double factor, const model::Scenario& scenario, const Outcome& base,
                             double run_sigma, sim::Predictor& predictor, std::string& why) {
    if (candidate.scale) {
        Outcome outcome = base;
        if (!candidate.scale(outcome, factor)) return std::nullopt;
        return outcome;
    }
    model::Scenario changed = scenario;
    if (!candidate.change(changed, factor)) return std::nullopt;
    const auto prediction = predictor.predict(changed);
    if (!prediction) {
        why = prediction.error().message;
        return std::nullopt;
    }
    return outcome_of(changed, *prediction, run_sigma);
}

/// All candidates at all factors, with their prior weights in log_weight.
std::vector<Component> hypotheses(const std::vector<Candidate>& table, const model::Scenario& scenario, const Outcome& base,
                                  sim::Predictor& predictor, std::vector<std::string>& left_out) {
    std::vector<Component> components;
    for (std::size_t c = 0; c < table.size(); ++c) {
        std::vector<Component> grid;
        std::string why = "does not apply to this scenario";
        for (const double factor : table[c].factors) {
            auto outcome = apply(table[c], factor, scenario, base, base.run_sigma, predictor, why);
            if (!outcome) continue;
            Component component;
            component.candidate = c;
            component.factor = factor;
            component.outcome = std::move(*outcome);
            grid.push_back(std::move(component));
        }
        if (grid.empty()) left_out.push_back(table[c].name + ": " + why);
        for (Component& component : grid) {
            component.prior = table[c].prior / static_cast<double>(grid.size());
            component.log_weight = std::log(component.prior);
            components.push_back(std::move(component));
        }
    }
    return components;
}

void normalise(std::vector<Component>& components) {
    double best = -1e300;
    for (const Component& component : components) best = std::max(best, component.log_weight);
    double sum = 0;
    for (Component& component : components) sum += component.weight = std::exp(component.log_weight - best);
    for (Component& component : components) component.weight /= sum;
}

/// The named causes as if nothing had been measured.
std::vector<Component> reopened(const std::vector<Component>& components) {
    std::vector<Component> open;
    double sum = 0;
    for (const Component& component : components) {
        if (component.outcome.unknown_sigma > 0) continue;
        sum += component.prior;
        open.push_back(component);
    }
    for (Component& component : open) {
        component.weight = component.prior / sum;
        component.given.clear();
        component.inverse.resize(0, 0);
        component.residual.resize(0);
    }
    return open;
}

std::vector<NextMeasurement> next_measurements(const std::vector<Candidate>& table, const std::vector<Component>& components,
                                               const Diagnosis& diagnosis, const Outcome& base) {
    std::vector<double> shares(table.size(), 0.0);
    for (const Component& component : components) shares[component.candidate] += component.weight;
    double doubt = 0;
    for (const double share : shares) doubt += density_entropy_term(share);
    std::vector<NextMeasurement> next;
    for (const Measurement& measurement : kMeasurements) {
        if (answered(diagnosis.measured, measurement.name) || !find_observable(base, measurement.name)) continue;
        if (!base.speculates && std::string_view(measurement.name) == "plain_tokens_per_second") continue;
        std::vector<Forecast> forecasts;
        for (const Component& component : components) {
            if (component.weight > kNegligible)
                forecasts.push_back(forecast(component, measurement.name, diagnosis.measured.noise));
        }
        next.push_back({measurement.name, std::min(information(forecasts, table.size()), doubt), measurement.how});
    }
    for (std::size_t c = 0; c < table.size(); ++c) {  // a look answers yes or no
        if (table[c].look.empty() || shares[c] <= 0) continue;
        const double bits = density_entropy_term(shares[c]) + density_entropy_term(1 - shares[c]);
        next.push_back({"look for " + table[c].name, bits, table[c].look});
    }
    std::ranges::stable_sort(next, std::ranges::greater{}, &NextMeasurement::bits);
    std::vector<NextMeasurement> best;
    for (NextMeasurement& one : next) {
        if (best.size() == kRecommended || one.bits < kWorthMeasuring) break;
        if (std::ranges::any_of(best, [&](const NextMeasurement& b) { return same_measurement(b.name, one.name); })) continue;
        best.push_back(std::move(one));
    }
    return best;
}

}  // namespace

Expected<Diagnosis> diagnose(const model::Scenario& scenario, const sim::CostConstants& constants, const Measured& measured) {
    // Predict under every hypothesis, weigh each by the measurements, then see what would tell the rest apart.
    sim::Predictor predictor(constants);
    const auto host = predictor.host_constants(scenario);
    if (!host) return tl::unexpected(host.error());
    const auto prediction = predictor.predict(scenario);
    if (!prediction) return tl::unexpected(prediction.error());
    const Outcome base = outcome_of(scenario, *prediction, host->run_sigma);

    Diagnosis diagnosis;
    diagnosis.scenario = scenario.name;
    diagnosis.measured = measured;
    for (const auto& [name, value] : measured.values) {
        const auto observable = observe(base, name);
        if (!observable) {
            model::Error error = observable.error();
            error.context = measured.source + ": " + error.context;
            return tl::unexpected(std::move(error));
        }
        const LogValue log = log_value(name, *observable, measured.noise);
        const double sigma = std::sqrt(covariance(log, log) + log.own_variance);
        const double gap = std::log(std::max(value, floor_of(name))) - log.mean;
        diagnosis.compared.push_back({name, value, observable->value, gap / sigma});
    }

    const std::vector<Candidate> table = candidate_table();
    std::vector<Component> components = hypotheses(table, scenario, base, predictor, diagnosis.left_out);
    for (Component& component : components) weigh(component, measured);
    normalise(components);

    std::vector<double> shares(table.size(), 0.0);
    std::vector<const Component*> best(table.size(), nullptr);
    double priors = 0;
    for (const Component& component : components) {
        const std::size_t c = component.candidate;
        shares[c] += component.weight;
        if (best[c] == nullptr) priors += table[c].prior;
        if (best[c] == nullptr || component.log_weight > best[c]->log_weight) best[c] = &component;
    }
    for (std::size_t c = 0; c < table.size(); ++c) {
        diagnosis.entropy_bits += density_entropy_term(shares[c]);
        if (best[c] == nullptr) continue;
        WeighedCandidate weighed;
        weighed.name = table[c].name;
        weighed.meaning = table[c].meaning;
        const std::size_t brace = table[c].edit.find("{}");
        weighed.edit = table[c].edit;
        if (brace != std::string::npos) weighed.edit.replace(brace, 2, fmt::format("{:.3g}", best[c]->factor));
        weighed.fix = table[c].fix;
        weighed.prior = table[c].prior / priors;
        weighed.share = shares[c];
        weighed.factor = best[c]->factor;
        weighed.distance = best[c]->distance;
        weighed.predicted = best[c]->predicted;
        weighed.changes = changes_of(base.terms, best[c]->outcome.terms);
        diagnosis.candidates.push_back(std::move(weighed));
    }
    std::ranges::stable_sort(diagnosis.candidates, std::ranges::greater{}, &WeighedCandidate::share);
    diagnosis.unexplained = diagnosis.candidates.front().name == kNoneOfThese;
    diagnosis.next = next_measurements(table, diagnosis.unexplained ? reopened(components) : components, diagnosis, base);
    diagnosis.largest_terms = base.terms;
    std::ranges::stable_sort(diagnosis.largest_terms, std::ranges::greater{}, &Term::ms);
    if (diagnosis.largest_terms.size() > 5) diagnosis.largest_terms.resize(5);
    return diagnosis;
}

}  // namespace draftboard::calibration
