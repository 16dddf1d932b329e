// SPDX-License-Identifier: Apache-2.0
#pragma once
// Engines over the reference fixtures, for the tests of the CPU engine.

#include <memory>

#include "backend/cpu/engine.h"
#include "tests/backend/reference_fixture.h"

namespace draftboard::backend::cpu {

using model::Pass;

inline std::unique_ptr<Engine> engine_of(const Checkpoint& checkpoint, Team& team, EngineOptions options = {}) {
    options.max_length = 256;
    auto engine = load_target(checkpoint, options, team);
    EXPECT_TRUE(engine.has_value()) << (engine ? "" : engine.error().to_text());
    return engine ? std::move(*engine) : nullptr;
}

}  // namespace draftboard::backend::cpu
