// SPDX-License-Identifier: Apache-2.0
#pragma once
// Readers of measured kernel tables (CSV, columns found by name): each row becomes the operation of the
// plan that it measured, and its time. Which table it is, is told from its columns:
//
//   routed experts   system fw kernel dtype hidden inter experts topk tp ep dist tokens latency_us
//   GEMM             kernel dtype m n k latency_us
//   MLA decoding     system fw kernel mla_dtype kv_dtype heads bs isl tp step latency_us
//   gated delta net  kernel phase bs seq tokens d_model kh vh model latency_us   (phase generation)
//
// A row of experts is one rank's part: experts/ep of them, each inter/tp wide. A delta-net operation of the plan is
// convolution and recurrence, two kernels of the table: rows of the two with equal shape are added.
// What is done with the rows: kernel_fit.h.

#include <string>
#include <vector>

#include "model/error.h"
#include "model/plan.h"

namespace draftboard::calibration {

struct KernelMeasurement {
    std::string table;           ///< rows that are one benchmark of one kernel: "FILE engine kernel dtype"
    std::string engine;          ///< "sglang", "vllm", or empty
    std::string implementation;  ///< "marlin", "triton", "cutlass", "torch", "sgl", "fla"
    model::Operation operation;
    double resident_bytes = 0;   ///< what stays in L2 if the benchmark loops over it: touched weights, cache or state
    double us = 0;
    int line = 0;
    std::string shape;           ///< for reports: "7168x256 of 384 top 8, T = 4, power_law_1.2"
};

struct KernelMeasurements {
    std::vector<KernelMeasurement> rows;
    std::vector<std::string> notes;  ///< what was assumed or left out, and how many rows
};

/// Rows whose system is one of `systems` (all where the table has no such column, with a note).
/// Errors: file and line; no row of that system (the error lists those present); unknown columns or formats.
[[nodiscard]] model::Expected<KernelMeasurements> read_kernel_measurements(
    const std::string& path, const std::vector<std::string>& systems);
/// The same from text; `name` stands in errors and as the table's file.
[[nodiscard]] model::Expected<KernelMeasurements> parse_kernel_measurements(
    std::string_view text, const std::string& name, const std::vector<std::string>& systems);

}  // namespace draftboard::calibration
