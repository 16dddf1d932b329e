// SPDX-License-Identifier: Apache-2.0
// How long a collective takes, by method, in CUDA graphs: our own beside NCCL's, and the fused norm beside all-reduce and norm
// one after another. Not a calibration (calibration/ reads draftboard-collective-times' CSV); it is for choosing cut-offs.
//
//   us       median over replays of (graph time on the rank that came last) / (collectives in the graph)
//   to nccl  us of NCCL at this size / us of the method: above 1 the method is faster
//
// Methods take turns, replay by replay.
//
// NCCL reads NCCL_P2P_DISABLE once a process: peer access off is a run of its own (--no-peer). On fewer GPUs than ranks with
// --share the ranks share GPU 0: that shows that everything runs, and what the kernels cost without links; NCCL can't share.

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <thread>

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "backend/cuda/check.h"
#include "backend/cuda/collective_kernels.h"
#include "backend/cuda/communicator.h"
#include "backend/cuda/nccl_ranks.h"

namespace {

using namespace draftboard::backend::cuda;

constexpr int kCollectivesInGraph = 20;
constexpr int kWarmUps = 5;

struct Settings {
    int ranks = 2;
    int width = 7168;
    int replays = 60;
    bool no_peer = false;
    bool share = false;
    bool bf16 = false;
    std::vector<std::int64_t> bytes{4096, 8192, 14336, 28672, 57344, 114688, 229376, 524288, 1048576};
};

/// What is timed: a communicator that sends everything by one method, and what is asked of it.
struct Candidate {
    std::string name;
    CollectiveMethod method = CollectiveMethod::nccl;
    enum class Kind { sum, sum_then_norm, fused } kind = Kind::sum;
    Communicator* communicator = nullptr;
};

struct Rank {
    int device = 0;
    cudaStream_t stream = nullptr;
    cudaEvent_t begin = nullptr, end = nullptr;
    float *block = nullptr, *sum = nullptr, *hidden = nullptr, *normed = nullptr, *weight = nullptr;
    std::vector<cudaGraphExec_t> graphs;
};

void on_ranks(std::vector<Rank>& ranks, const std::function<void(int, Rank&)>& work) {
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
        threads.emplace_back([&, r] {
            check(cudaSetDevice(ranks[r].device), "cudaSetDevice");
            work(static_cast<int>(r), ranks[r]);
        });
    }
    for (std::thread& thread : threads) thread.join();
}

void enqueue(const Candidate& candidate, int index, const Rank& rank, std::int64_t count, int width) {
    const int m = static_cast<int>(count / width);
    if (candidate.kind == Candidate::Kind::fused) {
        candidate.communicator->all_reduce_add_norm(index, rank.block, rank.hidden, rank.weight, m, width, 1e-6F, rank.normed,
                                                    width, nullptr, 0, rank.stream);
        return;
    }
    candidate.communicator->all_reduce(index, rank.block, rank.sum, count, rank.stream);
    if (candidate.kind != Candidate::Kind::sum_then_norm) return;
    launch_add_norm({rank.sum, nullptr, m, width, {rank.hidden, rank.weight, 1e-6F, rank.normed, width, nullptr, 0}},
                    rank.stream);
}

/// Medians, us, by candidate. The least of the ranks' times of one replay: the rank that came last waited for none.
std::vector<double> measure(const Settings& settings, std::vector<Rank>& ranks, const std::vector<Candidate>& candidates,
                            std::int64_t count, int width) {
    for (const Candidate& candidate : candidates) {
        on_ranks(ranks, [&](int index, Rank& rank) {
            check(cudaStreamBeginCapture(rank.stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
            for (int i = 0; i < kCollectivesInGraph; ++i) enqueue(candidate, index, rank, count, width);
            cudaGraph_t captured = nullptr;
            check(cudaStreamEndCapture(rank.stream, &captured), "cudaStreamEndCapture");
            check(cudaGraphInstantiate(&rank.graphs.emplace_back(), captured, 0), "cudaGraphInstantiate");
            check(cudaGraphDestroy(captured), "cudaGraphDestroy");
            check(cudaGraphUpload(rank.graphs.back(), rank.stream), "cudaGraphUpload");
            check(cudaStreamSynchronize(rank.stream), "cudaStreamSynchronize");
        });
    }
    std::vector<std::vector<double>> samples(candidates.size());
    for (int replay = 0; replay < settings.replays + kWarmUps; ++replay) {
        for (std::size_t c = 0; c < candidates.size(); ++c) {
            for (Rank& rank : ranks) {
                check(cudaSetDevice(rank.device), "cudaSetDevice");
                check(cudaEventRecord(rank.begin, rank.stream), "cudaEventRecord");
                check(cudaGraphLaunch(rank.graphs[c], rank.stream), "cudaGraphLaunch");
                check(cudaEventRecord(rank.end, rank.stream), "cudaEventRecord");
            }
            double least = 1e9;
            for (std::size_t r = 0; r < ranks.size(); ++r) {
                if (auto done = candidates[c].communicator->wait(static_cast<int>(r), ranks[r].stream); !done) {
                    throw std::runtime_error(candidates[c].name + ": " + done.error().to_text());
                }
                float ms = 0;
                check(cudaEventElapsedTime(&ms, ranks[r].begin, ranks[r].end), "cudaEventElapsedTime");
                least = std::min(least, static_cast<double>(ms) * 1000 / kCollectivesInGraph);
            }
            if (replay >= kWarmUps) samples[c].push_back(least);
        }
    }
    std::vector<double> medians;
    for (auto& of : samples) {
        std::sort(of.begin(), of.end());
        medians.push_back(of[of.size() / 2]);
    }
    for (Rank& rank : ranks) {
        for (cudaGraphExec_t graph : rank.graphs) check(cudaGraphExecDestroy(graph), "cudaGraphExecDestroy");
        rank.graphs.clear();
    }
    return medians;
}

void make_rank(Rank& rank, int device, std::int64_t count) {
    rank.device = device;
    check(cudaSetDevice(device), "cudaSetDevice");
    check(cudaStreamCreateWithFlags(&rank.stream, cudaStreamNonBlocking), "cudaStreamCreate");
    check(cudaEventCreate(&rank.begin), "cudaEventCreate");
    check(cudaEventCreate(&rank.end), "cudaEventCreate");
    std::vector<float> values(static_cast<std::size_t>(count));
    std::uint32_t drawn = 12345;
    for (float& value : values) {
        drawn = drawn * 1664525 + 1013904223;
        value = static_cast<float>(drawn >> 8) / static_cast<float>(1 << 24) - 0.5F;
    }
    for (float** buffer : {&rank.block, &rank.sum, &rank.hidden, &rank.normed, &rank.weight}) {
        check(cudaMalloc(reinterpret_cast<void**>(buffer), values.size() * 4), "cudaMalloc");
        check(cudaMemcpy(*buffer, values.data(), values.size() * 4, cudaMemcpyHostToDevice), "cudaMemcpy");
    }
}

int bench(const Settings& settings) {
    int gpus = 0;
    check(cudaGetDeviceCount(&gpus), "cudaGetDeviceCount");
    if (gpus < settings.ranks && !settings.share) {
        fmt::print(stderr, "error: {} ranks on {} GPUs (--share lets them share GPU 0)\n", settings.ranks, gpus);
        return 3;
    }
    const int number_bytes = settings.bf16 ? 2 : 4;
    const std::int64_t largest = *std::max_element(settings.bytes.begin(), settings.bytes.end());
    std::vector<Rank> ranks(static_cast<std::size_t>(settings.ranks));
    CommunicatorOptions options;
    options.max_count = largest / number_bytes;
    options.peer_access = !settings.no_peer;
    options.format = settings.bf16 ? MessageFormat::bf16 : MessageFormat::fp32;
    for (int r = 0; r < settings.ranks; ++r) {
        options.devices.push_back(settings.share ? 0 : r);
        make_rank(ranks[static_cast<std::size_t>(r)], options.devices.back(), options.max_count);
    }
    std::vector<std::unique_ptr<Communicator>> communicators;
    std::vector<Candidate> candidates;
    const auto add = [&](CollectiveMethod method) {
        const std::int64_t all = 4 * options.max_count;
        options.cutoffs = {method == CollectiveMethod::host_staged ? all : 0, method == CollectiveMethod::one_shot ? all : 0,
                           method == CollectiveMethod::two_shot ? all : 0};
        auto made = Communicator::create(options);
        if (!made) {
            fmt::print(stderr, "{}: {}\n", to_name(method), made.error().to_text());
            return;
        }
        communicators.push_back(std::move(*made));
        const std::string name(to_name(method));
        using Kind = Candidate::Kind;
        candidates.push_back({name, method, Kind::sum, communicators.back().get()});
        candidates.push_back({name + " + norm", method, Kind::sum_then_norm, communicators.back().get()});
        if (method != CollectiveMethod::nccl)
            candidates.push_back({name + " fused", method, Kind::fused, communicators.back().get()});
    };
    if (!settings.share) add(CollectiveMethod::nccl);
    add(CollectiveMethod::host_staged);
    if (!settings.no_peer) {
        add(CollectiveMethod::one_shot);
        add(CollectiveMethod::two_shot);
    }
    fmt::print("# {} ranks on {} GPUs, peer access {}, messages {}, {} collectives a graph, {} replays, NCCL {}\n",
               settings.ranks, settings.share ? 1 : settings.ranks, settings.no_peer ? "off" : "on",
               settings.bf16 ? "bf16" : "fp32", kCollectivesInGraph, settings.replays,
               settings.share ? "none" : NcclRanks::version());
    fmt::print("{:>8} {:>7} {:<20} {:>8} {:>8}\n", "bytes", "rows", "method", "us", "to nccl");
    for (const std::int64_t bytes : settings.bytes) {
        const std::int64_t count = bytes / number_bytes;
        const int width = static_cast<int>(count % settings.width == 0 ? settings.width : std::min<std::int64_t>(count, 4096));
        const std::vector<double> us = measure(settings, ranks, candidates, count, width);
        double nccl = 0, nccl_norm = 0;
        for (std::size_t c = 0; c < candidates.size(); ++c) {
            if (candidates[c].method != CollectiveMethod::nccl) continue;
            (candidates[c].kind == Candidate::Kind::sum ? nccl : nccl_norm) = us[c];
        }
        for (std::size_t c = 0; c < candidates.size(); ++c) {
            const double base = candidates[c].kind == Candidate::Kind::sum ? nccl : nccl_norm;
            fmt::print("{:>8} {:>7} {:<20} {:>8.2f} {:>8}\n", bytes, count / width, candidates[c].name, us[c],
                       base > 0 ? fmt::format("{:.2f}", base / us[c]) : "-");
        }
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);  // for ranks that share a GPU: a hardware queue a stream
    Settings settings;
    CLI::App app("Times collectives by method, in CUDA graphs");
    app.add_option("--ranks", settings.ranks)->check(CLI::Range(2, kMaxRanks));
    app.add_option("--width", settings.width, "numbers of a row of the norm")->check(CLI::PositiveNumber);
    app.add_option("--replays", settings.replays)->check(CLI::PositiveNumber);
    app.add_option("--bytes", settings.bytes, "sizes, bytes as they travel")->delimiter(',');
    app.add_flag("--no-peer", settings.no_peer, "no peer access, neither for NCCL nor for us");
    app.add_flag("--share", settings.share, "all ranks on GPU 0");
    app.add_flag("--bf16", settings.bf16);
    CLI11_PARSE(app, argc, argv);
    try {
        return bench(settings);
    } catch (const std::exception& error) {
        fmt::print(stderr, "error: {}\n", error.what());
        return 3;
    }
}
