// SPDX-License-Identifier: Apache-2.0
#pragma once
// Fits the constants of the collective model to measured collectives: few named constants, shared
// over world sizes, operations and message sizes of one machine. No tables: what the constants
// can't say stays an error and is reported as one.
//
//   minimise   sum_i rho( log(predicted_i(theta) / measured_i) )
//              + sum_k ( log(theta_k / default_k) / s )^2 * scatter^2
//   rho        Huber's, quadratic below delta = 0.1: single disturbed rows don't bend the rest
//   s          1: a constant that no row speaks of stays at its default
//   by Levenberg-Marquardt over log(theta), rows weighted anew each round; deterministic.
// What NCCL believes on the host (the socket link, who talks directly) is not continuous: each
// candidate is fitted, the one with the least loss is kept, and the losses of all are the evidence
// for it.
//
// Held-out error: every message size is left out once, with all its rows of all operations and world
// sizes, and predicted by a fit to the other sizes: what a size that nobody measured will see.

#include <map>
#include <string>
#include <vector>

#include "calibration/collective_measurements.h"
#include "model/machine.h"
#include "sim/collective_constants.h"

namespace draftboard::calibration {

struct CollectiveFitOptions {
    double huber_delta = 0.1;
    double prior_width = 1.0;
    int max_iterations = 40;
    bool leave_out = true;  ///< one more fit for each message size
    std::string name;    ///< of the calibration
    std::string source;  ///< of the measurements, for the provenance
};

struct FittedConstant {
    std::string name;
    double value = 0;
    double default_value = 0;
    double standard_error = 0;  ///< of log(value)
};

struct CollectiveFitPoint {
    CollectiveMeasurement measurement;
    model::Implementation implementation = model::Implementation::nccl;
    sim::CollectiveChoice choice;
    double fitted_us = 0;
    double held_out_us = 0;  ///< by a fit without this size; 0: not computed
};

/// One candidate for what NCCL believes, and how well the rest can then be fitted.
struct BeliefEvidence {
    double inter_cpu_gb_s = 0;
    int peer_ranks = 0;
    double loss = 0;
};

struct CollectiveFit {
    sim::CollectiveConstants constants;
    std::vector<FittedConstant> fitted;
    std::vector<CollectiveFitPoint> points;
    std::vector<BeliefEvidence> evidence;  ///< least loss first
    double mean_error = 0;                 ///< mean |fitted / measured - 1|
    double worst_error = 0;
    double held_out_mean_error = 0;
    double held_out_worst_error = 0;
};

/// Rows of other systems than the first row's are an error; rows that implementation_of() does not
/// know are left aside. Errors: no usable row, more GPUs measured than the machine has, a row the
/// model refuses.
[[nodiscard]] model::Expected<CollectiveFit> fit_collectives(
    const std::vector<CollectiveMeasurement>& measurements, const model::Machine& machine,
    const CollectiveFitOptions& options = {});

/// A line for each message size: the errors of its rows, predicted by a fit to all other sizes. Empty if nothing was
/// left out.
[[nodiscard]] std::string left_out_text(const CollectiveFit& fit);

/// Constants, evidence, errors by operation and world size, and every size: measured, fitted, held
/// out.
[[nodiscard]] std::string fit_text(const CollectiveFit& fit);

}  // namespace draftboard::calibration
