// SPDX-License-Identifier: Apache-2.0
#pragma once
// From measured kernel times to the constants of sim/kernel_cost.h. Nothing here reads files
// (kernel_measurements.h) or prints (fit_report.h).
//
// The time of a kernel is, in the unknowns x = (fixed, per_item, serial, 1/bandwidth, 1/warm bandwidth, 1/rate),
//
//   t(x) = x_0 + x_1 items + sqrt( (x_2 length)^2 + (x_3 cold bytes + x_4 warm bytes)^2 + (x_5 flops)^2 )
//
// which is convex and homogeneous of degree one, so t = J(x) x with J its gradient. The fit repeats: J at
// the present x, each row weighted by 1/measured (relative errors) and by Huber's w = min(1, d/|e|),
// d = 1.5 x median |e| + 0.01; then non-negative least squares for the next x, damped by half. Bandwidth and rate
// can't exceed the datasheet's. Worked example: rows of 2, 4, 8 MB in 3, 5, 9 us: fixed 1, 1e6 B/us = 1000 GB/s.
//
// Warm rows. Benchmarks loop, so what fits in L2 is read from there, and a plan's sixty layers never do.
// A row is warm if copies * touched bytes < 0.8 L2, cold if > 1.2 L2 and left out in between; `copies` is how many
// operands the benchmark rotates through, chosen for GEMM tables as what explains them best. Warm rows have a
// bandwidth of their own and share the rest, so that the floor is fitted where it shows and the cold bandwidth
// where it shows. A plan is priced cold.
//
// Errors are leave-out errors: rows are dealt into five parts, each predicted by a fit of the other four.

#include <string>
#include <vector>

#include "calibration/kernel_measurements.h"
#include "model/machine.h"
#include "sim/kernel_cost.h"

namespace draftboard::calibration {

enum class Residence { cold, between, warm };

struct FitRow {
    sim::KernelWork work;
    double resident_bytes = 0;
    double us = 0;
    int table = 0;  ///< index of the table it came from, for error groups
    double samples = 1;  ///< measurements behind it: what corrections by m count as evidence
};

/// Which terms a kind of kernel has, and what is searched over.
struct FitShape {
    bool items = false;
    bool serial = false;
    bool flops = true;
    bool residuals = true;  ///< corrections by m: for kernels whose m is not the number of sequences
    std::vector<int> copies = {1};            ///< candidates
    std::vector<double> serial_limits = {0};  ///< candidates
};

struct KernelFit {
    sim::KernelConstants constants;
    int copies = 1;
    /// Per row: its residence, and predicted / measured - 1 by a fit that didn't see it.
    std::vector<Residence> residence;
    std::vector<double> left_out_error;
};

/// Errors: fewer than kMinFitRows rows, a time that is not positive, non-finite figures.
[[nodiscard]] model::Expected<KernelFit> fit_kernel(const std::vector<FitRow>& rows, const FitShape& shape,
                                                    const model::GpuSpec& gpu, double peak_tflops);

inline constexpr std::size_t kMinFitRows = 12;

struct ErrorSummary {
    int rows = 0;
    double median = 0;  ///< of |predicted/measured - 1|
    double p90 = 0;
    double worst = 0;
    double bias = 0;    ///< median of predicted/measured - 1
};
[[nodiscard]] ErrorSummary summarize(std::vector<double> errors);

struct BucketError {
    double m = 0;
    ErrorSummary errors;
};

/// How one benchmark table is met by the entry that prices it; all errors leave-out.
struct TableFit {
    std::string table;
    sim::KernelKey key;
    bool pooled = false;  ///< the entry was fitted to several engines' tables at once
    int rows = 0;
    int cold = 0;
    int between = 0;
    int warm = 0;
    int copies = 1;
    ErrorSummary all_errors;  ///< cold and warm
    ErrorSummary cold_errors;
    ErrorSummary warm_errors;
    std::vector<BucketError> cold_by_m;
    std::string worst_row;  ///< shape, measured and predicted
};

struct FitReport {
    sim::KernelTable kernels;
    std::vector<TableFit> tables;
    std::vector<std::string> notes;
};

/// Reads the tables, fits every (kind, format, implementation) in them, and says how well. Tables of one
/// implementation from different engines become one entry if that costs none of them more than 15 % of its
/// mean error, else "NAME@ENGINE" each. Small kernels that no table covers (norm, elementwise, ...) take their
/// fixed time from the smallest measured kernel, marked extrapolated. Errors: the readers', and too few rows.
[[nodiscard]] model::Expected<FitReport> fit_kernel_tables(const std::vector<std::string>& csv_paths,
                                                           const model::GpuSpec& gpu,
                                                           const std::vector<std::string>& systems);
/// The same over rows already read.
[[nodiscard]] model::Expected<FitReport> fit_kernel_measurements(const KernelMeasurements& measurements,
                                                                 const model::GpuSpec& gpu);

/// Adds to `kernels` the entries of `from` that it lacks, moved from one GPU to another by the ratio of their
/// datasheet bandwidths and rates; fixed and loop times stay, residuals are dropped. Coverage: datasheet, the error
/// widened by 0.3. Left out: NVFP4 where `to` has no FP4 units. Returns how many were added.
int add_scaled_kernels(sim::KernelTable& kernels, const sim::KernelTable& from,
                       const model::GpuSpec& from_gpu, const model::GpuSpec& to_gpu);

}  // namespace draftboard::calibration
