// SPDX-License-Identifier: Apache-2.0
#pragma once
// The products of one step of attention, for 8 * kBlocks pairs of row and head over kTile
// positions, by teams of 256 threads:
//
//   scores      partial[quarter][pair][position] = sum over a quarter of the key's numbers of q k
//   accumulate  sum[pair][c] = sum[pair][c] * correction[pair] + sum_position p[pair][position]
//   v[position][c]
//
// HalfMath, for bf16 caches, on the matrix units: queries and probabilities are split into two bf16
// numbers (high + low, 16 bits of mantissa), cached numbers are taken as they are, sums are float.
// FloatMath, for fp32 caches: multiply-adds of floats. A pair's numbers depend on its own query and
// the positions alone: which other pairs sit beside it changes nothing. Flops of a step: 2 pairs
// kTile (key_width + value_width), twice that for HalfMath. attention_core.cuh is the loop around
// them.

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "backend/cuda/attention_slots.cuh"

namespace draftboard::backend::cuda {

/// A team of 8 warps computes scores and sums of its share of the pairs.
inline constexpr int kTeamThreads = 256;
inline constexpr int kQuarters = 4;
/// Floats between the partial scores of two pairs; 4 beyond a multiple of 16, so that the lanes of
/// a matrix product's result meet in no bank.
inline constexpr int kScoreStride = kTile + 4;

__host__ __device__ inline int padded(int width, int to) { return (width + to - 1) / to * to; }

__device__ inline std::uint32_t shared_address(const void* p) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

__device__ inline void load_matrices(std::uint32_t (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row)));
}
__device__ inline void load_transposed(std::uint32_t (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row)));
}
/// c += a b: 16 x 16 by 16 x 8.
__device__ inline void multiply(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                std::uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// kBlocks: 8 pairs each, shared out over the teams. kColumns: 128 value columns each.
template <int kBlocks, int kColumns, int kTeams>
struct HalfMath {
    using Element = __nv_bfloat16;
    static constexpr int kPairs = 8 * kBlocks;
    static constexpr int kThreads = kTeams * kTeamThreads;
    static constexpr int kOwn = kBlocks / kTeams;  ///< blocks of pairs of a team
    static constexpr int kWeightStride = kTile + 8;
    /// Matrices of the key that are loaded before the first is used, as registers allow.
    static constexpr int kAhead = kOwn >= 4 ? 1 : kOwn == 2 || kColumns == 1 ? 2 : 5;

    float sum_[kColumns][kOwn][4] = {};

    /// 16 of the key's numbers a quarter, so that all quarters have as many.
    static constexpr int kKeyUnit = 16 * kQuarters;
    /// Odd multiples of 16 bytes: eight rows of a matrix lie in different banks.
    __host__ __device__ static int key_stride(int width) { return padded(width, kKeyUnit) + 8; }
    __host__ __device__ static int value_stride(int width) { return padded(width, 16) + 8; }
    __host__ __device__ static int query_bytes(int key_width) {
        return 2 * kPairs * key_stride(key_width) * 2;
    }
    __host__ __device__ static int weight_bytes() { return 2 * kPairs * kWeightStride * 2; }

    /// 4 numbers of a query, `column` a multiple of 4.
    __device__ static void put_query(void* queries, int key_width, int pair, int column,
                                     const float4& v) {
        auto* high = reinterpret_cast<__nv_bfloat162*>(static_cast<Element*>(queries) +
                                                       pair * key_stride(key_width) + column);
        auto* low = high + kPairs * key_stride(key_width) / 2;
        high[0] = __floats2bfloat162_rn(v.x, v.y);
        high[1] = __floats2bfloat162_rn(v.z, v.w);
        low[0] = __floats2bfloat162_rn(v.x - __low2float(high[0]), v.y - __high2float(high[0]));
        low[1] = __floats2bfloat162_rn(v.z - __low2float(high[1]), v.w - __high2float(high[1]));
    }
    /// Columns beyond the key's width take part in the products: they have to be 0.
    __device__ static int query_columns(int key_width) { return padded(key_width, kKeyUnit); }

    __device__ static void put_weight(void* weights, int pair, int position, float value) {
        auto* high = static_cast<Element*>(weights) + pair * kWeightStride + position;
        const Element rounded = __float2bfloat16_rn(value);
        *high = rounded;
        high[kPairs * kWeightStride] = __float2bfloat16_rn(value - __bfloat162float(rounded));
    }

    __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }
    /// Within the team.
    __device__ static int warp() { return static_cast<int>(threadIdx.x % kTeamThreads / 32); }
    __device__ static int first_pair() {
        return static_cast<int>(threadIdx.x) / kTeamThreads * 8 * kOwn;
    }

    /// A warp has 16 of the positions and every fourth 16 of the key's numbers.
    __device__ static void scores(const Element* keys, const void* queries, int key_width,
                                  float* partial) {
        const int first = 16 * (warp() % 2);
        const int quarter = warp() / 2;
        const int stride = key_stride(key_width);
        const int part = lane() / 8;
        const Element* a_row = keys + (first + part % 2 * 8 + lane() % 8) * stride + part / 2 * 8;
        const Element* b_row = static_cast<const Element*>(queries) +
                               (part / 2 * kPairs + first_pair() + lane() % 8) * stride +
                               part % 2 * 8;
        float high[kOwn][4] = {};
        float low[kOwn][4] = {};
        const int rounds = padded(key_width, kKeyUnit) / kKeyUnit;
        a_row += 16 * quarter;
        b_row += 16 * quarter;
        for (int round = 0; round < rounds; round += kAhead) {
            std::uint32_t a[kAhead][4];
            std::uint32_t b[kAhead][kOwn][4];
#pragma unroll
            for (int j = 0; j < kAhead; ++j) {
                if (round + j < rounds) {
                    load_matrices(a[j], a_row + kKeyUnit * (round + j));
#pragma unroll
                    for (int n = 0; n < kOwn; ++n)
                        load_matrices(b[j][n], b_row + 8 * n * stride + kKeyUnit * (round + j));
                }
            }
#pragma unroll
            for (int j = 0; j < kAhead; ++j) {
                if (round + j < rounds) {
#pragma unroll
                    for (int n = 0; n < kOwn; ++n) {
                        multiply(high[n], a[j], b[j][n][0], b[j][n][1]);
                        multiply(low[n], a[j], b[j][n][2], b[j][n][3]);
                    }
                }
            }
        }
#pragma unroll
        for (int n = 0; n < kOwn; ++n) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int pair = first_pair() + 8 * n + 2 * (lane() % 4) + e % 2;
                const int position = first + lane() / 4 + e / 2 * 8;
                partial[(quarter * kPairs + pair) * kScoreStride + position] =
                    high[n][e] + low[n][e];
            }
        }
    }

    /// A warp has 16 value columns of every 128; those beyond the width come to nothing. `counts`
    /// is not needed: weights that are not seen are 0.
    __device__ void accumulate(const Element* values, int stride, int value_width,
                               const void* weights, const float* corrections, const int*) {
        const int part = lane() / 8;
        const Element* a_row = values + (part / 2 * 8 + lane() % 8) * stride + part % 2 * 8;
        // Warps beyond the width read its last columns: no branch, and nothing outside the tile.
        const int last = padded(value_width, 16) - 16;
        const Element* b_row = static_cast<const Element*>(weights) +
                               (part / 2 * kPairs + first_pair() + lane() % 8) * kWeightStride +
                               part % 2 * 8;
#pragma unroll
        for (int n = 0; n < kOwn; ++n) {
            const float even = corrections[first_pair() + 8 * n + 2 * (lane() % 4)];
            const float odd = corrections[first_pair() + 8 * n + 2 * (lane() % 4) + 1];
#pragma unroll
            for (int m = 0; m < kColumns; ++m) {
                sum_[m][n][0] *= even;
                sum_[m][n][1] *= odd;
                sum_[m][n][2] *= even;
                sum_[m][n][3] *= odd;
            }
        }
#pragma unroll
        for (int k = 0; k < kTile / 16; ++k) {
            std::uint32_t b[kOwn][4];
            std::uint32_t a[kColumns][4];
#pragma unroll
            for (int n = 0; n < kOwn; ++n)
                load_matrices(b[n], b_row + 8 * n * kWeightStride + 16 * k);
#pragma unroll
            for (int m = 0; m < kColumns; ++m) {
                if (128 * m < value_width)
                    load_transposed(a[m],
                                    a_row + 16 * k * stride + min(128 * m + 16 * warp(), last));
            }
#pragma unroll
            for (int m = 0; m < kColumns; ++m) {
                if (128 * m >= value_width) break;
#pragma unroll
                for (int n = 0; n < kOwn; ++n) multiply(sum_[m][n], a[m], b[n][0], b[n][1]);
#pragma unroll
                for (int n = 0; n < kOwn; ++n) multiply(sum_[m][n], a[m], b[n][2], b[n][3]);
            }
        }
    }

    /// take(pair, column, value) for all sums of this thread.
    template <class Take>
    __device__ void finish(int value_width, const Take& take) const {
#pragma unroll
        for (int n = 0; n < kOwn; ++n) {
#pragma unroll
            for (int m = 0; m < kColumns; ++m) {
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    const int column = 128 * m + 16 * warp() + lane() / 4 + e / 2 * 8;
                    if (column < value_width)
                        take(first_pair() + 8 * n + 2 * (lane() % 4) + e % 2, column,
                             sum_[m][n][e]);
                }
            }
        }
    }
};

template <int kBlocks>
struct FloatMath {
    using Element = float;
    static constexpr int kPairs = 8 * kBlocks;
    static constexpr int kThreads = kTeamThreads;
    static constexpr int kWeightStride = kTile + 4;
    /// Pairs of a thread: half of them where 512 value columns take 128 threads, fewer where values
    /// are narrower.
    static constexpr int kOwn = kPairs / 2;

    float4 sum_[kOwn] = {};

    /// Odd multiples of 16 bytes: lanes that read different positions meet in no bank.
    __host__ __device__ static int key_stride(int width) { return width + 4; }
    __host__ __device__ static int value_stride(int width) { return width + 4; }
    __host__ __device__ static int query_bytes(int key_width) {
        return kPairs * key_stride(key_width) * 4;
    }
    __host__ __device__ static int weight_bytes() { return kPairs * kWeightStride * 4; }
    __device__ static void put_query(void* queries, int key_width, int pair, int column,
                                     const float4& v) {
        *reinterpret_cast<float4*>(static_cast<float*>(queries) + pair * key_stride(key_width) +
                                   column) = v;
    }
    __device__ static int query_columns(int key_width) { return key_width; }
    __device__ static void put_weight(void* weights, int pair, int position, float value) {
        static_cast<float*>(weights)[pair * kWeightStride + position] = value;
    }

    /// A lane has a position; a warp half of the pairs and every fourth 4 of the key's numbers.
    __device__ static void scores(const float* keys, const void* queries, int key_width,
                                  float* partial) {
        const int lane = static_cast<int>(threadIdx.x % 32);
        const int warp = static_cast<int>(threadIdx.x / 32);
        const int first = warp % 2 * kOwn;
        const int quarter = warp / 2;
        const int stride = key_stride(key_width);
        const float* key = keys + lane * stride;
        const float* query = static_cast<const float*>(queries) + first * stride;
        float sum[kOwn] = {};
        for (int c = 4 * quarter; c < key_width; c += 4 * kQuarters) {
            const float4 k = *reinterpret_cast<const float4*>(key + c);
#pragma unroll
            for (int i = 0; i < kOwn; ++i) {
                const float4 q = *reinterpret_cast<const float4*>(query + i * stride + c);
                sum[i] = fmaf(q.w, k.w, fmaf(q.z, k.z, fmaf(q.y, k.y, fmaf(q.x, k.x, sum[i]))));
            }
        }
#pragma unroll
        for (int i = 0; i < kOwn; ++i)
            partial[(quarter * kPairs + first + i) * kScoreStride + lane] = sum[i];
    }

    /// A thread has 4 value columns of every `sets`-th pair, from pair set() on.
    __device__ static int sets(int value_width) {
        return min(kPairs, kThreads / (value_width / 4));
    }
    __device__ static int set(int value_width) {
        return static_cast<int>(threadIdx.x) / (value_width / 4);
    }
    __device__ static int column(int value_width) {
        return static_cast<int>(threadIdx.x) % (value_width / 4) * 4;
    }

    /// counts: positions of the step that a pair sees; what it does not see is not touched.
    __device__ void accumulate(const float* values, int stride, int value_width,
                               const void* weights, const float* corrections, const int* counts) {
        const int step = sets(value_width);
        const int first = set(value_width);
        if (first >= step) return;
        const float* value = values + column(value_width);
        int count[kOwn];
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
            const int pair = first + i * step;
            count[i] = pair < kPairs ? counts[pair] : 0;
            if (count[i] == 0) continue;
            const float f = corrections[pair];
            sum_[i] = {sum_[i].x * f, sum_[i].y * f, sum_[i].z * f, sum_[i].w * f};
        }
        for (int position = 0; position < kTile; position += 4) {
            float4 v[4];
#pragma unroll
            for (int j = 0; j < 4; ++j)
                v[j] = *reinterpret_cast<const float4*>(value + (position + j) * stride);
#pragma unroll
            for (int i = 0; i < kOwn; ++i) {
                if (count[i] <= position) continue;
                const float4 p =
                    *reinterpret_cast<const float4*>(static_cast<const float*>(weights) +
                                                     (first + i * step) * kWeightStride + position);
                add(sum_[i], p.x, v[0]);
                if (position + 1 < count[i]) add(sum_[i], p.y, v[1]);
                if (position + 2 < count[i]) add(sum_[i], p.z, v[2]);
                if (position + 3 < count[i]) add(sum_[i], p.w, v[3]);
            }
        }
    }

    template <class Take>
    __device__ void finish(int value_width, const Take& take) const {
        const int step = sets(value_width);
        if (set(value_width) >= step) return;
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
            const int pair = set(value_width) + i * step;
            if (pair >= kPairs) continue;
            const int c = column(value_width);
            take(pair, c, sum_[i].x);
            take(pair, c + 1, sum_[i].y);
            take(pair, c + 2, sum_[i].z);
            take(pair, c + 3, sum_[i].w);
        }
    }

   private:
    __device__ static void add(float4& sum, float p, const float4& v) {
        sum = {fmaf(p, v.x, sum.x), fmaf(p, v.y, sum.y), fmaf(p, v.z, sum.z), fmaf(p, v.w, sum.w)};
    }
};

}  // namespace draftboard::backend::cuda
