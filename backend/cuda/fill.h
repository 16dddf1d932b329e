// SPDX-License-Identifier: Apache-2.0
#pragma once
// Random weights made on the device, for timing true shapes without a checkpoint. Every element is a function of (seed, place)
// alone. Spread as in cpu/random_source.h, so that activations keep their size; the numbers are others.

#include <cstdint>

#include <cuda_runtime_api.h>

#include "backend/cuda/device_matrix.h"

namespace draftboard::backend::cuda {

/// Codes of a matrix of standard deviation `deviation` / scale; scales, where the format has them, by fill_scales. Only enqueues.
void fill_matrix(const DeviceMatrix& matrix, std::uint64_t seed, float deviation, cudaStream_t stream);
/// `count` scales within +- 25 % of `middle`.
void fill_scales(float* scales, std::int64_t count, std::uint64_t seed, float middle, cudaStream_t stream);

}  // namespace draftboard::backend::cuda
