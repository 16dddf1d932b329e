// SPDX-License-Identifier: Apache-2.0
#pragma once
// What an engine runs: a whole model, or a drafter that reads the target's hidden states, as an architecture with the numbers
// that its function needs, in a layout; and who plans its passes. The same on all ranks and on every device: the CPU's and the
// GPU's engines are made from these. How a device computes them is its own (cpu/rank.h, cuda/rank.h).

#include <functional>
#include <vector>

#include "backend/checkpoint.h"
#include "backend/numerics.h"
#include "model/architecture.h"
#include "model/error.h"
#include "model/layout.h"
#include "model/plan.h"
#include "model/speculation.h"

namespace draftboard::backend {

/// A whole model, or a drafter that reads the target's hidden states.
enum class ModelKind { model, eagle3, mtp };

struct ModelShape {
    ModelKind kind = ModelKind::model;
    model::Architecture architecture;  ///< activation_format and kv_format say what the engine computes and caches in
    Numerics numerics;
    model::Layout layout;
    /// Target layers whose inputs go to ForwardOutput::features (the number of layers: the input of the final norm).
    std::vector<int> feature_layers;
};

/// Numbers of a head that are rotated by position, of the first layer that attends; 0 without one.
[[nodiscard]] int rotary_dim(const model::Architecture& architecture);

/// The plan of one step, as the model's own planner makes it (plan_forward or plan_draft).
using Planner = std::function<model::Expected<model::Plan>(const model::Step&)>;

/// A shape with the planner that goes with it.
struct PlannedModel {
    ModelShape shape;
    Planner planner;
};
/// The step that an engine of this shape runs as such a pass.
[[nodiscard]] model::Step step_of(const ModelShape& shape, model::Pass pass, int sequences, int tokens, std::int64_t context);
[[nodiscard]] model::Expected<model::Plan> plan_pass(const PlannedModel& planned, model::Pass pass, int sequences, int tokens,
                                                     std::int64_t context);

/// Number formats that an engine computes and caches in, whatever the checkpoint was made for.
struct ComputeFormats {
    model::NumberFormat activations = model::NumberFormat::fp32;
    model::NumberFormat cache = model::NumberFormat::fp32;
};

/// A target. Errors: a layout that does not fit the architecture.
[[nodiscard]] model::Expected<PlannedModel> plan_target(model::Architecture architecture, Numerics numerics,
                                                        const model::Layout& layout, const ComputeFormats& formats,
                                                        std::vector<int> feature_layers);
[[nodiscard]] model::Expected<PlannedModel> plan_target(const Checkpoint& checkpoint, const model::Layout& layout,
                                                        const ComputeFormats& formats, std::vector<int> feature_layers);
/// The MTP module stored with the target.
[[nodiscard]] model::Expected<PlannedModel> plan_mtp(const ModelShape& target, const model::Speculation& speculation,
                                                     const std::string& name);
/// `numerics`: the head's own.
[[nodiscard]] model::Expected<PlannedModel> plan_eagle3(const ModelShape& target, const model::Speculation& speculation,
                                                        Numerics numerics, const std::string& name);
/// A stand-alone draft model on the target's ranks, tensor parallel. Errors: another vocabulary than the target's.
[[nodiscard]] model::Expected<PlannedModel> plan_draft_model(const Checkpoint& checkpoint, const ModelShape& target,
                                                             const model::Speculation& speculation,
                                                             const ComputeFormats& formats);

}  // namespace draftboard::backend
