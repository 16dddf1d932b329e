// SPDX-License-Identifier: Apache-2.0
#pragma once
// Weight matrices and vectors of random numbers for the tests of the CPU kernels, in every format a matrix is stored in.

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cpu/instruction_set.h"
#include "backend/cpu/weight_matrix.h"

namespace draftboard::backend::cpu {

/// For INSTANTIATE_TEST_SUITE_P over supported_instruction_sets().
[[nodiscard]] std::string set_name(const testing::TestParamInfo<InstructionSet>& info);

[[nodiscard]] std::vector<float> random_floats(std::size_t count, std::uint64_t seed);

/// bf16, fp32, fp8 without scales, fp8 in blocks, int4 in groups.
[[nodiscard]] std::vector<model::WeightFormat> sample_formats();

/// Codes drawn over the whole range of the format (no NaN), scales around 1/100; offsets as in a share of a larger matrix.
[[nodiscard]] WeightMatrix random_matrix(std::int64_t rows, std::int64_t columns, const model::WeightFormat& format,
                                         std::uint64_t seed, std::int64_t row_offset = 0, std::int64_t column_offset = 0);

/// rows x columns floats.
[[nodiscard]] std::vector<float> dequantised(const WeightMatrix& matrix);

}  // namespace draftboard::backend::cpu
