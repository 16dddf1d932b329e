// SPDX-License-Identifier: Apache-2.0
#pragma once
// A cycle as a Chrome trace (JSON array format; opens in ui.perfetto.dev): one process a pass sequence,
// one row for each stream of a rank, slices named by operation keys, wait and transport of collectives as slices
// of their own, and counters for the load of links while collectives run. Times are microseconds with
// nanosecond digits, from integer picoseconds.

#include <string>

#include "sim/prediction.h"

namespace draftboard::sim {

/// The passes of the predictor's last predict(), laid end to end as one cycle; plain decoding stands in
/// a process of its own.
[[nodiscard]] std::string chrome_trace(const model::Scenario& scenario, const Predictor& predictor);

}  // namespace draftboard::sim
