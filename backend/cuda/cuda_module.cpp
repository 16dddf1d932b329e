// SPDX-License-Identifier: Apache-2.0
// The one symbol of libdraftboard_cuda.so; see cuda_module.h.
#include "backend/cuda/cuda_engines.h"

/// Caller owns the result.
extern "C" __attribute__((visibility("default"))) draftboard::backend::EngineFactory* draftboard_cuda_engines(
    const draftboard::backend::cuda::CudaSettings* settings) {
    return draftboard::backend::cuda::cuda_engines(*settings).release();
}
