// SPDX-License-Identifier: Apache-2.0
#pragma once
// Errors of the CUDA runtime as exceptions: std::runtime_error with the call's name and CUDA's own words. engine.h turns them
// into an Error at the door of the library.

#include <stdexcept>
#include <string>

#include <cuda_runtime_api.h>

namespace draftboard::backend::cuda {

inline void check(cudaError_t status, const char* what) {
    if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

/// After a kernel's launch.
inline void check_launch(const char* what) { check(cudaGetLastError(), what); }

}  // namespace draftboard::backend::cuda
