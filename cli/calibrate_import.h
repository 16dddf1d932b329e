// SPDX-License-Identifier: Apache-2.0
#pragma once
// `draftboard calibrate import LOG...`: logs of other tools, fitted into a calibration file; calibration/log_import.h does it.
// Kernel tables
// (--gpu) are calibrate_command.cpp's.

#include "calibration/log_import.h"
#include "cli/command.h"

namespace draftboard::cli {

struct ImportLogOptions {
    calibration::LogImportOptions import;
    std::string output;
    std::string machine_output;
};

/// --base, --machine, --scenario, --set, --machine-output, --no-leave-out.
void add_import_log_options(CLI::App& command, ImportLogOptions& options);
void import_logs(const ImportLogOptions& options, CommandContext& context);

}  // namespace draftboard::cli
