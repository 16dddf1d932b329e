// SPDX-License-Identifier: Apache-2.0
#pragma once
// A box laid out for drawing: sockets at the top, below them root ports, switches and GPUs, as the PCIe forest hangs; what is no
// part of the forest (host memory, NVSwitches) at the edges. Positions are in columns and levels; a leaf has a column to itself
// and a parent stands over the middle of its children, so boxes never overlap. Widgets scale them.

#include <vector>

#include "model/machine.h"

namespace draftboard::gui {

struct BoxNode {
    int node = 0;  ///< index in Machine::nodes
    double column = 0;
    int level = 0;  ///< 0: host memory, 1: NUMA nodes, then down; GPUs all at the same level
};

struct BoxLink {
    int link = 0;  ///< index in Machine::links
    int a = 0;     ///< indices into BoxLayout::nodes
    int b = 0;
};

struct BoxLayout {
    std::vector<BoxNode> nodes;  ///< in the machine's order
    std::vector<BoxLink> links;
    double columns = 1;
    int levels = 1;
};
[[nodiscard]] BoxLayout layout_box(const model::Machine& machine);

}  // namespace draftboard::gui
