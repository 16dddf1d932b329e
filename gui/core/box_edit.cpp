// SPDX-License-Identifier: Apache-2.0
#include "gui/core/box_edit.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "model/fabric_tree.h"
#include "model/link_defaults.h"
#include "model/machine_json.h"

namespace draftboard::gui {

using model::LinkKind;
using model::Machine;
using model::MachineLink;
using model::NodeKind;

namespace {

const model::MachineNode& node(const Machine& machine, int index) { return machine.nodes[static_cast<std::size_t>(index)]; }

bool ends_at_gpu(const Machine& machine, const MachineLink& link) {
    return node(machine, link.a).kind == NodeKind::gpu || node(machine, link.b).kind == NodeKind::gpu;
}

void scale(MachineLink& link, int generation, int width) {
    const double factor = std::ldexp(static_cast<double>(width) / std::max(link.width, 1), generation - link.generation);
    if (factor == 1) return;
    for (model::LinkCapacity* capacity : {&link.forward, &link.backward}) {
        capacity->write_gb_s *= factor;
        capacity->read_gb_s *= factor;
    }
    link.flow_gb_s *= factor;
    link.source = fmt::format("scaled by {:g} from Gen{} x{}: {}", factor, link.generation, link.width, link.source);
    link.generation = generation;
    link.width = width;
}

model::Expected<Machine> checked(Machine machine) {
    if (!machine.name.ends_with("(edited)")) machine.name += " (edited)";
    if (const auto problems = machine.validate(); !problems.empty())
        return tl::unexpected(model::to_error(problems, "the edited box"));
    return machine;
}

model::Expected<void> check_pcie(int generation, int width) {
    if (generation >= 1 && generation <= model::kMaxPcieGeneration && width >= 1 && width <= 32) return {};
    return model::fail(model::ErrorCode::invalid_input, fmt::format("there is no PCIe Gen{} x{}", generation, width), "link",
                       "generations go from 1 to 6, widths from 1 to 32");
}

/// The link from a node up towards its NUMA node, or -1.
int link_up(const Machine& machine, int index) {
    const auto tree = model::build_fabric_tree(machine);
    return tree.parent_link[static_cast<std::size_t>(index)];
}

model::Expected<void> hang_below(Machine& machine, int child, int parent, int generation, int width) {
    const auto figures = model::pcie_figures(generation, width, node(machine, child).kind, node(machine, parent).kind);
    if (!figures) return check_pcie(0, width);
    MachineLink link;
    link.a = child;
    link.b = parent;
    link.kind = LinkKind::pcie;
    link.generation = generation;
    link.width = width;
    link.forward = link.backward = figures->capacity;
    link.latency_ns = figures->latency_ns;
    link.flow_gb_s = figures->flow_gb_s;
    link.source = "edited here; " + figures->source;
    machine.nodes[static_cast<std::size_t>(child)].numa = node(machine, parent).numa;
    machine.links.push_back(link);
    return {};
}

bool may_hold(const Machine& machine, int parent) {
    if (parent < 0 || parent >= static_cast<int>(machine.nodes.size())) return false;
    const NodeKind kind = node(machine, parent).kind;
    return kind == NodeKind::pcie_switch || kind == NodeKind::root_port;
}

bool is_gpu(const Machine& machine, int index) {
    return index >= 0 && index < static_cast<int>(machine.nodes.size()) && node(machine, index).kind == NodeKind::gpu;
}

model::Expected<void> move_gpu(Machine& machine, int gpu, int parent) {
    const int old = is_gpu(machine, gpu) ? link_up(machine, gpu) : -1;
    if (old < 0)
        return model::fail(model::ErrorCode::invalid_input, "no GPU on the PCIe fabric", "move",
                           "choose a GPU below a port or switch");
    if (!may_hold(machine, parent)) {
        return model::fail(model::ErrorCode::invalid_input, "a GPU can't hang there", "move",
                           "choose a root port or a PCIe switch");
    }
    const MachineLink was = machine.links[static_cast<std::size_t>(old)];
    machine.links.erase(machine.links.begin() + old);
    return hang_below(machine, gpu, parent, was.generation > 0 ? was.generation : 5, was.width > 0 ? was.width : 16);
}

}  // namespace

PcieLinks pcie_of(const Machine& machine) {
    std::map<std::pair<int, int>, int> counts;
    for (const MachineLink& link : machine.links) {
        if (link.kind == LinkKind::pcie && link.generation > 0 && ends_at_gpu(machine, link))
            ++counts[{link.generation, link.width}];
    }
    const auto most =
        std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    return most == counts.end() ? PcieLinks{} : PcieLinks{most->first.first, most->first.second};
}

model::Expected<Machine> with_pcie(Machine machine, const PcieLinks& links) {
    if (auto sound = check_pcie(links.generation, links.width); !sound) return tl::unexpected(sound.error());
    for (MachineLink& link : machine.links) {
        if (link.kind != LinkKind::pcie || link.generation == 0) continue;
        const int width = ends_at_gpu(machine, link) ? links.width : link.width;
        scale(link, links.generation, width);
    }
    return checked(std::move(machine));
}

model::Expected<Machine> with_link(Machine machine, int link, int generation, int width) {
    if (auto sound = check_pcie(generation, width); !sound) return tl::unexpected(sound.error());
    if (link < 0 || link >= static_cast<int>(machine.links.size()) ||
        machine.links[static_cast<std::size_t>(link)].kind != LinkKind::pcie) {
        return model::fail(model::ErrorCode::invalid_input, "only PCIe links have a generation and lanes", "link",
                           "choose a PCIe link");
    }
    MachineLink& changed = machine.links[static_cast<std::size_t>(link)];
    if (changed.generation == 0) changed.generation = generation;
    scale(changed, generation, width);
    return checked(std::move(machine));
}

model::Expected<Machine> with_moved_gpu(Machine machine, int gpu, int parent) {
    if (auto moved = move_gpu(machine, gpu, parent); !moved) return tl::unexpected(moved.error());
    return checked(std::move(machine));
}

model::Expected<Machine> with_switch(Machine machine, int parent, const std::vector<int>& gpus) {
    if (!may_hold(machine, parent)) {
        return model::fail(model::ErrorCode::invalid_input, "a switch can't hang there", "switch",
                           "choose a root port or a PCIe switch");
    }
    int number = 0;
    const auto taken = [&](const std::string& id) {
        return std::any_of(machine.nodes.begin(), machine.nodes.end(),
                           [&](const model::MachineNode& other) { return other.id == id; });
    };
    while (taken("switch" + std::to_string(number))) ++number;
    model::MachineNode added;
    added.id = "switch" + std::to_string(number);
    added.kind = NodeKind::pcie_switch;
    machine.nodes.push_back(added);
    const int index = static_cast<int>(machine.nodes.size()) - 1;
    const PcieLinks usual = pcie_of(machine);
    if (auto hung = hang_below(machine, index, parent, std::max(usual.generation, 1), usual.width > 0 ? usual.width : 16);
        !hung) {
        return tl::unexpected(hung.error());
    }
    for (const int gpu : gpus) {
        if (auto moved = move_gpu(machine, gpu, index); !moved) return tl::unexpected(moved.error());
    }
    return checked(std::move(machine));
}

Edit machine_edit(const Machine& machine) { return {"machine", model::machine_to_json(machine)}; }

}  // namespace draftboard::gui
