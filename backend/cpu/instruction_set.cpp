// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/instruction_set.h"

#include "backend/cpu/simd_targets.h"

#include <hwy/targets.h>

namespace draftboard::backend::cpu {

const char* to_name(InstructionSet set) {
    switch (set) {
        case InstructionSet::baseline: return "baseline";
        case InstructionSet::avx2: return "AVX2";
        case InstructionSet::avx512: return "AVX-512";
    }
    return "baseline";
}

std::vector<InstructionSet> supported_instruction_sets() {
    [[maybe_unused]] const auto targets = static_cast<std::int64_t>(hwy::SupportedTargets());
    std::vector<InstructionSet> result{InstructionSet::baseline};
    DRAFTBOARD_IF_AVX2(if ((targets & HWY_AVX2) != 0) result.push_back(InstructionSet::avx2);)
    DRAFTBOARD_IF_AVX512(if ((targets & HWY_AVX3) != 0) result.push_back(InstructionSet::avx512);)
    return result;
}

InstructionSet best_instruction_set() {
    static const InstructionSet best = supported_instruction_sets().back();
    return best;
}

}  // namespace draftboard::backend::cpu
