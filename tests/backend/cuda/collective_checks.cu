// SPDX-License-Identifier: Apache-2.0
// One block each: they are to be right and small, and to leave the GPU to the collectives.
#include "collective_checks.h"

#include <cmath>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "backend/cuda/check.h"

namespace draftboard::backend::cuda {

namespace {

constexpr int kThreads = 256;

__host__ __device__ std::uint64_t mixed(std::uint64_t x) {
    x ^= x >> 31;
    x *= 0x9E3779B97F4A7C15u;
    x ^= x >> 29;
    x *= 0xD6E8FEB86659FD93u;
    return x ^ x >> 32;
}
__host__ __device__ float number(int rank, std::uint64_t round, std::uint64_t index) {
    const std::uint64_t drawn = mixed(index * 2654435761u + mixed(round * 8 + static_cast<std::uint64_t>(rank) + 1));
    return static_cast<float>(static_cast<std::int32_t>(drawn >> 40) - (1 << 23)) / static_cast<float>(1 << 23);
}

__device__ std::uint64_t nanoseconds() {
    std::uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

__global__ void __launch_bounds__(kThreads)
    fill_kernel(const CheckState* state, int rank, std::uint32_t max_skew_ns, float* input, std::int64_t count, float* poisoned,
                std::int64_t poisoned_count) {
    const std::uint64_t round = state->round;
    if (max_skew_ns > 0) {
        const std::uint64_t drawn = mixed(round * 977 + static_cast<std::uint64_t>(rank) * 31 + 5);
        // Mostly none or little, so that all orders of arrival occur, close together and far apart.
        const std::uint64_t pause = drawn % 4 == 0 ? (drawn >> 8) % max_skew_ns : (drawn >> 8) % (max_skew_ns / 16 + 1);
        const std::uint64_t begin = nanoseconds();
        while (nanoseconds() - begin < pause) __nanosleep(100);
    }
    for (std::int64_t i = threadIdx.x; i < poisoned_count; i += kThreads) poisoned[i] = nanf("");
    for (std::int64_t i = threadIdx.x; i < count; i += kThreads) input[i] = number(rank, round, static_cast<std::uint64_t>(i));
}

__device__ void add_mismatches(CheckState* state, unsigned wrong) {
    if (wrong != 0) atomicAdd(reinterpret_cast<unsigned long long*>(&state->mismatches), static_cast<unsigned long long>(wrong));
}

__global__ void __launch_bounds__(kThreads)
    check_sum_kernel(CheckState* state, int ranks, bool bf16, const float* sum, std::int64_t count) {
    const std::uint64_t round = state->round;
    unsigned wrong = 0;
    for (std::int64_t i = threadIdx.x; i < count; i += kThreads) {
        float expected = 0;
        for (int rank = 0; rank < ranks; ++rank) {
            float x = number(rank, round, static_cast<std::uint64_t>(i));
            if (bf16) x = __bfloat162float(__float2bfloat16_rn(x));
            expected = rank == 0 ? x : expected + x;
        }
        wrong += __float_as_uint(expected) != __float_as_uint(sum[i]) ? 1 : 0;
    }
    add_mismatches(state, wrong);
}

__global__ void __launch_bounds__(kThreads)
    check_gather_kernel(CheckState* state, int ranks, const float* output, int rows, std::int64_t width) {
    const std::uint64_t round = state->round;
    unsigned wrong = 0;
    for (std::int64_t i = threadIdx.x; i < rows * ranks * width; i += kThreads) {
        const std::int64_t row = i / (ranks * width);
        const auto rank = static_cast<int>(i / width % ranks);
        const float expected = number(rank, round, static_cast<std::uint64_t>(row * width + i % width));
        wrong += __float_as_uint(expected) != __float_as_uint(output[i]) ? 1 : 0;
    }
    add_mismatches(state, wrong);
}

__global__ void __launch_bounds__(kThreads)
    check_equal_kernel(CheckState* state, const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride, int rows,
                       std::int64_t width) {
    unsigned wrong = 0;
    for (std::int64_t i = threadIdx.x; i < rows * width; i += kThreads) {
        const float left = a[i / width * a_stride + i % width];
        const float right = b[i / width * b_stride + i % width];
        wrong += __float_as_uint(left) != __float_as_uint(right) || isnan(left) ? 1 : 0;
    }
    add_mismatches(state, wrong);
}

__global__ void advance_kernel(CheckState* state) { ++state->round; }

}  // namespace

void load_checks() {
    for (const void* kernel :
         {reinterpret_cast<const void*>(fill_kernel), reinterpret_cast<const void*>(check_sum_kernel),
          reinterpret_cast<const void*>(check_gather_kernel), reinterpret_cast<const void*>(check_equal_kernel),
          reinterpret_cast<const void*>(advance_kernel)}) {
        cudaFuncAttributes attributes{};
        check(cudaFuncGetAttributes(&attributes, kernel), "loading the checks");
    }
}

float check_number(int rank, std::uint64_t round, std::uint64_t index) { return number(rank, round, index); }

void fill(const CheckState* state, int rank, std::uint32_t max_skew_ns, float* input, std::int64_t count, float* poisoned,
          std::int64_t poisoned_count, cudaStream_t stream) {
    fill_kernel<<<1, kThreads, 0, stream>>>(state, rank, max_skew_ns, input, count, poisoned,
                                            poisoned == nullptr ? 0 : poisoned_count);
    check_launch("fill");
}
void check_sum(CheckState* state, int ranks, bool bf16, const float* sum, std::int64_t count, cudaStream_t stream) {
    check_sum_kernel<<<1, kThreads, 0, stream>>>(state, ranks, bf16, sum, count);
    check_launch("check_sum");
}
void check_gather(CheckState* state, int ranks, const float* output, int rows, std::int64_t width, cudaStream_t stream) {
    check_gather_kernel<<<1, kThreads, 0, stream>>>(state, ranks, output, rows, width);
    check_launch("check_gather");
}
void check_equal(CheckState* state, const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride, int rows,
                 std::int64_t width, cudaStream_t stream) {
    check_equal_kernel<<<1, kThreads, 0, stream>>>(state, a, a_stride, b, b_stride, rows, width);
    check_launch("check_equal");
}
void advance(CheckState* state, cudaStream_t stream) {
    advance_kernel<<<1, 1, 0, stream>>>(state);
    check_launch("advance");
}

}  // namespace draftboard::backend::cuda
