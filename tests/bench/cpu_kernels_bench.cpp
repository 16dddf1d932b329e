// SPDX-License-Identifier: Apache-2.0
// The dense products of the CPU engine beside what this core can do at most, measured in the same run, and beside OpenBLAS on
// float weights where that is installed. "cold" takes weights in turn from 128 MiB, as the layers of a model are; "hot" the same
// matrix again and again. GB/s are stored bytes of the weights, GFLOP/s 2 m n k; each also as a share of its ceiling.

#include <algorithm>
#include <cmath>
#include <string>

#include <benchmark/benchmark.h>

#include "backend/cpu/attention.h"
#include "backend/cpu/ceilings.h"
#include "backend/cpu/delta_net.h"
#include "backend/cpu/matmul.h"
#include "sample_matrices.h"
#ifdef DRAFTBOARD_OPENBLAS
#include <cblas.h>
#endif

namespace {

using namespace draftboard;
using namespace draftboard::backend::cpu;

struct Shape {
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    std::int64_t m = 0;
    bool cold = false;
};

void count(benchmark::State& state, double bytes, double flops, const CeilingRates& ceiling, bool cold) {
    using benchmark::Counter;
    const double top = cold ? ceiling.memory_gb_per_s : ceiling.l3_gb_per_s;
    const auto rate = Counter::kIsIterationInvariantRate;
    state.counters["GB/s"] = Counter(bytes * 1e-9, rate);
    state.counters["of_read"] = Counter(bytes * 1e-9 / top, rate);
    state.counters["GFLOP/s"] = Counter(flops * 1e-9, rate);
    state.counters["of_fma"] = Counter(flops * 1e-9 / ceiling.fma_gflop_per_s, rate);
}

std::size_t copies(const Shape& shape, double bytes) {
    return shape.cold ? static_cast<std::size_t>(std::ceil(static_cast<double>(128 << 20) / bytes)) : 1;
}

void time_matmul(benchmark::State& state, const model::WeightFormat& format, const Shape& shape, const CeilingRates& ceiling) {
    const double bytes = format.bytes(shape.rows, shape.columns);
    std::vector<WeightMatrix> weights;
    for (std::size_t i = 0; i < copies(shape, bytes); ++i) {
        // One draw, many addresses.
        WeightMatrix w = i == 0 ? random_matrix(shape.rows, shape.columns, format, 1) : make_matrix(shape.rows, shape.columns, format);
        if (i > 0) {
            std::copy_n(weights[0].data.data(), weights[0].data.size(), w.data.data());
            w.scales = weights[0].scales;
            w.scale_columns = weights[0].scale_columns;
        }
        weights.push_back(std::move(w));
    }
    const auto x = random_floats(static_cast<std::size_t>(shape.m * shape.columns), 2);
    std::vector<float> y(static_cast<std::size_t>(shape.m * shape.rows));
    Scratch scratch;
    std::size_t next = 0;
    for (auto _ : state) {
        matmul(x.data(), shape.m, shape.columns, weights[next], nullptr, y.data(), shape.rows, scratch);
        benchmark::DoNotOptimize(y.data());
        next = next + 1 == weights.size() ? 0 : next + 1;
    }
    count(state, bytes, 2.0 * static_cast<double>(shape.m * shape.rows * shape.columns), ceiling, shape.cold);
}

#ifdef DRAFTBOARD_OPENBLAS
void time_openblas(benchmark::State& state, const Shape& shape, const CeilingRates& ceiling) {
    const auto size = static_cast<std::size_t>(shape.rows * shape.columns);
    const double bytes = 4.0 * static_cast<double>(size);
    const std::size_t number = copies(shape, bytes);
    const auto one = random_floats(size, 1);
    std::vector<float> weights(size * number);
    for (std::size_t i = 0; i < number; ++i) std::copy(one.begin(), one.end(), weights.begin() + static_cast<std::ptrdiff_t>(i * size));
    const auto x = random_floats(static_cast<std::size_t>(shape.m * shape.columns), 2);
    std::vector<float> y(static_cast<std::size_t>(shape.m * shape.rows));
    const auto m = static_cast<blasint>(shape.m);
    const auto n = static_cast<blasint>(shape.rows);
    const auto k = static_cast<blasint>(shape.columns);
    std::size_t next = 0;
    for (auto _ : state) {
        const float* w = weights.data() + next * size;
        if (m == 1) {
            cblas_sgemv(CblasRowMajor, CblasNoTrans, n, k, 1, w, k, x.data(), 1, 0, y.data(), 1);
        } else {
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1, x.data(), k, w, k, 0, y.data(), n);
        }
        benchmark::DoNotOptimize(y.data());
        next = next + 1 == number ? 0 : next + 1;
    }
    count(state, bytes, 2.0 * static_cast<double>(shape.m * shape.rows * shape.columns), ceiling, shape.cold);
}
#endif

/// heads query heads over one cache that all share: the latent cache of MLA.
void time_mla(benchmark::State& state, int rows, std::int64_t context, const CeilingRates& ceiling) {
    const int heads = 16;
    const int latent = 512;
    const int rope = 64;
    const int slot = latent + rope;
    const auto cache = random_floats(static_cast<std::size_t>((context + rows) * slot), 1);
    const auto queries = random_floats(static_cast<std::size_t>(rows * heads * slot), 2);
    std::vector<float> output(static_cast<std::size_t>(rows * heads * latent));
    AttentionRows pass;
    pass.rows = rows;
    pass.context = context;
    pass.queries = queries.data();
    pass.query_stride = std::int64_t{heads} * slot;
    pass.output = output.data();
    pass.output_stride = std::int64_t{heads} * latent;
    pass.heads = heads;
    pass.scale = 0.04F;
    Scratch scratch;
    for (auto _ : state) {
        attend_mla(pass, latent, rope, cache.data(), scratch);
        benchmark::DoNotOptimize(output.data());
    }
    count(state, 4.0 * static_cast<double>(context * slot), 2.0 * rows * heads * static_cast<double>(context) * (2 * latent + rope), ceiling, false);
}

void time_gqa(benchmark::State& state, int rows, std::int64_t context, const CeilingRates& ceiling) {
    const int heads = 16;
    const int kv_heads = 2;
    const int dim = 128;
    const auto keys = random_floats(static_cast<std::size_t>((context + rows) * kv_heads * dim), 1);
    const auto values = random_floats(keys.size(), 2);
    const auto queries = random_floats(static_cast<std::size_t>(rows * heads * dim), 3);
    std::vector<float> output(queries.size());
    AttentionRows pass;
    pass.rows = rows;
    pass.context = context;
    pass.queries = queries.data();
    pass.query_stride = pass.output_stride = std::int64_t{heads} * dim;
    pass.output = output.data();
    pass.heads = heads;
    pass.scale = 0.09F;
    Scratch scratch;
    for (auto _ : state) {
        attend_gqa(pass, kv_heads, dim, keys.data(), values.data(), std::int64_t{kv_heads} * dim, scratch);
        benchmark::DoNotOptimize(output.data());
    }
    count(state, 8.0 * static_cast<double>(context * kv_heads * dim), 4.0 * rows * heads * dim * static_cast<double>(context), ceiling, false);
}

void time_delta_net(benchmark::State& state, const CeilingRates& ceiling) {
    const DeltaNetSizes sizes{16, 32, 128, 128, 4};
    const auto conv = random_floats(static_cast<std::size_t>(sizes.channels() * 4), 1);
    const auto heads = random_floats(32, 2);
    const auto channels = random_floats(static_cast<std::size_t>(sizes.channels()), 3);
    std::vector<float> memory(static_cast<std::size_t>(sizes.state()));
    std::vector<float> window(static_cast<std::size_t>(sizes.window()));
    std::vector<float> output(32 * 128);
    Scratch scratch;
    for (auto _ : state) {
        delta_net_row(sizes, {conv.data(), heads.data(), heads.data()}, channels.data(), heads.data(), heads.data(), memory.data(),
                      window.data(), memory.data(), window.data(), output.data(), scratch);
        benchmark::DoNotOptimize(output.data());
    }
    count(state, 8.0 * static_cast<double>(sizes.state()), 7.0 * static_cast<double>(sizes.state()), ceiling, false);
}

}  // namespace

int main(int argc, char** argv) {
    const Ceilings ceilings = measure_ceilings(2);
    const auto text = [](const CeilingRates& r) {
        return std::to_string(r.memory_gb_per_s) + " GB/s memory, " + std::to_string(r.l3_gb_per_s) + " GB/s L3, " +
               std::to_string(r.fma_gflop_per_s) + " GFLOP/s";
    };
    benchmark::AddCustomContext("instructions", instruction_set());
    benchmark::AddCustomContext("ceiling of one core", text(ceilings.one));
    benchmark::AddCustomContext("ceiling of two cores", text(ceilings.together));
    const CeilingRates ceiling = ceilings.one;
    for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{2048, 2048}, {256, 512}}) {
        for (const bool cold : {true, false}) {
            for (const std::int64_t m : {1, 4, 8, 16, 256}) {
                const Shape shape{rows, columns, m, cold};
                const std::string name = std::to_string(rows) + "x" + std::to_string(columns) + "/m" + std::to_string(m) + (cold ? "/cold" : "/hot");
                for (const model::WeightFormat& format :
                     {model::WeightFormat::plain(model::NumberFormat::bf16), model::WeightFormat{model::NumberFormat::fp8_e4m3, 128, 128, 32, 0},
                      model::WeightFormat{model::NumberFormat::int4, 1, 32, 16, 0}}) {
                    benchmark::RegisterBenchmark(("matmul/" + format.name() + "/" + name).c_str(), time_matmul, format, shape, ceiling);
                }
#ifdef DRAFTBOARD_OPENBLAS
                openblas_set_num_threads(1);
                benchmark::RegisterBenchmark(("openblas/fp32/" + name).c_str(), time_openblas, shape, ceiling);
#endif
            }
        }
    }
    for (const int rows : {1, 8, 256}) {
        benchmark::RegisterBenchmark(("mla/16_heads/context_1024/rows_" + std::to_string(rows)).c_str(), time_mla, rows, 1024, ceiling);
        benchmark::RegisterBenchmark(("gqa/16_heads/context_1024/rows_" + std::to_string(rows)).c_str(), time_gqa, rows, 1024, ceiling);
    }
    benchmark::RegisterBenchmark("delta_net/32_heads", time_delta_net, ceiling);
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
    return 0;
}
