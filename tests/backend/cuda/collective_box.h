// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the tests of collectives run on: ranks with a stream and buffers each, on as many GPUs as there are, else all on one; a
// thread a rank. What is right is checked by collective_checks.h. DRAFTBOARD_TEST_REPETITIONS in the environment shortens the
// long tests.

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "backend/cuda/check.h"
#include "backend/cuda/communicator.h"
#include "collective_checks.h"

namespace draftboard::backend::cuda {

/// Hardware queues; see stream_of().
[[maybe_unused]] inline const int kConnections = ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);

constexpr CollectiveMethod kOwnMethods[] = {CollectiveMethod::host_staged, CollectiveMethod::one_shot,
                                            CollectiveMethod::two_shot};
constexpr MessageFormat kFormats[] = {MessageFormat::fp32, MessageFormat::bf16};

inline int gpus() {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) return 0;
    return count;
}

inline std::int64_t repetitions(std::int64_t usual) {
    const char* set = std::getenv("DRAFTBOARD_TEST_REPETITIONS");
    return set == nullptr ? usual : std::min(usual, static_cast<std::int64_t>(std::atoll(set)));
}

inline std::vector<int> devices_of(int ranks) {
    std::vector<int> devices(static_cast<std::size_t>(ranks), 0);
    if (gpus() >= ranks) {
        for (int r = 0; r < ranks; ++r) devices[static_cast<std::size_t>(r)] = r;
    }
    return devices;
}

inline CommunicatorOptions options_of(int ranks, CollectiveMethod method, MessageFormat format, std::int64_t max_count) {
    CommunicatorOptions options;
    options.devices = devices_of(ranks);
    options.format = format;
    options.max_count = max_count;
    const std::int64_t all = 4 * max_count;
    if (method == CollectiveMethod::host_staged) options.cutoffs.host_staged = all;
    if (method == CollectiveMethod::one_shot) options.cutoffs.one_shot = all;
    if (method == CollectiveMethod::two_shot) options.cutoffs.two_shot = all;
    return options;
}

/// The ranks meet on the host: memory is taken, and graphs are made, while no kernel waits.
class Meeting {
 public:
    explicit Meeting(int ranks) : ranks_(ranks) {}
    void arrive() {
        std::unique_lock lock(mutex_);
        const std::uint64_t round = round_;
        if (++arrived_ == ranks_) {
            arrived_ = 0;
            ++round_;
            changed_.notify_all();
            return;
        }
        changed_.wait(lock, [&] { return round_ != round; });
    }

 private:
    int ranks_;
    int arrived_ = 0;
    std::uint64_t round_ = 0;
    std::mutex mutex_;
    std::condition_variable changed_;
};

/// Streams of ranks that share a GPU must not share a hardware queue, or one rank's kernel waits behind another's for ever. Those
/// that are made one after another have different ones; those that are made anew for each test now and then have not.
inline cudaStream_t stream_of(int rank, int device) {
    static std::mutex mutex;
    static std::map<std::pair<int, int>, cudaStream_t> streams;
    const std::scoped_lock lock(mutex);
    for (int r = 0; r <= rank; ++r) {
        if (streams.count({r, device}) != 0) continue;
        check(cudaStreamCreateWithFlags(&streams[{r, device}], cudaStreamNonBlocking), "cudaStreamCreate");
    }
    return streams[{rank, device}];
}

/// What a rank has in a test: its stream, a check state, buffers, all on its GPU.
class Rank {
 public:
    Rank(int rank, int device) : index(rank), device_(device) {
        check(cudaSetDevice(device), "cudaSetDevice");
        load_checks();
        stream = stream_of(rank, device);
        check(cudaMalloc(reinterpret_cast<void**>(&state), sizeof(CheckState)), "cudaMalloc");
        check(cudaMemset(state, 0, sizeof(CheckState)), "cudaMemset");
        check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    }
    ~Rank() {
        cudaSetDevice(device_);
        cudaStreamSynchronize(stream);
        if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
        for (float* buffer : buffers_) cudaFree(buffer);
        cudaFree(state);
    }
    Rank(const Rank&) = delete;
    Rank& operator=(const Rank&) = delete;

    float* buffer(std::int64_t count) {
        check(cudaSetDevice(device_), "cudaSetDevice");
        float* made = nullptr;
        check(cudaMalloc(reinterpret_cast<void**>(&made), static_cast<std::size_t>(count) * 4), "cudaMalloc");
        check(cudaMemset(made, 0xFF, static_cast<std::size_t>(count) * 4), "cudaMemset");  // NaN
        check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        buffers_.push_back(made);
        return made;
    }
    void capture(const std::function<void()>& work) {
        check(cudaSetDevice(device_), "cudaSetDevice");
        check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
        work();
        cudaGraph_t captured = nullptr;
        check(cudaStreamEndCapture(stream, &captured), "cudaStreamEndCapture");
        check(cudaGraphInstantiate(&graph_, captured, 0), "cudaGraphInstantiate");
        check(cudaGraphDestroy(captured), "cudaGraphDestroy");
        check(cudaGraphUpload(graph_, stream), "cudaGraphUpload");
        check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    }
    void replay() { check(cudaGraphLaunch(graph_, stream), "cudaGraphLaunch"); }
    [[nodiscard]] CheckState result() const {
        CheckState copy;
        check(cudaSetDevice(device_), "cudaSetDevice");
        check(cudaMemcpy(&copy, state, sizeof copy, cudaMemcpyDeviceToHost), "cudaMemcpy");
        return copy;
    }

    int index;
    cudaStream_t stream = nullptr;
    CheckState* state = nullptr;

 private:
    int device_;
    cudaGraphExec_t graph_ = nullptr;
    std::vector<float*> buffers_;
};

/// A communicator and its ranks; run() has a thread a rank.
struct Box {
    explicit Box(const CommunicatorOptions& options) : meeting(static_cast<int>(options.devices.size())) {
        for (std::size_t r = 0; r < options.devices.size(); ++r) {
            ranks.push_back(std::make_unique<Rank>(static_cast<int>(r), options.devices[r]));
        }
        auto made = Communicator::create(options);
        if (!made) throw std::runtime_error(made.error().to_text());
        communicator = std::move(*made);
    }
    void run(const std::function<void(Rank&)>& work) {
        std::vector<std::thread> threads;
        for (auto& rank : ranks) {
            threads.emplace_back([&work, &rank = *rank] {
                try {
                    work(rank);
                } catch (const std::exception& error) {
                    ADD_FAILURE() << "rank " << rank.index << ": " << error.what();
                }
            });
        }
        for (std::thread& thread : threads) thread.join();
    }
    void wait(Rank& rank) {
        const auto done = communicator->wait(rank.index, rank.stream);
        if (!done) throw std::runtime_error(done.error().to_text());
    }
    void expect_no_mismatch(std::int64_t rounds, const std::string& what) {
        for (const auto& rank : ranks) {
            const CheckState result = rank->result();
            EXPECT_EQ(result.mismatches, 0u) << what << ", rank " << rank->index << " of " << ranks.size();
            EXPECT_EQ(result.round, static_cast<std::uint64_t>(rounds)) << what << ", rank " << rank->index;
        }
    }
    std::vector<std::unique_ptr<Rank>> ranks;
    std::unique_ptr<Communicator> communicator;
    Meeting meeting;
};

inline std::string text(CollectiveMethod method, MessageFormat format) {
    return std::string(to_name(method)) + (format == MessageFormat::bf16 ? " bf16" : " fp32");
}

class CudaCommunicatorRanks : public testing::Test {
 protected:
    void SetUp() override {
        if (gpus() == 0) GTEST_SKIP() << "no GPU";
    }
};

}  // namespace draftboard::backend::cuda
