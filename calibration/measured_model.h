// SPDX-License-Identifier: Apache-2.0
#pragma once
// A model as calibration and validation run it, and the device it runs on: a checkpoint's folder, or an architecture's true shapes
// with random weights, whole or its first layers, all ranks or one rank's share of a layout alone. Becomes the settings of an
// engine, or, without any device, the planners of its passes: what was measured elsewhere can be fitted here.

#include <optional>
#include <string>
#include <vector>

#include "backend/inference.h"
#include "calibration/measured_pass.h"
#include "model/plan.h"

namespace draftboard::calibration {

struct MeasuredModel {
    std::string name;      ///< what measurements call it: "tiny-kimi", "kimi-k2.5 L4 1of8"
    std::string folder;    ///< of a checkpoint; empty: random weights
    std::optional<model::Architecture> architecture;  ///< of random weights
    int tensor_rank_of = 0;                           ///< one rank's share of so many, alone; 0: no
    backend::DraftMethod method = backend::DraftMethod::none;  ///< how it is drafted for where nobody says
};

struct MeasuredDevice {
    backend::Device device = backend::Device::cpu;
    int ranks = 1;
    backend::cuda::CudaSettings cuda;
    bool plays_gpu = false;  ///< the CPU's engine driven as a GPU's is: for tests of everything around the device
    [[nodiscard]] bool is_gpu() const { return device == backend::Device::cuda || plays_gpu; }
    [[nodiscard]] MeasuredDevice with_launch(backend::cuda::LaunchMode launch) const;
};

/// The settings of a GPU measurement: activations and caches in bf16, as engines serve.
[[nodiscard]] MeasuredDevice measured_gpu(int ranks);

/// Errors: the checkpoint's.
[[nodiscard]] model::Expected<MeasuredModel> checkpoint_model(const std::string& folder);
/// `layers`: the first ones, 0: all. Errors: an unknown architecture, more layers than it has.
[[nodiscard]] model::Expected<MeasuredModel> random_model(const std::string& architecture, int layers, int tensor_rank_of,
                                                          const std::string& data_directory);

/// Model, device and drafter filled in; sizes are the caller's.
[[nodiscard]] backend::InferenceSettings settings_of(const MeasuredModel& model, const MeasuredDevice& device);

/// Target and drafter as an engine would plan their passes.
struct MeasuredPlanners {
    backend::PlannedModel target;
    std::optional<backend::PlannedModel> drafter;
    [[nodiscard]] model::Expected<model::Plan> plan(bool of_drafter, model::Pass pass, int sequences, int tokens,
                                                    std::int64_t context) const;
};
[[nodiscard]] model::Expected<MeasuredPlanners> planners_of(const MeasuredModel& model, const MeasuredDevice& device);

/// What was measured of these models, each pass with its plan; passes of other models are left out. `device`: its number of ranks
/// is each pass's own.
[[nodiscard]] model::Expected<std::vector<EngineMeasuredPass>> planned_passes(const std::vector<MeasuredModel>& models,
                                                                              MeasuredDevice device,
                                                                              const EngineMeasurements& measurements);

/// The last part of a folder's path: what measurements call the model.
[[nodiscard]] std::string model_name(const std::string& folder);

/// How the model is drafted for where nobody says: its EAGLE-3 head beside it, else its own MTP module, else not at all.
[[nodiscard]] model::Expected<backend::DraftMethod> default_draft_method(const std::string& folder);

}  // namespace draftboard::calibration
