// SPDX-License-Identifier: Apache-2.0
#pragma once
// One step of a tile on the tensor cores: stored codes from shared memory to bf16 pairs in registers, x split into bf16 parts,
// and the products. What a step is and in which order steps are summed is row_tile.cuh's.

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "backend/cuda/tile_plan.cuh"

namespace draftboard::backend::cuda {

__device__ inline unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

__device__ inline void copy_16(unsigned target, const void* source) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(target), "l"(source));
}

/// Four bytes, zeros where not `there`.
__device__ inline void copy_4(unsigned target, const void* source, bool there) {
    const int bytes = there ? 4 : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(target), "l"(source), "r"(bytes));
}

__device__ inline void end_of_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int kLeft>
__device__ inline void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

/// c += A B: A 16 x 16 of W, B 16 x 8 of x.
__device__ inline void multiply(float (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/// c = A B
__device__ inline void multiply_first(float (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                                      unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
        : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "f"(0.0F));
}

__device__ inline unsigned bits_of(__nv_bfloat162 pair) { return *reinterpret_cast<unsigned*>(&pair); }
__device__ inline __nv_bfloat162 pair_of(unsigned bits) { return *reinterpret_cast<__nv_bfloat162*>(&bits); }

/// Four fp8 codes of a word as bf16: elements 0 and 2, then 1 and 3. Sign, exponent and fraction move to their places; that is
/// 2^120 too small (the biases are 7 and 127), subnormals included, which x and the sums make up for, kFp8Scale each: products
/// stay in the middle of a float's range. A NaN's code looks like 480: see sees_nan().
constexpr float kFp8Scale = 0x1p60F;
__device__ inline uint2 fp8_pairs(unsigned word) {
    const unsigned up = word << 8;
    return make_uint2(((up >> 4) & 0x07F007F0U) | (up & 0x80008000U), ((word >> 4) & 0x07F007F0U) | (word & 0x80008000U));
}

/// Bit 7 of a byte says that its code is a NaN (kNanBits). Adding 1 to seven ones, and only to these, carries into the eighth
/// bit.
constexpr unsigned kNanBits = 0x80808080U;
__device__ inline unsigned sees_nan(unsigned word) { return (word & 0x7F7F7F7FU) + 0x01010101U; }

/// Codes e and e + 4 of a word of int4, less 8: as bf16, 128 + code has the code in its last bits.
__device__ inline unsigned int4_pair(unsigned word, int e) {
    const unsigned bits = ((word >> (4 * e)) & 0x000F000FU) | 0x43004300U;
    return bits_of(__hsub2(pair_of(bits), pair_of(0x43084308U)));  // 136
}

/// Where a step keeps the 16 bytes that a lane copies of eight rows, in units of 16 bytes: shuffled, so that the same quarter of
/// eight rows touches all banks once.
__device__ inline int int4_place(int row, int quarter) { return 4 * row + (quarter ^ (row / 2 % 4)); }

/// Of eight rows of 64 bytes: thread (g, t) gets row g's words t, 4 + t, 8 + t and 12 + t, one of each group of 32 codes.
__device__ inline uint4 int4_words(unsigned place, int lane) {
    uint4 v;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(place + 16 * int4_place(lane % 8, lane / 8))
                 : "memory");
    return v;
}

/// Adds one step of 32 rows to the sums of NT x 8 columns. `x`: of this thread's column and place in the step, by groups of 8
/// columns. acc[h][n]: rows g and g + 8 of half h (g = lane / 4), columns 2 t and 2 t + 1 (t = lane % 4) of group n.
template <Stored F, int NT>
__device__ inline void add_step(const unsigned char* place, const unsigned char* const (&x)[NT], const float (&step_scales)[4],
                                float (&acc)[2][NT][4], unsigned (&nan)[4]) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    uint4 w[4];
#pragma unroll
    for (int q = 0; q < 4; ++q) {
        if constexpr (F == Stored::int4) {
            w[q] = int4_words(shared_address(place) + q * 512, lane);
        } else {
            w[q] = *reinterpret_cast<const uint4*>(place + q * 512 + lane * 16);
        }
    }
    if constexpr (F == Stored::bf16) {
#pragma unroll
        for (int n = 0; n < NT; ++n) {
            const uint4 b = *reinterpret_cast<const uint4*>(x[n]);
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                multiply(acc[h][n], w[2 * h].x, w[2 * h + 1].x, w[2 * h].y, w[2 * h + 1].y, b.x, b.y);
                multiply(acc[h][n], w[2 * h].z, w[2 * h + 1].z, w[2 * h].w, w[2 * h + 1].w, b.z, b.w);
            }
        }
    } else if constexpr (F == Stored::fp8_e4m3) {
        float part[2][NT][4];
#pragma unroll
        for (int q = 0; q < 4; ++q) nan[q] |= sees_nan(w[q].x) | sees_nan(w[q].y) | sees_nan(w[q].z) | sees_nan(w[q].w);
#pragma unroll
        for (int s = 0; s < 2; ++s) {
            uint4 b[NT];
#pragma unroll
            for (int n = 0; n < NT; ++n) b[n] = *reinterpret_cast<const uint4*>(x[n] + 64 * s);
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const uint2 g0 = fp8_pairs(s == 0 ? w[2 * h].x : w[2 * h].z);
                const uint2 g1 = fp8_pairs(s == 0 ? w[2 * h].y : w[2 * h].w);
                const uint2 h0 = fp8_pairs(s == 0 ? w[2 * h + 1].x : w[2 * h + 1].z);
                const uint2 h1 = fp8_pairs(s == 0 ? w[2 * h + 1].y : w[2 * h + 1].w);
#pragma unroll
                for (int n = 0; n < NT; ++n) {
                    if (s == 0) {
                        multiply_first(part[h][n], g0.x, h0.x, g0.y, h0.y, b[n].x, b[n].y);
                    } else {
                        multiply(part[h][n], g0.x, h0.x, g0.y, h0.y, b[n].x, b[n].y);
                    }
                    multiply(part[h][n], g1.x, h1.x, g1.y, h1.y, b[n].z, b[n].w);
                }
            }
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) {
#pragma unroll
            for (int n = 0; n < NT; ++n) {
#pragma unroll
                for (int e = 0; e < 4; ++e) acc[h][n][e] = __fmaf_rn(step_scales[2 * h + e / 2], part[h][n][e], acc[h][n][e]);
            }
        }
    } else {
        float4 scales[4];
#pragma unroll
        for (int q = 0; q < 4; ++q) {
            scales[q] = *reinterpret_cast<const float4*>(place + 2048 + q * 128 + (lane / 4) * 16);
        }
#pragma unroll
        for (int group = 0; group < 4; ++group) {
            const auto word = [group](const uint4& v) { return group == 0 ? v.x : group == 1 ? v.y : group == 2 ? v.z : v.w; };
            const auto scale = [group](const float4& v) { return group == 0 ? v.x : group == 1 ? v.y : group == 2 ? v.z : v.w; };
            uint4 b[NT];
#pragma unroll
            for (int n = 0; n < NT; ++n) b[n] = *reinterpret_cast<const uint4*>(x[n] + 64 * group);
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const unsigned g = word(w[2 * h]);
                const unsigned g8 = word(w[2 * h + 1]);
                const unsigned a0 = int4_pair(g, 0), a2 = int4_pair(g, 1), a4 = int4_pair(g, 2), a6 = int4_pair(g, 3);
                const unsigned a1 = int4_pair(g8, 0), a3 = int4_pair(g8, 1), a5 = int4_pair(g8, 2), a7 = int4_pair(g8, 3);
#pragma unroll
                for (int n = 0; n < NT; ++n) {
                    float part[4];
                    multiply_first(part, a0, a1, a2, a3, b[n].x, b[n].y);
                    multiply(part, a4, a5, a6, a7, b[n].z, b[n].w);
#pragma unroll
                    for (int e = 0; e < 4; ++e) acc[h][n][e] = __fmaf_rn(scale(scales[2 * h + e / 2]), part[e], acc[h][n][e]);
                }
            }
        }
    }
}

/// Eight numbers of x, split into three bf16 numbers each, in the order in which a format's codes are unpacked.
template <Stored F>
__device__ inline void split(const float (&values)[8], uint4 (&parts)[kParts]) {
    constexpr int kFirst[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    constexpr int kFp8[8] = {0, 2, 1, 3, 4, 6, 5, 7};
    constexpr int kInt4[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    unsigned bits[kParts][4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
        const auto from = [e](int s) {
            return F == Stored::bf16 ? kFirst[2 * e + s] : F == Stored::fp8_e4m3 ? kFp8[2 * e + s] : kInt4[2 * e + s];
        };
        constexpr float kScale = F == Stored::fp8_e4m3 ? kFp8Scale : 1.0F;
        float low = values[from(0)] * kScale;
        float high = values[from(1)] * kScale;
#pragma unroll
        for (int p = 0; p < kParts; ++p) {
            bits[p][e] = bits_of(__floats2bfloat162_rn(low, high));
            const float low_taken = __uint_as_float(bits[p][e] << 16);
            const float high_taken = __uint_as_float(bits[p][e] & 0xFFFF0000U);
            // An infinity and a NaN are taken whole.
            low = p > 0 || fabsf(low_taken) < INFINITY ? low - low_taken : 0.0F;
            high = p > 0 || fabsf(high_taken) < INFINITY ? high - high_taken : 0.0F;
        }
    }
#pragma unroll
    for (int p = 0; p < kParts; ++p) parts[p] = make_uint4(bits[p][0], bits[p][1], bits[p][2], bits[p][3]);
}

}  // namespace draftboard::backend::cuda
