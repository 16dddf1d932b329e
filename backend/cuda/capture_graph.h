// SPDX-License-Identifier: Apache-2.0
#pragma once
// What is enqueued on a stream, as a graph that can be launched again.

#include <cuda_runtime_api.h>

#include "backend/cuda/check.h"

namespace draftboard::backend::cuda {

/// Runs `enqueue` under capture. The caller owns the result. What enqueue throws goes on, and the stream has left capture.
template <class Enqueue>
[[nodiscard]] cudaGraphExec_t capture_graph(cudaStream_t stream, const Enqueue& enqueue) {
    cudaGraph_t captured = nullptr;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "graph capture");
    try {
        enqueue();
    } catch (...) {
        cudaStreamEndCapture(stream, &captured);
        if (captured != nullptr) cudaGraphDestroy(captured);
        throw;
    }
    check(cudaStreamEndCapture(stream, &captured), "graph capture");
    cudaGraphExec_t graph = nullptr;
    const cudaError_t made = cudaGraphInstantiate(&graph, captured, 0);
    cudaGraphDestroy(captured);
    check(made, "graph");
    return graph;
}

}  // namespace draftboard::backend::cuda
