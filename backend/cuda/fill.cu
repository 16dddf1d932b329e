// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/fill.h"

#include <algorithm>

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include "backend/cuda/check.h"

namespace draftboard::backend::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 4096;

/// A finaliser that spreads every bit of its argument over the result (the constants of MurmurHash3's 64-bit mixer).
__device__ std::uint64_t mix(std::uint64_t x) {
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdULL;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ULL;
    return x ^ (x >> 33);
}

/// Mean 0, variance 1: the sum of four uniform 16-bit fields, whose variance is (2^32 - 1) / 3.
__device__ float nearly_normal(std::uint64_t bits) {
    const int sum = static_cast<int>((bits & 0xffff) + ((bits >> 16) & 0xffff) + ((bits >> 32) & 0xffff) + (bits >> 48));
    return static_cast<float>(sum - 131070) * (1.0F / 37837.22F);
}

/// Writes the whole matrix once: rows x row_bytes. A thread fills four bytes at a time.
__global__ void fill_words(DeviceMatrix matrix, std::uint64_t seed, float deviation) {
    const std::int64_t words = matrix.rows * matrix.row_bytes / 4;
    auto* out = static_cast<std::uint32_t*>(const_cast<void*>(matrix.data));
    for (std::int64_t i = blockIdx.x * std::int64_t{kThreads} + threadIdx.x; i < words; i += std::int64_t{gridDim.x} * kThreads) {
        const std::uint64_t bits = mix(seed ^ mix(static_cast<std::uint64_t>(i) + 1));
        std::uint32_t word = 0;
        switch (matrix.format) {
            case Stored::fp32: word = __float_as_uint(nearly_normal(bits) * deviation); break;
            case Stored::bf16: {
                const __nv_bfloat162 pair =
                    __floats2bfloat162_rn(nearly_normal(bits) * deviation, nearly_normal(mix(bits)) * deviation);
                word = *reinterpret_cast<const std::uint32_t*>(&pair);
                break;
            }
            case Stored::fp8_e4m3:
                for (int b = 0; b < 4; ++b) {
                    const __nv_fp8_e4m3 code(nearly_normal(mix(bits + b)) * deviation);
                    word |= static_cast<std::uint32_t>(code.__x) << (8 * b);
                }
                break;
            case Stored::int4:
                for (int n = 0; n < 8; ++n) {
                    const float value = fminf(fmaxf(rintf(nearly_normal(mix(bits + n)) * deviation), -8.0F), 7.0F);
                    word |= static_cast<std::uint32_t>(static_cast<int>(value) + 8) << (4 * n);
                }
                break;
        }
        out[i] = word;
    }
}

__global__ void fill_numbers(float* scales, std::int64_t count, std::uint64_t seed, float middle) {
    for (std::int64_t i = blockIdx.x * std::int64_t{kThreads} + threadIdx.x; i < count; i += std::int64_t{gridDim.x} * kThreads) {
        const float unit = static_cast<float>(mix(seed ^ mix(static_cast<std::uint64_t>(i) + 7)) >> 40) * (1.0F / 16777216.0F);
        scales[i] = __bfloat162float(__float2bfloat16_rn(middle * (0.75F + 0.5F * unit)));
    }
}

}  // namespace

void fill_matrix(const DeviceMatrix& matrix, std::uint64_t seed, float deviation, cudaStream_t stream) {
    if (matrix.rows == 0) return;
    fill_words<<<kBlocks, kThreads, 0, stream>>>(matrix, seed, deviation);
    check_launch("fill_matrix");
}

void fill_scales(float* scales, std::int64_t count, std::uint64_t seed, float middle, cudaStream_t stream) {
    if (count == 0) return;
    const auto blocks = static_cast<int>(std::min<std::int64_t>(kBlocks, (count + kThreads - 1) / kThreads));
    fill_numbers<<<blocks, kThreads, 0, stream>>>(scales, count, seed, middle);
    check_launch("fill_scales");
}

}  // namespace draftboard::backend::cuda
