// SPDX-License-Identifier: Apache-2.0
#pragma once
// `draftboard calibrate --device cuda`: measures the GPU engine's operations, passes and cycles on this box and fits what prices
// them (cuda_fit.h). The work is a list of short steps: a batch size at a context of one model in one launch mode, the cycles of
// one model, the device's own costs. Each is kept when it is done; a step that fails is written down and not tried again, because a
// failure may leave the device unusable to this process.
//
// One session's engines are in memory at a time. Fitting needs no device: fit_measurements() also fits what was measured elsewhere.

#include <functional>
#include <string>
#include <vector>

#include "calibration/calibration.h"
#include "calibration/cuda_fit.h"
#include "calibration/engine_measurements.h"
#include "calibration/gpu_facts.h"
#include "calibration/measured_model.h"

namespace draftboard::calibration {

struct CudaCalibrationOptions {
    std::vector<MeasuredModel> models;
    MeasuredDevice device = measured_gpu(1);
    std::vector<int> contexts = {160, 2200, 8400};
    std::vector<int> long_contexts = {33000};   ///< one sequence alone, in engines of their own; empty: none
    std::vector<int> sequences = {1, 4, 16};
    std::vector<int> tokens = {2, 4, 6, 8, 16};
    std::vector<int> branches = {1, 4};
    std::vector<int> cycle_steps = {1, 3, 5};
    std::vector<int> cycle_sequences = {1, 4};
    int most_rows = 256;
    int warm_cycles = 3;
    int steady_cycles = 7;
    int cycles = 40;
    std::string data_directory;
    std::vector<std::string> prompt_sets = {"code", "prose", "structured"};
};
/// "quick": some three minutes on one GPU; "": the wider grid above.
void apply_preset(CudaCalibrationOptions& options, const std::string& preset);
/// One line that names all that measurements depend on.
[[nodiscard]] std::string settings_of(const CudaCalibrationOptions& options);

/// What is measured where nobody names models: Qwen3-30B whole, one rank's share of Kimi-K2.5 and Qwen3.5-397B in few layers, and
/// the shipped trained models.
[[nodiscard]] model::Expected<std::vector<MeasuredModel>> default_gpu_models(const std::string& data_directory);

/// Called after each step with what is done and how long the step took; false: stop now.
using CudaProgressCallback = std::function<bool(const EngineProgress& progress, double share, const std::string& step, double seconds)>;

struct CudaCalibrationResult {
    bool complete = false;  ///< false: stopped
    Calibration calibration;
    CudaFit fit;
};

/// Goes on from `progress` (empty: from the start), which holds everything measured when this returns, errors included.
/// Errors: no GPU, what the engines say when they are made; a failed step, after which the same call goes on without it.
[[nodiscard]] model::Expected<void> measure_cuda(const CudaCalibrationOptions& options, EngineProgress& progress,
                                                 const CudaProgressCallback& callback, bool& complete);

/// The calibration of what was measured.
[[nodiscard]] model::Expected<CudaCalibrationResult> fit_measurements(const CudaCalibrationOptions& options,
                                                                      const EngineProgress& progress);

/// The GPU as machines and fits know it: its datasheet where it is known, sizes and rates as measured otherwise.
[[nodiscard]] model::GpuSpec measured_gpu_spec(const model::Json& device_costs);

}  // namespace draftboard::calibration
