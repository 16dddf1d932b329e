// SPDX-License-Identifier: Apache-2.0
// How long one full prediction takes: Kimi-K2.5 on 8 ranks, EAGLE-3 with k = 3. Targets: at most 10 ms cold,
// at most 1 ms when only the acceptance or one scalar changes.

#include <benchmark/benchmark.h>

#include "calibration/cost_constants.h"
#include "model/scenario.h"
#include "sim/prediction.h"

namespace {

using namespace draftboard;

const std::string kData = std::string(DRAFTBOARD_SOURCE_DIR) + "/data";
constexpr const char* kScenario = "kimi-k2.5-eagle3-founding";

model::Scenario scenario(const model::Edits& edits = {}) {
    return model::load_scenario(kScenario, kData, edits).value();
}

sim::CostConstants constants() {
    return calibration::load_cost_constants(scenario(), kData).value();
}

void cold(benchmark::State& state) {
    const model::Scenario question = scenario();
    const sim::CostConstants costs = constants();
    for (auto _ : state) {
        sim::Predictor predictor(costs);
        benchmark::DoNotOptimize(predictor.predict(question));
    }
}
BENCHMARK(cold)->Unit(benchmark::kMillisecond);

void cold_in_graphs(benchmark::State& state) {
    const model::Scenario question = scenario({"engine.launch.verify=graph"});
    const sim::CostConstants costs = constants();
    for (auto _ : state) {
        sim::Predictor predictor(costs);
        benchmark::DoNotOptimize(predictor.predict(question));
    }
}
BENCHMARK(cold_in_graphs)->Unit(benchmark::kMillisecond);

void acceptance_changes(benchmark::State& state) {
    model::Scenario question = scenario();
    sim::Predictor predictor(constants());
    double rate = 0.5;
    for (auto _ : state) {
        rate = rate > 0.8 ? 0.5 : rate + 1e-4;
        question.speculation.acceptance.per_position = {rate, rate * rate, rate * rate * rate};
        benchmark::DoNotOptimize(predictor.predict(question));
    }
}
BENCHMARK(acceptance_changes)->Unit(benchmark::kMillisecond);

void host_scalar_changes(benchmark::State& state) {
    model::Scenario question = scenario();
    sim::Predictor predictor(constants());
    double us = 500;
    for (auto _ : state) {
        question.constants["host.cycle_us"] = us += 0.01;
        benchmark::DoNotOptimize(predictor.predict(question));
    }
}
BENCHMARK(host_scalar_changes)->Unit(benchmark::kMillisecond);

void context_changes(benchmark::State& state) {
    model::Scenario question = scenario();
    sim::Predictor predictor(constants());
    for (auto _ : state) {
        question.workload.context_tokens = 1024 + (question.workload.context_tokens + 1) % 1000;
        benchmark::DoNotOptimize(predictor.predict(question));
    }
}
BENCHMARK(context_changes)->Unit(benchmark::kMillisecond);

void load_scenario_file(benchmark::State& state) {
    for (auto _ : state) benchmark::DoNotOptimize(scenario());
}
BENCHMARK(load_scenario_file)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
