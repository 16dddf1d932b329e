// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/ceilings.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <thread>
#include <vector>

#include "backend/cpu/communicator.h"
#include "backend/cpu/simd_targets.h"
#include "backend/cpu/weight_matrix.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/ceilings.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backend/cpu/tiles_inl.h"

HWY_BEFORE_NAMESPACE();
namespace draftboard::backend::cpu {
namespace HWY_NAMESPACE {

/// Sum of `count` floats, a multiple of 16 N; the result is returned so that it has to be computed.
float read_all(const float* x, std::int64_t count) {
    const Floats d;
    constexpr int kStreams = 8;
    V sum[kStreams];
    DRAFTBOARD_UNROLL
    for (int t = 0; t < kStreams; ++t) sum[t] = hn::Zero(d);
    for (std::int64_t i = 0; i < count; i += kStreams * static_cast<std::int64_t>(N)) {
        DRAFTBOARD_UNROLL
        for (int t = 0; t < kStreams; ++t) sum[t] = hn::Add(sum[t], hn::Load(d, x + i + t * static_cast<std::int64_t>(N)));
    }
    float total = 0;
    for (int t = 0; t < kStreams; ++t) total += sum_lanes(sum[t]);
    return total;
}

/// `rounds` rounds of multiply-adds; the flops done go to `flops`.
float multiply_add(std::int64_t rounds, double& flops) {
    const Floats d;
    constexpr int kChains = 12;  // latency 4 or 5 x 2 instructions a cycle, and no more than 16 registers
    V sum[kChains];
    DRAFTBOARD_UNROLL
    for (int t = 0; t < kChains; ++t) sum[t] = hn::Set(d, 1.0F + static_cast<float>(t));
    const V factor = hn::Set(d, 0.999F);
    const V term = hn::Set(d, 0.001F);
    for (std::int64_t i = 0; i < rounds; ++i) {
        DRAFTBOARD_UNROLL
        for (int t = 0; t < kChains; ++t) sum[t] = hn::MulAdd(sum[t], factor, term);
    }
    float total = 0;
    for (int t = 0; t < kChains; ++t) total += sum_lanes(sum[t]);
    flops = 2.0 * static_cast<double>(N) * kChains * static_cast<double>(rounds);
    return total;
}

}  // namespace HWY_NAMESPACE
}  // namespace draftboard::backend::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace draftboard::backend::cpu {

namespace {

constexpr std::int64_t kMemoryBytes = std::int64_t{256} << 20;
constexpr std::int64_t kL3Bytes = std::int64_t{16} << 20;
constexpr std::int64_t kRunNs = 20'000'000;
constexpr std::int64_t kRounds = 100'000;

/// Time that this thread ran, so that other programs on the machine take less from a ceiling.
std::int64_t thread_ns() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

/// Runs `work(core)`, which returns what it did (bytes or flops), on all cores at once, again and again for kRunNs; the best
/// rate of all repetitions, in units of 1e9 a second.
template <class Work>
double best_rate(int cores, int repetitions, const Work& work) {
    Communicator together(cores);
    std::vector<double> done(static_cast<std::size_t>(cores));
    std::vector<std::int64_t> start(done.size());
    std::vector<std::int64_t> end(done.size());
    double best = 0;
    const auto run = [&](int core) {
        const auto at = static_cast<std::size_t>(core);
        work(core);  // pages and caches
        for (int repetition = 0; repetition < std::max(1, repetitions); ++repetition) {
            together.barrier(core);
            done[at] = 0;
            start[at] = thread_ns();
            do {
                done[at] += work(core);
                end[at] = thread_ns();
            } while (end[at] - start[at] < kRunNs);
            together.barrier(core);
            if (core == 0) {
                // Each core's own rate over its own time; they overlap but for the start of the last and the end of the first.
                double rate = 0;
                for (std::size_t c = 0; c < done.size(); ++c) rate += done[c] / static_cast<double>(std::max<std::int64_t>(end[c] - start[c], 1));
                best = std::max(best, rate);
            }
        }
    };
    std::vector<std::thread> others;
    for (int core = 1; core < cores; ++core) others.emplace_back(run, core);
    run(0);
    for (std::thread& other : others) other.join();
    return best;
}

CeilingRates measure(int cores, int repetitions, InstructionSet set) {
    const auto read_all = DRAFTBOARD_DISPATCH(set, read_all);
    const auto multiply_add = DRAFTBOARD_DISPATCH(set, multiply_add);
    std::vector<float> kept(static_cast<std::size_t>(cores) * 16);  // a cache line a core
    const auto read_rate = [&](std::int64_t bytes) {
        std::vector<AlignedBytes> buffers;
        for (int core = 0; core < cores; ++core) {
            buffers.emplace_back(static_cast<std::size_t>(bytes));
            // Pages of their own: an untouched page may stand for the one page of zeros.
            std::memset(buffers.back().data(), 1, buffers.back().size());
        }
        return best_rate(cores, repetitions, [&](int core) {
            const auto at = static_cast<std::size_t>(core);
            kept[at * 16] += read_all(reinterpret_cast<const float*>(buffers[at].data()), bytes / static_cast<std::int64_t>(sizeof(float)));
            return static_cast<double>(bytes);
        });
    };
    CeilingRates rates;
    rates.memory_gb_per_s = read_rate(kMemoryBytes);
    rates.l3_gb_per_s = read_rate(kL3Bytes / cores / 4096 * 4096);
    rates.fma_gflop_per_s = best_rate(cores, repetitions, [&](int core) {
        double flops = 0;
        kept[static_cast<std::size_t>(core) * 16] += multiply_add(kRounds, flops);
        return flops;
    });
    return rates;
}

}  // namespace

Ceilings measure_ceilings(int cores, int repetitions, InstructionSet set) {
    Ceilings ceilings;
    ceilings.cores = std::clamp(cores, 1, 4096);
    ceilings.one = measure(1, repetitions, set);
    ceilings.together = ceilings.cores == 1 ? ceilings.one : measure(ceilings.cores, repetitions, set);
    return ceilings;
}

}  // namespace draftboard::backend::cpu
#endif
