// SPDX-License-Identifier: Apache-2.0
#include "calibration/backtest_fit.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace draftboard::calibration {

using model::Expected;

namespace {

constexpr double kFirstStep = 0.25;   // of the logarithm
constexpr double kLastStep = 0.02;

bool even(int line) { return line % 2 == 0; }
bool odd(int line) { return line % 2 != 0; }

double objective_of(const BacktestReport& report) {
    double sum = 0;
    for (const BacktestCell& cell : report.cells) {
        sum += std::min(std::fabs(std::log(cell.predicted.value / cell.measured)), kLargestMiss);
    }
    return report.cells.empty() ? 0 : sum / static_cast<double>(report.cells.size());
}

/// The search's state: terms, their objective, and how often it was asked for.
struct Search {
    const Backtest& backtest;
    EngineTerms terms;
    double best = 0;
    int evaluations = 0;

    Expected<double> evaluate(const EngineTerms& candidate) {
        ++evaluations;
        auto report = backtest.run(candidate, even);
        if (!report) return tl::unexpected(report.error());
        return objective_of(*report);
    }

    /// One term up or down by `step` of its logarithm; true if that was better and was kept.
    Expected<bool> move(const FitTerm& term, double step) {
        EngineTerms candidate = terms;
        double* value = find_term(candidate, term.name);
        if (value == nullptr) return false;
        const double before = *value;
        *value = std::clamp(before * std::exp(step), term.low, term.high);
        if (*value == before) return false;
        const auto objective = evaluate(candidate);
        if (!objective) return tl::unexpected(objective.error());
        if (!(*objective < best - 1e-6)) return false;
        best = *objective;
        terms = std::move(candidate);
        return true;
    }

    Expected<void> search(const FitTerm& term, double& step) {
        for (const double direction : {1.0, -1.0}) {
            bool moved = false;
            for (int i = 0; i < 3; ++i) {
                const auto better = move(term, direction * step);
                if (!better) return tl::unexpected(better.error());
                if (!*better) break;
                moved = true;
            }
            if (moved) return {};
        }
        step = std::max(0.4 * step, kLastStep);
        return {};
    }
};

Expected<BacktestSummary> summary_of(const Backtest& backtest, const EngineTerms& terms, bool (*take)(int)) {
    auto report = backtest.run(terms, take);
    if (!report) return tl::unexpected(report.error());
    return report->overall;
}

std::string line_of(const char* half, const BacktestSummary& before, const BacktestSummary& after) {
    return fmt::format("{}: {} cells, median error {:.1f} % (bias {:+.1f} %), {:.1f} % ({:+.1f} %) before the fit", half,
                       after.cells, 100 * after.median_absolute_error, 100 * after.median_error,
                       100 * before.median_absolute_error, 100 * before.median_error);
}

}  // namespace

const std::vector<FitTerm>& fit_terms() {
    static const std::vector<FitTerm> terms{
        {"traffic.alpha", 0.3, 2.0, "exponent of the power law by which real text chooses experts"},
        {"engines.vLLM.host.step_us", 20, 3000, "host work of a plain step"},
        {"engines.vLLM.host.cycle_us", 20, 6000, "host work of a speculative cycle"},
        {"engines.vLLM.host.draft_call_us", 20, 1500, "host work of a call of the drafter"},
        {"engines.SGLang.host.step_us", 20, 3000, "host work of a plain step"},
        {"engines.SGLang.host.cycle_us", 20, 6000, "host work of a speculative cycle"},
        {"kernels.attention_mla/fp8_e4m3/triton@vllm.serial_us", 0.3, 10, "one block's walk along the context"},
        {"kernels.attention_mla/fp8_e4m3/triton@vllm.rate_tflops", 20, 300, "all blocks' rate"},
        {"kernels.attention_mla/fp8_e4m3/triton@vllm.per_item_us", 0.001, 0.1, "a row and head"},
        {"kernels.attention_gqa/bf16/flash@vllm.verify_serial_us", 1, 100, "one block's walk for verified rows"},
        {"kernels.attention_mla/bf16/sparse.rate_tflops", 3, 200, "rate over chosen tokens"},
        {"kernels.attention_mla/fp8_e4m3/sparse.rate_tflops", 3, 200, "the same from an fp8 cache"},
        {"kernels.experts/int4_g32/marlin@vllm.bandwidth_gb_s", 900, 1600, "weights read in a whole pass"},
        {"kernels.experts/nvfp4_g16/b12x.fixed_us", 5, 100, "one MoE layer"},
        {"kernels.experts/nvfp4_g16/b12x.per_item_us", 0.01, 2, "an expert"},
        {"kernels.experts/nvfp4_g16/cutlass@sglang.fixed_us", 5, 200, "one MoE layer"},
    };
    return terms;
}

Expected<BacktestFit> fit_backtest(const Backtest& backtest, const EngineTerms& start, int sweeps,
                                   const std::function<void(const std::string&)>& progress) {
    Search search{backtest, start, 0, 0};
    const auto first = search.evaluate(start);
    if (!first) return tl::unexpected(first.error());
    search.best = *first;
    std::vector<double> steps(fit_terms().size(), kFirstStep);
    for (int sweep = 0; sweep < sweeps; ++sweep) {
        for (std::size_t i = 0; i < fit_terms().size(); ++i) {
            if (auto done = search.search(fit_terms()[i], steps[i]); !done) {
                return tl::unexpected(done.error());
            }
        }
        progress(fmt::format("sweep {} of {}: objective {:.4f}", sweep + 1, sweeps, search.best));
    }
    BacktestFit fit;
    fit.evaluations = search.evaluations;
    fit.terms = search.terms;
    const auto store = [&](BacktestSummary& to, const EngineTerms& terms, bool (*take)(int)) -> Expected<void> {
        auto summary = summary_of(backtest, terms, take);
        if (!summary) return tl::unexpected(summary.error());
        to = std::move(*summary);
        return {};
    };
    for (auto stored : {store(fit.fitted, fit.terms, even), store(fit.checked, fit.terms, odd),
                        store(fit.fitted_before, start, even), store(fit.checked_before, start, odd)}) {
        if (!stored) return tl::unexpected(stored.error());
    }
    return fit;
}

Calibration fitted_calibration(Calibration engines, const BacktestFit& fit, const std::string& table) {
    for (auto& [key, kernel] : engines.kernels.entries) {
        const auto fitted = fit.terms.kernels.entries.find(key);
        if (fitted != fit.terms.kernels.entries.end()) kernel = fitted->second;
    }
    model::Json hosts = model::Json::object();
    for (const auto& [engine, values] : fit.terms.engines) {
        for (const auto& [name, value] : values) hosts[engine][name] = std::round(value * 10) / 10;
    }
    engines.unknown["engines"] = std::move(hosts);
    engines.unknown["traffic"] = {{"routing", "power_law"}, {"alpha", std::round(fit.terms.traffic.alpha * 1000) / 1000}};
    engines.provenance = {
        fmt::format("fitted by draftboard backtest --fit on {} of shared terms: even lines fitted, odd lines checked",
                    table),
        line_of("even lines", fit.fitted_before, fit.fitted), line_of("odd lines", fit.checked_before, fit.checked)};
    std::string names;
    for (const FitTerm& term : fit_terms()) names += (names.empty() ? "" : ", ") + term.name;
    engines.provenance.push_back("fitted terms: " + names);
    return engines;
}

}  // namespace draftboard::calibration
