// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which vector instructions the kernels use. Each kernel is compiled once for every set (simd_targets.h) and the set is
// an argument, so that a test can run all of them on one machine. Results of one set are the same bits on every run;
// two sets add in another order and differ by rounding.

#include <vector>

namespace draftboard::backend::cpu {

/// baseline: what every processor of the architecture has (x86-64: no vector instructions assumed; Arm: NEON).
enum class InstructionSet { baseline, avx2, avx512 };

/// "baseline", "AVX2", "AVX-512".
[[nodiscard]] const char* to_name(InstructionSet set);
/// Those that this processor and operating system run, worst first; never empty.
[[nodiscard]] std::vector<InstructionSet> supported_instruction_sets();
/// The last of them.
[[nodiscard]] InstructionSet best_instruction_set();

}  // namespace draftboard::backend::cpu
