// SPDX-License-Identifier: Apache-2.0
#pragma once
// The GPU engine as a library that is loaded when it is asked for (libdraftboard_cuda.so): the programs themselves link no CUDA,
// start at once, and run on machines without it. Built from the same sources in the same build as whoever loads it; there is no
// other interface.

#include <memory>

#include "backend/cuda/launch.h"
#include "backend/engine_factory.h"
#include "model/error.h"

namespace draftboard::backend::cuda {

/// Loads the library from beside the running program, from where the build leaves it, or from where the system looks. Errors: it
/// is not there (this build has no CUDA), or a library that it needs is not.
[[nodiscard]] model::Expected<std::unique_ptr<EngineFactory>> load_cuda_engines(const CudaSettings& settings);

}  // namespace draftboard::backend::cuda
