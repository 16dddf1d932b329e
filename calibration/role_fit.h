// SPDX-License-Identifier: Apache-2.0
#pragma once
// From times of one kind of kernel in passes of the engine to its entries in a calibration: the kind's own, and one of each role
// with its corrections by m, as cpu_fit.h and cuda_fit.h both need them. The fit of a formula to rows is kernel_fit.h's; what the
// rows are, and what is fitted beside kernels, is theirs.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "calibration/kernel_fit.h"
#include "model/plan.h"

namespace draftboard::calibration {

inline constexpr double kRolePooling = 1.15;
inline constexpr double kRoleTolerance = 0.02;  ///< added to a role's own mean error before the two are compared

/// One operation of a measured pass.
struct RoleRow {
    std::string_view role;
    FitRow fit;
    model::Pass pass = model::Pass::verify;
    double noise = 0;   ///< sd of log(time) from run to run
    bool warm = false;  ///< its weights and caches were found in a cache: not what a pass is priced by
};

struct RoleFitting {
    model::GpuSpec gpu;             ///< with the bounds of bandwidth
    double peak_tflops = 0;
    FitShape shape;
    std::string group;              ///< "gemm/bf16"
    std::string table;              ///< "cpu": of the fit report
    std::string source;
    std::function<std::string(model::Pass)> implementation;  ///< "cpu@2"
    std::vector<model::Pass> own_caches;  ///< passes that have entries of their own, by what they find in caches
    bool searches_caches = false;         ///< bytes may have two prices, near_bytes and far_factor
    double head_tile = 1;
};

struct RoleFits {
    sim::KernelTable kernels;
    std::vector<TableFit> tables;
    std::vector<std::string> notes;
};

/// Adds the entries of one kind and format. A role is fitted alone where the kind's fit misses it by more than kRolePooling
/// times what its own does. Too few rows: a note says so.
void fit_roles(const RoleFitting& how, const std::vector<RoleRow>& rows, RoleFits& out);

}  // namespace draftboard::calibration
