// SPDX-License-Identifier: Apache-2.0
#pragma once
// What serving logs say about a box, as two terms: host work of a cycle that nothing hides, and one factor on all kernel times.
//
//   log C_b = log cycle_b(h, f)     b: batch sizes of all logs; cycle: the simulator's, with the batch's acceptance and context
//   minimise sum_b (log(cycle_b / C_b) / s)^2 + ((h - h0) / (w h0))^2 + (log f / v)^2       s 0.03, w 0.5, v 0.15
//   by Gauss-Newton; errors of h and log f from the curvature
//
// A term is determined if its error is below kDetermined of what was assumed before; else it stays as it was: one batch size
// can't tell host work from kernels, and a log of long passes says nothing about the host. h is host.cycle_us where the log
// speculates, host.step_us else. A scenario that sets the host term itself leaves f alone. Links are not touched: nccl-tests
// tells of them, a server can't.

#include <string>
#include <vector>

#include "calibration/logs/serving_validation.h"

namespace draftboard::calibration {

inline constexpr double kDetermined = 0.7;

struct ServingTerm {
    std::string name;  ///< "host.cycle_us", "kernels x"
    double before = 0;
    double value = 0;
    double error = 0;  ///< of the value; of "kernels x" relative
    bool determined = false;
    std::string why_not;  ///< if it was left alone for another reason than the data
};

struct ServingResidual {
    std::string log;
    int requests = 0;
    double measured_cycle_ms = 0;
    double before_ms = 0;
    double fitted_ms = 0;
    [[nodiscard]] double error() const { return fitted_ms / measured_cycle_ms - 1; }
};

struct ServingFit {
    std::string engine;  ///< the scenario's
    std::vector<ServingTerm> terms;
    std::vector<ServingResidual> residuals;  ///< worst first
    double kernel_factor = 1;
    std::vector<std::string> notes;
    [[nodiscard]] double host_us(const std::string& name) const;  ///< of a determined term; below 0: none
};

struct ServingFitOptions {
    std::string scenario;
    model::Edits edits;
    std::string data_directory;
    sim::CostConstants constants;
};

/// All logs must be of what the scenario says. Errors: those of validate_serving_log(); logs with and without speculation
/// together.
[[nodiscard]] model::Expected<ServingFit> fit_serving_logs(const std::vector<ServingLog>& logs, const ServingFitOptions& options);

/// All times of the kernels multiplied.
[[nodiscard]] sim::KernelTable scaled_kernels(sim::KernelTable table, double factor);

}  // namespace draftboard::calibration
