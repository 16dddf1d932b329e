// SPDX-License-Identifier: Apache-2.0
// draftboard-host-costs: what launching costs on this machine, measured. Prints one JSON object; its
// fields are the HostConstants of sim/host_costs with their medians. Needs a GPU; builds wherever nvcc is.
//
//   eager_launch_us    host time of one kernel launch into a filled stream     (a C++ program: no framework)
//   graph_launch_us    host time of launching a captured graph of 1000 nodes
//   kernel_gap_us      end of one dependent kernel to the start of the next, inside a graph; by %globaltimer
//   stream_gap_us      the same in a stream whose queue is never empty
//   launch_latency_us  launch call to kernel start on an idle stream: half of launch + sync is host side, so
//                      this is the round trip of an empty kernel minus the round trip of a synchronise
//   sync_us            cudaStreamSynchronize on an idle stream
//   read_back_us       4 bytes to pinned host memory and synchronise: what an engine pays to see a result
//   cooperative bytes/flops: none, all kernels are empty or spin

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_runtime.h>

namespace {

void check(cudaError_t error, const char* call, int line) {
    if (error == cudaSuccess) return;
    std::fprintf(stderr, "error: host_costs.cu:%d: %s: %s\n  check that a GPU is free and the driver is loaded\n",
                 line, call, cudaGetErrorString(error));
    std::exit(3);
}
#define CUDA_CHECK(call) check((call), #call, __LINE__)

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
double host_us(int repetitions, int count, Body body, After after) {
    std::vector<double> samples;
    for (int i = 0; i < repetitions; ++i) {
        const double begin = seconds();
        body();
        samples.push_back((seconds() - begin) * 1e6 / count);
        after();
    }
    return median(samples);
}

constexpr int kNodes = 1000;

double gap_us(const std::vector<unsigned long long>& times) {
    std::vector<double> gaps;
    for (int i = 0; i + 1 < kNodes; ++i) {
        gaps.push_back((static_cast<double>(times[2 * i + 2]) - static_cast<double>(times[2 * i + 1])) * 1e-3);
    }
    return median(gaps);
}

}  // namespace

int main() {
    cudaStream_t stream;
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cudaDeviceProp device{};
    CUDA_CHECK(cudaGetDeviceProperties(&device, 0));
    unsigned long long* times = nullptr;
    CUDA_CHECK(cudaMalloc(&times, 2 * kNodes * sizeof(*times)));
    int* value = nullptr;
    CUDA_CHECK(cudaMalloc(&value, sizeof(int)));
    int* host_value = nullptr;
    CUDA_CHECK(cudaHostAlloc(&host_value, sizeof(int), cudaHostAllocDefault));
    const auto sync = [&] { CUDA_CHECK(cudaStreamSynchronize(stream)); };
    for (int i = 0; i < 100; ++i) empty<<<1, 32, 0, stream>>>();
    sync();

    const double eager = host_us(50, 200, [&] { for (int i = 0; i < 200; ++i) empty<<<1, 32, 0, stream>>>(); }, sync);
    const double idle_sync = host_us(200, 1, sync, [] {});
    const double round_trip = host_us(200, 1, [&] { empty<<<1, 32, 0, stream>>>(); sync(); }, [] {});
    const double read_back = host_us(200, 1, [&] {
        CUDA_CHECK(cudaMemcpyAsync(host_value, value, sizeof(int), cudaMemcpyDeviceToHost, stream));
        sync();
    }, [] {});

    cudaGraph_t graph;
    CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < kNodes; ++i) stamp<<<1, 32, 0, stream>>>(times, i, 3000);
    CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
    cudaGraphExec_t executable;
    CUDA_CHECK(cudaGraphInstantiate(&executable, graph, 0));
    const double graph_launch = host_us(30, 1, [&] { CUDA_CHECK(cudaGraphLaunch(executable, stream)); }, sync);
    std::vector<unsigned long long> stamps(2 * kNodes);
    const auto read_stamps = [&] {
        CUDA_CHECK(cudaMemcpy(stamps.data(), times, stamps.size() * sizeof(stamps[0]), cudaMemcpyDeviceToHost));
    };
    read_stamps();
    const double graph_gap = gap_us(stamps);
    // A stream with work queued: a long kernel lets the host run ahead.
    stamp<<<1, 32, 0, stream>>>(times, 0, 20'000'000);
    for (int i = 0; i < kNodes; ++i) stamp<<<1, 32, 0, stream>>>(times, i, 3000);
    sync();
    read_stamps();
    const double stream_gap = gap_us(stamps);
    CUDA_CHECK(cudaGetLastError());

    int driver = 0;
    int runtime = 0;
    CUDA_CHECK(cudaDriverGetVersion(&driver));
    CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
    std::printf("{\"format\": \"draftboard.host_costs\", \"version\": 1, \"gpu\": \"%s\", \"driver\": %d, \"runtime\": %d,\n"
                " \"eager_launch_us\": %.3f, \"graph_launch_us\": %.3f, \"kernel_gap_us\": %.3f, \"stream_gap_us\": %.3f,\n"
                " \"launch_latency_us\": %.3f, \"sync_us\": %.3f, \"round_trip_us\": %.3f, \"read_back_us\": %.3f}\n",
                device.name, driver, runtime, eager, graph_launch, graph_gap, stream_gap,
                round_trip - idle_sync, idle_sync, round_trip, read_back);
    return 0;
}
