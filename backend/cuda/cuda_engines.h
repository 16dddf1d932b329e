// SPDX-License-Identifier: Apache-2.0
#pragma once
// The GPUs of this box as a device (engine_factory.h). A header without CUDA's own, for code above the engine.

#include <memory>

#include "backend/cuda/launch.h"
#include "backend/engine_factory.h"

namespace draftboard::backend::cuda {

/// Errors come with the first engine: no GPU, too few, settings that do not go together.
[[nodiscard]] std::unique_ptr<EngineFactory> cuda_engines(const CudaSettings& settings);

}  // namespace draftboard::backend::cuda
