// SPDX-License-Identifier: Apache-2.0
#pragma once
// Makes the engines of one run on one device: the target first, then at most one drafter that shares its ranks. inference.h
// asks it; cpu_engines() and cuda_engines() are the two.

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "backend/checkpoint.h"
#include "backend/engine.h"
#include "backend/fused_cycle.h"
#include "model/error.h"
#include "model/json_reader.h"
#include "model/speculation.h"

namespace draftboard::backend {

struct EngineRequest {
    int sequences = 1;
    std::int64_t max_length = 4096;   ///< tokens a sequence; memory for all of them is taken at the start
    int max_rows = 256;               ///< of a pass
    std::vector<int> feature_layers;  ///< of the target: see ModelShape
    bool hidden_read = false;         ///< somebody reads ForwardOutput::hidden
};

class EngineFactory {
   public:
    virtual ~EngineFactory() = default;
    [[nodiscard]] virtual model::Expected<std::unique_ptr<Engine>> target(const Checkpoint& checkpoint,
                                                                          const EngineRequest& request) = 0;
    // Drafters of the target that was made last. `speculation` names method, steps and (EAGLE-3) the head.
    [[nodiscard]] virtual model::Expected<std::unique_ptr<Engine>> mtp(const Checkpoint& checkpoint,
                                                                       const model::Speculation& speculation,
                                                                       const EngineRequest& request) = 0;
    [[nodiscard]] virtual model::Expected<std::unique_ptr<Engine>> eagle3(const Checkpoint& head,
                                                                          const model::Speculation& speculation,
                                                                          const EngineRequest& request) = 0;
    [[nodiscard]] virtual model::Expected<std::unique_ptr<Engine>> draft_model(const Checkpoint& checkpoint,
                                                                               const model::Speculation& speculation,
                                                                               const EngineRequest& request) = 0;
    // The same with random weights, for timing shapes without a checkpoint.
    [[nodiscard]] virtual model::Expected<std::unique_ptr<Engine>> random_target(const model::Architecture& architecture,
                                                                                 const EngineRequest& request) = 0;
    /// EAGLE-3 or MTP.
    [[nodiscard]] virtual model::Expected<std::unique_ptr<Engine>> random_drafter(const model::Speculation& speculation,
                                                                                  const EngineRequest& request) = 0;
    /// Whole greedy cycles on the device, for the engines made last; `steps` of the drafter, 0: plain decoding. Null where the
    /// device has none, or was told to have none: then the loop drives each pass. Errors: why it has none though it should.
    [[nodiscard]] virtual model::Expected<std::unique_ptr<FusedCycle>> fused_cycle(int /*steps*/) {
        return std::unique_ptr<FusedCycle>();
    }
    /// What launching, waiting and copying cost on the device, and what it is: a "draftboard.device_costs" document. Null where
    /// there is nothing to say.
    [[nodiscard]] virtual model::Expected<model::Json> device_costs() { return model::Json(); }
    /// GB/s at which this device's memory can be read, by all ranks' cores or by one GPU: measured when asked. 0: not known.
    [[nodiscard]] virtual double read_ceiling_gb_per_s() = 0;
    /// The device and what was chosen on it, for a profile's "environment".
    [[nodiscard]] virtual model::Json environment() const = 0;
};

}  // namespace draftboard::backend
