// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the CPU engine cannot compute, by name: parts of an architecture that the plan prices but no kernel here runs, and
// layouts over which weights are not cut. Asked before any weight is read.

#include <vector>

#include "backend/numerics.h"
#include "model/architecture.h"
#include "model/layout.h"

namespace draftboard::backend::cpu {

/// Sparse indexers, attention sinks, sliding windows, norms over all heads at once, expert biases, group-limited softmax
/// routing, and storage other than bf16, fp16, fp32, fp8 and symmetric int4 groups. Each once, for the first layer.
[[nodiscard]] std::vector<model::Problem> unsupported_parts(const model::Architecture& architecture);

/// The above, the layout's own validation, pipelines, and the rank. Unsupported parts are ErrorCode::unsupported.
[[nodiscard]] model::Expected<void> check_engine(const model::Architecture& architecture, const model::Layout& layout, int rank);
/// Numbers that the router's kernels do not apply: a scaling of softmax weights.
[[nodiscard]] model::Expected<void> check_routing(const model::Architecture& architecture, const Numerics& numerics);

}  // namespace draftboard::backend::cpu
