// SPDX-License-Identifier: Apache-2.0
#pragma once
// `draftboard calibrate --device cuda`: measures this box's GPUs with the engine and fits what was measured. A CPU's is
// calibrate_cpu.h's.

#include <string>
#include <vector>

#include "calibration/calibration.h"
#include "cli/command.h"

namespace draftboard::cli {

struct CudaCalibrateOptions {
    std::string output;
    std::vector<std::string> models;         ///< folders or shipped names
    std::vector<std::string> architectures;  ///< random weights at their true shapes
    std::vector<int> layers;                 ///< of each architecture; one for all, or as many as there are
    std::vector<int> tensor_rank_of;         ///< the same
    int gpus = 1;
    bool quick = false;
    bool resume = false;
};

void calibrate_cuda(const CudaCalibrateOptions& options, CommandContext& context);

/// What `calibrate show` says of a GPU engine's calibration, measured against fitted, worst first; empty: it is none.
[[nodiscard]] std::string cuda_calibration_text(const calibration::Calibration& calibration);

}  // namespace draftboard::cli
