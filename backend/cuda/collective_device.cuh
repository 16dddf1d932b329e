// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the kernels of collective_kernels.cu are made of, device code only: a call and its waits, a thread's share of the rows,
// words on their way, the sink of a sum. What travels how, and why nobody reads old data: collective_kernels.h. The norm:
// row_norm.cuh.

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "backend/cuda/collective_kernels.h"
#include "backend/cuda/row_norm.cuh"

namespace draftboard::backend::cuda {

static_assert(kCollectiveThreads == kNormThreads, "a block that sums a row also norms it");

/// A waiting thread looks at the clock and at the other ranks' fate once in so many rounds, each of which takes a microsecond or
/// so.
constexpr std::uint32_t kRoundsBetweenLooks = 128;

__device__ __forceinline__ void store_pair(ulonglong2* to, std::uint64_t first, std::uint64_t second) {
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(first), "l"(second) : "memory");
}
__device__ __forceinline__ ulonglong2 load_pair(const ulonglong2* from) {
    ulonglong2 pair;
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(pair.x), "=l"(pair.y) : "l"(from) : "memory");
    return pair;
}
__device__ __forceinline__ void release(std::uint64_t* flag, std::uint64_t value) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(flag), "l"(value) : "memory");
}
__device__ __forceinline__ std::uint64_t acquire(const std::uint64_t* flag) {
    std::uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(flag) : "memory");
    return value;
}
__device__ __forceinline__ std::uint64_t nanoseconds() {
    std::uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

/// A rank gives up. The first of its threads to come here says for whom it waited.
static __device__ __noinline__ void leave_record(const RankView& self, std::uint32_t missing) {
    if (atomicCAS(self.given_up, 0u, 1u) != 0) return;
    volatile CollectiveRecord* record = &self.failure->records[self.rank];
    record->late = missing;
    record->call = self.states[blockIdx.x].calls + 1;
    __threadfence_system();
    record->raised = 1;
    __threadfence_system();
    *static_cast<volatile std::uint32_t*>(&self.failure->abort) = 1;
}

/// One rank's call of one method, as a thread sees it.
struct Call {
    const RankView& self;
    StagedMethod method;
    BlockState before;       ///< read once, at the start: where it is needed again, the kernel is about to end
    std::uint64_t sequence;  ///< of the method, from 1
    bool live;               ///< false: this rank has given up, now or in an earlier call
    std::uint32_t rounds = 0;
    std::uint64_t waiting_since = 0;

    __device__ Call(const RankView& rank, StagedMethod of)
        : self(rank),
          method(of),
          before(rank.states[blockIdx.x]),
          sequence(0),
          live(*static_cast<volatile std::uint32_t*>(rank.given_up) == 0) {
#pragma unroll
        for (int m = 0; m < kStagedMethods; ++m) sequence = m == of ? before.sequence[m] + 1 : sequence;
    }

    [[nodiscard]] __device__ std::uint32_t flag() const { return static_cast<std::uint32_t>(sequence); }
    [[nodiscard]] __device__ std::int64_t buffer(std::int64_t size) const { return (sequence & 1) != 0 ? size : 0; }

    /// Between two looks at what has not come; `missing`: from whom.
    __device__ __forceinline__ void pause(std::uint32_t missing) {
        if (++rounds % kRoundsBetweenLooks != 0) return;
        const std::uint64_t now = nanoseconds();
        if (waiting_since == 0) waiting_since = now;
        if (*static_cast<volatile std::uint32_t*>(&self.failure->abort) != 0) {
            atomicExch(self.given_up, 1u);
            live = false;
        } else if (now - waiting_since > self.timeout_ns) {
            leave_record(self, missing);
            live = false;
        }
    }

    /// Between what a block has sent and what it reads. Nothing, but for a build of the tests: there each block rests up to 16
    /// us, so that the other ranks run ahead of it as far as they can.
    __device__ __forceinline__ void rest() const {
#ifdef DRAFTBOARD_COLLECTIVE_RESTS
        const std::uint64_t drawn = (sequence * 8 + static_cast<std::uint64_t>(self.rank) * 3 + blockIdx.x) * 0x9E3779B97F4A7C15u;
        const std::uint64_t until = nanoseconds() + (drawn >> 50);
        while (nanoseconds() < until) __nanosleep(100);
        __syncthreads();
#endif
    }

    /// Last in a kernel; all threads of the block. The states of blocks that this launch has not are written too.
    __device__ void finish() const {
        __syncthreads();
        if (threadIdx.x != 0) return;
        BlockState next = before;
        ++next.calls;
#pragma unroll
        for (int m = 0; m < kStagedMethods; ++m) next.sequence[m] += m == method ? 1 : 0;
        for (unsigned b = blockIdx.x; b < kMaxBlocks; b += gridDim.x) self.states[b] = next;
    }
};

/// This thread's part of the rows: rows first_row, first_row + row_step ...; of each, units first, first + step ... The warps of
/// the blocks that share a row take turns, so that few units are spread over all of them.
struct Share {
    int first_row, row_step, segment, segments;
    std::int64_t first, step;

    __device__ explicit Share(int row_segments)
        : first_row(static_cast<int>(blockIdx.x) / row_segments),
          row_step(static_cast<int>(gridDim.x) / row_segments),
          segment(static_cast<int>(blockIdx.x) % row_segments),
          segments(row_segments),
          first((static_cast<std::int64_t>(threadIdx.x / 32) * segments + segment) * 32 + threadIdx.x % 32),
          step(static_cast<std::int64_t>(segments) * kCollectiveThreads) {}
};

__device__ __forceinline__ std::uint32_t pack_bf16(float a, float b) {
    const __nv_bfloat162 packed = __floats2bfloat162_rn(a, b);
    return static_cast<std::uint32_t>(__bfloat16_as_ushort(packed.x)) | static_cast<std::uint32_t>(__bfloat16_as_ushort(packed.y))
                                                                            << 16;
}
__device__ __forceinline__ void unpack_bf16(std::uint32_t packed, float& a, float& b) {
    a = __uint_as_float(packed << 16);
    b = __uint_as_float(packed & 0xFFFF0000u);
}

/// The numbers of a pair of words: 2 float or 4 bf16.
template <bool kBf16>
constexpr int kPairNumbers = kBf16 ? 4 : 2;

template <bool kBf16>
__device__ __forceinline__ ulonglong2 pack(const float (&v)[kPairNumbers<kBf16>], std::uint32_t flag) {
    const std::uint64_t high = static_cast<std::uint64_t>(flag) << 32;
    if constexpr (kBf16) {
        return {high | pack_bf16(v[0], v[1]), high | pack_bf16(v[2], v[3])};
    } else {
        return {high | __float_as_uint(v[0]), high | __float_as_uint(v[1])};
    }
}
template <bool kBf16>
__device__ __forceinline__ void unpack(const ulonglong2& pair, float (&v)[kPairNumbers<kBf16>]) {
    const auto first = static_cast<std::uint32_t>(pair.x);
    const auto second = static_cast<std::uint32_t>(pair.y);
    if constexpr (kBf16) {
        unpack_bf16(first, v[0], v[1]);
        unpack_bf16(second, v[2], v[3]);
    } else {
        v[0] = __uint_as_float(first), v[1] = __uint_as_float(second);
    }
}

/// Waits for pair `at` of all other ranks; pairs[self.rank] is the caller's.
__device__ __forceinline__ void receive(Call& call, const WordPaths& paths, std::int64_t at, ulonglong2 (&pairs)[kMaxRanks]) {
    std::uint32_t missing = ((1u << call.self.ranks) - 1) & ~(1u << call.self.rank);
    const std::uint32_t flag = call.flag();
    while (missing != 0 && call.live) {
#pragma unroll
        for (int q = 0; q < kMaxRanks; ++q) {
            if ((missing >> q & 1u) != 0) pairs[q] = load_pair(paths.from[q] + at);
        }
#pragma unroll
        for (int q = 0; q < kMaxRanks; ++q) {
            if ((missing >> q & 1u) == 0) continue;
            if (static_cast<std::uint32_t>(pairs[q].x >> 32) == flag && static_cast<std::uint32_t>(pairs[q].y >> 32) == flag) {
                missing &= ~(1u << q);
            }
        }
        if (missing != 0) call.pause(missing);
    }
}

__device__ __forceinline__ void send(const WordPaths& paths, std::int64_t at, const ulonglong2& pair) {
#pragma unroll
    for (int i = 0; i < kMaxRanks - 1; ++i) {
        if (i < paths.targets) store_pair(paths.to[i] + at, pair.x, pair.y);
    }
}

/// Renews one pair beyond the message, another one each call (collective_kernels.h: why a flag matches no old word).
__device__ __forceinline__ void renew(const Call& call, const WordPaths& paths, std::int64_t used) {
    if (blockIdx.x != 0 || threadIdx.x != 0 || !call.live) return;
    const std::int64_t at = static_cast<std::uint32_t>(call.sequence >> 1) % static_cast<std::uint32_t>(paths.pairs);
    const std::uint64_t empty = static_cast<std::uint64_t>(call.flag()) << 32;
    if (at >= used) send(paths, call.buffer(paths.pairs) + at, {empty, empty});
}

/// Where a sum goes: output, or the residual.
template <bool kNorm, int kCount>
struct Sink {
    const ReduceRows& work;
    bool vector, kept_vector;

    __device__ explicit Sink(const ReduceRows& of)
        : work(of),
          vector(aligned_rows<kCount>(kNorm ? of.norm.hidden : of.output, of.width, of.rows)),
          kept_vector(kNorm && aligned_rows<kCount>(of.norm.kept, of.norm.kept_stride, of.rows)) {}
    [[nodiscard]] __device__ float* row(int i) const { return (kNorm ? work.norm.hidden : work.output) + i * work.width; }
    /// `before`: what put() adds to, taken early so that it is there when the sum is.
    __device__ void take(int i, std::int64_t at, float (&before)[kCount]) const {
        if constexpr (kNorm) load_numbers<kCount>(row(i), at, work.width, vector, before);
    }
    __device__ void put(int i, std::int64_t at, const float (&before)[kCount], float (&sum)[kCount]) const {
        if constexpr (kNorm) {
#pragma unroll
            for (int k = 0; k < kCount; ++k) sum[k] = before[k] + sum[k];
            if (work.norm.kept != nullptr) {
                store_numbers<kCount>(work.norm.kept + i * work.norm.kept_stride, at, work.width, kept_vector, sum);
            }
        }
        store_numbers<kCount>(row(i), at, work.width, vector, sum);
    }
};

/// First in a kernel with a norm: the weights, which nothing has read since the last pass, are on their way while the ranks wait.
__device__ __forceinline__ void prefetch_weight(const ReduceRows& work) {
    constexpr std::int64_t kLine = 32;  // numbers
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kCollectiveThreads * kLine;
    for (std::int64_t at = (static_cast<std::int64_t>(threadIdx.x) * gridDim.x + blockIdx.x) * kLine; at < work.width;
         at += step) {
        asm volatile("prefetch.global.L2 [%0];" ::"l"(work.norm.weight + at));
    }
}

/// Meets the blocks of the row, which have written their parts of hidden, then norms it. All threads of the blocks of a row.
__device__ __forceinline__ void norm_whole_row(const ReduceRows& work, int row, const Share& share) {
    if (share.segments > 1) {
        asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
    } else {
        __syncthreads();
    }
    const NormRows& norm = work.norm;
    norm_row(norm.hidden + row * work.width, aligned_rows<4>(norm.hidden, work.width, work.rows), norm.weight, work.width,
             norm.epsilon, norm.normed + row * norm.normed_stride, aligned_rows<4>(norm.normed, norm.normed_stride, work.rows),
             share.segment, share.segments);
}

}  // namespace draftboard::backend::cuda
