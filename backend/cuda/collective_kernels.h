// SPDX-License-Identifier: Apache-2.0
#pragma once
// Our own collectives as kernels: what a rank passes to them, and the functions that enqueue them. No choice of method, no
// memory, no errors of ranks here: communicator.h decides, collective_staging.h owns the buffers, collective_failure.h says who
// was late.
//
// Words (host_staged, one_shot). 8 bytes carry 4 of data and the call's 32-bit number as a flag; two words travel by one 16-byte
// store. A reader looks at a word until its flag is this call's: no fence, no barrier, one way from writer to reader.
//
// Bulk (two_shot, large gathers). Data moves by plain 16-byte stores; then each block writes the 64-bit number of the call, with
// release, to a flag in the memory of each other rank, whose block of the same index waits for it.
//
// Why two buffers are enough. A rank in its call s of a method writes the buffer of s's parity, which it wrote last in its call
// s - 2 at the latest. It has finished call s - 1, for its stream runs one kernel after another, and in it has read something of
// every other rank's call s - 1. That rank's call s - 1 began after its call s - 2 had ended: whatever it had to read of call
// s - 2, it has read. So no rank is more than one call ahead of another. Nothing in this depends on sizes, on the number of
// blocks, or on which collectives the calls were; a call of 0 numbers is not made at all.
//
// Why a flag matches no old word. Flags repeat after 2^32 calls. Beside its message each call renews one pair of words of its
// buffer, another one each time, so that no word keeps its flag for more than 2 x pairs calls. Bulk flags have 64 bits and do
// not repeat.
//
// The number of the call lives in device memory and each kernel advances it, so that a graph can be replayed. Each of kMaxBlocks
// blocks has its own copy, and a kernel of fewer blocks writes those of the others: no block waits for another.
//
// All ranks' kernels have to run at the same time: at most kMaxBlocks blocks each, so that several ranks find room on one GPU.

#include <cstdint>

#include <cuda_runtime_api.h>

#include "backend/cuda/collective_failure.h"

namespace draftboard::backend::cuda {

constexpr int kMaxBlocks = 32;
constexpr int kCollectiveThreads = 512;

/// Each method counts its own calls.
enum StagedMethod { kHostWords, kPeerWords, kPeerBulk, kStagedMethods };

/// Calls made so far: of all methods, and of each.
struct alignas(32) BlockState {
    std::uint64_t calls;
    std::uint64_t sequence[kStagedMethods];
};

struct RankView {
    int rank = 0;
    int ranks = 0;
    BlockState* states = nullptr;          ///< kMaxBlocks, device memory of this rank
    std::uint32_t* given_up = nullptr;     ///< device memory of this rank
    CollectiveFailure* failure = nullptr;  ///< of all ranks, mapped host memory
    std::uint64_t timeout_ns = 0;
};

/// Pairs of words. Each pointer leads to two buffers of `pairs` pairs, one behind the other.
struct WordPaths {
    StagedMethod method = kHostWords;
    int targets = 0;
    std::int64_t pairs = 0;
    ulonglong2* to[kMaxRanks] = {};  ///< what this rank writes: its buffer on the host, or its slot in each other rank's memory
    const ulonglong2* from[kMaxRanks] = {};  ///< what it reads, by rank
};

/// Each pointer to data leads to two buffers, one behind the other.
struct BulkPaths {
    std::int64_t slot_units = 0;  ///< of 16 bytes, of one buffer
    std::int64_t result_units = 0;
    uint4* slot_to[kMaxRanks] = {};          ///< this rank's slot in the memory of another
    const uint4* slot_from[kMaxRanks] = {};  ///< the other's slot in this rank's memory
    float4* result_to[kMaxRanks] = {};
    const float4* result = nullptr;
    std::uint64_t* flags_to[kMaxRanks] = {};  ///< 2 x kMaxBlocks: this rank's flags in the memory of another
    const std::uint64_t* flags_from[kMaxRanks] = {};
};

/// hidden += sum; kept = hidden (kept may be null); normed = rms_norm(hidden) * weight. No norm where hidden is null.
struct NormRows {
    float* hidden = nullptr;
    const float* weight = nullptr;
    float epsilon = 0;
    float* normed = nullptr;
    std::int64_t normed_stride = 0;
    float* kept = nullptr;
    std::int64_t kept_stride = 0;
};

/// rows x width numbers, dense. Without a norm the sum goes to output, which may be input.
struct ReduceRows {
    const float* input = nullptr;
    float* output = nullptr;
    int rows = 1;
    std::int64_t width = 0;
    NormRows norm;
};

/// Row i of rank r at output + (i * ranks + r) * width.
struct GatherRows {
    const float* input = nullptr;
    float* output = nullptr;
    int rows = 1;
    std::int64_t width = 0;
};

/// How many blocks, and how many of them (`segments`) share a row. With a norm those that share a row are a cluster: 1, 2, 4
/// or 8.
struct LaunchShape {
    int blocks = 1;
    int segments = 1;
};
/// `units`: of a row, each the work of one thread at a time. Depends on nothing else, so that all ranks choose alike.
[[nodiscard]] LaunchShape launch_shape(int rows, std::int64_t units, bool norm);

/// Pairs of words that a message takes, and units of 16 bytes of a slot and of the result in two_shot.
[[nodiscard]] std::int64_t message_pairs(int rows, std::int64_t width, bool bf16);
[[nodiscard]] std::int64_t two_shot_slot_units(int rows, std::int64_t width, int ranks);
[[nodiscard]] std::int64_t row_units(int rows, std::int64_t width);

void launch_words_all_reduce(const RankView& self, const WordPaths& paths, bool bf16, const ReduceRows& work,
                             cudaStream_t stream);
void launch_bulk_all_reduce(const RankView& self, const BulkPaths& paths, bool bf16, const ReduceRows& work, cudaStream_t stream);
/// Numbers travel as float.
void launch_words_all_gather(const RankView& self, const WordPaths& paths, const GatherRows& work, cudaStream_t stream);
void launch_bulk_all_gather(const RankView& self, const BulkPaths& paths, const GatherRows& work, cudaStream_t stream);

/// What is left of ReduceRows where the sum is there already (input): one rank, or NCCL.
void launch_add_norm(const ReduceRows& work, cudaStream_t stream);
/// Messages of NCCL in bf16; `bf16`: count numbers of 2 bytes
void launch_to_bf16(const float* from, void* bf16, std::int64_t count, cudaStream_t stream);
void launch_from_bf16(const void* bf16, float* to, std::int64_t count, cudaStream_t stream);

/// Loads all kernels onto the current GPU. A kernel loaded at its first launch may wait for the GPU to be idle, which it never is
/// while another rank's kernel waits for this one.
void load_collective_kernels();

}  // namespace draftboard::backend::cuda
