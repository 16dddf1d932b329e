// SPDX-License-Identifier: Apache-2.0
// Attention and the delta net on this GPU, beside what a device-to-device copy reaches in the same
// run. Each line is the median of replays of a graph of many calls, each on a cache of its own
// (hundreds of MB together, so that L2 is cold), divided by their number: launches of a graph are
// in it. GB/s are bytes of the cache read once (attention), or states read and written (delta net).

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <vector>

#include <cuda_runtime_api.h>

#include "backend/cuda/attention.h"
#include "backend/cuda/check.h"
#include "backend/cuda/delta_net.h"
#include "backend/cuda/elementwise.h"

namespace {

using namespace draftboard::backend::cuda;

constexpr std::size_t kMemory = std::size_t{1} << 30;
constexpr std::int64_t kRotated = 400'000'000;  ///< bytes of all caches together

template <class T>
T* device(const std::vector<T>& values) {
    void* data = nullptr;
    check(cudaMalloc(&data, values.size() * sizeof(T)), "cudaMalloc");
    check(cudaMemcpy(data, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
          "cudaMemcpy");
    return static_cast<T*>(data);
}

std::vector<float> random_floats(std::size_t count, float scale = 1) {
    std::mt19937 generator(static_cast<std::uint32_t>(count));
    std::normal_distribution<float> normal(0, scale);
    std::vector<float> values(count);
    for (float& value : values) value = normal(generator);
    return values;
}

/// kMemory bytes of random numbers: `seed` again and again.
template <class T>
void* filled(const std::vector<T>& seed) {
    void* data = nullptr;
    check(cudaMalloc(&data, kMemory), "cudaMalloc");
    std::size_t done = seed.size() * sizeof(T);
    check(cudaMemcpy(data, seed.data(), done, cudaMemcpyHostToDevice), "cudaMemcpy");
    while (done < kMemory) {
        const std::size_t more = std::min(done, kMemory - done);
        check(cudaMemcpy(static_cast<char*>(data) + done, data, more, cudaMemcpyDeviceToDevice),
              "cudaMemcpy");
        done += more;
    }
    return data;
}

cudaStream_t stream = nullptr;

/// Microseconds of one replay.
double time_replays(const std::function<void()>& enqueue) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t replay = nullptr;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
    enqueue();
    check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&replay, graph, 0), "cudaGraphInstantiate");
    cudaEvent_t begin = nullptr, end = nullptr;
    check(cudaEventCreate(&begin), "cudaEventCreate");
    check(cudaEventCreate(&end), "cudaEventCreate");
    std::vector<float> times;
    for (int i = 0; i < 13; ++i) {
        check(cudaEventRecord(begin, stream), "cudaEventRecord");
        check(cudaGraphLaunch(replay, stream), "cudaGraphLaunch");
        check(cudaEventRecord(end, stream), "cudaEventRecord");
        check(cudaEventSynchronize(end), "cudaEventSynchronize");
        float ms = 0;
        check(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
        if (i >= 3) times.push_back(ms);
    }
    std::ranges::sort(times);
    cudaGraphExecDestroy(replay);
    cudaGraphDestroy(graph);
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return 1000.0 * static_cast<double>(times[times.size() / 2]);
}

/// A chain of m rows behind `committed` tokens of one sequence.
PassView chain_pass(int m, int committed, bool keeps) {
    std::vector<std::int32_t> parents(kMaxUncommitted, -1), positions;
    std::vector<std::uint32_t> masks;
    for (int t = 0; t < m; ++t) {
        parents[static_cast<std::size_t>(t)] = t - 1;
        positions.push_back(committed + t);
        masks.push_back((2u << t) - 1u);
        masks.resize(masks.size() + kMaskWords - 1);
    }
    const std::vector<std::int32_t> zero{0};
    return {1,
            m,
            device(positions),
            device(positions),
            device(zero),
            device(std::vector<std::int32_t>{committed}),
            device(zero),
            device(parents),
            device(masks),
            nullptr,
            0,
            keeps};
}

struct Shape {
    const char* name;
    int heads, kv_heads, key, value;
    bool mla;
    CacheFormat format;
};

void time_attention(const Shape& shape, std::int64_t context, int m, char* memory, double ceiling) {
    const std::int64_t width = shape.format == CacheFormat::bf16 ? 2 : 4;
    const std::int64_t slot = std::int64_t{shape.kv_heads} * shape.key;
    const std::int64_t bytes = context * slot * width * (shape.mla ? 1 : 2);
    const auto calls = static_cast<int>(std::clamp<std::int64_t>(kRotated / bytes + 1, 2, 300));
    const PassView pass = chain_pass(m, static_cast<int>(context) - m, true);
    float* query =
        device(random_floats(static_cast<std::size_t>(m * shape.heads * shape.key), 0.5F));
    float* output =
        device(std::vector<float>(static_cast<std::size_t>(m * shape.heads * shape.value)));
    void* workspace = nullptr;
    check(cudaMalloc(&workspace, static_cast<std::size_t>(attention_workspace_bytes(
                                     m, shape.heads, shape.value, context)) +
                                     16),
          "cudaMalloc");
    const double us =
        time_replays([&] {
            for (int i = 0; i < calls; ++i) {
                char* keys = memory + i * bytes;
                const KeyValueCache cache{keys, shape.mla ? nullptr : keys + bytes / 2,
                                          shape.format, slot, context * slot};
                if (shape.mla) {
                    attend_mla(pass, query, shape.heads, shape.value, shape.key - shape.value,
                               0.05F, cache, context, output, workspace, stream);
                } else {
                    attend_gqa(pass, query, shape.heads, shape.kv_heads, shape.key, 0.05F, cache,
                               context, output, workspace, stream);
                }
            }
        }) /
        calls;
    const double rate = static_cast<double>(bytes) / us * 1e-3;
    std::printf("%-24s context %6d  m %2d  %8.2f us  %7.1f GB/s  %5.1f %%\n", shape.name,
                static_cast<int>(context), m, us, rate, 100 * rate / ceiling);
    cudaFree(workspace);
    cudaFree(query);
    cudaFree(output);
}

void time_delta_net(int m, char* memory, double ceiling) {
    const DeltaNetShape shape{2, 8, 128, 128, 4};
    const std::int64_t stride = shape.channels() + 8 * 128 + 16;
    const bool keeps = m > 1;
    const PassView pass = chain_pass(m, 1000, keeps);
    const auto layer = shape.state() * (1 + m) + shape.channels() * (3 + m);  // numbers
    const auto calls = static_cast<int>(kRotated / (layer * 4));
    float* projected = device(random_floats(static_cast<std::size_t>(m * stride), 0.5F));
    float* conv = device(random_floats(static_cast<std::size_t>(4 * shape.channels()), 0.5F));
    float* heads = device(random_floats(8));
    float* convolved = device(std::vector<float>(static_cast<std::size_t>(m * shape.channels())));
    float* output = device(std::vector<float>(static_cast<std::size_t>(m) * 8 * 128));
    const double us =
        time_replays([&] {
            for (int i = 0; i < calls; ++i) {
                float* at = reinterpret_cast<float*>(memory) + i * layer;
                const DeltaNetCache cache{at, at + shape.state() * (1 + m), at + shape.state(),
                                          at + shape.state() * (1 + m) + 3 * shape.channels(), m};
                delta_net(pass, shape, projected, stride, conv, heads, heads, cache, convolved,
                          output, stream);
            }
        }) /
        calls;
    const double bytes = 4.0 * static_cast<double>(shape.state()) * (1 + m);
    const double rate = bytes / us * 1e-3;
    std::printf("%-24s                 m %2d  %8.2f us  %7.1f GB/s  %5.1f %%\n",
                "delta net 2/8 128x128", m, us, rate, 100 * rate / ceiling);
}

}  // namespace

int main(int argc, char** argv) {
    // With a context and a number of rows: attention of these alone, for a profiler.
    const int only_context = argc > 2 ? std::atoi(argv[1]) : 0;
    const int only_m = argc > 2 ? std::atoi(argv[2]) : 0;
    int gpus = 0;
    if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) {
        std::fprintf(stderr, "no GPU\n");
        return 3;
    }
    check(cudaStreamCreate(&stream), "cudaStreamCreate");
    std::vector<std::uint16_t> half(1 << 20);
    const auto numbers = random_floats(half.size());
    std::ranges::transform(numbers, half.begin(), [](float v) {
        std::uint32_t bits = 0;
        std::copy_n(reinterpret_cast<const char*>(&v), 4, reinterpret_cast<char*>(&bits));
        return static_cast<std::uint16_t>(bits >> 16);
    });
    auto* halves = static_cast<char*>(filled(half));
    auto* floats = static_cast<char*>(filled(numbers));

    // A copy by a kernel, 64 KiB rows. The clocks of an idle GPU take a while to rise.
    constexpr int kRow = 16384;
    constexpr int kRows = static_cast<int>(kMemory / sizeof(float) / kRow / 2);
    auto* numbers_in = reinterpret_cast<float*>(halves);
    auto* numbers_out = numbers_in + std::int64_t{kRows} * kRow;
    const auto copy = [&] { copy_rows(numbers_in, kRow, kRows, kRow, numbers_out, kRow, stream); };
    for (int i = 0; i < 600; ++i) copy();
    const double copy_us = time_replays(copy);
    const double ceiling = static_cast<double>(kMemory) / copy_us * 1e-3;
    std::printf("copy: %.0f GB/s read and written\n", ceiling);

    const Shape kimi{"MLA 8 heads 512+64 bf16", 8, 1, 576, 512, true, CacheFormat::bf16};
    const Shape qwen{"GQA 32/4 dim 128 bf16", 32, 4, 128, 128, false, CacheFormat::bf16};
    for (const Shape& shape : {kimi, qwen}) {
        for (const std::int64_t context : {1024, 16384, 65536}) {
            for (const int m : {1, 4, 8}) {
                if (only_m != 0 && (m != only_m || context != only_context)) continue;
                time_attention(shape, context, m, halves, ceiling);
            }
        }
    }
    if (only_m != 0) return 0;
    time_attention({"MLA 8 heads 512+64 fp32", 8, 1, 576, 512, true, CacheFormat::fp32}, 16384, 1,
                   floats, ceiling);
    time_attention({"GQA 32/4 dim 128 fp32", 32, 4, 128, 128, false, CacheFormat::fp32}, 16384, 1,
                   floats, ceiling);
    for (const int m : {1, 4}) time_delta_net(m, floats, ceiling);
    return 0;
}
