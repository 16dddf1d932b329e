// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/launch_costs.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include <cuda_runtime.h>

#include "backend/cuda/capture_graph.h"
#include "backend/cuda/check.h"
#include "backend/cuda/device_buffer.h"

namespace draftboard::backend::cuda {

namespace {

constexpr int kNodes = 1000;
constexpr int kEvents = 200;
constexpr std::int64_t kCopyBytes = std::int64_t{64} << 20;

__global__ void empty() {}

__device__ unsigned long long now_ns() {
    unsigned long long t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
}

/// Spins for about `ns` and records when it began and ended: times (2 * index, 2 * index + 1).
__global__ void stamp(unsigned long long* times, int index, unsigned long long ns) {
    const unsigned long long begin = now_ns();
    unsigned long long end = begin;
    while (end - begin < ns) end = now_ns();
    times[2 * index] = begin;
    times[2 * index + 1] = now_ns();
}

double median(std::vector<double> values) {
    std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2), values.end());
    return values[values.size() / 2];
}

double seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Median over repetitions of the host time of `body`, per `count` inner operations, in microseconds.
template <class Body, class After>
double host_us(int repetitions, int count, const Body& body, const After& after) {
    std::vector<double> samples;
    for (int i = 0; i < repetitions; ++i) {
        const double begin = seconds();
        body();
        samples.push_back((seconds() - begin) * 1e6 / count);
        after();
    }
    return median(samples);
}

double gap_us(const std::vector<unsigned long long>& times) {
    std::vector<double> gaps;
    for (int i = 0; i + 1 < kNodes; ++i) {
        gaps.push_back((static_cast<double>(times[2 * i + 2]) - static_cast<double>(times[2 * i + 1])) * 1e-3);
    }
    return median(gaps);
}

/// Streams, events and pinned memory that go when this does.
struct Tools {
    cudaStream_t stream = nullptr;
    std::vector<cudaEvent_t> events;
    void* pinned = nullptr;
    std::vector<cudaGraphExec_t> graphs;
    Tools() {
        check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
        for (int i = 0; i <= kEvents; ++i) check(cudaEventCreate(&events.emplace_back()), "event");
        check(cudaHostAlloc(&pinned, kCopyBytes, cudaHostAllocDefault), "pinned memory");
    }
    ~Tools() {
        cudaStreamSynchronize(stream);
        for (cudaGraphExec_t graph : graphs) cudaGraphExecDestroy(graph);
        for (cudaEvent_t event : events) cudaEventDestroy(event);
        cudaFreeHost(pinned);
        cudaStreamDestroy(stream);
    }
    void sync() const { check(cudaStreamSynchronize(stream), "synchronise"); }
    template <class Enqueue>
    cudaGraphExec_t capture(const Enqueue& enqueue) {
        return graphs.emplace_back(capture_graph(stream, enqueue));
    }
    /// Median time between neighbouring events.
    [[nodiscard]] double between_events_us() const {
        std::vector<double> us;
        for (int i = 0; i < kEvents; ++i) {
            float ms = 0;
            check(cudaEventElapsedTime(&ms, events[static_cast<std::size_t>(i)], events[static_cast<std::size_t>(i) + 1]), "event");
            us.push_back(static_cast<double>(ms) * 1e3);
        }
        return median(us);
    }
};

void enqueue_events(const Tools& tools, unsigned flags, bool kernels) {
    for (int i = 0; i <= kEvents; ++i) {
        check(cudaEventRecordWithFlags(tools.events[static_cast<std::size_t>(i)], tools.stream, flags), "event");
        if (kernels) empty<<<1, 32, 0, tools.stream>>>();
    }
}

double copy_gb_s(const Tools& tools, void* to, const void* from, cudaMemcpyKind kind) {
    const double us = host_us(9, 1, [&] {
        check(cudaMemcpyAsync(to, from, kCopyBytes, kind, tools.stream), "copy");
        tools.sync();
    }, [] {});
    return static_cast<double>(kCopyBytes) / us * 1e-3;
}

}  // namespace

LaunchCosts measure_launch_costs() {
    Tools tools;
    const cudaStream_t stream = tools.stream;
    const DeviceBuffer<unsigned long long> times(2 * kNodes);
    const DeviceBuffer<char> bytes(kCopyBytes);
    const auto sync = [&] { tools.sync(); };
    for (int i = 0; i < 100; ++i) empty<<<1, 32, 0, stream>>>();
    sync();

    LaunchCosts costs;
    costs.eager_launch_us = host_us(50, 200, [&] { for (int i = 0; i < 200; ++i) empty<<<1, 32, 0, stream>>>(); }, sync);
    costs.sync_us = host_us(200, 1, sync, [] {});
    costs.round_trip_us = host_us(200, 1, [&] { empty<<<1, 32, 0, stream>>>(); sync(); }, [] {});
    costs.launch_latency_us = costs.round_trip_us - costs.sync_us;
    costs.read_back_us = host_us(200, 1, [&] {
        check(cudaMemcpyAsync(tools.pinned, bytes.data(), 4, cudaMemcpyDeviceToHost, stream), "copy");
        sync();
    }, [] {});

    const cudaGraphExec_t graph = tools.capture([&] {
        for (int i = 0; i < kNodes; ++i) stamp<<<1, 32, 0, stream>>>(times.data(), i, 3000);
    });
    costs.graph_launch_us = host_us(30, 1, [&] { check(cudaGraphLaunch(graph, stream), "graph launch"); }, sync);
    std::vector<unsigned long long> stamps(2 * kNodes);
    const auto read_stamps = [&] {
        check(cudaMemcpy(stamps.data(), times.data(), stamps.size() * sizeof(stamps[0]), cudaMemcpyDeviceToHost), "copy");
    };
    read_stamps();
    costs.kernel_gap_us = gap_us(stamps);
    // A stream with work queued: a long kernel lets the host run ahead.
    stamp<<<1, 32, 0, stream>>>(times.data(), 0, 20'000'000);
    for (int i = 0; i < kNodes; ++i) stamp<<<1, 32, 0, stream>>>(times.data(), i, 3000);
    sync();
    read_stamps();
    costs.stream_gap_us = gap_us(stamps);

    const auto in_graph = [&](bool kernels) {
        const cudaGraphExec_t events = tools.capture([&] { enqueue_events(tools, cudaEventRecordExternal, kernels); });
        for (int i = 0; i < 3; ++i) {
            check(cudaGraphLaunch(events, stream), "graph launch");
            sync();
        }
        return tools.between_events_us();
    };
    costs.event_us = in_graph(false);
    costs.event_kernel_us = in_graph(true);
    stamp<<<1, 32, 0, stream>>>(times.data(), 0, 5'000'000);
    enqueue_events(tools, cudaEventRecordDefault, false);
    sync();
    costs.event_stream_us = tools.between_events_us();

    costs.to_device_gb_s = copy_gb_s(tools, bytes.data(), tools.pinned, cudaMemcpyHostToDevice);
    costs.to_host_gb_s = copy_gb_s(tools, tools.pinned, bytes.data(), cudaMemcpyDeviceToHost);
    check(cudaGetLastError(), "launch costs");
    return costs;
}

}  // namespace draftboard::backend::cuda
