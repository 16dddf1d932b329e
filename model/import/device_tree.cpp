// SPDX-License-Identifier: Apache-2.0
#include "model/import/device_tree.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "model/machine_builder.h"

namespace draftboard::model {
namespace {

bool may_hang_below(NodeKind child, NodeKind parent) {
    switch (child) {
        case NodeKind::root_port: return parent == NodeKind::numa_node;
        case NodeKind::pcie_switch:
        case NodeKind::gpu: return parent == NodeKind::root_port || parent == NodeKind::pcie_switch;
        default: return false;
    }
}

tl::expected<void, Error> check_options(const ImportOptions& options, const std::string& name) {
    const int width = options.pcie_width;
    const bool lanes = width == 1 || width == 2 || width == 4 || width == 8 || width == 16;
    if (options.pcie_generation < 1 || options.pcie_generation > kMaxPcieGeneration || !lanes) {
        return fail(ErrorCode::invalid_input,
                    fmt::format("PCIe Gen{} x{} does not exist", options.pcie_generation, width),
                    name,
                    fmt::format("give a generation of 1 to {} and 1, 2, 4, 8 or 16 lanes",
                                kMaxPcieGeneration));
    }
    return {};
}

tl::expected<void, Error> check_tree(const DeviceTree& tree, const std::string& name) {
    const auto count = static_cast<int>(tree.devices.size());
    std::set<int> numbers;
    int gpus = 0;
    for (int i = 0; i < count; ++i) {
        const Device& device = tree.devices[static_cast<std::size_t>(i)];
        const bool root = device.kind == NodeKind::numa_node || device.kind == NodeKind::nvswitch;
        const bool placed =
            root ? device.parent == -1
                 : device.parent >= 0 && device.parent < i &&
                       may_hang_below(device.kind,
                                      tree.devices[static_cast<std::size_t>(device.parent)].kind);
        if (!placed) {
            return fail(ErrorCode::invalid_input,
                        fmt::format("device {}, a {}, hangs below nothing it can hang below", i,
                                    to_name(device.kind)),
                        name, "give each device after its parent: NUMA node, host bridge, switch, GPU");
        }
        if (device.kind == NodeKind::numa_node &&
            (device.numa < 0 || !numbers.insert(device.numa).second)) {
            return fail(ErrorCode::invalid_input,
                        fmt::format("NUMA node {} is there twice or has no number", device.numa), name,
                        "number the NUMA nodes from 0");
        }
        gpus += device.kind == NodeKind::gpu ? 1 : 0;
    }
    if (gpus == 0) {
        return fail(ErrorCode::invalid_input, "there is no GPU in it", name,
                    "take the topology on a machine whose GPUs are visible");
    }
    if (gpus > kMaxGpus) {
        return fail(ErrorCode::too_large, fmt::format("it has {} GPUs", gpus), name,
                    fmt::format("at most {} are read", kMaxGpus));
    }
    return {};
}

// Walks the tree once; GPUs come after all that carries them, so that they can keep their own order.
class MachineFromTree {
   public:
    MachineFromTree(const DeviceTree& tree, const std::string& name, const ImportOptions& options)
        : tree_(tree), builder_(name), options_(options), node_of_(tree.devices.size(), -1),
          used_(tree.devices.size(), false) {}

    Expected<Machine> build(const std::string& name);

   private:
    void mark_used();
    void add_fabric();
    void add_gpus();
    void add_nvlinks();
    int node_for_parent(const Device& device);
    int generation_of(const Device& device);
    int width_of(const Device& device);
    [[nodiscard]] const Device& device(int index) const {
        return tree_.devices[static_cast<std::size_t>(index)];
    }

    const DeviceTree& tree_;
    MachineBuilder builder_;
    ImportOptions options_;
    std::vector<int> node_of_;  // numa_node, switch, gpu, nvswitch: node; root_port: bridge number
    std::vector<bool> used_;
    int bridges_ = 0;
    int numa_nodes_ = 0;
    int assumed_links_ = 0;
    int fastest_ = 1;
};

void MachineFromTree::mark_used() {
    for (std::size_t i = tree_.devices.size(); i-- > 0;) {
        const Device& item = tree_.devices[i];
        if (item.kind == NodeKind::gpu) {
            used_[i] = true;
        }
        if (used_[i] && item.parent >= 0) {
            used_[static_cast<std::size_t>(item.parent)] = true;
        }
    }
    for (const NvlinkBond& bond : tree_.nvlinks) {
        used_[static_cast<std::size_t>(bond.b)] = true;
    }
    for (std::size_t i = 0; i < tree_.devices.size(); ++i) {
        numa_nodes_ += used_[i] && tree_.devices[i].kind == NodeKind::numa_node ? 1 : 0;
    }
}

// Both figures are the input's or both assumed: a link with only one known is rarer than a wrong one.
int MachineFromTree::generation_of(const Device& item) {
    const int generation = item.generation > 0 ? item.generation : options_.pcie_generation;
    assumed_links_ += item.generation > 0 ? 0 : 1;
    fastest_ = std::max(fastest_, generation);
    return generation;
}

int MachineFromTree::width_of(const Device& item) {
    return item.width > 0 ? item.width : options_.pcie_width;
}

// A device at a host bridge sits in a root port of its own.
int MachineFromTree::node_for_parent(const Device& item) {
    const Device& parent = device(item.parent);
    const int node = node_of_[static_cast<std::size_t>(item.parent)];
    if (parent.kind != NodeKind::root_port) {
        return node;
    }
    return builder_.add_root_port(node_of_[static_cast<std::size_t>(parent.parent)], node);
}

void MachineFromTree::add_fabric() {
    for (std::size_t i = 0; i < tree_.devices.size(); ++i) {
        const Device& item = tree_.devices[i];
        if (!used_[i]) {
            continue;
        }
        switch (item.kind) {
            case NodeKind::numa_node: node_of_[i] = builder_.add_numa(item.numa, item.socket); break;
            case NodeKind::root_port: node_of_[i] = bridges_++; break;
            case NodeKind::pcie_switch: {
                const int parent = node_for_parent(item);
                node_of_[i] = builder_.add_switch(parent, generation_of(item), width_of(item));
                builder_.machine().nodes[static_cast<std::size_t>(node_of_[i])].bus_id = item.bus_id;
                break;
            }
            case NodeKind::nvswitch: node_of_[i] = builder_.add_nvswitch(); break;
            default: break;
        }
    }
}

void MachineFromTree::add_gpus() {
    std::vector<int> order;
    for (std::size_t i = 0; i < tree_.devices.size(); ++i) {
        if (tree_.devices[i].kind == NodeKind::gpu) {
            order.push_back(static_cast<int>(i));
        }
    }
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
        const auto key = [&](int index) { return static_cast<unsigned>(device(index).ordinal); };
        return key(a) < key(b);  // -1 is the largest
    });
    for (const int index : order) {
        const Device& item = device(index);
        const int parent = node_for_parent(item);
        node_of_[static_cast<std::size_t>(index)] =
            builder_.add_gpu(parent, generation_of(item), width_of(item), item.bus_id);
    }
}

void MachineFromTree::add_nvlinks() {
    const std::string& capability = tree_.gpu.compute_capability;
    bool assumed = false;
    for (const NvlinkBond& bond : tree_.nvlinks) {
        LinkFigures figures;
        if (tree_.nvlink_gb_s > 0) {
            const double capacity = tree_.nvlink_gb_s * bond.links;
            figures = {{capacity, capacity}, 300, 0, tree_.nvlink_source};
        } else if (auto known = nvlink_figures(bond.links, capability); known) {
            figures = *known;
        } else {
            // Volta's and Ampere's figure, the smallest of the GPUs with an NVSwitch.
            figures = nvlink_figures(bond.links, "8.0").value_or(LinkFigures{});
            figures.source += ", assumed for an unknown GPU";
            assumed = true;
        }
        builder_.connect(node_of_[static_cast<std::size_t>(bond.a)],
                         node_of_[static_cast<std::size_t>(bond.b)], LinkKind::nvlink, figures, 0,
                         bond.links);
    }
    if (assumed) {
        builder_.machine().notes.push_back(
            "NVLinks carry 20 GB/s each, compute capability 8.0's figure: the GPU is not known");
    }
}

Expected<Machine> MachineFromTree::build(const std::string& name) {
    mark_used();
    if (numa_nodes_ > kMaxNumaNodes) {
        return fail(ErrorCode::too_large, fmt::format("GPUs hang on {} NUMA nodes", numa_nodes_), name,
                    fmt::format("at most {} are read", kMaxNumaNodes));
    }
    Machine& machine = builder_.machine();
    machine.description = tree_.description;
    machine.sources = {tree_.source};
    machine.gpu = tree_.gpu;
    machine.host = tree_.host;
    machine.notes = tree_.notes;
    add_fabric();
    add_gpus();
    add_nvlinks();
    for (const std::pair<int, int>& link : tree_.chip_links) {
        const int a = node_of_[static_cast<std::size_t>(link.first)];
        const int b = node_of_[static_cast<std::size_t>(link.second)];
        if (a >= 0 && b >= 0) {
            builder_.connect(a, b, LinkKind::internal, internal_figures());
        }
    }
    builder_.connect_all_numa(fastest_);
    if (assumed_links_ > 0) {
        machine.notes.push_back(fmt::format("PCIe Gen{} is assumed for {} links (x{} where lanes are unknown)",
                                            options_.pcie_generation, assumed_links_,
                                            options_.pcie_width));
    }
    return builder_.build(name);
}

}  // namespace

int DeviceTree::add(Device device) {
    devices.push_back(std::move(device));
    return static_cast<int>(devices.size()) - 1;
}

Expected<Machine> to_machine(const DeviceTree& tree, const std::string& name,
                             const ImportOptions& options) {
    if (const auto ok = check_options(options, name); !ok) {
        return tl::unexpected<Error>(ok.error());
    }
    if (const auto ok = check_tree(tree, name); !ok) {
        return tl::unexpected<Error>(ok.error());
    }
    const auto count = static_cast<int>(tree.devices.size());
    for (const NvlinkBond& bond : tree.nvlinks) {
        if (bond.a < 0 || bond.a >= count || bond.b < 0 || bond.b >= count || bond.links < 1) {
            return fail(ErrorCode::invalid_input, "an NVLink ends at no device", name,
                        "give NVLinks between devices of the tree");
        }
    }
    for (const std::pair<int, int>& link : tree.chip_links) {
        const int low = std::min(link.first, link.second);
        const int high = std::max(link.first, link.second);
        if (low < 0 || high >= count ||
            tree.devices[static_cast<std::size_t>(low)].kind != NodeKind::pcie_switch ||
            tree.devices[static_cast<std::size_t>(high)].kind != NodeKind::pcie_switch) {
            return fail(ErrorCode::invalid_input, "a link inside a switch chip ends at no switch", name,
                        "give such links between switches of the tree");
        }
    }
    return MachineFromTree(tree, name, options).build(name);
}

PathType tree_path_type(const DeviceTree& tree, int gpu_a, int gpu_b) {
    if (gpu_a == gpu_b) {
        return PathType::self;
    }
    const auto at = [&](int index) -> const Device& {
        return tree.devices[static_cast<std::size_t>(index)];
    };
    // Parents come before children: the later of the two is never an ancestor of the other.
    int a = at(gpu_a).parent;
    int b = at(gpu_b).parent;
    int switches = 0;
    while (a != b && a >= 0 && b >= 0) {
        int& later = a > b ? a : b;
        switches += at(later).kind == NodeKind::pcie_switch ? 1 : 0;
        later = at(later).parent;
    }
    if (a != b || a < 0) {
        return PathType::sys;
    }
    switch (at(a).kind) {
        case NodeKind::pcie_switch: return switches == 0 ? PathType::pix : PathType::pxb;
        case NodeKind::root_port: return PathType::phb;
        default: return PathType::node;
    }
}

std::string quoted(const std::string& text, std::size_t limit) {
    std::string out = text.substr(0, limit);
    for (char& c : out) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 0x20 || byte > 0x7e) {
            c = '?';
        }
    }
    return text.size() > limit ? out + "..." : out;
}

}  // namespace draftboard::model
