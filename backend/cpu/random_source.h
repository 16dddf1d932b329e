// SPDX-License-Identifier: Apache-2.0
#pragma once
// Made-up weights, for tests and for timing shapes without a checkpoint. Element (r, c) of a matrix is drawn from a stream named
// (seed, module, r), so that a share holds the same numbers as the whole and ranks draw no more than their rows.
//
//   matrices   mean 0, standard deviation s = 1/sqrt(columns): the sum of four uniform numbers, near enough to a normal one
//   fp8        value / scale rounded to e4m3;   scale of a block = 6 s / 448, spread by +- 25 %
//   int4       value / scale rounded, -8 .. 7;  scale of a group = 3 s / 7 in bf16, spread by +- 25 %
//   norms 1, decay A_log = ln u with u in (1, 16), others small

#include <cstdint>

#include "backend/cpu/tensor_source.h"

namespace draftboard::backend::cpu {

/// Whether matrices get their numbers here, or come without data and scales, for a device that fills its own memory. Vectors always have theirs.
enum class RandomNumbers { made, left_out };

class RandomSource final : public TensorSource {
   public:
    explicit RandomSource(std::uint64_t seed, RandomNumbers numbers = RandomNumbers::made) : seed_(seed), numbers_(numbers) {}
    [[nodiscard]] model::Expected<WeightMatrix> matrix(const MatrixRequest& request) override;
    [[nodiscard]] model::Expected<std::vector<float>> vector(const VectorRequest& request) override;

   private:
    std::uint64_t seed_;
    RandomNumbers numbers_;
};

/// Nearest e4m3 code, ties to even; beyond 448 the largest.
[[nodiscard]] std::uint8_t float_to_fp8_e4m3(float value);

}  // namespace draftboard::backend::cpu
