// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/ceilings.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <cuda_runtime.h>

#include "backend/cuda/check.h"
#include "backend/cuda/device_buffer.h"

namespace draftboard::backend::cuda {

namespace {

constexpr std::int64_t kBytes = std::int64_t{2} << 30;
constexpr int kThreads = 512;
constexpr int kWords = 8;  // 16-byte loads in flight a thread

/// Sums 16-byte words; bytes: all of them once. The sum is written where it can't be, so that nothing is left out.
__global__ void __launch_bounds__(kThreads) read_words(const uint4* words, std::int64_t count, unsigned never, unsigned* out) {
    unsigned sum = 0;
    const std::int64_t step = std::int64_t{gridDim.x} * kThreads * kWords;
    for (std::int64_t base = blockIdx.x * std::int64_t{kThreads} * kWords + threadIdx.x; base < count; base += step) {
        uint4 word[kWords];
#pragma unroll
        for (int w = 0; w < kWords; ++w) word[w] = base + w * kThreads < count ? __ldcs(words + base + w * kThreads) : uint4{};
#pragma unroll
        for (int w = 0; w < kWords; ++w) sum += word[w].x ^ word[w].y ^ word[w].z ^ word[w].w;
    }
    if (sum == never) *out = sum;
}

template <class Work>
double median_seconds(int repetitions, Work work) {
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
    check(cudaEventCreate(&begin), "event");
    check(cudaEventCreate(&end), "event");
    std::vector<float> ms;
    for (int i = 0; i < repetitions + 2; ++i) {
        check(cudaEventRecord(begin), "event");
        work();
        check(cudaEventRecord(end), "event");
        check(cudaEventSynchronize(end), "measurement of memory");
        float took = 0;
        check(cudaEventElapsedTime(&took, begin, end), "event");
        if (i >= 2) ms.push_back(took);  // two to warm up
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    std::nth_element(ms.begin(), ms.begin() + static_cast<std::ptrdiff_t>(ms.size() / 2), ms.end());
    return ms[ms.size() / 2] * 1e-3;
}

}  // namespace

MemoryRates measure_memory(int repetitions) {
    const DeviceBuffer<char> buffer(kBytes);
    const DeviceBuffer<unsigned> out(1);
    check(cudaMemset(buffer.data(), 0x5a, kBytes), "memory");
    int blocks = 0;
    int device = 0;
    check(cudaGetDevice(&device), "device");
    check(cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, device), "device");
    const double copied = median_seconds(repetitions, [&] {
        check(cudaMemcpyAsync(buffer.data() + kBytes / 2, buffer.data(), kBytes / 2, cudaMemcpyDeviceToDevice), "copy");
    });
    const double read = median_seconds(repetitions, [&] {
        read_words<<<blocks * 4, kThreads>>>(reinterpret_cast<const uint4*>(buffer.data()), kBytes / 16, 0x12345678U, out.data());
        check_launch("read_words");
    });
    return {kBytes / copied * 1e-9, kBytes / read * 1e-9};
}

}  // namespace draftboard::backend::cuda
