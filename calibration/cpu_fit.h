// SPDX-License-Identifier: Apache-2.0
#pragma once
// From measured passes of the CPU engine to what prices them: kernels by kernel_fit.h, collectives, waiting and host costs
// by non-negative least squares. Nothing here runs an engine (cpu_calibration.h) or reads a file.
//
//   kernels        one fit a (kind, format, number of ranks) to verify and draft_extend passes; weights as a pass finds them, for
//                  it walks through all layers. A role is fitted alone where the kind's misses it by more than kRolePooling times
//                  what its own does. Each role has an entry with its own corrections by m over the one or the other.
//   warm passes    plain steps and a drafter's further steps (kOwnCachePasses) have entries a role too: the same constants, a
//                  bandwidth of bytes that are near (sim::near_share of the pass) and corrections by m from their own times;
//                  beyond their largest m those of the other passes
//   errors         relative_error^2 = mean over rows of log(measured / predicted)^2 + noise^2, by role and kind of pass: each row
//                  by corrections that lack its m (those of its neighbours in m), unless it is the smallest or largest;
//                  noise: sd of log(median of later / earlier samples) / sqrt 2 of an operation, as another run has it as well
//   caches         bytes beyond near_bytes cost far_factor times as much, where that lowers the mean error by a tenth
//   collectives    t = call + barriers b + bytes / B       x = (call, b, 1/B one-shot, 1/B ring, 1/B gather), rows over t
//   pass           T - sum of operations = launch + collectives skew + skew_share sum of kernels       by number of ranks
//   cycle          C - sum of passes = cycle (or step) + calls draft_call + sequences sequence
//   run_sigma      sd of log(median of later rounds / median of earlier rounds) / sqrt 2: what one median differs from the next
//   common_error   rms over passes of log(sum of an entry's predictions / sum of its measured times): what a pass's total sees of it
// The relative error of collectives is of rows that the fit left out (five parts, each predicted by the other four).

#include <string>
#include <vector>

#include "calibration/engine_measurements.h"
#include "calibration/cpu_terms.h"
#include "calibration/measured_pass.h"
#include "calibration/role_fit.h"

namespace draftboard::calibration {

struct CpuFit : RoleFits {
    CpuTerms terms;
};

/// `gpu`: one core, with the bounds of bandwidth and rate. Errors: nothing measured, times that are not positive.
[[nodiscard]] model::Expected<CpuFit> fit_cpu(const std::vector<EngineMeasuredPass>& passes, const EngineMeasurements& measurements,
                                              const model::GpuSpec& gpu);

/// Parts of it, for tests.
[[nodiscard]] model::Expected<std::vector<sim::SharedMemoryConstants>> fit_collectives(
    const std::vector<EngineCollectiveSample>& samples);
struct CpuPassOverhead {
    double launch_us = 0;
    double skew_us = 0;
    double skew_share = 0;
    double relative_error = 0;  ///< rms of what is left, over the overhead
};
/// Passes of one number of ranks.
[[nodiscard]] CpuPassOverhead fit_pass_overhead(const std::vector<const EngineMeasuredPass*>& passes);

}  // namespace draftboard::calibration
