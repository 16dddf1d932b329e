// SPDX-License-Identifier: Apache-2.0
#pragma once
// One entry for everything people already have that describes a machine: `nvidia-smi topo -m`, NCCL's
// topology XML (NCCL_TOPO_DUMP_FILE), hwloc's XML (lstopo). The format is told by the content, never by
// the file name. Draftboard's own machine files are machine_json.h's; this host is hwloc_probe.h's.

#include <string>
#include <vector>

#include "model/error.h"
#include "model/import/device_tree.h"
#include "model/machine.h"

namespace draftboard::model {

struct ImportedMachine {
    Machine machine;
    std::string format;                 ///< "nvidia-smi topo -m", "NCCL topology XML", "hwloc XML"
    std::vector<std::string> warnings;  ///< contradictions and gaps in the input
};

enum class MachineFormat { unknown, topo_matrix, nccl_xml, lstopo_xml };

[[nodiscard]] MachineFormat detect_machine_format(const std::string& text);

/// The machine it describes, validated. `name` names the input in errors; its last path component without
/// extension becomes the machine's name. What it refuses it names, with what to run instead.
[[nodiscard]] Expected<ImportedMachine> import_machine(const std::string& text,
                                                       const std::string& name,
                                                       const ImportOptions& options = {});

}  // namespace draftboard::model
