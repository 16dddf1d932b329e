// SPDX-License-Identifier: Apache-2.0
// NCCL behind nccl_ranks.h: init by one thread in a group, connections made by a few collectives at once, abort from any thread.
// What a collective costs: tests/bench/cuda_collectives_bench.cpp. With DRAFTBOARD_NCCL undefined only the error is left.
#include "backend/cuda/nccl_ranks.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <thread>

#include <fmt/format.h>

#include "backend/cuda/check.h"

#ifdef DRAFTBOARD_NCCL
#include <nccl.h>
#endif

namespace draftboard::backend::cuda {

#ifdef DRAFTBOARD_NCCL

namespace {

void nccl_check(ncclResult_t status, const char* what) {
    if (status != ncclSuccess) throw std::runtime_error(fmt::format("{}: {}", what, ncclGetErrorString(status)));
}

void set_environment(const NcclRanks::Options& options) {
    ::setenv("NCCL_NVLS_ENABLE", "0", 1);
    if (!options.peer_access) ::setenv("NCCL_P2P_DISABLE", "1", 1);
    if (!options.algorithm.empty()) ::setenv("NCCL_ALGO", options.algorithm.c_str(), 1);
    if (!options.protocol.empty()) ::setenv("NCCL_PROTO", options.protocol.c_str(), 1);
}

}  // namespace

struct NcclRanks::State {
    struct Rank {
        int device = 0;
        ncclComm_t communicator = nullptr;
        std::timed_mutex enqueuing;  ///< abort() waits a while for a call that is being enqueued
    };
    std::vector<std::unique_ptr<Rank>> ranks;

    /// One collective of each kind and of several sizes: NCCL makes the connections of an algorithm at its first use, which
    /// waits for all ranks and allocates; neither may happen while a graph is captured. An error names what did not go.
    void connect(const Options& options) {
        std::vector<float*> buffers(ranks.size(), nullptr);
        std::vector<cudaStream_t> streams(ranks.size(), nullptr);
        const std::int64_t largest = std::max<std::int64_t>(options.largest_bytes / 4, 256);
        for (std::size_t r = 0; r < ranks.size(); ++r) {
            check(cudaSetDevice(ranks[r]->device), "cudaSetDevice");
            check(cudaStreamCreateWithFlags(&streams[r], cudaStreamNonBlocking), "cudaStreamCreate");
            check(cudaMalloc(reinterpret_cast<void**>(&buffers[r]), static_cast<std::size_t>(largest) * 4 * (ranks.size() + 1)),
                  "cudaMalloc");
        }
        for (std::int64_t count = 256;; count = std::min(count * 8, largest)) {
            nccl_check(ncclGroupStart(), "ncclGroupStart");
            for (std::size_t r = 0; r < ranks.size(); ++r) {
                const auto numbers = static_cast<std::size_t>(count);
                nccl_check(ncclAllReduce(buffers[r], buffers[r], numbers, ncclFloat, ncclSum, ranks[r]->communicator, streams[r]),
                           "ncclAllReduce");
                nccl_check(ncclAllGather(buffers[r], buffers[r] + count, numbers, ncclFloat, ranks[r]->communicator, streams[r]),
                           "ncclAllGather");
            }
            nccl_check(ncclGroupEnd(), "ncclGroupEnd");
            if (count >= largest) break;
        }
        const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(std::max(options.timeout_s, 30.0));
        for (std::size_t r = 0; r < ranks.size(); ++r) {
            check(cudaSetDevice(ranks[r]->device), "cudaSetDevice");
            cudaError_t status = cudaStreamQuery(streams[r]);
            while (status == cudaErrorNotReady) {
                if (std::chrono::steady_clock::now() > end) throw std::runtime_error("NCCL's first collectives do not end");
                std::this_thread::yield();
                status = cudaStreamQuery(streams[r]);
            }
            check(status, "NCCL's first collectives");
        }
        for (std::size_t r = 0; r < ranks.size(); ++r) {
            check(cudaSetDevice(ranks[r]->device), "cudaSetDevice");
            check(cudaFree(buffers[r]), "cudaFree");
            check(cudaStreamDestroy(streams[r]), "cudaStreamDestroy");
        }
    }

    Rank& at(int rank) { return *ranks[static_cast<std::size_t>(rank)]; }
};

NcclRanks::NcclRanks(std::unique_ptr<State> state) : state_(std::move(state)) {}

model::Expected<std::unique_ptr<NcclRanks>> NcclRanks::create(const Options& options) {
    set_environment(options);
    auto state = std::make_unique<State>();
    for (const int device : options.devices) {
        state->ranks.push_back(std::make_unique<State::Rank>());
        state->ranks.back()->device = device;
    }
    std::unique_ptr<NcclRanks> result(new NcclRanks(std::move(state)));
    auto& ranks = result->state_->ranks;
    try {
        ncclUniqueId id{};
        nccl_check(ncclGetUniqueId(&id), "ncclGetUniqueId");
        std::vector<ncclConfig_t> configs(ranks.size(), ncclConfig_t NCCL_CONFIG_INITIALIZER);
        nccl_check(ncclGroupStart(), "ncclGroupStart");
        for (std::size_t r = 0; r < ranks.size(); ++r) {
            if (options.channels > 0) configs[r].minCTAs = configs[r].maxCTAs = options.channels;
            check(cudaSetDevice(ranks[r]->device), "cudaSetDevice");
            nccl_check(ncclCommInitRankConfig(&ranks[r]->communicator, static_cast<int>(ranks.size()), id, static_cast<int>(r),
                                              &configs[r]),
                       "ncclCommInitRankConfig");
        }
        nccl_check(ncclGroupEnd(), "ncclCommInitRankConfig");
        result->state_->connect(options);
    } catch (const std::runtime_error& error) {
        result->abort();
        return model::fail(model::ErrorCode::unavailable, error.what(), "NCCL",
                           "NCCL_DEBUG=WARN in the environment makes NCCL say more");
    }
    return result;
}

/// By abort, which frees as destroy does but never waits for a rank.
NcclRanks::~NcclRanks() { abort(); }

void NcclRanks::all_reduce(int rank, const void* input, void* output, std::int64_t count, bool bf16, cudaStream_t stream) {
    State::Rank& own = state_->at(rank);
    const std::scoped_lock lock(own.enqueuing);
    if (own.communicator == nullptr) throw std::runtime_error("NCCL was given up earlier");
    nccl_check(ncclAllReduce(input, output, static_cast<std::size_t>(count), bf16 ? ncclBfloat16 : ncclFloat, ncclSum,
                             own.communicator, stream),
               "ncclAllReduce");
}

void NcclRanks::all_gather(int rank, const float* input, int rows, std::int64_t width, float* output, cudaStream_t stream) {
    State::Rank& own = state_->at(rank);
    const std::scoped_lock lock(own.enqueuing);
    if (own.communicator == nullptr) throw std::runtime_error("NCCL was given up earlier");
    const std::int64_t gathered = width * static_cast<std::int64_t>(state_->ranks.size());
    nccl_check(ncclGroupStart(), "ncclGroupStart");  // one launch for all rows
    for (int i = 0; i < rows; ++i) {
        nccl_check(ncclAllGather(input + i * width, output + i * gathered, static_cast<std::size_t>(width), ncclFloat,
                                 own.communicator, stream),
                   "ncclAllGather");
    }
    nccl_check(ncclGroupEnd(), "ncclAllGather");
}

std::optional<std::string> NcclRanks::asynchronous_error(int rank) {
    State::Rank& own = state_->at(rank);
    const std::unique_lock lock(own.enqueuing, std::try_to_lock);
    if (!lock.owns_lock() || own.communicator == nullptr) return {};
    ncclResult_t status = ncclSuccess;
    if (const ncclResult_t asked = ncclCommGetAsyncError(own.communicator, &status); asked != ncclSuccess) status = asked;
    if (status == ncclSuccess || status == ncclInProgress) return {};
    return ncclGetErrorString(status);
}

void NcclRanks::abort() {
    for (auto& rank : state_->ranks) {
        // A call that does not return holds the lock; NCCL ends it when its communicator is aborted.
        std::unique_lock lock(rank->enqueuing, std::defer_lock);
        static_cast<void>(lock.try_lock_for(std::chrono::seconds(1)));
        if (rank->communicator == nullptr) continue;
        ncclCommAbort(rank->communicator);
        rank->communicator = nullptr;
    }
}

bool NcclRanks::built_in() { return true; }

std::string NcclRanks::version() {
    int version = 0;
    if (ncclGetVersion(&version) != ncclSuccess) return {};
    return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

#else

struct NcclRanks::State {};
NcclRanks::NcclRanks(std::unique_ptr<State> state) : state_(std::move(state)) {}
NcclRanks::~NcclRanks() = default;
model::Expected<std::unique_ptr<NcclRanks>> NcclRanks::create(const Options&) {
    return model::fail(model::ErrorCode::unavailable, "this build has no NCCL", "",
                       "install NCCL's library and header, and configure again");
}
void NcclRanks::all_reduce(int, const void*, void*, std::int64_t, bool, cudaStream_t) { throw std::logic_error("no NCCL"); }
void NcclRanks::all_gather(int, const float*, int, std::int64_t, float*, cudaStream_t) { throw std::logic_error("no NCCL"); }
std::optional<std::string> NcclRanks::asynchronous_error(int) { return {}; }
void NcclRanks::abort() {}
bool NcclRanks::built_in() { return false; }
std::string NcclRanks::version() { return {}; }

#endif

}  // namespace draftboard::backend::cuda
