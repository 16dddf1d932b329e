// SPDX-License-Identifier: Apache-2.0
#pragma once
// Leave for a kernel to take more than 48 KB of dynamic shared memory. The limit is a property of the kernel, shared by all
// threads of the process, and is looked at by launches and again when a graph is made of them: so it is only ever raised, to the
// most that the device gives, and never set to what one launch happens to need.

#include <cuda_runtime_api.h>

#include "backend/cuda/check.h"

namespace draftboard::backend::cuda {

template <class Kernel>
void permit_shared_memory(Kernel kernel) {
    int device = 0;
    int most = 0;
    cudaFuncAttributes attributes{};
    check(cudaGetDevice(&device), "device");
    check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "device");
    const auto* function = reinterpret_cast<const void*>(kernel);
    check(cudaFuncGetAttributes(&attributes, function), "kernel");
    const int dynamic = most - static_cast<int>(attributes.sharedSizeBytes);
    if (attributes.maxDynamicSharedSizeBytes >= dynamic) return;
    check(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, dynamic), "shared memory");
}

}  // namespace draftboard::backend::cuda
