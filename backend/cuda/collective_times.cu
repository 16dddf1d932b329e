// SPDX-License-Identifier: Apache-2.0
// draftboard-collective-times: NCCL all-reduce times over all GPUs of this machine, replayed in CUDA graphs,
// at the message sizes of decoding and verifying (multiples of a hidden row) beside powers of two. Prints CSV
// in the format that calibration/collective_measurements.h reads. One process, one stream a GPU; NCCL's
// own variables (NCCL_P2P_DISABLE, NCCL_PROTO, ...) apply.
//
//   system,impl,op,gpus,bytes,latency_us      latency: median over replays of (graph time / collectives in it)

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <cuda_runtime.h>
#include <nccl.h>

namespace {

void check(bool ok, const char* call, const char* why, int line) {
    if (ok) return;
    std::fprintf(stderr, "error: collective_times.cu:%d: %s: %s\n  check the GPUs and NCCL's library\n", line, call, why);
    std::exit(3);
}
#define CUDA_CHECK(call) do { const cudaError_t cuda_result = (call); check(cuda_result == cudaSuccess, #call, cudaGetErrorString(cuda_result), __LINE__); } while (0)
#define NCCL_CHECK(call) do { const ncclResult_t nccl_result = (call); check(nccl_result == ncclSuccess, #call, ncclGetErrorString(nccl_result), __LINE__); } while (0)

constexpr int kCollectivesInGraph = 32;
constexpr int kReplays = 40;

struct Rank {
    cudaStream_t stream = nullptr;
    void* buffer = nullptr;
    ncclComm_t communicator = nullptr;
    cudaGraphExec_t graph = nullptr;
};

double seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Captures the collectives of all ranks; one process captures on every stream, then ends them.
void capture(std::vector<Rank>& ranks, std::size_t bytes) {
    const auto n = static_cast<int>(ranks.size());
    for (int r = 0; r < n; ++r) {
        CUDA_CHECK(cudaSetDevice(r));
        CUDA_CHECK(cudaStreamBeginCapture(ranks[r].stream, cudaStreamCaptureModeThreadLocal));
    }
    for (int i = 0; i < kCollectivesInGraph; ++i) {
        NCCL_CHECK(ncclGroupStart());
        for (int r = 0; r < n; ++r) {
            NCCL_CHECK(ncclAllReduce(ranks[r].buffer, ranks[r].buffer, bytes / 2, ncclBfloat16, ncclSum,
                                     ranks[r].communicator, ranks[r].stream));
        }
        NCCL_CHECK(ncclGroupEnd());
    }
    std::vector<cudaGraph_t> graphs(ranks.size());  // no stream may be capturing while a graph is instantiated
    for (int r = 0; r < n; ++r) CUDA_CHECK(cudaStreamEndCapture(ranks[r].stream, &graphs[r]));
    for (int r = 0; r < n; ++r) {
        CUDA_CHECK(cudaSetDevice(r));
        CUDA_CHECK(cudaGraphInstantiate(&ranks[r].graph, graphs[r], 0));
        CUDA_CHECK(cudaGraphDestroy(graphs[r]));
    }
}

double replay_us(std::vector<Rank>& ranks) {
    std::vector<double> samples;
    for (int i = 0; i < kReplays + 5; ++i) {
        const double begin = seconds();
        for (std::size_t r = 0; r < ranks.size(); ++r) {
            CUDA_CHECK(cudaSetDevice(static_cast<int>(r)));
            CUDA_CHECK(cudaGraphLaunch(ranks[r].graph, ranks[r].stream));
        }
        for (std::size_t r = 0; r < ranks.size(); ++r) {
            CUDA_CHECK(cudaSetDevice(static_cast<int>(r)));
            CUDA_CHECK(cudaStreamSynchronize(ranks[r].stream));
        }
        if (i >= 5) samples.push_back((seconds() - begin) * 1e6 / kCollectivesInGraph);
    }
    std::sort(samples.begin(), samples.end());
    return samples[samples.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
    const std::string system = argc > 1 ? argv[1] : "this";
    int n = 0;
    CUDA_CHECK(cudaGetDeviceCount(&n));
    if (argc > 2) n = std::min(n, std::atoi(argv[2]));
    std::vector<Rank> ranks(static_cast<std::size_t>(n));
    std::vector<ncclComm_t> communicators(static_cast<std::size_t>(n));
    std::vector<int> devices;
    for (int r = 0; r < n; ++r) devices.push_back(r);
    NCCL_CHECK(ncclCommInitAll(communicators.data(), n, devices.data()));
    constexpr std::size_t kLargest = std::size_t{16} << 20;
    for (int r = 0; r < n; ++r) {
        CUDA_CHECK(cudaSetDevice(r));
        CUDA_CHECK(cudaStreamCreateWithFlags(&ranks[r].stream, cudaStreamNonBlocking));
        CUDA_CHECK(cudaMalloc(&ranks[r].buffer, kLargest));
        CUDA_CHECK(cudaMemset(ranks[r].buffer, 0, kLargest));
        ranks[r].communicator = communicators[r];
    }
    int version = 0;
    NCCL_CHECK(ncclGetVersion(&version));
    std::vector<std::size_t> sizes;
    for (std::size_t bytes = 1024; bytes <= kLargest; bytes *= 2) sizes.push_back(bytes);
    for (const std::size_t row : {8192u, 14336u}) {  // hidden 4096 and 7168 in bf16
        for (const std::size_t tokens : {1u, 2u, 3u, 4u, 5u, 6u, 8u, 12u, 16u, 24u, 32u, 48u}) sizes.push_back(row * tokens);
    }
    std::sort(sizes.begin(), sizes.end());
    sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
    std::printf("system,impl,op,gpus,bytes,latency_us\n");
    for (const std::size_t bytes : sizes) {
        capture(ranks, bytes);
        const double us = replay_us(ranks);
        std::printf("%s,nccl-%d.%d.%d,all_reduce,%d,%zu,%.2f\n", system.c_str(), version / 10000,
                    version / 100 % 100, version % 100, n, bytes, us);
        for (int r = 0; r < n; ++r) {
            CUDA_CHECK(cudaSetDevice(r));
            CUDA_CHECK(cudaGraphExecDestroy(ranks[r].graph));
        }
    }
    for (Rank& rank : ranks) NCCL_CHECK(ncclCommDestroy(rank.communicator));
    return 0;
}
