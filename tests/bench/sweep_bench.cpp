// SPDX-License-Identifier: Apache-2.0
// How long 10,000 configurations of Kimi-K2.5 on 8 GPUs take on two threads: depth x batch x context x all-reduce x launch x
// acceptance. Target: 1 s once warm, that is once the passes that they share are known.
//   first    nothing known: plans, collectives and kernels of the grid's 1000 distinct cycles are computed
//   warm     the same grid again
//   slider   the same shapes under acceptance rates and host costs that nobody has asked for before

#include <benchmark/benchmark.h>

#include <thread>

#include "planning/sweep.h"

namespace {

using namespace draftboard;
using planning::Axis;

const std::string kData = std::string(DRAFTBOARD_SOURCE_DIR) + "/data";
constexpr int kThreads = 2;

planning::Grid grid(double shift) {
    std::string rates;
    for (int i = 0; i < 10; ++i) rates += (i > 0 ? "," : "") + std::to_string(0.45 + 0.05 * i + shift);
    std::vector<Axis> axes;
    for (const std::string& text :
         {std::string("speculation.steps=1..5"), std::string("workload.concurrency=1..16:*2"),
          std::string("workload.context_tokens=1024,8192,32768,65536,131072"),
          std::string("collective.implementation=nccl,one_shot"), std::string("engine.launch.verify=eager,graph"),
          std::string("constants.host.cycle_us=400,600"), "speculation.acceptance.per_position.0=" + rates}) {
        axes.push_back(planning::parse_axis(text).value());
    }
    return planning::Grid::of(std::move(axes)).value();
}

planning::BaseDocument base() {
    return planning::load_base("kimi-k2.5-eagle3-founding", kData, {R"(speculation.acceptance={"per_position":[0.9,0.3,0.1]})"})
        .value();
}

/// All rows, on kThreads threads; returns how many were answered.
std::size_t sweep(const planning::Grid& rows, const std::shared_ptr<planning::SharedConstants>& shared,
                  std::vector<std::unique_ptr<planning::Variants>>& workers) {
    std::atomic<std::uint64_t> next{0};
    std::atomic<std::size_t> answered{0};
    std::vector<std::thread> threads;
    while (workers.size() < kThreads) workers.push_back(std::make_unique<planning::Variants>(shared, base()));
    for (int i = 0; i < kThreads; ++i) {
        threads.emplace_back([&, i] {
            for (std::uint64_t begin; (begin = next.fetch_add(planning::kBlockRows)) < rows.rows();) {
                const std::uint64_t end = std::min(rows.rows(), begin + planning::kBlockRows);
                for (std::uint64_t row = begin; row < end; ++row) {
                    const std::string line = planning::sweep_line(*workers[static_cast<std::size_t>(i)], rows, row);
                    if (line.find(",refused,") == std::string::npos) ++answered;
                }
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    return answered;
}

void run(benchmark::State& state, bool keep, bool shift) {
    auto shared = std::make_shared<planning::SharedConstants>(kData);
    std::vector<std::unique_ptr<planning::Variants>> workers;
    planning::Grid rows = grid(0);
    if (keep) sweep(rows, shared, workers);
    double shifted = 0;
    for (auto _ : state) {
        if (!keep) {
            workers.clear();
            shared = std::make_shared<planning::SharedConstants>(kData);
        }
        if (shift) rows = grid(shifted += 1e-5);
        if (sweep(rows, shared, workers) != rows.rows()) state.SkipWithError("rows were refused");
    }
    state.counters["rows/s"] =
        benchmark::Counter(static_cast<double>(rows.rows() * state.iterations()), benchmark::Counter::kIsRate);
}

void first(benchmark::State& state) { run(state, false, false); }
void warm(benchmark::State& state) { run(state, true, false); }
void slider(benchmark::State& state) { run(state, true, true); }
BENCHMARK(first)->Unit(benchmark::kMillisecond)->UseRealTime()->Iterations(1);
BENCHMARK(warm)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(slider)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
