// SPDX-License-Identifier: Apache-2.0
#pragma once
// `draftboard calibrate --device cpu` and `draftboard calibrate show FILE`: options, progress on a terminal, the file of what
// is done so far. What is measured and how is calibration/cpu_calibration.h's.

#include "cli/command.h"

namespace draftboard::cli {

/// Adds the options and the subcommand to `calibrate`, which then runs without a subcommand too.
void add_calibrate_cpu(CLI::App& calibrate, CommandContext& context);

}  // namespace draftboard::cli
