// SPDX-License-Identifier: Apache-2.0
#pragma once
// The attention kernel that attention_gqa.cu and attention_mla.cu launch, and how it is launched. A block has one split of the positions
// (kSplit), one kv head of one sequence, and up to 32 pairs of row and query head; it walks the split in steps of kTile positions:
//
//   copy the next step's keys and values into shared memory (cp.async, two stages where they fit) | scores | softmax, a warp a pair, a lane a
//   position | sums
//
// and leaves the maximum, the sum of weights and the weighted sum of values of each pair for attention_combine.cu, or the output where no row
// can see more than one split. A step's arithmetic is in attention_math.cuh, what rows see in attention_slots.cuh.
//
// Shared memory: stages x kTile x (key + value width) x cache bytes, queries 4 bytes a number, scores. Weights are base-2: scale holds log2 e.

#include <cstdint>
#include <stdexcept>
#include <type_traits>

#include <cuda_runtime.h>

#include "backend/cuda/attention_combine.h"
#include "backend/cuda/attention_math.cuh"
#include "backend/cuda/attention_slots.cuh"
#include "backend/cuda/check.h"

namespace draftboard::backend::cuda {

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
    float* output = nullptr;
    AttentionPartials partials;
};

/// 16 bytes, or zeros.
__device__ inline void copy16(void* to, const void* from, bool exists) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(exists ? 16 : 0) : "memory");
}

/// Numbers of the tiles of one stage.
template <class Math, bool kSharedValues>
__host__ __device__ inline int stage_elements(int key_width, int value_width) {
    return kTile * (Math::tile_stride(key_width) + (kSharedValues ? 0 : Math::tile_stride(value_width)));
}

template <class Math, bool kSharedValues>
inline int attention_shared_bytes(int key_width, int value_width, int stages) {
    return stages * stage_elements<Math, kSharedValues>(key_width, value_width) * static_cast<int>(sizeof(typename Math::Element)) +
           Math::query_bytes(key_width) + kQuarters * Math::kPairs * kScoreStride * 4 + Math::weight_bytes();
}

/// Copies a step's keys (and values) of one kv head into a stage: a warp a row. `keys` and `values` point at slot 0.
template <class Math, bool kSharedValues, class Rows>
__device__ void copy_step(const AttentionLaunch& launch, const Rows& sight, const Step& step, const typename Math::Element* keys,
                          const typename Math::Element* values, typename Math::Element* stage) {
    using Element = typename Math::Element;
    constexpr int kEach = 16 / sizeof(Element);
    const int lane = static_cast<int>(threadIdx.x % 32);
    Element* value_tile = stage + kTile * Math::tile_stride(launch.key_width);
    for (int row = static_cast<int>(threadIdx.x / 32); row < kTile; row += kAttentionThreads / 32) {
        const std::int64_t slot = sight.slot(step.owner, step.first + row);
        const std::int64_t at = slot < 0 ? 0 : slot * launch.cache.slot_width;
        Element* to = stage + row * Math::tile_stride(launch.key_width);
        for (int c = lane * kEach; c < launch.key_width; c += 32 * kEach) copy16(to + c, keys + at + c, slot >= 0);
        if (kSharedValues) continue;
        to = value_tile + row * Math::tile_stride(launch.value_width);
        for (int c = lane * kEach; c < launch.value_width; c += 32 * kEach) copy16(to + c, values + at + c, slot >= 0);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/// Grid: x kv heads * groups, y splits, z sequences. Bytes of a block: kSplit x (key + value width) x cache bytes; flops: attention_math.cuh.
template <class Math, bool kSharedValues, int kBlocksAnSm>
__global__ void __launch_bounds__(kAttentionThreads, kBlocksAnSm) attention_kernel(const __grid_constant__ AttentionLaunch launch) {
    using Element = typename Math::Element;
    constexpr int kPairs = Math::kPairs;
    constexpr int kWarps = kAttentionThreads / 32;
    constexpr float kNothing = -INFINITY;
    extern __shared__ __align__(16) unsigned char memory[];
    __shared__ Sight<kPairs> sight;
    __shared__ float corrections[kPairs];
    __shared__ int counts[kPairs];
    __shared__ float maxima[kPairs];
    __shared__ float totals[kPairs];

    const PassView& pass = launch.pass;
    const int sequence = static_cast<int>(blockIdx.z);
    const int split = static_cast<int>(blockIdx.y);
    const int kv_head = static_cast<int>(blockIdx.x) / launch.groups;
    const int first_pair = static_cast<int>(blockIdx.x) % launch.groups * kPairs;
    const int heads_a_kv = launch.heads / launch.kv_heads;
    const int pairs = min(kPairs, pass.tokens * heads_a_kv - first_pair);
    const int first_row = first_pair / heads_a_kv;  // within the sequence
    const int rows = (first_pair + pairs - 1) / heads_a_kv - first_row + 1;
    const int first_position = split * kSplit;
    const int committed = pass.committed[sequence];
    if (first_position >= committed + pass.first_row[sequence] + pass.tokens) return;

    const int lane = static_cast<int>(threadIdx.x % 32);
    const int warp = static_cast<int>(threadIdx.x / 32);
    const int key_width = launch.key_width;
    const int value_width = launch.value_width;
    const int stage_size = stage_elements<Math, kSharedValues>(key_width, value_width);
    auto* tiles = reinterpret_cast<Element*>(memory);
    unsigned char* queries = memory + launch.stages * stage_size * static_cast<int>(sizeof(Element));
    auto* partial = reinterpret_cast<float*>(queries + Math::query_bytes(key_width));
    void* weights = partial + kQuarters * kPairs * kScoreStride;

    const std::int64_t start = pass.slots[sequence] * launch.cache.sequence_stride + std::int64_t{kv_head} * key_width;
    const auto* keys = static_cast<const Element*>(launch.cache.keys) + start;
    const auto* values = kSharedValues ? keys : static_cast<const Element*>(launch.cache.values) + start;

    // The first step's copy does not wait for the masks where all rows see all of it.
    const bool early = first_position + kTile <= committed;
    if (early) copy_step<Math, kSharedValues>(launch, sight, {first_position, kAllRows}, keys, values, tiles);

    const int columns = Math::query_columns(key_width);
    if (columns > key_width) {  // zeros beside the keys, where products reach
        for (int i = static_cast<int>(threadIdx.x); i < launch.stages * kTile * (columns - key_width); i += kAttentionThreads) {
            const int row = i / (columns - key_width);
            tiles[row / kTile * stage_size + row % kTile * Math::tile_stride(key_width) + key_width + i % (columns - key_width)] = Element(0.0f);
        }
    }
    for (int pair = warp; pair < kPairs; pair += kWarps) {
        const int row = sequence * pass.tokens + (first_pair + pair) / heads_a_kv;
        const int head = kv_head * heads_a_kv + (first_pair + pair) % heads_a_kv;
        const float* query = launch.query + (std::int64_t{row} * launch.heads + head) * key_width;
        for (int c = lane; c < columns; c += 32) {
            Math::put_query(queries, key_width, pair, c, pair < pairs && c < key_width ? query[c] : 0.0f);
        }
    }
    sight.prepare(pass, sequence, sequence * pass.tokens + first_row, rows, first_position);
    if (sight.steps == 0) return;
    const auto step_at = [&](int index) {
        Step step = sight.at(index);
        step.first += first_position;
        return step;
    };
    if (!early) copy_step<Math, kSharedValues>(launch, sight, step_at(0), keys, values, tiles);

    Math math;
    float maximum[kPairs / kWarps];  // of pair warp + i * kWarps
    float total[kPairs / kWarps];
#pragma unroll
    for (int i = 0; i < kPairs / kWarps; ++i) {
        maximum[i] = kNothing;
        total[i] = 0;
    }
    for (int index = 0; index < sight.steps; ++index) {
        const Step step = step_at(index);
        const Element* tile = tiles + (launch.stages == 2 ? index % 2 : 0) * stage_size;
        asm volatile("cp.async.wait_all;" ::: "memory");
        __syncthreads();  // this step's tile is there, and everyone is done with the one before
        if (launch.stages == 2 && index + 1 < sight.steps) {
            copy_step<Math, kSharedValues>(launch, sight, step_at(index + 1), keys, values, tiles + (index + 1) % 2 * stage_size);
        }
        Math::scores(tile, queries, key_width, partial);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < kPairs / kWarps; ++i) {
            const int pair = warp + i * kWarps;
            const int row = (first_pair + pair) / heads_a_kv - first_row;
            const bool takes_part = pair < pairs && sight.takes_part(row, step.owner) && step.first < sight.visible[row];
            const int count = takes_part ? min(kTile, sight.visible[row] - step.first) : 0;
            float weight = 0;
            float correction = 1;
            if (takes_part) {
                const float* s = partial + pair * kScoreStride + lane;
                constexpr int kNext = kPairs * kScoreStride;
                const float score = lane < count ? ((s[0] + s[kNext]) + (s[2 * kNext] + s[3 * kNext])) * launch.scale : kNothing;
                float most = score;
                for (int distance = 16; distance > 0; distance /= 2) most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, distance));
                most = fmaxf(most, maximum[i]);
                // All scores -infinity: nothing is known yet, weights stay 0.
                correction = most == kNothing ? 1.0f : exp2f(maximum[i] - most);
                weight = lane < count && most != kNothing ? exp2f(score - most) : 0.0f;
                float sum = weight;
                for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, distance);
                total[i] = fmaf(total[i], correction, sum);
                maximum[i] = most;
            }
            Math::put_weight(weights, pair, lane, weight);
            if (lane == 0) {
                corrections[pair] = correction;
                counts[pair] = count;
            }
        }
        __syncthreads();
        const int value_stride = kSharedValues ? Math::tile_stride(key_width) : Math::tile_stride(value_width);
        math.accumulate(kSharedValues ? tile : tile + kTile * Math::tile_stride(key_width), value_stride, value_width, weights, corrections, counts);
        if (launch.stages == 1 && index + 1 < sight.steps) {
            __syncthreads();
            copy_step<Math, kSharedValues>(launch, sight, step_at(index + 1), keys, values, tiles);
        }
    }
    if (lane == 0) {
#pragma unroll
        for (int i = 0; i < kPairs / kWarps; ++i) {
            maxima[warp + i * kWarps] = maximum[i];
            totals[warp + i * kWarps] = total[i];
        }
    }
    __syncthreads();
    const auto place = [&](int pair) {  // row * heads + head
        const int row = sequence * pass.tokens + (first_pair + pair) / heads_a_kv;
        return std::int64_t{row} * launch.heads + kv_head * heads_a_kv + (first_pair + pair) % heads_a_kv;
    };
    const auto present = [&](int pair) {
        return pair < pairs && sight.visible[(first_pair + pair) / heads_a_kv - first_row] > first_position;
    };
    if (launch.splits == 1) {
        math.finish(value_width, [&](int pair, int column, float value) {
            if (present(pair)) launch.output[place(pair) * value_width + column] = value * (1.0f / totals[pair]);
        });
        return;
    }
    math.finish(value_width, [&](int pair, int column, float value) {
        if (present(pair)) launch.partials.sums[(place(pair) * launch.splits + split) * value_width + column] = value;
    });
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < kPairs && present(thread)) launch.partials.weights[place(thread) * launch.splits + split] = {maxima[thread], totals[thread]};
}

/// False where the block's shared memory does not fit into `limit` bytes.
template <class Math, bool kSharedValues, int kBlocksAnSm>
bool launch_attention(AttentionLaunch launch, int limit, cudaStream_t stream) {
    const auto bytes = [&](int stages) { return attention_shared_bytes<Math, kSharedValues>(launch.key_width, launch.value_width, stages); };
    constexpr int kStatic = static_cast<int>(sizeof(Sight<Math::kPairs>)) + 4 * 4 * Math::kPairs + 64;
    launch.stages = bytes(2) + kStatic <= limit ? 2 : 1;
    const int dynamic = bytes(launch.stages);
    if (dynamic + kStatic > limit) return false;
    const int pairs = launch.pass.tokens * (launch.heads / launch.kv_heads);
    launch.groups = (pairs + Math::kPairs - 1) / Math::kPairs;
    const auto kernel = attention_kernel<Math, kSharedValues, kBlocksAnSm>;
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, dynamic), "cudaFuncSetAttribute");
    const dim3 grid(static_cast<unsigned>(launch.kv_heads * launch.groups), static_cast<unsigned>(launch.splits),
                    static_cast<unsigned>(launch.pass.sequences));
    kernel<<<grid, kAttentionThreads, static_cast<std::size_t>(dynamic), stream>>>(launch);
    check_launch("attention_kernel");
    return true;
}

/// As many pairs a block as there are, up to 32, or as fit.
template <bool kSharedValues, int kColumns>
bool launch_half(const AttentionLaunch& launch, int pairs, int limit, cudaStream_t stream) {
    if (pairs > 16 && launch_attention<HalfMath<4, kColumns>, kSharedValues, kColumns == 4 ? 1 : 2>(launch, limit, stream)) return true;
    if (pairs > 8 && launch_attention<HalfMath<2, kColumns>, kSharedValues, 2>(launch, limit, stream)) return true;
    return launch_attention<HalfMath<1, kColumns>, kSharedValues, 2>(launch, limit, stream);
}

template <bool kSharedValues>
bool launch_float(const AttentionLaunch& launch, int pairs, int limit, cudaStream_t stream) {
    if (pairs > 16 && launch_attention<FloatMath<4>, kSharedValues, 1>(launch, limit, stream)) return true;
    if (pairs > 8 && launch_attention<FloatMath<2>, kSharedValues, 1>(launch, limit, stream)) return true;
    return launch_attention<FloatMath<1>, kSharedValues, 2>(launch, limit, stream);
}

/// Attention of a whole pass. Widths: multiples of 8, values at most 512 wide.
template <bool kSharedValues>
void attend(AttentionLaunch launch, std::int64_t max_visible, void* workspace, cudaStream_t stream) {
    if (launch.pass.rows() <= 0 || launch.kv_heads <= 0) return;
    if (launch.heads % launch.kv_heads != 0 || launch.key_width % 8 != 0 || launch.value_width % 8 != 0 || launch.value_width > 512) {
        throw std::runtime_error("attention: heads have to be a multiple of the kv heads, widths multiples of 8, values at most 512 wide");
    }
    constexpr float kLog2OfE = 1.44269504f;
    launch.scale *= kLog2OfE;
    launch.splits = attention_splits(max_visible);
    launch.partials = attention_partials(workspace, launch.pass.rows(), launch.heads, launch.value_width, launch.splits);
    int device = 0;
    int limit = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    check(cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "cudaDeviceGetAttribute");
    const int pairs = launch.pass.tokens * (launch.heads / launch.kv_heads);
    const bool bf16 = launch.cache.format == CacheFormat::bf16;
    const int width = launch.value_width;
    const auto run = !bf16          ? launch_float<kSharedValues>
                     : width <= 128 ? launch_half<kSharedValues, 1>
                     : width <= 256 ? launch_half<kSharedValues, 2>
                                    : launch_half<kSharedValues, 4>;
    if (!run(launch, pairs, limit, stream)) throw std::runtime_error("attention: a key and value of this width do not fit in shared memory");
    if (launch.splits > 1) combine_attention(launch.pass, launch.heads, launch.value_width, launch.partials, launch.splits, launch.output, stream);
}

}  // namespace draftboard::backend::cuda
