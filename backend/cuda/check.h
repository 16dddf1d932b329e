// SPDX-License-Identifier: Apache-2.0
#pragma once
// Errors of the CUDA runtime as exceptions. Kernels' launch wrappers call check_launch() after each launch; what a kernel does wrong while it runs
// shows at the next call that waits for it. Expected failures (no GPU, no memory) are handled by the callers that can name them.

#include <stdexcept>
#include <string>

#include <cuda_runtime_api.h>

namespace draftboard::backend::cuda {

/// Throws unless `status` is cudaSuccess; `what`: the call's name.
inline void check(cudaError_t status, const char* what) {
    if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

/// For the launch just made.
inline void check_launch(const char* what) { check(cudaGetLastError(), what); }

}  // namespace draftboard::backend::cuda
