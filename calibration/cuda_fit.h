// SPDX-License-Identifier: Apache-2.0
#pragma once
// From measured passes and cycles of the GPU engine to what prices them. Nothing here runs an engine (cuda_calibration.h), so what
// was measured on one machine can be fitted on another.
//
//   kernels   one fit a kind and format over all models, one entry a role (role_fit.h). An operation's time is that between two
//             events in a captured graph less that of two events with nothing in between; one that runs inside another's kernel
//             is priced at nothing. Rows whose pass fits into L2 are warm and price nothing.
//   graph     T = launch + sum over kernels of (k - min(s, f k)) + g n + c bytes
//             T a whole pass from outside, k the measured times, n kernels. Events keep a kernel from beginning before its predecessor
//             has ended; s, the chain saving, is what it saves without them, f the most of its time that can be saved, g what an
//             unbroken graph adds a kernel, c the price of states that travel between host and device: what a drafter reads of the
//             target, and its own. s and f are searched, the rest is non-negative least squares of relative errors.
//   eager     host time of a launch: what makes simulated eager passes meet measured ones best
//   experts   passes that count their experts say how many are touched for so many rows; cycles and eager passes, which do not
//             count, take over their share of the expectation
//   cycle     C - sum of its passes = cycle (or step) + calls draft_call + sequences sequence     once for whole cycles on the
//             device, where passes have no launch, once where the host drives each pass
//   run_sigma, common_error    as in cpu_fit.h
// Worked example: two passes of 100 and 600 kernels of 4 us take 260.5 and 1510.5 us: with f = 0.5, s = 1.5 and launch 9 us.

#include <functional>
#include <string>
#include <vector>

#include "calibration/cuda_terms.h"
#include "calibration/measured_pass.h"
#include "calibration/role_fit.h"

namespace draftboard::calibration {

inline constexpr std::string_view kCudaImplementation = "cuda";

/// A pass or cycle beside what the fit says of it.
struct FittedTime {
    std::string name;         ///< "qwen3-30b verify 1 x 4 at 160, full"
    double measured_us = 0;
    double fitted_us = 0;     ///< by the fitted constants alone
    double operations_us = 0; ///< passes: sum of the measured operations
    [[nodiscard]] double error() const { return measured_us > 0 ? fitted_us / measured_us - 1 : 0; }
};

/// One role in one pass: sums over its layers.
struct FittedRole {
    std::string pass;
    std::string role;
    int count = 0;
    double measured_us = 0;
    double fitted_us = 0;
};

struct CudaFit : RoleFits {
    CudaTerms terms;
    std::vector<FittedTime> passes;
    std::vector<FittedTime> cycles;
    std::vector<FittedRole> roles;
};

/// Plans of a model's passes, for cycles.
using PlanOf = std::function<model::Expected<model::Plan>(const std::string& model, bool drafter, model::Pass pass, int sequences,
                                                          int tokens, std::int64_t context)>;

/// `gpu`: with the bounds of bandwidth and rate. Errors: nothing measured.
[[nodiscard]] model::Expected<CudaFit> fit_cuda(const std::vector<EngineMeasuredPass>& passes, const EngineMeasurements& measurements,
                                                const PlanOf& plan_of, const model::GpuSpec& gpu);

/// What a graph's passes are made of, as the fit sees them. Exposed for tests.
struct GraphPass {
    double total_us = 0;
    std::vector<double> kernel_us;  ///< of each operation that launches something
    double moved_mb = 0;            ///< states between host and device
};
struct GraphCosts {
    double launch_us = 0;
    double kernel_gap_us = 0;
    double chain_saving_us = 0;
    double chain_share = 0;
    double us_per_mb = 0;
    double relative_error = 0;  ///< rms of log(fitted / measured)
};
[[nodiscard]] GraphCosts fit_graph(const std::vector<GraphPass>& passes);

}  // namespace draftboard::calibration
