// SPDX-License-Identifier: Apache-2.0
#pragma once
// The machine that the CPU engine runs on, as the rest of Draftboard knows machines: each core is a "GPU" that may hold one
// rank, all of them below their NUMA node and its memory. The links of the graph price nothing here: ranks
// exchange through shared memory (sim/shared_memory_collective.h), and kernels are priced by a calibration.
//
//   core's memory bandwidth and rate = measured ceilings of one core (backend/cpu/ceilings.h)
//   core's memory                    = the machine's over its cores
//   L2                               = one core's
// Not here: the GPUs of this host (model/import/hwloc_probe.h).

#include <string>

#include "model/json_reader.h"
#include "model/machine.h"

namespace draftboard::calibration {

/// What hwloc says of this host's processor.
struct CpuFacts {
    std::string name = "unknown CPU";
    std::string vendor;
    int cores = 1;          ///< that this process may use
    int numa_nodes = 1;
    double l1_bytes = 0;
    double l2_bytes = 0;    ///< of one core
    double l3_bytes = 0;    ///< of all cores that share it
    double memory_bytes = 0;
    std::string instruction_set;  ///< that the engine's kernels chose
    std::string compiler;
};

/// Errors: hwloc does not start.
[[nodiscard]] model::Expected<CpuFacts> probe_cpu();

/// One core's measured limits and those of several at once.
struct CpuCeilings {
    double memory_gb_s = 0;
    double l3_gb_s = 0;
    double gflop_s = 0;
    int cores_together = 1;
    double together_memory_gb_s = 0;
    double together_l3_gb_s = 0;
    double together_gflop_s = 0;
};

[[nodiscard]] model::Expected<model::Machine> cpu_machine(const CpuFacts& facts, const CpuCeilings& ceilings,
                                                          const std::string& name = "this-cpu");

[[nodiscard]] model::Json to_json(const CpuFacts& facts);
[[nodiscard]] model::Json to_json(const CpuCeilings& ceilings);
/// Problems go to the reader.
[[nodiscard]] CpuFacts cpu_facts_from_json(const model::JsonReader& reader);
[[nodiscard]] CpuCeilings cpu_ceilings_from_json(const model::JsonReader& reader);

}  // namespace draftboard::calibration
