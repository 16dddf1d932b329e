// SPDX-License-Identifier: Apache-2.0
#pragma once
// Cycles of real decoding on a session's engines, as `run` has them: what a cycle takes beyond its passes is fitted to these. Drafts
// of random weights are hardly ever accepted, which does not matter here: the passes of a cycle are the same. Passes one by one are
// engine_session.h's.

#include <vector>

#include "calibration/engine_session.h"

namespace draftboard::calibration {

struct CycleOptions {
    bool fused = false;             ///< whole cycles on the device, where it has them
    std::vector<int> steps = {1, 3, 5};
    std::vector<int> sequences = {1, 4};
    int context = 160;              ///< of the prompts
    int cycles = 32;                ///< counted, of each
};

/// Plain decoding, the session's drafter at each depth, and, where the host drives the passes, scripted drafts.
[[nodiscard]] model::Expected<void> measure_cycles(EngineSession& session, const CycleOptions& options,
                                                   EngineMeasurements& measurements);

}  // namespace draftboard::calibration
