// SPDX-License-Identifier: Apache-2.0
#pragma once
// Changes to a box, each a whole new machine that is checked before anyone sees it: other PCIe links, a GPU moved to another
// port or switch, a switch put in front of GPUs. Figures of changed links are scaled from the measured ones where there are
// any, else taken from link_defaults.h, and their source says so. The result goes into a variant as an inline machine.

#include <string>
#include <vector>

#include "gui/core/variant.h"
#include "model/machine.h"

namespace draftboard::gui {

struct PcieLinks {
    int generation = 0;  ///< of the links that end at GPUs, the commonest; 0: a box without PCIe links to GPUs
    int width = 0;
};
[[nodiscard]] PcieLinks pcie_of(const model::Machine& machine);

/// All PCIe links at this generation, those that end at GPUs with this width. Capacities scale with 2^generation x width.
[[nodiscard]] model::Expected<model::Machine> with_pcie(model::Machine machine, const PcieLinks& links);
/// One link of another generation and width.
[[nodiscard]] model::Expected<model::Machine> with_link(model::Machine machine, int link, int generation, int width);
/// A GPU hung below another root port, switch or NUMA node; the link keeps its generation and width.
[[nodiscard]] model::Expected<model::Machine> with_moved_gpu(model::Machine machine, int gpu, int parent);
/// A PCIe switch below `parent`, with GPU nodes `gpus` moved below it.
[[nodiscard]] model::Expected<model::Machine> with_switch(model::Machine machine, int parent, const std::vector<int>& gpus);

/// The machine as the edit of a scenario.
[[nodiscard]] Edit machine_edit(const model::Machine& machine);

}  // namespace draftboard::gui
