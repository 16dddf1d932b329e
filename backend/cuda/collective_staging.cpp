// SPDX-License-Identifier: Apache-2.0
// Memory and peer access of our own collectives. What is written where: collective_kernels.h.
#include "backend/cuda/collective_staging.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "backend/cuda/check.h"

namespace draftboard::backend::cuda {

namespace {

/// Room beyond a method's bytes for rows whose last pair or unit is not full.
constexpr std::int64_t kSpareUnits = 1024;
constexpr std::int64_t kFlagsEach = 2 * kMaxBlocks;

/// The NUMA node that a GPU hangs on; -1 where the system doesn't say.
int numa_node(int device) {
    char id[32] = {};
    if (cudaDeviceGetPCIBusId(id, sizeof id, device) != cudaSuccess) return -1;
    std::string name = id;
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    std::ifstream file("/sys/bus/pci/devices/" + name + "/numa_node");
    int node = -1;
    file >> node;
    return file ? node : -1;
}

/// While it lives, pages that this thread takes come from `node` if that has any; then as before.
class PreferNode {
 public:
    explicit PreferNode(int node) {
        if (node < 0 || node >= kBits) return;
        if (syscall(SYS_get_mempolicy, &before_, before_nodes_, kMaxNodes, nullptr, 0) != 0) return;
        const unsigned long wanted = 1UL << node;
        set_ = syscall(SYS_set_mempolicy, MPOL_PREFERRED, &wanted, kBits) == 0;
    }
    ~PreferNode() {
        if (set_) syscall(SYS_set_mempolicy, before_, before_nodes_, kMaxNodes);
    }
    PreferNode(const PreferNode&) = delete;
    PreferNode& operator=(const PreferNode&) = delete;

 private:
    static constexpr int kBits = 64;
    static constexpr unsigned long kMaxNodes = 1024;
    int before_ = MPOL_DEFAULT;
    unsigned long before_nodes_[kMaxNodes / kBits] = {};
    bool set_ = false;
};

template <class T>
void allocate_zeroed(T*& pointer, std::int64_t count) {
    const std::size_t bytes = sizeof(T) * static_cast<std::size_t>(count);
    check(cudaMalloc(reinterpret_cast<void**>(&pointer), bytes), "memory for collectives");
    check(cudaMemset(pointer, 0, bytes), "cudaMemset");
}

/// All pairs of different GPUs among the ranks can reach one another afterwards.
model::Expected<void> enable_peer_access(const std::vector<int>& devices) {
    for (const int from : devices) {
        check(cudaSetDevice(from), "cudaSetDevice");
        for (const int to : devices) {
            if (from == to) continue;
            int possible = 0;
            check(cudaDeviceCanAccessPeer(&possible, from, to), "cudaDeviceCanAccessPeer");
            if (possible == 0) {
                return model::fail(model::ErrorCode::unavailable, fmt::format("GPU {} has no peer access to GPU {}", from, to),
                                   "", "use host_staged and nccl: one_shot and two_shot need peer access");
            }
            const cudaError_t status = cudaDeviceEnablePeerAccess(to, 0);
            if (status == cudaErrorPeerAccessAlreadyEnabled) {
                static_cast<void>(cudaGetLastError());
            } else {
                check(status, "cudaDeviceEnablePeerAccess");
            }
        }
    }
    return {};
}

}  // namespace

model::Expected<std::unique_ptr<CollectiveStaging>> CollectiveStaging::create(const CommunicatorOptions& options) {
    int present = 0;
    if (const cudaError_t status = cudaGetDeviceCount(&present); status != cudaSuccess) {
        static_cast<void>(cudaGetLastError());
        return model::fail(model::ErrorCode::unavailable, fmt::format("no GPU: {}", cudaGetErrorString(status)));
    }
    for (const int device : options.devices) {
        if (device < present) continue;
        return model::fail(model::ErrorCode::unavailable,
                           fmt::format("there is no GPU {}: this machine has {}", device, present));
    }
    std::unique_ptr<CollectiveStaging> staging(new CollectiveStaging());
    try {
        if (options.devices.size() > 1 && (options.cutoffs.one_shot > 0 || options.cutoffs.two_shot > 0)) {
            if (auto access = enable_peer_access(options.devices); !access) return tl::unexpected(access.error());
        }
        staging->allocate(options);
    } catch (const std::runtime_error& error) {
        static_cast<void>(cudaGetLastError());
        return model::fail(model::ErrorCode::unavailable, error.what(), "memory and kernels of the collectives");
    }
    return staging;
}

void CollectiveStaging::allocate(const CommunicatorOptions& options) {
    // Words carry 8 bytes of a message a pair; two_shot's sums are float whatever the message.
    const std::int64_t largest = 4 * options.max_count;
    const auto units = [&](std::int64_t cutoff, std::int64_t unit) {
        return cutoff > 0 ? (std::min(cutoff, largest) + unit - 1) / unit + kSpareUnits : 0;
    };
    const std::int64_t sums = options.cutoffs.two_shot * (options.format == MessageFormat::bf16 ? 2 : 1);
    host_pairs_ = units(options.cutoffs.host_staged, 8);
    peer_pairs_ = units(options.cutoffs.one_shot, 8);
    slot_units_ = units(options.cutoffs.two_shot, 16);
    result_units_ = units(sums, 16);
    timeout_ns_ = static_cast<std::uint64_t>(options.timeout_s * 1e9);

    void* failure = nullptr;
    check(cudaHostAlloc(&failure, sizeof(CollectiveFailure), cudaHostAllocPortable | cudaHostAllocMapped), "cudaHostAlloc");
    failure_ = static_cast<CollectiveFailure*>(failure);
    std::memset(failure, 0, sizeof(CollectiveFailure));

    const auto n = static_cast<std::int64_t>(options.devices.size());
    for (const int device : options.devices) {
        check(cudaSetDevice(device), "cudaSetDevice");
        load_collective_kernels();
        Rank& rank = ranks_.emplace_back();
        rank.device = device;
        allocate_zeroed(rank.states, kMaxBlocks);
        allocate_zeroed(rank.given_up, 1);
        if (host_pairs_ > 0) allocate_host_words(rank);
        if (peer_pairs_ > 0) allocate_zeroed(rank.peer_words, n * 2 * peer_pairs_);
        if (slot_units_ > 0) {
            allocate_zeroed(rank.slots, n * 2 * slot_units_);
            allocate_zeroed(rank.result, 2 * result_units_);
            allocate_zeroed(rank.flags, n * kFlagsEach);
        }
        check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    }
}

/// On the NUMA node of the GPU that writes it: what the others read comes over their links anyhow.
void CollectiveStaging::allocate_host_words(Rank& rank) {
    const std::size_t bytes = sizeof(ulonglong2) * 2 * static_cast<std::size_t>(host_pairs_);
    const PreferNode node(numa_node(rank.device));
    check(cudaHostAlloc(&rank.host_memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped), "cudaHostAlloc");
    std::memset(rank.host_memory, 0, bytes);
    // Portable memory has one address for the host and all GPUs (unified addressing, which every 64-bit platform of CUDA 13 has).
    rank.host_words = static_cast<ulonglong2*>(rank.host_memory);
}

CollectiveStaging::~CollectiveStaging() {
    if (failure_ != nullptr) *static_cast<volatile std::uint32_t*>(&failure_->abort) = 1;
    for (const Rank& rank : ranks_) {
        cudaSetDevice(rank.device);
        cudaDeviceSynchronize();
        for (void* memory :
             {static_cast<void*>(rank.states), static_cast<void*>(rank.given_up), static_cast<void*>(rank.peer_words),
              static_cast<void*>(rank.slots), static_cast<void*>(rank.result), static_cast<void*>(rank.flags)}) {
            cudaFree(memory);
        }
        if (rank.host_memory != nullptr) cudaFreeHost(rank.host_memory);
    }
    if (failure_ != nullptr) cudaFreeHost(failure_);
    static_cast<void>(cudaGetLastError());
}

RankView CollectiveStaging::view(int rank) const {
    const Rank& own = ranks_[static_cast<std::size_t>(rank)];
    return {rank, ranks(), own.states, own.given_up, failure_, timeout_ns_};
}

WordPaths CollectiveStaging::host_words(int rank) const {
    WordPaths paths;
    paths.method = kHostWords;
    paths.targets = 1;
    paths.pairs = host_pairs_;
    paths.to[0] = ranks_[static_cast<std::size_t>(rank)].host_words;
    for (int q = 0; q < ranks(); ++q) paths.from[q] = ranks_[static_cast<std::size_t>(q)].host_words;
    return paths;
}

WordPaths CollectiveStaging::peer_words(int rank) const {
    WordPaths paths;
    paths.method = kPeerWords;
    paths.pairs = peer_pairs_;
    for (int step = 1; step < ranks(); ++step) {  // not all to one at a time
        const int q = (rank + step) % ranks();
        paths.to[paths.targets++] = ranks_[static_cast<std::size_t>(q)].peer_words + rank * 2 * peer_pairs_;
    }
    for (int q = 0; q < ranks(); ++q) paths.from[q] = ranks_[static_cast<std::size_t>(rank)].peer_words + q * 2 * peer_pairs_;
    return paths;
}

BulkPaths CollectiveStaging::peer_bulk(int rank) const {
    const Rank& own = ranks_[static_cast<std::size_t>(rank)];
    BulkPaths paths;
    paths.slot_units = slot_units_;
    paths.result_units = result_units_;
    paths.result = own.result;
    for (int q = 0; q < ranks(); ++q) {
        const Rank& other = ranks_[static_cast<std::size_t>(q)];
        paths.slot_to[q] = other.slots + rank * 2 * slot_units_;
        paths.slot_from[q] = own.slots + q * 2 * slot_units_;
        paths.result_to[q] = other.result;
        paths.flags_to[q] = other.flags + rank * kFlagsEach;
        paths.flags_from[q] = own.flags + q * kFlagsEach;
    }
    return paths;
}

}  // namespace draftboard::backend::cuda
