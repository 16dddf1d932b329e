// SPDX-License-Identifier: Apache-2.0
#pragma once
// What this machine can do at most, measured: the rates that a kernel's bytes and flops are held against. Reading is summing
// whole cache lines in order; FMA is independent multiply-adds in registers.
//
//   memory   256 MiB for each core, past any cache
//   L3       16 MiB in all, shared out among the cores
//   FMA      2 N flops an instruction of N lanes

#include "backend/cpu/instruction_set.h"

namespace draftboard::backend::cpu {

struct CeilingRates {
    double memory_gb_per_s = 0;
    double l3_gb_per_s = 0;
    double fma_gflop_per_s = 0;
};

struct Ceilings {
    int cores = 1;      ///< that were busy at once for `together`
    CeilingRates one;   ///< one core, the others idle
    CeilingRates together;  ///< the sum over `cores` cores at once
};

/// Each of the six rates is the best of `repetitions` runs of about 20 ms of the threads' own time (and at least
/// one pass over the buffers).
[[nodiscard]] Ceilings measure_ceilings(int cores, int repetitions = 5, InstructionSet set = best_instruction_set());

}  // namespace draftboard::backend::cpu
