// SPDX-License-Identifier: Apache-2.0
#pragma once
// The GPUs that tests of the CUDA engine run on. With fewer GPUs than ranks the ranks share the first one, and our own
// collectives carry every message.

#include <cstdlib>

#include <cuda_runtime_api.h>

#include "backend/cuda/launch.h"

namespace draftboard::backend::cuda {

/// Ranks that share a GPU need a hardware queue for each of their streams, and kernels that are loaded already (cuda/engine.cpp);
/// the variables are read when CUDA starts.
inline int gpus() {
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

inline CudaSettings settings_of(int ranks) {
    CudaSettings settings;
    settings.ranks = ranks;
    settings.timeout_s = 5;
    if (ranks > gpus()) {
        settings.share_device = true;
        settings.host_staged_up_to = 1 << 28;
    }
    return settings;
}

}  // namespace draftboard::backend::cuda
