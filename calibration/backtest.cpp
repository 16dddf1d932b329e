// SPDX-License-Identifier: Apache-2.0
#include "calibration/backtest.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <tuple>

#include "calibration/cost_constants.h"

namespace draftboard::calibration {

using model::Expected;

namespace {

double median(std::vector<double> values) {
    if (values.empty()) return 0;
    const std::size_t middle = values.size() / 2;
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(middle), values.end());
    const double upper = values[middle];
    if (values.size() % 2 == 1) return upper;
    return 0.5 * (upper + *std::max_element(values.begin(),
                                            values.begin() + static_cast<std::ptrdiff_t>(middle)));
}

/// Rows with the same twin, one plain and one speculating, make a pair. Of repeated rows the first counts.
std::vector<BacktestPair> pairs_of(const std::vector<BacktestCell>& cells) {
    std::map<std::string, std::size_t> plain;
    for (std::size_t i = 0; i < cells.size(); ++i) {
        if (!cells[i].speculates) plain.try_emplace(cells[i].twin, i);
    }
    std::vector<BacktestPair> pairs;
    for (std::size_t i = 0; i < cells.size(); ++i) {
        const auto partner = cells[i].speculates ? plain.find(cells[i].twin) : plain.end();
        if (partner == plain.end()) continue;
        BacktestPair pair;
        pair.plain = partner->second;
        pair.speculative = i;
        pair.measured = cells[i].measured / cells[pair.plain].measured;
        pair.predicted = cells[i].predicted.value / cells[pair.plain].predicted.value;
        pairs.push_back(pair);
    }
    return pairs;
}

}  // namespace

double RepeatNoise::limit() const {
    return std::max(std::log1p(kNoise), sim::kNormal90 * std::hypot(plain, speculating));
}

RepeatNoise repeat_noise(const std::vector<BacktestCell>& cells,
                         const std::function<bool(const BacktestCell&)>& take) {
    // Cells with equal scenarios are predicted alike, to the last bit.
    using Key = std::tuple<std::string, bool, int, double>;
    std::map<Key, std::vector<double>> sets;
    for (const BacktestCell& cell : cells) {
        if (!take(cell)) continue;
        sets[{cell.group, cell.speculates, cell.row.concurrency, cell.predicted.value}].push_back(
            std::log(cell.measured));
    }
    std::vector<double> differences[2];
    for (const auto& [key, rates] : sets) {
        for (std::size_t i = 0; i < rates.size(); ++i) {
            for (std::size_t j = i + 1; j < rates.size(); ++j) {
                differences[std::get<1>(key) ? 1 : 0].push_back(std::fabs(rates[i] - rates[j]));
            }
        }
    }
    constexpr double kMedianOfNormal = 0.6744897501960817;  // of |x| in standard deviations
    const auto sigma = [](std::vector<double> values) {
        return median(std::move(values)) / (std::sqrt(2.0) * kMedianOfNormal);
    };
    RepeatNoise noise;
    noise.plain_pairs = differences[0].size();
    noise.speculating_pairs = differences[1].size();
    noise.plain = sigma(std::move(differences[0]));
    noise.speculating = sigma(std::move(differences[1]));
    return noise;
}

BacktestSummary summarise(const BacktestReport& report, const std::string& name,
                          const std::function<bool(const BacktestCell&)>& take) {
    BacktestSummary summary;
    summary.name = name;
    std::vector<double> errors;
    std::vector<double> absolute;
    std::size_t held = 0;
    for (const BacktestCell& cell : report.cells) {
        if (!take(cell)) continue;
        errors.push_back(cell.error());
        absolute.push_back(std::fabs(cell.error()));
        held += cell.held() ? 1 : 0;
    }
    summary.cells = errors.size();
    if (summary.cells > 0) summary.coverage_90 = static_cast<double>(held) / static_cast<double>(summary.cells);
    summary.median_error = median(std::move(errors));
    summary.median_absolute_error = median(std::move(absolute));
    summary.noise = repeat_noise(report.cells, take);
    if (std::min(summary.noise.plain_pairs, summary.noise.speculating_pairs) < kLeastRepeats) {
        summary.noise = report.noise;
    }
    std::vector<double> ratios;
    std::size_t right = 0;
    std::size_t repeat_right = 0;
    for (const BacktestPair& pair : report.pairs) {
        if (!take(report.cells[pair.plain]) || !take(report.cells[pair.speculative])) continue;
        ratios.push_back(std::fabs(pair.predicted / pair.measured - 1));
        if (std::fabs(std::log(pair.measured)) > summary.noise.limit()) {
            ++summary.repeat_pairs;
            repeat_right += pair.sign_right() ? 1 : 0;
        }
        if (!pair.beyond_noise()) continue;
        ++summary.sign_pairs;
        right += pair.sign_right() ? 1 : 0;
    }
    summary.pairs = ratios.size();
    summary.speedup_error = median(std::move(ratios));
    if (summary.sign_pairs > 0) {
        summary.sign_right = static_cast<double>(right) / static_cast<double>(summary.sign_pairs);
    }
    if (summary.repeat_pairs > 0) {
        summary.repeat_right =
            static_cast<double>(repeat_right) / static_cast<double>(summary.repeat_pairs);
    }
    return summary;
}

Expected<Backtest> Backtest::prepare(const std::vector<PublishedRow>& rows,
                                     const std::string& data_directory) {
    Backtest backtest;
    backtest.rows_ = rows.size();
    BacktestLibrary library(data_directory);
    for (const PublishedRow& row : rows) {
        auto known = library.scenario_of(row);
        if (!known) {
            if (known.error().code != model::ErrorCode::unsupported) return tl::unexpected(known.error());
            ++backtest.skipped_[known.error().message];
            continue;
        }
        const std::string& machine = known->scenario.machine.name;
        if (backtest.constants_.find(machine) == backtest.constants_.end()) {
            auto constants = load_cost_constants(known->scenario, data_directory);
            if (!constants) return tl::unexpected(constants.error());
            if (backtest.constants_.empty()) {
                auto terms = load_engine_terms(constants->kernel_calibration, data_directory);
                if (!terms) return tl::unexpected(terms.error());
                backtest.shipped_ = std::move(*terms);
            }
            backtest.constants_.emplace(machine, std::move(*constants));
        }
        backtest.cases_.push_back({row, std::move(*known)});
    }
    return backtest;
}

Expected<BacktestReport> Backtest::run(const EngineTerms& terms,
                                       const std::function<bool(int line)>& take) const {
    BacktestReport report;
    report.rows = rows_;
    report.skipped = skipped_;
    std::map<std::string, std::unique_ptr<sim::Predictor>> predictors;  // by machine
    for (const auto& [machine, constants] : constants_) {
        sim::CostConstants with_terms = constants;
        apply(terms, with_terms);
        predictors[machine] = std::make_unique<sim::Predictor>(std::move(with_terms));
    }
    for (const Case& one : cases_) {
        if (!take(one.row.line)) continue;
        model::Scenario scenario = one.known.scenario;
        scenario.routing = terms.traffic;
        auto prediction = predictors.at(scenario.machine.name)->predict(scenario);
        if (!prediction) {
            ++report.skipped["not predictable: " + prediction.error().message];
            continue;
        }
        BacktestCell cell;
        cell.row = one.row;
        cell.group = one.known.group;
        cell.twin = one.known.twin;
        cell.speculates = scenario.speculation.method != model::SpeculationMethod::none;
        cell.predicted = prediction->tokens_per_second;
        cell.measured = *one.row.tokens_per_second;
        cell.cycle_ms = prediction->cycle_ms;
        cell.fits_memory = prediction->memory.fits;
        cell.terms = std::move(prediction->terms);
        report.cells.push_back(std::move(cell));
    }
    report.pairs = pairs_of(report.cells);
    report.noise = repeat_noise(report.cells, [](const BacktestCell&) { return true; });
    report.overall = summarise(report, "all", [](const BacktestCell&) { return true; });
    std::set<std::string> names;
    for (const BacktestCell& cell : report.cells) names.insert(cell.group);
    for (const std::string& name : names) {
        report.groups.push_back(
            summarise(report, name, [&name](const BacktestCell& cell) { return cell.group == name; }));
    }
    return report;
}

Expected<BacktestReport> backtest(const std::vector<PublishedRow>& rows, const std::string& data_directory) {
    const auto prepared = Backtest::prepare(rows, data_directory);
    if (!prepared) return tl::unexpected(prepared.error());
    return prepared->run(prepared->shipped_terms(), [](int) { return true; });
}

}  // namespace draftboard::calibration
