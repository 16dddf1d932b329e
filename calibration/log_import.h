// SPDX-License-Identifier: Apache-2.0
#pragma once
// `draftboard calibrate import LOG...`: what the owner of a box already has becomes a calibration of it, without our engine.
//
//   nccl-tests (text, JSON)                collectives of the machine: collective_fit.h, all rows together
//   nvbandwidth, p2pBandwidthLatencyTest   links of the machine: link_fit.h, before the collectives are fitted over them
//   Nsight Systems' SQLite export          launch costs of the host and gaps between kernels: medians of what was recorded
//   SGLang, vLLM server logs               host work of a cycle and a factor on kernels: serving_fit.h, last of all
//   NCCL TUNING tables                     what NCCL believes is no measurement: left aside with a note
//
// What no log tells stays as the base calibration has it. The result is a calibration file (imported_terms.h) and, where pairs
// were measured, a machine file. Reading and fitting are here, how it is shown is log_import_report.cpp.

#include <optional>
#include <string>
#include <vector>

#include "calibration/calibration.h"
#include "calibration/collective_fit.h"
#include "calibration/link_fit.h"
#include "calibration/logs/nsight_export.h"
#include "calibration/serving_fit.h"

namespace draftboard::calibration {

struct LogImportOptions {
    std::vector<std::string> logs;
    std::string base;       ///< calibration, path or shipped name; empty: the machine's, else none
    std::string machine;    ///< path or shipped name; empty: the scenario's
    std::string scenario;   ///< what the server of serving logs ran
    model::Edits edits;     ///< of the scenario
    std::string name;       ///< of the result; empty: "<machine>-imported"
    std::string source;     ///< who measured; leads the provenance
    bool leave_out = true;  ///< leave every message size out once
    std::string data_directory;
};

/// A constant of the host as a recording has it.
struct RecordedTerm {
    std::string name;
    double before = 0;
    double value = 0;
    std::int64_t count = 0;
    double p10 = 0;
    double p90 = 0;
    bool determined = false;  ///< kFewRecorded or more, and in range
    std::string file;
};
inline constexpr std::int64_t kFewRecorded = 10;

struct LogImport {
    Calibration calibration;
    std::optional<model::Machine> machine;  ///< with measured links; nothing: no pair was measured
    std::optional<CollectiveFit> collectives;
    std::vector<std::string> undetermined;  ///< constants of the collectives that the rows do not determine
    LinkFit links;
    std::vector<RecordedTerm> recorded;
    std::optional<ServingFit> serving;
    std::vector<std::string> notes;
};

/// Errors: those of the readers, each naming its file; logs that say nothing about what was asked; a machine or scenario that is
/// needed and not named.
[[nodiscard]] model::Expected<LogImport> import_logs(const LogImportOptions& options);

/// Rows of nccl-tests in the fit's terms. Rows of other operations, unknown ranks, wrong results or several hosts are left aside,
/// with notes.
[[nodiscard]] std::vector<CollectiveMeasurement> collective_rows_of(const NamedLinkLog& log, const std::string& system,
                                                                    std::vector<std::string>& notes);

/// Constants whose error is what was assumed of them, so that the rows say nothing.
[[nodiscard]] std::vector<std::string> undetermined_constants(const CollectiveFit& fit, const CollectiveFitOptions& options);

[[nodiscard]] std::string to_text(const LogImport& result);
[[nodiscard]] model::Json to_json(const LogImport& result);

}  // namespace draftboard::calibration
