// SPDX-License-Identifier: Apache-2.0
#pragma once
// The memory that our own collectives exchange messages through, of all ranks of a communicator: buffers on the host, slots and
// flags on the GPUs, numbers of calls, the failure record. It hands each rank the pointers its kernels need
// (collective_kernels.h) and enqueues nothing.
//
// Sizes follow from the cut-offs: a method that carries nothing gets no memory. With c the bytes of its largest message and R
// ranks, a rank has
//   host_staged  2 x 2 c on the host
//   one_shot     R x 2 x 2 c on the GPU
//   two_shot     R x 2 x c on the GPU, and 2 buffers of sums

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/cuda/collective_kernels.h"
#include "backend/cuda/communicator.h"
#include "model/error.h"

namespace draftboard::backend::cuda {

class CollectiveStaging {
 public:
    /// Options are valid. Errors: no such GPU, no peer access where a method needs it, no memory.
    [[nodiscard]] static model::Expected<std::unique_ptr<CollectiveStaging>> create(const CommunicatorOptions& options);
    /// Kernels that still wait give up first.
    ~CollectiveStaging();
    CollectiveStaging(const CollectiveStaging&) = delete;
    CollectiveStaging& operator=(const CollectiveStaging&) = delete;

    [[nodiscard]] RankView view(int rank) const;
    [[nodiscard]] WordPaths host_words(int rank) const;
    [[nodiscard]] WordPaths peer_words(int rank) const;
    [[nodiscard]] BulkPaths peer_bulk(int rank) const;
    [[nodiscard]] CollectiveFailure& failure() const { return *failure_; }

 private:
    struct Rank {
        int device = 0;
        BlockState* states = nullptr;
        std::uint32_t* given_up = nullptr;
        ulonglong2* host_words = nullptr;  ///< 2 buffers, as this rank's GPU and all others address them
        void* host_memory = nullptr;       ///< the same, to free
        ulonglong2* peer_words = nullptr;  ///< ranks x 2 buffers: slot q is what rank q writes
        uint4* slots = nullptr;            ///< ranks x 2 buffers
        float4* result = nullptr;          ///< 2 buffers
        std::uint64_t* flags = nullptr;    ///< ranks x 2 phases x kMaxBlocks
    };
    CollectiveStaging() = default;
    void allocate(const CommunicatorOptions& options);
    void allocate_host_words(Rank& rank);
    [[nodiscard]] int ranks() const { return static_cast<int>(ranks_.size()); }

    std::vector<Rank> ranks_;
    CollectiveFailure* failure_ = nullptr;
    std::uint64_t timeout_ns_ = 0;
    std::int64_t host_pairs_ = 0;
    std::int64_t peer_pairs_ = 0;
    std::int64_t slot_units_ = 0;
    std::int64_t result_units_ = 0;
};

}  // namespace draftboard::backend::cuda
