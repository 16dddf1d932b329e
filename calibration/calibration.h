// SPDX-License-Identifier: Apache-2.0
#pragma once
// A calibration: what was measured on one kind of GPU, as the constants of sim/kernel_cost.h, each with how
// well it fits and where it comes from. This file reads and writes it; kernel_fit.h makes it.
//
// {"format": "draftboard.calibration", "version": 1, "name": ..., "description": ...,
//  "gpu": {"name", "compute_capability", "memory_bytes", "memory_gb_s", "l2_bytes", "multiprocessors",
//          "bf16_tflops", "fp8_tflops", "fp4_tflops", "source"},
//  "provenance": ["where the measurements come from", ...],
//  "kernels": {"experts/int4_g32/marlin": {"floor_us", "fixed_us", "per_item_us", "serial_us", "serial_limit",
//              "bandwidth_gb_s", "warm_bandwidth_gb_s", "rate_tflops", "residuals": [[log2_m, factor], ...],
//              "relative_error", "m_low", "m_high", "points", "coverage", "source",
//              "fit": [{"table", "rows", "cold", "warm", ...}]}}}
// Keys that this version does not know are kept and written back.

#include <string>
#include <vector>

#include "calibration/kernel_fit.h"
#include "model/json_reader.h"
#include "model/machine.h"
#include "sim/kernel_cost.h"

namespace draftboard::calibration {

struct Calibration {
    std::string name;
    std::string description;
    model::GpuSpec gpu;
    sim::KernelTable kernels;
    std::vector<TableFit> fits;  ///< by key of the entry; empty for entries that were not fitted here
    std::vector<std::string> provenance;
    model::Json unknown = model::Json::object();  ///< unknown top-level keys, kept

    [[nodiscard]] std::vector<model::Problem> validate() const;
};

[[nodiscard]] model::Expected<Calibration> parse_calibration(std::string_view text, const std::string& name);
[[nodiscard]] model::Expected<Calibration> load_calibration(const std::string& path);
[[nodiscard]] model::Json to_json(const Calibration& calibration);
/// Two-space indented, with a final newline; the same calibration gives the same bytes.
[[nodiscard]] std::string to_text(const Calibration& calibration);

/// By path (as given, or relative to `relative_to`) or by the name of a shipped one in data_directory/calibrations.
[[nodiscard]] model::Expected<Calibration> find_calibration(const std::string& name_or_path,
                                                            const std::string& data_directory,
                                                            const std::string& relative_to = {});

struct ImportOptions {
    std::vector<std::string> files;  ///< CSV tables, see kernel_measurements.h; may be empty with scale_from
    std::string gpu;                 ///< a name gpu_datasheet() knows
    std::string name;                ///< of the calibration; empty: the GPU's
    std::string source;              ///< who measured, and under which terms; leads the provenance
    /// A calibration of another GPU: what `files` don't measure is moved from it by datasheet ratios.
    const Calibration* scale_from = nullptr;
};
struct ImportResult {
    Calibration calibration;
    FitReport report;
};
/// `draftboard calibrate import`: reads, fits, and wraps the result with its provenance.
[[nodiscard]] model::Expected<ImportResult> import_calibration(const ImportOptions& options);

}  // namespace draftboard::calibration
