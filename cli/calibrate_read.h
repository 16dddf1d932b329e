// SPDX-License-Identifier: Apache-2.0
#pragma once
// `draftboard calibrate read LOG...`: what logs of nccl-tests, nvbandwidth, p2pBandwidthLatencyTest and NCCL's tuning say. What
// is read and how is calibration/logs/read_log.h's.

#include "cli/command.h"

namespace draftboard::cli {

void add_calibrate_read(CLI::App& calibrate, CommandContext& context);

}  // namespace draftboard::cli
