// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a calibration of the CPU engine holds beside kernels: host costs and shared-memory collectives, each for a number
// of ranks, and kernels "SUBKIND/FORMAT/cpu@R" as they run while R ranks run at once. Ranks share the last-level
// cache, its bandwidth and the processor's power, so every constant is one of a number of ranks; between two
// measured numbers it is interpolated linearly, beyond them the nearest holds, marked extrapolated.
//
// "SUBKIND@ROLE/FORMAT/cpu.decode@R" and "cpu.draft@R" price the same in plain steps and in a drafter's further steps, which find
// more of their weights and caches near the core than verifying does: they go before "cpu@R" in these passes.
//
// In the calibration file (calibration.h):
//   "host": [{"ranks": 1, "host.cycle_us": ..., "host.run_sigma": ...}, ...]     names of sim/host_constants.h
//   "collectives": [{"ranks": 2, "call_us": ..., "barrier_us": ..., ...}, ...]    sim/shared_memory_collective.h
// Making them is cpu_fit.h's.

#include <array>
#include <map>
#include <string>
#include <vector>

#include "calibration/calibration.h"
#include "sim/prediction.h"

namespace draftboard::calibration {

/// Host constants by name ("host.cycle_us"), of one number of ranks.
struct CpuHostTerms {
    int ranks = 1;
    std::map<std::string, double> values;
};

struct CpuTerms {
    std::vector<CpuHostTerms> host;                        ///< ascending ranks
    std::vector<sim::SharedMemoryConstants> collectives;   ///< ascending ranks
    [[nodiscard]] bool empty() const { return host.empty() && collectives.empty(); }
};

/// The sections, checked; both absent: empty. Errors: unknown names, values out of range, ranks that do not ascend.
[[nodiscard]] model::Expected<CpuTerms> cpu_terms(const Calibration& calibration);
/// Writes the sections into the calibration.
void set_cpu_terms(Calibration& calibration, const CpuTerms& terms);

/// Passes whose kernels have entries of their own.
inline constexpr std::array kOwnCachePasses = {model::Pass::decode, model::Pass::draft};
[[nodiscard]] bool has_own_cache(model::Pass pass);

/// Name of the implementation that was measured with that many ranks: "cpu@2", in passes of kOwnCachePasses "cpu.draft@2".
[[nodiscard]] std::string cpu_implementation(int ranks, model::Pass pass = model::Pass::verify);
/// The kernels of a pass for that many ranks, under "cpu", or "cpu.draft" where the pass has its own; other implementations stay
/// as they are.
[[nodiscard]] sim::KernelTable kernels_for_ranks(const sim::KernelTable& table, int ranks,
                                                 model::Pass pass = model::Pass::verify);

/// What prices a scenario of `ranks` ranks. Terms that are empty change nothing.
[[nodiscard]] model::Expected<void> apply(const CpuTerms& terms, int ranks, sim::CostConstants& constants);

}  // namespace draftboard::calibration
