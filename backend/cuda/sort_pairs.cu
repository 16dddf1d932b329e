// SPDX-License-Identifier: Apache-2.0
// Pairs of rows and experts sorted by expert, into chunks of a few pairs that share an expert's weights. Few pairs are not sorted
// here: the experts' kernels count their places themselves (expert_chunks.cuh).
#include <cuda_runtime.h>

#include "backend/cuda/check.h"
#include "backend/cuda/expert_chunks.cuh"

namespace draftboard::backend::cuda {

namespace {

constexpr int kSortThreads = 256;

/// Block 0 sorts, stably; block 1 + p writes zeros for pair p if its expert is not here.
/// Bytes: ids, and what it writes: 20 a pair, and 4 hidden for each pair of other ranks.
__global__ void __launch_bounds__(kSortThreads)
    sort_pairs(const std::int32_t* ids, int pairs, int first_expert, int experts, int chunk_rows, Workspace workspace,
               float* output, std::int64_t hidden) {
    extern __shared__ int counts[];  // pairs by expert, then the place of the expert's next pair
    wait_for_predecessor();
    let_successor_begin();
    const int thread = static_cast<int>(threadIdx.x);
    if (blockIdx.x > 0)
        return zero_stranger(ids, static_cast<std::int64_t>(blockIdx.x) - 1, first_expert, experts, output, hidden);
    for (int e = thread; e < experts; e += kSortThreads) counts[e] = 0;
    __syncthreads();
    for (int p = thread; p < pairs; p += kSortThreads) {
        const int local = ids[p] - first_expert;
        if (local >= 0 && local < experts) atomicAdd(&counts[local], 1);
    }
    __syncthreads();
    if (thread >= 32) return;
    int place = 0, chunk = 0;  // of the next 32 experts
    for (int base = 0; base < experts; base += 32) {
        const int e = base + thread;
        const int count = e < experts ? counts[e] : 0;
        const int chunks = (count + chunk_rows - 1) / chunk_rows;
        int places = count, all_chunks = chunks;
#pragma unroll
        for (int distance = 1; distance < 32; distance *= 2) {
            const int a = __shfl_up_sync(0xFFFFFFFFU, places, distance);
            const int b = __shfl_up_sync(0xFFFFFFFFU, all_chunks, distance);
            if (thread >= distance) {
                places += a;
                all_chunks += b;
            }
        }
        const int first = place + places - count;
        for (int c = 0; c < chunks; ++c) {
            workspace.chunks[chunk + all_chunks - chunks + c] = {e, first + c * chunk_rows,
                                                                 min(chunk_rows, count - c * chunk_rows), 0};
        }
        if (e < experts) counts[e] = first;
        place += __shfl_sync(0xFFFFFFFFU, places, 31);
        chunk += __shfl_sync(0xFFFFFFFFU, all_chunks, 31);
    }
    if (thread == 0) *workspace.chunk_count = chunk;
    __syncwarp();
    for (int base = 0; base < pairs; base += 32) {
        const int p = base + thread;
        const int local = p < pairs ? ids[p] - first_expert : -1;
        const bool here = local >= 0 && local < experts;
        const unsigned same = __match_any_sync(0xFFFFFFFFU, here ? local : -1);
        const int before = __popc(same & ((1U << thread) - 1U));
        if (here) workspace.sorted[counts[local] + before] = p;
        __syncwarp();
        if (here && before == 0) counts[local] += __popc(same);
        __syncwarp();
    }
}

}  // namespace

void launch_sort(const std::int32_t* ids, int pairs, int first_expert, int experts, int chunk_rows, const Workspace& workspace,
                 float* output, std::int64_t hidden, cudaStream_t stream) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(1 + pairs));
    config.blockDim = dim3(kSortThreads);
    config.dynamicSmemBytes = static_cast<std::size_t>(experts) * 4;
    config.stream = stream;
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
    check(cudaLaunchKernelEx(&config, sort_pairs, ids, pairs, first_expert, experts, chunk_rows, workspace, output, hidden),
          "sort_pairs");
}

}  // namespace draftboard::backend::cuda
