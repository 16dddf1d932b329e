// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a calibration of the GPU engine holds beside kernels: launch costs of the box, and host work of its two decode loops.
// Kernels are "SUBKIND@ROLE/FORMAT/cuda", timed between events inside of a captured graph, each operation alone; what an
// operation saves in an unbroken graph is host.chain_saving_us.
//
// In the calibration file (calibration.h), below "cuda":
//   "host": {"host.kernel_gap_us": ..., "host.chain_saving_us": ..., "host.run_sigma": ...}    names of sim/host_constants.h
//   "engines": {"draftboard-cuda": {"host.step_us": ...}, "draftboard-cuda-fused": {...}}      by EngineSettings::name
// Making them is cuda_fit.h's.

#include <map>
#include <string>
#include <string_view>

#include "calibration/calibration.h"
#include "sim/prediction.h"

namespace draftboard::calibration {

/// Names of our engine's loops in scenarios: the host drives each pass, or whole cycles run on the device.
inline constexpr std::string_view kCudaEngine = "draftboard-cuda";
inline constexpr std::string_view kCudaFusedEngine = "draftboard-cuda-fused";

struct CudaTerms {
    std::map<std::string, double> host;
    std::map<std::string, std::map<std::string, double>> engines;
    [[nodiscard]] bool empty() const { return host.empty() && engines.empty(); }
};

/// The section, checked; absent: empty. Errors: unknown names, values out of range.
[[nodiscard]] model::Expected<CudaTerms> cuda_terms(const Calibration& calibration);
/// Writes the section into the calibration, beside what else "cuda" holds.
void set_cuda_terms(Calibration& calibration, const CudaTerms& terms);

/// Terms that are empty change nothing.
[[nodiscard]] model::Expected<void> apply(const CudaTerms& terms, sim::CostConstants& constants);

}  // namespace draftboard::calibration
