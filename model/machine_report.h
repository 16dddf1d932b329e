// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a machine looks like to its GPUs, for `draftboard machine show`: labels, and for each
// ordered pair the bandwidth and latency of the way that one transfer has to itself. Concurrent
// transfers share links: how, is sim/'s business, and so are kernels.

#include <string>

#include "model/json_reader.h"
#include "model/machine.h"

namespace draftboard::model {

/// Pairs and tables are listed for machines of up to this many GPUs; larger ones say that they are
/// left out.
inline constexpr int kMaxReportedGpus = 64;

/// Object with name, description, gpu, host, peer, gpus[], topology[][], pairs[], write_collapse[],
/// notes[], sources[]. An entry of `pairs` has source, destination, path, nvlinks, peer; where GPUs
/// reach each other write_gb_s, read_gb_s, latency_ns, kernel_access_factor, remarks[]; else
/// staged_gb_s and latency_ns of the way through host memory. An unsound machine gives an object
/// with `problems` alone.
[[nodiscard]] Json machine_report(const Machine& machine);

/// The same as tables to read.
[[nodiscard]] std::string machine_text(const Machine& machine);

}  // namespace draftboard::model
