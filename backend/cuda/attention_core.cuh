// SPDX-License-Identifier: Apache-2.0
#pragma once
// The attention kernel that attention_gqa.cu and attention_mla.cu launch, and how it is launched. A
// block has one split of the positions (kSplit), one kv head of one sequence, and up to 32 pairs of
// row and query head; it walks the split in steps of kTile positions:
//
//   copy a later step's keys and values into shared memory (cp.async, up to kMaxStages of them
//   under way) | scores | softmax, a warp a pair, a lane a position | sums
//
// and leaves the maximum, the sum of weights and the weighted sum of values of each pair for
// attention_combine.cu, or the output where no row can see more than one split. A step's arithmetic
// is in attention_math.cuh, the copies in attention_copy.cuh, what rows see in attention_slots.cuh.
//
// Shared memory: stages x kTile x (key + value width) x cache bytes, queries 4 bytes a number,
// scores. Weights are base-2: scale holds log2 e.

#include <cstdint>
#include <stdexcept>

#include <cuda_runtime.h>

#include "backend/cuda/attention_combine.h"
#include "backend/cuda/attention_copy.cuh"
#include "backend/cuda/attention_math.cuh"
#include "backend/cuda/attention_slots.cuh"
#include "backend/cuda/check.h"
#include "backend/cuda/launch_ahead.cuh"
#include "backend/cuda/shared_memory.h"

namespace draftboard::backend::cuda {

/// Grid: x kv heads * groups, y splits, z sequences. Bytes of a block: kSplit x (key + value width)
/// x cache bytes; flops: attention_math.cuh.
template <class Math, bool kSharedValues, int kBlocksAnSm>
__global__ void __launch_bounds__(Math::kThreads, kBlocksAnSm)
    attention_kernel(const __grid_constant__ AttentionLaunch launch) {
    let_successor_begin();  // what was committed before the pass, and what rows see, is read before the wait
    using Element = typename Math::Element;
    constexpr int kPairs = Math::kPairs;
    constexpr int kWarps = Math::kThreads / 32;
    constexpr int kOwn = kPairs / kWarps;  // pairs of a warp's softmax
    constexpr float kNothing = -INFINITY;
    extern __shared__ __align__(16) unsigned char memory[];
    __shared__ Sight<kPairs> sight;
    __shared__ float corrections[kPairs];
    __shared__ int counts[kPairs];
    __shared__ float maxima[kPairs];
    __shared__ float totals[kPairs];
    __shared__ std::int32_t places[kPairs];  // row * heads + head, -1: sees nothing of this split

    const PassView& pass = launch.pass;
    const int sequence = static_cast<int>(blockIdx.z);
    const int split = static_cast<int>(blockIdx.y);
    const int kv_head = static_cast<int>(blockIdx.x) / launch.groups;
    const int first_pair = static_cast<int>(blockIdx.x) % launch.groups * kPairs;
    const int heads_a_kv = launch.heads / launch.kv_heads;
    const int all_pairs = pass.tokens * heads_a_kv;
    const int pairs = min(kPairs, all_pairs - first_pair);
    const int first_row = first_pair / heads_a_kv;  // within the sequence
    const int rows = (first_pair + pairs - 1) / heads_a_kv - first_row + 1;
    const int first_position = split * kSplit;
    const int committed = pass.committed[sequence];
    if (first_position >= committed + pass.first_row[sequence] + pass.tokens) return wait_for_predecessor();

    const int lane = static_cast<int>(threadIdx.x % 32);
    const int warp = static_cast<int>(threadIdx.x / 32);
    const int key_width = launch.key_width;
    const int value_width = launch.value_width;
    const int stage_size = stage_elements<Math, kSharedValues>(key_width, value_width);
    auto* tiles = reinterpret_cast<Element*>(memory);
    unsigned char* queries =
        memory + launch.stages * stage_size * static_cast<int>(sizeof(Element));
    auto* partial = reinterpret_cast<float*>(queries + Math::query_bytes(key_width));
    void* weights = partial + kQuarters * kPairs * kScoreStride;

    const StepCopier<Math, kSharedValues> copier(launch, sequence, kv_head);
    const std::uint32_t tiles_address = shared_address(tiles);
    const auto copy = [&](const Step& step, int stage) {
        copier.start(sight, step,
                     tiles_address + stage * stage_size * static_cast<int>(sizeof(Element)));
    };
    const std::uint32_t word = Sight<kPairs>::word(pass, sequence * pass.tokens + first_row, rows);
    // Copies that are under way before the first step is computed. Those that all rows see all of
    // do not wait for the masks.
    const int ahead = max(launch.stages - 1, 1);
    int begun = 0;
    for (; begun < ahead && begun < kTilesOfSplit &&
           first_position + (begun + 1) * kTile <= committed;
         ++begun) {
        copy({first_position + begun * kTile, kAllRows}, begun);
        end_copy_group();
    }

    const int columns = Math::query_columns(key_width);
    if (columns > key_width) {  // zeros beside the keys, where products reach
        for (int i = static_cast<int>(threadIdx.x);
             i < launch.stages * kTile * (columns - key_width); i += Math::kThreads) {
            const int row = i / (columns - key_width);
            tiles[row / kTile * stage_size + row % kTile * Math::key_stride(key_width) + key_width +
                  i % (columns - key_width)] = Element(0.0f);
        }
    }
    sight.prepare(word, committed, rows, first_position);
    wait_for_predecessor();
    const int steps = sight.steps;
    if (steps == 0) return;
    QueryLoader<Math> loader;
    loader.load(launch, sequence, kv_head, first_pair + warp, all_pairs, 4 * lane);
    const auto step_at = [&](int index) {
        Step step = sight.at(index);
        step.first += first_position;
        return step;
    };
    for (; begun < ahead; ++begun) {
        if (begun < steps) copy(step_at(begun), begun);
        end_copy_group();
    }
    loader.store(launch, queries, warp, 4 * lane);
    for (int pair = warp; pair < kPairs; pair += kWarps) {
        constexpr int kBatch = QueryLoader<Math>::kTogether * QueryLoader<Math>::kStep;
        for (int begin = 4 * lane + (pair == warp ? kBatch : 0); begin < columns; begin += kBatch) {
            loader.load(launch, sequence, kv_head, first_pair + pair, all_pairs, begin);
            loader.store(launch, queries, pair, begin);
        }
    }

    Math math;
    float maximum[kOwn];  // of pair warp + i * kWarps
    float total[kOwn];    // of the lane's positions
    int own_row[kOwn];    // of the block, -1: there is no such pair
    int visible[kOwn];
    bool chain[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
        const int pair = warp + i * kWarps;
        maximum[i] = kNothing;
        total[i] = 0;
        own_row[i] = pair < pairs ? (first_pair + pair) / heads_a_kv - first_row : -1;
        visible[i] = pair < pairs ? sight.visible[own_row[i]] : 0;
        chain[i] = pair < pairs && sight.chain[own_row[i]];
        if (lane == 0) {
            const int row = sequence * pass.tokens + first_row + own_row[i];
            places[pair] = visible[i] > first_position ? row * launch.heads + kv_head * heads_a_kv +
                                                             (first_pair + pair) % heads_a_kv
                                                       : -1;
        }
    }
    int stage = 0;
    int next_stage = launch.stages > 1 ? ahead : 0;
    for (int index = 0; index < steps; ++index) {
        const Step step = step_at(index);
        const Element* tile = tiles + stage * stage_size;
        stage = stage + 1 < launch.stages ? stage + 1 : 0;
        wait_for_copy(launch.stages);
        __syncthreads();  // this step's tile is there, and everyone is done with the one before
        if (launch.stages > 1) {
            if (index + ahead < steps) copy(step_at(index + ahead), next_stage);
            end_copy_group();
            next_stage = next_stage + 1 < launch.stages ? next_stage + 1 : 0;
        }
        Math::scores(tile, queries, key_width, partial);
        __syncthreads();
        // All pairs of the warp side by side; a pair that takes no part has scores of -infinity and
        // keeps what it has, bit for bit.
        float score[kOwn];
        float most[kOwn];
        int count[kOwn];
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
            const float* s = partial + (warp + i * kWarps) * kScoreStride + lane;
            constexpr int kNext = kPairs * kScoreStride;
            // A pair that does not exist sees nothing, whatever its row says.
            const bool takes_part = step.owner == kAllRows || step.owner == own_row[i] ||
                                    (step.owner == kChainRows && chain[i]);
            count[i] = takes_part ? min(max(visible[i] - step.first, 0), kTile) : 0;
            score[i] = lane < count[i]
                           ? ((s[0] + s[kNext]) + (s[2 * kNext] + s[3 * kNext])) * launch.scale
                           : kNothing;
            most[i] = score[i];
        }
#pragma unroll
        for (int distance = 16; distance > 0; distance /= 2) {
#pragma unroll
            for (int i = 0; i < kOwn; ++i)
                most[i] = fmaxf(most[i], __shfl_xor_sync(0xFFFFFFFFu, most[i], distance));
        }
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
            most[i] = fmaxf(most[i], maximum[i]);
            // Scores of -infinity alone: nothing is known yet, weights are 0.
            const float base = most[i] == kNothing ? 0.0f : most[i];
            const float weight = power_of_two(score[i] - base);
            Math::put_weight(weights, warp + i * kWarps, lane, weight);
            const float correction = power_of_two(maximum[i] - base);
            total[i] = fmaf(total[i], correction, weight);
            maximum[i] = most[i];
            if (lane == 0) {
                corrections[warp + i * kWarps] = correction;
                counts[warp + i * kWarps] = count[i];
            }
        }
        __syncthreads();
        const int value_stride =
            kSharedValues ? Math::key_stride(key_width) : Math::value_stride(value_width);
        math.accumulate(kSharedValues ? tile : tile + kTile * Math::key_stride(key_width),
                        value_stride, value_width, weights, corrections, counts);
        if (launch.stages == 1 && index + 1 < steps) {
            __syncthreads();
            copy(step_at(index + 1), 0);
            end_copy_group();
        }
    }
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
        for (int distance = 16; distance > 0; distance /= 2)
            total[i] += __shfl_xor_sync(0xFFFFFFFFu, total[i], distance);
        if (lane == 0) {
            maxima[warp + i * kWarps] = maximum[i];
            totals[warp + i * kWarps] = total[i];
        }
    }
    __syncthreads();
    if (launch.splits == 1) {
        math.finish(value_width, [&](int pair, int column, float value) {
            if (places[pair] >= 0)
                launch.output[std::int64_t{places[pair]} * value_width + column] =
                    value * (1.0f / totals[pair]);
        });
        return;
    }
    math.finish(value_width, [&](int pair, int column, float value) {
        if (places[pair] >= 0)
            launch.partials
                .sums[(std::int64_t{places[pair]} * launch.splits + split) * value_width + column] =
                value;
    });
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < kPairs && places[thread] >= 0) {
        launch.partials.weights[std::int64_t{places[thread]} * launch.splits + split] = {
            maxima[thread], totals[thread]};
    }
}

struct SharedMemory {
    int a_block = 0;  ///< bytes
    int a_multiprocessor = 0;
};

/// False where the block's shared memory does not fit. As many stages as leave room for kBlocksAnSm
/// blocks, two if that is none.
template <class Math, bool kSharedValues, int kBlocksAnSm>
bool launch_attention(AttentionLaunch launch, const SharedMemory& limit, cudaStream_t stream) {
    const auto bytes = [&](int stages) {
        return attention_shared_bytes<Math, kSharedValues>(launch.key_width, launch.value_width,
                                                           stages);
    };
    constexpr int kStatic =
        static_cast<int>(sizeof(Sight<Math::kPairs>)) + 5 * 4 * Math::kPairs + 64;
    constexpr int kReserved = 1024;  // by the system, a block
    const auto fits = [&](int stages, int blocks) {
        return bytes(stages) + kStatic <= limit.a_block &&
               blocks * (bytes(stages) + kStatic + kReserved) <= limit.a_multiprocessor;
    };
    launch.stages = kMaxStages;
    while (launch.stages > 2 && !fits(launch.stages, kBlocksAnSm)) --launch.stages;
    while (launch.stages > 0 && !fits(launch.stages, 1)) --launch.stages;
    if (launch.stages == 0) return false;
    const int dynamic = bytes(launch.stages);
    // As many threads a row as it has 16-byte pieces, a warp at most.
    const int pieces = launch.key_width * static_cast<int>(sizeof(typename Math::Element)) / 16;
    launch.lanes_log2 = pieces <= 8 ? 3 : pieces <= 16 ? 4 : 5;
    const int pairs = launch.pass.tokens * (launch.heads / launch.kv_heads);
    launch.groups = (pairs + Math::kPairs - 1) / Math::kPairs;
    const auto kernel = attention_kernel<Math, kSharedValues, kBlocksAnSm>;
    permit_shared_memory(kernel);
    const dim3 grid(static_cast<unsigned>(launch.kv_heads * launch.groups),
                    static_cast<unsigned>(launch.splits),
                    static_cast<unsigned>(launch.pass.sequences));
    launch_ahead("attention", kernel, grid, Math::kThreads, static_cast<std::size_t>(dynamic), stream, launch);
    return true;
}

/// As many pairs a block as there are, up to 32, or as fit. With wide values a block fills a
/// multiprocessor's shared memory: two teams.
template <bool kSharedValues, int kColumns>
bool launch_half(const AttentionLaunch& launch, int pairs, const SharedMemory& limit,
                 cudaStream_t stream) {
    constexpr int kWide = kColumns >= 2 ? 2 : 1;
    constexpr int kWidest = kColumns == 4 ? 2 : 1;
    if (pairs > 16 && launch_attention<HalfMath<4, kColumns, kWide>, kSharedValues, 3 - kWide>(
                          launch, limit, stream))
        return true;
    if (pairs > 8 && launch_attention<HalfMath<2, kColumns, kWidest>, kSharedValues, 3 - kWidest>(
                         launch, limit, stream))
        return true;
    return launch_attention < HalfMath<1, kColumns, 1>, kSharedValues,
           kColumns == 1 ? 3 : 2 > (launch, limit, stream);
}

template <bool kSharedValues>
bool launch_float(const AttentionLaunch& launch, int pairs, const SharedMemory& limit,
                  cudaStream_t stream) {
    if (pairs > 16 && launch_attention<FloatMath<4>, kSharedValues, 1>(launch, limit, stream))
        return true;
    if (pairs > 8 && launch_attention<FloatMath<2>, kSharedValues, 1>(launch, limit, stream))
        return true;
    return launch_attention<FloatMath<1>, kSharedValues, 2>(launch, limit, stream);
}

/// Attention of a whole pass. Widths: multiples of 8, values at most 512 wide.
template <bool kSharedValues>
void attend(AttentionLaunch launch, std::int64_t max_visible, void* workspace,
            cudaStream_t stream) {
    if (launch.pass.rows() <= 0 || launch.kv_heads <= 0) return;
    if (launch.heads % launch.kv_heads != 0 || launch.key_width % 8 != 0 ||
        launch.value_width % 8 != 0 || launch.value_width > 512) {
        throw std::runtime_error(
            "attention: heads have to be a multiple of the kv heads, widths multiples of 8, values "
            "at most 512 wide");
    }
    constexpr float kLog2OfE = 1.44269504f;
    launch.scale *= kLog2OfE;
    launch.splits = attention_splits(max_visible);
    launch.partials = attention_partials(workspace, launch.pass.rows(), launch.heads,
                                         launch.value_width, launch.splits);
    int device = 0;
    SharedMemory limit;
    check(cudaGetDevice(&device), "cudaGetDevice");
    check(cudaDeviceGetAttribute(&limit.a_block, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
          "cudaDeviceGetAttribute");
    check(cudaDeviceGetAttribute(&limit.a_multiprocessor,
                                 cudaDevAttrMaxSharedMemoryPerMultiprocessor, device),
          "cudaDeviceGetAttribute");
    const int pairs = launch.pass.tokens * (launch.heads / launch.kv_heads);
    const bool bf16 = launch.cache.format == CacheFormat::bf16;
    const int width = launch.value_width;
    const auto run = !bf16          ? launch_float<kSharedValues>
                     : width <= 128 ? launch_half<kSharedValues, 1>
                     : width <= 256 ? launch_half<kSharedValues, 2>
                                    : launch_half<kSharedValues, 4>;
    if (!run(launch, pairs, limit, stream))
        throw std::runtime_error(
            "attention: a key and value of this width do not fit in shared memory");
    if (launch.splits > 1)
        combine_attention(launch.pass, launch.heads, launch.value_width, launch.partials,
                          launch.splits, launch.output, stream);
}

}  // namespace draftboard::backend::cuda
