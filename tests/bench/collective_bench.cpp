// SPDX-License-Identifier: Apache-2.0
// How long the collective model itself takes. Targets: a cold 8-rank ring all-reduce well under 1
// ms, a remembered one well under 1 us.

#include <benchmark/benchmark.h>

#include <numeric>

#include "model/machine_builder.h"
#include "sim/collective.h"
#include "sim/collective_steps.h"

namespace {

using namespace draftboard;

model::Machine box(int gpus) {
    model::MachineBuilder builder("box");
    builder.machine().gpu.compute_capability = "12.0";
    builder.machine().host.vendor = "GenuineIntel";
    builder.machine().host.model = 0x8F;
    const int numa0 = builder.add_numa(0, 0);
    const int numa1 = builder.add_numa(1, 1);
    for (int g = 0; g < gpus; ++g) {
        builder.add_gpu(builder.add_root_port(2 * g < gpus ? numa0 : numa1), 5, 16);
    }
    builder.connect_all_numa(5);
    return builder.machine();
}

sim::CollectiveRequest request(int gpus, std::int64_t bytes, model::OperationKind operation) {
    sim::CollectiveRequest result;
    result.operation = operation;
    result.gpus.resize(static_cast<std::size_t>(gpus));
    std::iota(result.gpus.begin(), result.gpus.end(), 0);
    result.bytes = bytes;
    return result;
}

void cold_model_and_ring(benchmark::State& state) {
    const model::Machine machine = box(8);
    for (auto _ : state) {
        sim::CollectiveModel model(machine, {});
        benchmark::DoNotOptimize(model.time(request(8, 1 << 20, model::OperationKind::all_reduce)));
    }
}
BENCHMARK(cold_model_and_ring);

void cold_ring(benchmark::State& state) {
    const model::Machine machine = box(8);
    sim::CollectiveModel model(machine, {});
    std::int64_t bytes = 1 << 20;
    for (auto _ : state) {
        benchmark::DoNotOptimize(model.time(request(8, ++bytes, model::OperationKind::all_reduce)));
    }
}
BENCHMARK(cold_ring);

void remembered_ring(benchmark::State& state) {
    const model::Machine machine = box(8);
    sim::CollectiveModel model(machine, {});
    const auto asked = request(8, 1 << 20, model::OperationKind::all_reduce);
    for (auto _ : state) benchmark::DoNotOptimize(model.time(asked));
}
BENCHMARK(remembered_ring);

void cold_exchange(benchmark::State& state) {
    const model::Machine machine = box(8);
    for (auto _ : state) {
        sim::CollectiveModel model(machine, {});
        benchmark::DoNotOptimize(model.time(request(8, 1 << 20, model::OperationKind::all_to_all)));
    }
}
BENCHMARK(cold_exchange);

void full_event_simulation_of_a_ring(benchmark::State& state) {
    const model::Machine machine = box(8);
    sim::CollectiveModel model(machine, {});
    const auto asked = request(8, 1 << 20, model::OperationKind::all_reduce);
    for (auto _ : state) benchmark::DoNotOptimize(model.link_samples(asked));
}
BENCHMARK(full_event_simulation_of_a_ring);

void max_min_of_56_flows(benchmark::State& state) {
    std::vector<double> capacities(16, 50e9);
    std::vector<std::vector<sim::ResourceUse>> uses;
    for (int from = 0; from < 8; ++from) {
        for (int to = 0; to < 8; ++to) {
            if (from != to) uses.push_back({{from, 1.0}, {8 + to, 1.0}});
        }
    }
    for (auto _ : state) benchmark::DoNotOptimize(sim::max_min_rates(capacities, uses, {}));
}
BENCHMARK(max_min_of_56_flows);

}  // namespace

BENCHMARK_MAIN();
