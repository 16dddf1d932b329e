// SPDX-License-Identifier: Apache-2.0
// Our own collectives. What travels how, and why nobody reads old data: collective_kernels.h. What the kernels are made of:
// collective_device.cuh. Buffers: collective_staging.cpp.
//
// Every kernel: take the number of the call; send; receive, in rank order; where a norm follows, meet the blocks of the row and
// norm it; write the number of the call back. A kernel that has given up goes through its barriers and does nothing else.
#include "backend/cuda/collective_kernels.h"

#include <algorithm>
#include <stdexcept>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "backend/cuda/check.h"
#include "backend/cuda/collective_device.cuh"

namespace draftboard::backend::cuda {

namespace {

/// In two_shot a thread has R units to send and R to receive for each of a part: more blocks than one unit of a part a thread
/// would need.
constexpr std::int64_t kUnitsEach = 4;

/// Bytes a rank, of n as they travel: 2 n written to each target, 2 (R - 1) n read, and the input twice (the second time from
/// cache), the output once; with a norm also hidden twice and once again written, weight, normed. Flops: R - 1 a number, with a
/// norm 5 more.
template <bool kBf16, bool kNorm>
__global__ void __launch_bounds__(kCollectiveThreads)
    words_all_reduce(const __grid_constant__ RankView self, const __grid_constant__ WordPaths paths,
                     const __grid_constant__ ReduceRows work, int segments) {
    constexpr int kCount = kPairNumbers<kBf16>;
    Call call(self, paths.method);
    if constexpr (kNorm) prefetch_weight(work);
    const Share share(segments);
    const std::int64_t units = (work.width + kCount - 1) / kCount;
    const std::int64_t buffer = call.buffer(paths.pairs);
    const bool input_vector = aligned_rows<kCount>(work.input, work.width, work.rows);
    const std::uint32_t flag = call.flag();
    const auto own_pair = [&](int row, std::int64_t u) {
        float v[kCount];
        load_numbers<kCount>(work.input + row * work.width, u * kCount, work.width, input_vector, v);
        return pack<kBf16>(v, flag);
    };
    if (call.live) {
        for (int row = share.first_row; row < work.rows; row += share.row_step) {
            for (std::int64_t u = share.first; u < units; u += share.step)
                send(paths, buffer + row * units + u, own_pair(row, u));
        }
        renew(call, paths, work.rows * units);
    }
    call.rest();
    const Sink<kNorm, kCount> sink(work);
    for (int row = share.first_row; row < work.rows; row += share.row_step) {
        for (std::int64_t u = share.first; u < units && call.live; u += share.step) {
            float before[kCount];
            sink.take(row, u * kCount, before);
            ulonglong2 pairs[kMaxRanks];
            const ulonglong2 own = own_pair(row, u);
#pragma unroll
            for (int q = 0; q < kMaxRanks; ++q) pairs[q] = own;
            receive(call, paths, buffer + row * units + u, pairs);
            float sum[kCount];
            unpack<kBf16>(pairs[0], sum);
#pragma unroll
            for (int q = 1; q < kMaxRanks; ++q) {
                float v[kCount];
                unpack<kBf16>(pairs[q], v);
#pragma unroll
                for (int k = 0; k < kCount; ++k) sum[k] = q < self.ranks ? sum[k] + v[k] : sum[k];
            }
            if (call.live) sink.put(row, u * kCount, before, sum);
        }
        if constexpr (kNorm) norm_whole_row(work, row, share);
    }
    call.finish();
}

/// Bytes a rank, of n: 2 n written to each target, 2 (R - 1) n read, the input twice, the output once.
__global__ void __launch_bounds__(kCollectiveThreads)
    words_all_gather(const __grid_constant__ RankView self, const __grid_constant__ WordPaths paths,
                     const __grid_constant__ GatherRows work, int segments) {
    constexpr int kCount = kPairNumbers<false>;
    Call call(self, paths.method);
    const Share share(segments);
    const std::int64_t units = (work.width + kCount - 1) / kCount;
    const std::int64_t buffer = call.buffer(paths.pairs);
    const bool input_vector = aligned_rows<kCount>(work.input, work.width, work.rows);
    const bool output_vector = aligned_rows<kCount>(work.output, work.width, 2);
    const std::uint32_t flag = call.flag();
    const auto own_pair = [&](int row, std::int64_t u) {
        float v[kCount];
        load_numbers<kCount>(work.input + row * work.width, u * kCount, work.width, input_vector, v);
        return pack<false>(v, flag);
    };
    if (call.live) {
        for (int row = share.first_row; row < work.rows; row += share.row_step) {
            for (std::int64_t u = share.first; u < units; u += share.step)
                send(paths, buffer + row * units + u, own_pair(row, u));
        }
        renew(call, paths, work.rows * units);
    }
    call.rest();
    for (int row = share.first_row; row < work.rows; row += share.row_step) {
        for (std::int64_t u = share.first; u < units && call.live; u += share.step) {
            ulonglong2 pairs[kMaxRanks];
            const ulonglong2 own = own_pair(row, u);
#pragma unroll
            for (int q = 0; q < kMaxRanks; ++q) pairs[q] = own;
            receive(call, paths, buffer + row * units + u, pairs);
            if (!call.live) break;
#pragma unroll
            for (int q = 0; q < kMaxRanks; ++q) {
                if (q >= self.ranks) continue;
                float v[kCount];
                unpack<false>(pairs[q], v);
                store_numbers<kCount>(work.output + (static_cast<std::int64_t>(row) * self.ranks + q) * work.width, u * kCount,
                                      work.width, output_vector, v);
            }
        }
    }
    call.finish();
}

/// Tells the blocks of this index on all other ranks that what this block had to write in `phase` is written; then waits for
/// theirs. The stores of all threads of the block come before the barrier, and the fence after it orders them, with it, before
/// the flag.
__device__ __forceinline__ void exchange_flags(Call& call, const BulkPaths& paths, int phase) {
    __syncthreads();
    const int q = static_cast<int>(threadIdx.x);
    const std::int64_t at = phase * kMaxBlocks + static_cast<std::int64_t>(blockIdx.x);
    if (q < call.self.ranks && q != call.self.rank && call.live) {
        __threadfence_system();
        release(paths.flags_to[q] + at, call.sequence);
        while (call.live && acquire(paths.flags_from[q] + at) < call.sequence) call.pause(1u << q);
    }
    call.live = __syncthreads_and(call.live ? 1 : 0) != 0;
}

/// Rank p sums part p of each row. Bytes a rank, of n numbers: (R - 1) / R n as they travel written to the others and read from
/// slots, then (R - 1) / R 4 n of sums written and read; the input once, the output once; a norm as in words_all_reduce. Flops:
/// (R - 1) / R a number.
template <bool kBf16, bool kNorm>
__global__ void __launch_bounds__(kCollectiveThreads)
    bulk_all_reduce(const __grid_constant__ RankView self, const __grid_constant__ BulkPaths paths,
                    const __grid_constant__ ReduceRows work, int segments) {
    Call call(self, kPeerBulk);
    if constexpr (kNorm) prefetch_weight(work);
    const Share share(segments);
    const std::int64_t units = (work.width + 3) / 4;
    const std::int64_t part = (units + self.ranks - 1) / self.ranks;
    const std::int64_t slot_buffer = call.buffer(paths.slot_units);
    const std::int64_t result_buffer = call.buffer(paths.result_units);
    const bool input_vector = aligned_rows<4>(work.input, work.width, work.rows);
    const auto part_units = [&](int p) { return min(part, max(units - p * part, std::int64_t{0})); };
    // Unit u of part p of each of this block's rows.
    const auto for_units = [&](int p, const auto& body) {
        if (!call.live) return;
        for (int row = share.first_row; row < work.rows; row += share.row_step) {
            for (std::int64_t u = share.first; u < part_units(p); u += share.step) body(row, u);
        }
    };
    for (int step = 1; step < self.ranks; ++step) {
        const int p = (self.rank + step) % self.ranks;  // not all to one at a time
        uint4* slot = paths.slot_to[p] + slot_buffer;
        for_units(p, [&](int row, std::int64_t u) {
            float v[4];
            load_numbers<4>(work.input + row * work.width, (p * part + u) * 4, work.width, input_vector, v);
            if constexpr (kBf16) {
                reinterpret_cast<uint2*>(slot)[row * part + u] = {pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3])};
            } else {
                reinterpret_cast<float4*>(slot)[row * part + u] = {v[0], v[1], v[2], v[3]};
            }
        });
    }
    exchange_flags(call, paths, 0);
    call.rest();
    const Sink<kNorm, 4> sink(work);
    for_units(self.rank, [&](int row, std::int64_t u) {
        const std::int64_t at = (self.rank * part + u) * 4;
        float before[4];
        sink.take(row, at, before);
        float parts[kMaxRanks][4];
#pragma unroll
        for (int q = 0; q < kMaxRanks; ++q) {
            if (q >= self.ranks) continue;
            if (q == self.rank) {
                load_numbers<4>(work.input + row * work.width, at, work.width, input_vector, parts[q]);
                if constexpr (kBf16) {
                    unpack_bf16(pack_bf16(parts[q][0], parts[q][1]), parts[q][0], parts[q][1]);
                    unpack_bf16(pack_bf16(parts[q][2], parts[q][3]), parts[q][2], parts[q][3]);
                }
                continue;
            }
            const uint4* slot = paths.slot_from[q] + slot_buffer;
            if constexpr (kBf16) {
                const uint2 packed = __ldcg(reinterpret_cast<const uint2*>(slot) + row * part + u);
                unpack_bf16(packed.x, parts[q][0], parts[q][1]);
                unpack_bf16(packed.y, parts[q][2], parts[q][3]);
            } else {
                const float4 read = __ldcg(reinterpret_cast<const float4*>(slot) + row * part + u);
                parts[q][0] = read.x, parts[q][1] = read.y, parts[q][2] = read.z, parts[q][3] = read.w;
            }
        }
        float sum[4] = {parts[0][0], parts[0][1], parts[0][2], parts[0][3]};
#pragma unroll
        for (int q = 1; q < kMaxRanks; ++q) {
            if (q >= self.ranks) continue;
#pragma unroll
            for (int k = 0; k < 4; ++k) sum[k] += parts[q][k];
        }
#pragma unroll
        for (int q = 0; q < kMaxRanks; ++q) {
            if (q < self.ranks && q != self.rank) {
                paths.result_to[q][result_buffer + row * units + self.rank * part + u] = {sum[0], sum[1], sum[2], sum[3]};
            }
        }
        sink.put(row, at, before, sum);
    });
    exchange_flags(call, paths, 1);
    call.rest();
    const float4* result = paths.result + result_buffer;
    for (int row = share.first_row; row < work.rows; row += share.row_step) {
        for (int p = 0; p < self.ranks && call.live; ++p) {
            if (p == self.rank) continue;
            for (std::int64_t u = share.first; u < part_units(p); u += share.step) {
                const std::int64_t unit = p * part + u;
                float before[4];
                sink.take(row, unit * 4, before);
                const float4 read = __ldcg(result + row * units + unit);
                float sum[4] = {read.x, read.y, read.z, read.w};
                sink.put(row, unit * 4, before, sum);
            }
        }
        if constexpr (kNorm) norm_whole_row(work, row, share);
    }
    call.finish();
}

/// Bytes a rank, of n: n written to each other rank, (R - 1) n read from slots, the input R times (after the first from cache),
/// the output once.
__global__ void __launch_bounds__(kCollectiveThreads)
    bulk_all_gather(const __grid_constant__ RankView self, const __grid_constant__ BulkPaths paths,
                    const __grid_constant__ GatherRows work, int segments) {
    Call call(self, kPeerBulk);
    const Share share(segments);
    const std::int64_t units = (work.width + 3) / 4;
    const std::int64_t slot_buffer = call.buffer(paths.slot_units);
    const bool input_vector = aligned_rows<4>(work.input, work.width, work.rows);
    const bool output_vector = aligned_rows<4>(work.output, work.width, 2);
    const auto for_units = [&](const auto& body) {
        if (!call.live) return;
        for (int row = share.first_row; row < work.rows; row += share.row_step) {
            for (std::int64_t u = share.first; u < units; u += share.step) body(row, u);
        }
    };
    const auto output = [&](int row, int q) {
        return work.output + (static_cast<std::int64_t>(row) * self.ranks + q) * work.width;
    };
    for_units([&](int row, std::int64_t u) {
        float v[4];
        load_numbers<4>(work.input + row * work.width, u * 4, work.width, input_vector, v);
#pragma unroll
        for (int q = 0; q < kMaxRanks; ++q) {
            if (q >= self.ranks || q == self.rank) continue;
            reinterpret_cast<float4*>(paths.slot_to[q] + slot_buffer)[row * units + u] = {v[0], v[1], v[2], v[3]};
        }
        store_numbers<4>(output(row, self.rank), u * 4, work.width, output_vector, v);
    });
    exchange_flags(call, paths, 0);
    call.rest();
    for_units([&](int row, std::int64_t u) {
#pragma unroll
        for (int q = 0; q < kMaxRanks; ++q) {
            if (q >= self.ranks || q == self.rank) continue;
            const float4 read = __ldcg(reinterpret_cast<const float4*>(paths.slot_from[q] + slot_buffer) + row * units + u);
            const float v[4] = {read.x, read.y, read.z, read.w};
            store_numbers<4>(output(row, q), u * 4, work.width, output_vector, v);
        }
    });
    call.finish();
}

/// A block a row. Bytes a row: sum, hidden, weight read, hidden, normed, kept written: 24 width. Flops: 5 width.
__global__ void __launch_bounds__(kCollectiveThreads) add_norm(const __grid_constant__ ReduceRows work) {
    const Share share(1);
    const Sink<true, 4> sink(work);
    const bool input_vector = aligned_rows<4>(work.input, work.width, work.rows);
    const int row = share.first_row;
    for (std::int64_t u = share.first; u * 4 < work.width; u += share.step) {
        float before[4];
        float sum[4];
        sink.take(row, u * 4, before);
        load_numbers<4>(work.input + row * work.width, u * 4, work.width, input_vector, sum);
        sink.put(row, u * 4, before, sum);
    }
    norm_whole_row(work, row, share);
}

/// 6 bytes a number.
__global__ void __launch_bounds__(kCollectiveThreads) to_bf16(const float* from, __nv_bfloat16* to, std::int64_t count) {
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kCollectiveThreads;
    for (std::int64_t i = blockIdx.x * std::int64_t{kCollectiveThreads} + threadIdx.x; i < count; i += step)
        to[i] = __float2bfloat16_rn(from[i]);
}
__global__ void __launch_bounds__(kCollectiveThreads) from_bf16(const __nv_bfloat16* from, float* to, std::int64_t count) {
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kCollectiveThreads;
    for (std::int64_t i = blockIdx.x * std::int64_t{kCollectiveThreads} + threadIdx.x; i < count; i += step)
        to[i] = __bfloat162float(from[i]);
}

void fits(std::int64_t needed, std::int64_t available, const char* what) {
    if (needed > available) throw std::runtime_error(std::string(what) + ": the message is larger than its buffer");
}

/// Blocks that share a row with a norm after it are a cluster, so that they can meet.
template <class Kernel, class Paths, class Work>
void launch(Kernel kernel, const RankView& self, const Paths& paths, const Work& work, const LaunchShape& shape, bool cluster,
            cudaStream_t stream, const char* what) {
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {static_cast<unsigned>(shape.segments), 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(shape.blocks));
    config.blockDim = dim3(kCollectiveThreads);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = cluster && shape.segments > 1 ? 1 : 0;
    check(cudaLaunchKernelEx(&config, kernel, self, paths, work, shape.segments), what);
}

unsigned blocks_for(std::int64_t count) {
    return static_cast<unsigned>(std::min<std::int64_t>(kMaxBlocks * 4, (count + kCollectiveThreads - 1) / kCollectiveThreads));
}

}  // namespace

LaunchShape launch_shape(int rows, std::int64_t units, bool norm) {
    const int side_by_side = std::min(rows, kMaxBlocks);
    const std::int64_t useful = (units + kCollectiveThreads - 1) / kCollectiveThreads;
    int segments = static_cast<int>(std::clamp<std::int64_t>(useful, 1, kMaxBlocks / side_by_side));
    if (norm) {
        int cluster = 1;
        while (cluster < segments && cluster < 8) cluster *= 2;
        if (cluster * side_by_side > kMaxBlocks) cluster /= 2;
        segments = cluster;
    }
    return {side_by_side * segments, segments};
}

std::int64_t message_pairs(int rows, std::int64_t width, bool bf16) {
    const std::int64_t count = bf16 ? kPairNumbers<true> : kPairNumbers<false>;
    return rows * ((width + count - 1) / count);
}
std::int64_t row_units(int rows, std::int64_t width) { return rows * ((width + 3) / 4); }
std::int64_t two_shot_slot_units(int rows, std::int64_t width, int ranks) {
    return rows * ((row_units(1, width) + ranks - 1) / ranks);
}

void launch_words_all_reduce(const RankView& self, const WordPaths& paths, bool bf16, const ReduceRows& work,
                             cudaStream_t stream) {
    fits(message_pairs(work.rows, work.width, bf16), paths.pairs, "all-reduce");
    const bool norm = work.norm.hidden != nullptr;
    const LaunchShape shape = launch_shape(work.rows, message_pairs(1, work.width, bf16), norm);
    const auto kernel = bf16 ? (norm ? words_all_reduce<true, true> : words_all_reduce<true, false>)
                             : (norm ? words_all_reduce<false, true> : words_all_reduce<false, false>);
    launch(kernel, self, paths, work, shape, norm, stream, "all-reduce by words");
}

void launch_bulk_all_reduce(const RankView& self, const BulkPaths& paths, bool bf16, const ReduceRows& work,
                            cudaStream_t stream) {
    fits(two_shot_slot_units(work.rows, work.width, self.ranks), paths.slot_units, "all-reduce");
    fits(row_units(work.rows, work.width), paths.result_units, "all-reduce");
    const bool norm = work.norm.hidden != nullptr;
    const std::int64_t part = two_shot_slot_units(1, work.width, self.ranks);
    const LaunchShape shape = launch_shape(work.rows, part * kUnitsEach, norm);
    const auto kernel = bf16 ? (norm ? bulk_all_reduce<true, true> : bulk_all_reduce<true, false>)
                             : (norm ? bulk_all_reduce<false, true> : bulk_all_reduce<false, false>);
    launch(kernel, self, paths, work, shape, norm, stream, "two-shot all-reduce");
}

void launch_words_all_gather(const RankView& self, const WordPaths& paths, const GatherRows& work, cudaStream_t stream) {
    fits(message_pairs(work.rows, work.width, false), paths.pairs, "all-gather");
    const LaunchShape shape = launch_shape(work.rows, message_pairs(1, work.width, false), false);
    launch(words_all_gather, self, paths, work, shape, false, stream, "all-gather by words");
}

void launch_bulk_all_gather(const RankView& self, const BulkPaths& paths, const GatherRows& work, cudaStream_t stream) {
    fits(row_units(work.rows, work.width), paths.slot_units, "all-gather");
    const LaunchShape shape = launch_shape(work.rows, row_units(1, work.width), false);
    launch(bulk_all_gather, self, paths, work, shape, false, stream, "bulk all-gather");
}

void launch_add_norm(const ReduceRows& work, cudaStream_t stream) {
    add_norm<<<static_cast<unsigned>(work.rows), kCollectiveThreads, 0, stream>>>(work);
    check_launch("residual and norm");
}

void launch_to_bf16(const float* from, void* bf16, std::int64_t count, cudaStream_t stream) {
    to_bf16<<<blocks_for(count), kCollectiveThreads, 0, stream>>>(from, static_cast<__nv_bfloat16*>(bf16), count);
    check_launch("to bf16");
}
void launch_from_bf16(const void* bf16, float* to, std::int64_t count, cudaStream_t stream) {
    from_bf16<<<blocks_for(count), kCollectiveThreads, 0, stream>>>(static_cast<const __nv_bfloat16*>(bf16), to, count);
    check_launch("from bf16");
}

void load_collective_kernels() {
    const void* kernels[] = {reinterpret_cast<const void*>(words_all_reduce<false, false>),
                             reinterpret_cast<const void*>(words_all_reduce<false, true>),
                             reinterpret_cast<const void*>(words_all_reduce<true, false>),
                             reinterpret_cast<const void*>(words_all_reduce<true, true>),
                             reinterpret_cast<const void*>(bulk_all_reduce<false, false>),
                             reinterpret_cast<const void*>(bulk_all_reduce<false, true>),
                             reinterpret_cast<const void*>(bulk_all_reduce<true, false>),
                             reinterpret_cast<const void*>(bulk_all_reduce<true, true>),
                             reinterpret_cast<const void*>(words_all_gather),
                             reinterpret_cast<const void*>(bulk_all_gather),
                             reinterpret_cast<const void*>(add_norm),
                             reinterpret_cast<const void*>(to_bf16),
                             reinterpret_cast<const void*>(from_bf16)};
    for (const void* kernel : kernels) {
        cudaFuncAttributes attributes{};
        check(cudaFuncGetAttributes(&attributes, kernel), "loading the collectives' kernels");
    }
}

}  // namespace draftboard::backend::cuda
