// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the attention kernel brings into shared memory: tiles of keys and values by cp.async, up to
// kMaxStages of them under way, and the queries of a block's pairs. Which slots a tile holds is
// decided in attention_slots.cuh, how it is laid out in attention_math.cuh; attention_core.cuh is
// the kernel.

#include <cstdint>

#include <cuda_runtime.h>

#include "backend/cuda/attention_combine.h"
#include "backend/cuda/attention_math.cuh"
#include "backend/cuda/attention_slots.cuh"

namespace draftboard::backend::cuda {

inline constexpr int kMaxStages = 4;

struct AttentionLaunch {
    PassView pass;
    const float* query = nullptr;
    int heads = 0;
    int kv_heads = 0;
    int key_width = 0;
    int value_width = 0;
    float scale = 0;
    KeyValueCache cache;
    int splits = 0;
    int groups = 0;  ///< of pairs, a kv head
    int stages = 0;
    int lanes_log2 = 0;  ///< threads that copy a row
    float* output = nullptr;
    AttentionPartials partials;
};

/// 16 bytes, the first `bytes` of them copied, the others zeros.
__device__ inline void copy16(std::uint32_t to, const void* from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
                 : "memory");
}
__device__ inline void end_copy_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// 2^x, exact for whole x, else within 2^-22; numbers below 2^-126 are 0.
__device__ inline float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/// Until at most stages - 2 copies are under way: the oldest is there. One stage: until none is.
__device__ inline void wait_for_copy(int stages) {
    if (stages >= 4) {
        asm volatile("cp.async.wait_group 2;" ::: "memory");
    } else if (stages == 3) {
        asm volatile("cp.async.wait_group 1;" ::: "memory");
    } else {
        asm volatile("cp.async.wait_group 0;" ::: "memory");
    }
}

/// Numbers of the tiles of one stage.
template <class Math, bool kSharedValues>
__host__ __device__ inline int stage_elements(int key_width, int value_width) {
    return kTile *
           (Math::key_stride(key_width) + (kSharedValues ? 0 : Math::value_stride(value_width)));
}

template <class Math, bool kSharedValues>
inline int attention_shared_bytes(int key_width, int value_width, int stages) {
    return stages * stage_elements<Math, kSharedValues>(key_width, value_width) *
               static_cast<int>(sizeof(typename Math::Element)) +
           Math::query_bytes(key_width) + kQuarters * Math::kPairs * kScoreStride * 4 +
           Math::weight_bytes();
}

/// Copies steps of one kv head into shared memory. `lanes` threads, a power of two, share a row.
template <class Math, bool kSharedValues>
struct StepCopier {
    using Element = typename Math::Element;
    static constexpr int kEach = 16 / sizeof(Element);
    const char* keys = nullptr;  ///< slot 0, this thread's first 16 bytes
    const char* values = nullptr;
    std::int64_t slot_bytes = 0;
    int key_stride = 0;  ///< bytes from row to row of a tile
    int value_stride = 0;
    int lanes = 0;
    int row = 0;   ///< the thread's first
    int rows = 0;  ///< of all threads at a time
    int key_chunks = 0;
    int value_chunks = 0;
    int chunk = 0;  ///< the thread's first

    __device__ StepCopier(const AttentionLaunch& launch, int sequence, int kv_head) {
        const std::int64_t start = launch.pass.slots[sequence] * launch.cache.sequence_stride +
                                   std::int64_t{kv_head} * launch.key_width;
        lanes = 1 << launch.lanes_log2;
        chunk = static_cast<int>(threadIdx.x) & (lanes - 1);
        row = static_cast<int>(threadIdx.x) >> launch.lanes_log2;
        rows = Math::kThreads >> launch.lanes_log2;
        keys = static_cast<const char*>(launch.cache.keys) + start * sizeof(Element) + chunk * 16;
        values =
            static_cast<const char*>(launch.cache.values) + start * sizeof(Element) + chunk * 16;
        slot_bytes = launch.cache.slot_width * static_cast<std::int64_t>(sizeof(Element));
        key_stride = Math::key_stride(launch.key_width) * static_cast<int>(sizeof(Element));
        value_stride = Math::value_stride(launch.value_width) * static_cast<int>(sizeof(Element));
        key_chunks = launch.key_width / kEach;
        value_chunks = launch.value_width / kEach;
    }

    template <class Rows>
    __device__ void start(const Rows& sight, const Step& step, std::uint32_t stage) const {
        if (step.owner == kAllRows && key_chunks <= kPieces * 32) {
            start_together(step.first, stage);
            return;
        }
        for (int r = row; r < kTile; r += rows) {
            const std::int64_t slot = sight.slot(step.owner, step.first + r);
            const std::int64_t at = (slot < 0 ? 0 : slot) * slot_bytes;
            const int bytes = slot < 0 ? 0 : 16;
            copy_row(keys + at, key_chunks, stage + r * key_stride + chunk * 16, bytes);
            if (kSharedValues) continue;
            copy_row(values + at, value_chunks,
                     stage + kTile * key_stride + r * value_stride + chunk * 16, bytes);
        }
    }

   private:
    /// Pieces of a row that a thread copies without a loop where a warp shares the row.
    static constexpr int kPieces = sizeof(Element) == 2 ? 3 : 5;

    /// Slots are positions: the common case, with few instructions.
    __device__ void start_together(int first, std::uint32_t stage) const {
        const char* key = keys + (first + row) * slot_bytes;
        const char* value = values + (first + row) * slot_bytes;
        std::uint32_t key_to = stage + row * key_stride + chunk * 16;
        std::uint32_t value_to = stage + kTile * key_stride + row * value_stride + chunk * 16;
        for (int r = row; r < kTile; r += rows) {
#pragma unroll
            for (int j = 0; j < kPieces; ++j) {
                if (chunk + 32 * j < key_chunks) copy16(key_to + 512 * j, key + 512 * j, 16);
                if (!kSharedValues && chunk + 32 * j < value_chunks)
                    copy16(value_to + 512 * j, value + 512 * j, 16);
            }
            key += rows * slot_bytes;
            value += rows * slot_bytes;
            key_to += rows * key_stride;
            value_to += rows * value_stride;
        }
    }
    __device__ void copy_row(const char* from, int chunks, std::uint32_t to, int bytes) const {
        for (int c = chunk; c < chunks; c += lanes, from += lanes * 16, to += lanes * 16) {
            copy16(to, from, bytes);
        }
    }
};

/// The queries of the block's pairs on their way into shared memory, a warp a pair, several loads
/// under way at a time.
template <class Math>
struct QueryLoader {
    static constexpr int kTogether = 5;
    static constexpr int kStep = 4 * 32;
    float4 v[kTogether];

    /// Numbers from `begin` on, every 128th 4; 0 where the pair does not exist or its query has
    /// ended.
    __device__ void load(const AttentionLaunch& launch, int sequence, int kv_head, int pair,
                         int pairs, int begin) {
        const int heads_a_kv = launch.heads / launch.kv_heads;
        const int row = sequence * launch.pass.tokens + pair / heads_a_kv;
        const int head = kv_head * heads_a_kv + pair % heads_a_kv;
        const float* query =
            launch.query + (std::int64_t{row} * launch.heads + head) * launch.key_width;
#pragma unroll
        for (int j = 0; j < kTogether; ++j) {
            const int column = begin + j * kStep;
            v[j] = {0, 0, 0, 0};
            if (pair < pairs && column < launch.key_width)
                v[j] = *reinterpret_cast<const float4*>(query + column);
        }
    }
    __device__ void store(const AttentionLaunch& launch, void* queries, int pair, int begin) const {
#pragma unroll
        for (int j = 0; j < kTogether; ++j) {
            const int column = begin + j * kStep;
            if (column < Math::query_columns(launch.key_width))
                Math::put_query(queries, launch.key_width, pair, column, v[j]);
        }
    }
};

}  // namespace draftboard::backend::cuda
