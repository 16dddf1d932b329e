// SPDX-License-Identifier: Apache-2.0
#pragma once
// From the labels of `nvidia-smi topo -m` to a tree that has them. Labels are a prior: they do not say
// link generation, GPU model or how host bridges hang together, and what is assumed stands in the
// notes. Reading the text is topo_matrix.h's business.
//
// Each label is an equivalence "at least as near as": groups by NODE are NUMA nodes, inside them groups
// by PHB are host bridges, by PXB switch trees, by PIX switches. A switch tree of several PIX groups is
// one upper switch with one lower switch a group, single GPUs included (else two of them would be PIX).
// NV# hides the PCIe label: such pairs share a NUMA node if their NUMA columns agree and no SYS label
// among their neighbours forbids it.
// Worked example: GPU0-GPU1 PIX, GPU2-GPU3 PIX, else NODE, NUMA 0:
//   numa0 <- port0 <- switch0 <- {GPU0, GPU1}; numa0 <- port1 <- switch1 <- {GPU2, GPU3}.
// A table whose labels are no such nesting is read by the nearer label, each difference a warning.

#include "model/import/device_tree.h"
#include "model/import/topo_matrix.h"

namespace draftboard::model {

/// The most NVLinks any GPU so far has (H100, B200: 18). All pairs NV# with one count c and
/// (n - 1) c > 18 can't be wired pair by pair: that is an NVSwitch.
inline constexpr int kMostNvlinksPerGpu = 18;

[[nodiscard]] Expected<DeviceTree> to_device_tree(const TopoMatrix& matrix,
                                                  const std::string& name);

/// The same view as text, as nvidia-smi prints it (tabs, padded X): for tests and fixtures.
[[nodiscard]] std::string to_text(const TopoMatrix& matrix);

}  // namespace draftboard::model
