// SPDX-License-Identifier: Apache-2.0
#pragma once
// The CPU as a device (engine_factory.h): ranks are threads of one team.

#include "backend/cpu/communicator.h"
#include "backend/engine_factory.h"

namespace draftboard::backend::cpu {

struct CpuSettings {
    int ranks = 1;
    bool expert_parallel = false;  ///< whole experts a rank instead of slices of each
    AllReduceAlgorithm all_reduce = AllReduceAlgorithm::one_shot;
};

[[nodiscard]] std::unique_ptr<EngineFactory> cpu_engines(const CpuSettings& settings);

}  // namespace draftboard::backend::cpu
