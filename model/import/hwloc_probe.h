// SPDX-License-Identifier: Apache-2.0
#pragma once
// This host, as hwloc sees it: NUMA nodes, the PCI tree, GPUs of NVIDIA (10de) or AMD (1002) among its
// devices, the CPU's vendor and family. It asks no GPU runtime, so it works without a driver and then
// knows neither the GPU's name nor NVLinks. A host without GPU is no failure of the probe: the answer is
// an Error of code `unavailable` that says what is there instead. Files go to import_machine.h.

#include "model/error.h"
#include "model/import/import_machine.h"

namespace draftboard::model {

[[nodiscard]] Expected<ImportedMachine> probe_machine(const ImportOptions& options = {});

}  // namespace draftboard::model
