// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reads NCCL's topology XML: dumps (NCCL_TOPO_DUMP_FILE) and the skeletons that clouds ship
// (NCCL_TOPO_FILE), and RCCL's dialect of it. Not NCCL's graph dump (rings and trees).
//
//   <system> <cpu numaid> <pci busid class link_speed link_width> ... <gpu dev sm> <nvlink target count>
//
// A cpu is a NUMA node, a pci of class 0x0604 one switch, anything else a device. The XML does not name
// host bridges: each device directly below a cpu gets its own (NODE apart, where NCCL says PHB and
// nvidia-smi PHB or NODE).
// - Without any <gpu>, devices of class 0x03 (or 0x12 of AMD) count as GPUs; without classes: refused.
// - NVSwitches become one fabric; links to one are added up. xGMI (RCCL) is read as NVLink with RCCL's
//   figure a link; the GPU is then named AMD and stays without specification.
// - AMD CPU families: NCCL wrote base + (extended << 4), later base + extended. Both come out as the
//   latter: 143 -> 23 (Zen 1, 2), 175 -> 25 (Zen 3, 4), 191 -> 26 (Zen 5).
// - link_speed "" or unknown, or no such attribute: the options' generation; link_width 0: 16.

#include <string>

#include "model/error.h"
#include "model/import/device_tree.h"

namespace draftboard::model {

[[nodiscard]] Expected<DeviceTree> read_nccl_xml(const std::string& text, const std::string& name);

/// "16 GT/s", "16.0 GT/s PCIe" -> 4; 0 if it names no PCIe generation.
[[nodiscard]] int generation_from_speed(const std::string& speed);

/// The CPU family as CPUID defines it, from either of NCCL's notations.
[[nodiscard]] int normalized_family(const std::string& vendor, int family);

}  // namespace draftboard::model
