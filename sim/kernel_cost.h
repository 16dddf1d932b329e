// SPDX-License-Identifier: Apache-2.0
#pragma once
// What one kernel of the plan takes on one GPU, alone, replayed in a CUDA graph with weights out of
// cache. Launch costs and gaps belong to ranks.h, communication to collective.h.
//
//   t = max( floor, fixed + per_item * items + max( bytes / bandwidth, flops / rate ) ) * residual(m)
//
//   floor, fixed  us       what the smallest call takes; start and end effects
//   per_item      us       experts: per touched expert; attention: per 1024 cached tokens; else 0
//   bytes                  weight + activation + cache bytes of the operation
//   bandwidth     GB/s     achieved, weights cold
//   rate          TFLOP/s  achieved at large m
//   residual(m)            piecewise linear in log2(m), 1 where not given
// Worked example (bf16 gemm, floor 3, fixed 1, 1450 GB/s): 7168 x 2112 weights, m = 1: 30.3 MB, so
// 1 + 30.3e6 / 1450e3 = 21.9 us.
//
// Constants are held by (operation kind, weight format, implementation). Without a calibration they come
// from the GPU's datasheet through datasheet_kernels(), with a wide interval that says so.

#include <map>
#include <string>
#include <vector>

#include "model/machine.h"
#include "model/plan.h"
#include "sim/coverage.h"

namespace draftboard::sim {

struct ResidualPoint {
    double log2_m = 0;
    double factor = 1;
};

struct KernelConstants {
    double floor_us = 0;
    double fixed_us = 0;
    double per_item_us = 0;
    double bandwidth_gb_s = 0;
    double rate_tflops = 0;
    std::vector<ResidualPoint> residuals;  ///< sorted by log2_m; held constant outside
    double relative_error = 0.3;           ///< standard deviation of log(measured / fitted)
    double m_low = 0;                      ///< range of m the fit saw; beyond: extrapolated
    double m_high = 0;
    int points = 0;                        ///< measurements behind the fit, 0: none
    Coverage coverage = Coverage::datasheet;
    std::string source;
};

/// "experts/int4_g32/marlin", "gemm/bf16/any", "attention_mla/bf16/triton", ...: kind or subkind, weight or
/// cache format, implementation.
using KernelKey = std::string;

struct KernelTable {
    std::map<KernelKey, KernelConstants> entries;
    std::string name;    ///< calibration name or "datasheet"
    std::string source;
};

/// Which implementation runs a format, e.g. {"experts/int4_g32": "marlin"}; the scenario's choice.
using ImplementationChoice = std::map<std::string, std::string>;

struct KernelTime {
    double us = 0;
    double relative_uncertainty = 0;
    Coverage coverage = Coverage::datasheet;
    KernelKey key;        ///< the entry that priced it
    std::string formula;  ///< with numbers; only filled by explain()
};

class KernelModel {
   public:
    KernelModel(const model::GpuSpec& gpu, KernelTable table, ImplementationChoice choice);
    /// Precondition: not a collective. Never fails: a missing entry falls back to the datasheet's.
    [[nodiscard]] KernelTime time(const model::Operation& operation) const;
    [[nodiscard]] KernelTime explain(const model::Operation& operation) const;

   private:
    [[nodiscard]] KernelTime price(const model::Operation& operation, bool with_formula) const;
    model::GpuSpec gpu_;
    KernelTable table_;
    KernelTable datasheet_;
    ImplementationChoice choice_;
};

/// Constants from datasheet figures: share of peak bandwidth and rate, floors, each named with its source.
[[nodiscard]] KernelTable datasheet_kernels(const model::GpuSpec& gpu);

/// The table's subkind and format of an operation: {"experts", "int4_g32"}, {"attention_mla", "bf16"}, ...
[[nodiscard]] std::string kernel_subkind(const model::Operation& operation);

}  // namespace draftboard::sim
