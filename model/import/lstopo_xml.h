// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reads the XML that hwloc writes (`lstopo file.xml`, versions 1 to 3): packages, NUMA nodes, host
// bridges, PCI bridges, GPUs, and NVLinks where hwloc was built with NVML. Not lstopo's text or
// pictures, and not hwloc's library: a file from any machine is read the same way. hwloc_probe.h looks
// at this host and goes through here.
//
// PCI bridges come in turns: below a host bridge (bridge_type 0-1) a bridge is a root port, the next a
// switch's upstream port, the next its downstream port, the next another switch's upstream port, ...
// So root and downstream ports vanish, an upstream port is one switch.
//
//   pci_link_speed = line rate in GB/s: x16 of Gen1..6 = 4, 8, 15.75, 31.51, 63.02, 121
// is not unique (15.75 is Gen3 x16 or Gen4 x8); the widest link up to x16 is taken. It is the state when
// lstopo ran, and idle GPUs train down to Gen1: that counts as unknown, with a warning.
// Worked example: 3.938 GB/s -> Gen3 x4.
//
// GPUs are PCI devices of class 03xx of NVIDIA, else of AMD; if some of them carry a cuda, nvml, rsmi
// or opencl device, those only. A topology without GPU is refused.

#include <string>

#include "model/error.h"
#include "model/import/device_tree.h"

namespace draftboard::model {

[[nodiscard]] Expected<DeviceTree> read_lstopo_xml(const std::string& text, const std::string& name);

struct PcieLink {
    int generation = 0;  ///< 0: unknown
    int width = 0;
    bool operator==(const PcieLink&) const = default;
};
/// From hwloc's pci_link_speed in GB/s.
[[nodiscard]] PcieLink link_from_speed(double gb_s);

}  // namespace draftboard::model
