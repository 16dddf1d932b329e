// SPDX-License-Identifier: Apache-2.0
#pragma once
// Machine files: JSON, "format": "draftboard.machine", "version": 1. Written for people: nodes have
// names, links name their ends, figures that are the defaults may be left out. docs/machine.md
// describes every field. What tools print (nvidia-smi, NCCL XML, lstopo) is read in import/, not
// here.
//
//   {"a": "gpu0", "b": "port0", "kind": "pcie", "generation": 5, "width": 16}
//   {"a": "numa0", "b": "numa1", "kind": "inter_socket", "gb_s": 95, "flow_gb_s": 51, "latency_ns":
//   430, "source": 0}
//
//   gb_s       number, or {"write", "read"}, or {"forward": .., "backward": ..} of these; forward
//   is a -> b source     text, or an index into "sources"
// Left out gb_s or latency_ns: link_defaults.h by kind, and `source` says so.

#include <string>

#include "model/json_reader.h"
#include "model/machine.h"

namespace draftboard::model {

inline constexpr int kMachineVersion = 1;

/// Reads and validates; `source` (a file name) leads every error.
[[nodiscard]] Expected<Machine> machine_from_json(const Json& json, const std::string& source);

/// Everything the machine holds, each figure explicit. Reading it back gives the same machine,
/// writing that the same bytes.
[[nodiscard]] Json machine_to_json(const Machine& machine);
/// The same, with the keys of `original` that this version doesn't know: of the file, its gpu, host
/// and peer, its nodes (by id) and links (by ends and kind). For tools that rewrite a file.
[[nodiscard]] Json machine_to_json(const Machine& machine, const Json& original);

/// By path (as given or relative to `relative_to`), or by the name of a shipped machine.
[[nodiscard]] Expected<Machine> find_machine(const std::string& name_or_path,
                                             const std::string& data_directory,
                                             const std::string& relative_to = {});

}  // namespace draftboard::model
