// SPDX-License-Identifier: Apache-2.0
#include "model/import/topo_tree.h"

#include <algorithm>
#include <bitset>
#include <map>
#include <numeric>

#include <fmt/format.h>

namespace draftboard::model {
namespace {

// Disjoint sets with path halving; the smaller index leads, so that groups keep GPU order.
class Groups {
   public:
    explicit Groups(std::size_t count) : parent_(count) {
        std::iota(parent_.begin(), parent_.end(), std::size_t{0});
    }
    std::size_t find(std::size_t item) {
        while (parent_[item] != item) {
            parent_[item] = parent_[parent_[item]];
            item = parent_[item];
        }
        return item;
    }
    void join(std::size_t a, std::size_t b) {
        a = find(a);
        b = find(b);
        parent_[std::max(a, b)] = std::min(a, b);
    }
    // The members of each set within `items`, sets and members in order.
    std::vector<std::vector<std::size_t>> split(const std::vector<std::size_t>& items) {
        std::map<std::size_t, std::vector<std::size_t>> sets;
        for (const std::size_t item : items) {
            sets[find(item)].push_back(item);
        }
        std::vector<std::vector<std::size_t>> result;
        for (auto& entry : sets) {
            result.push_back(std::move(entry.second));
        }
        return result;
    }

   private:
    std::vector<std::size_t> parent_;
};

using GpuSet = std::bitset<static_cast<std::size_t>(kMaxGpus)>;

class TreeBuilder {
   public:
    explicit TreeBuilder(const TopoMatrix& matrix)
        : matrix_(matrix), count_(matrix.gpus.size()), device_of_(count_, -1) {}
    Expected<DeviceTree> build(const std::string& name);

   private:
    Groups nearer_or_equal(PathType type) const;
    Groups numa_groups();
    void add_numa_nodes();
    void add_switches(const std::vector<std::size_t>& members, int port);
    void add_gpu(std::size_t gpu, int parent);
    void add_nvlinks();
    void compare();

    const TopoMatrix& matrix_;
    std::size_t count_;
    std::vector<int> device_of_;
    DeviceTree tree_;
};

Groups TreeBuilder::nearer_or_equal(PathType type) const {
    Groups groups(count_);
    for (std::size_t a = 0; a < count_; ++a) {
        for (std::size_t b = a + 1; b < count_; ++b) {
            const PathType label = matrix_.at(a, b).type;
            if (label >= PathType::pix && label <= type) {
                groups.join(a, b);
            }
        }
    }
    return groups;
}

// NODE groups, widened by NV# pairs that nothing keeps apart.
Groups TreeBuilder::numa_groups() {
    Groups groups = nearer_or_equal(PathType::node);
    std::vector<GpuSet> members(count_);
    std::vector<GpuSet> apart(count_);
    std::vector<int> numa(count_, -1);
    for (std::size_t a = 0; a < count_; ++a) {
        const std::size_t group = groups.find(a);
        members[group].set(a);
        numa[group] = numa[group] < 0 ? matrix_.numa[a] : numa[group];
        for (std::size_t b = 0; b < count_; ++b) {
            apart[group].set(b, apart[group].test(b) || matrix_.at(a, b).type == PathType::sys);
        }
    }
    bool assumed = false;
    // First the pairs whose NUMA numbers agree, then those without a number.
    for (const bool numbered : {true, false}) {
        for (std::size_t a = 0; a < count_; ++a) {
            for (std::size_t b = a + 1; b < count_; ++b) {
                const std::size_t ga = groups.find(a);
                const std::size_t gb = groups.find(b);
                if (ga == gb || matrix_.at(a, b).type != PathType::nvlink ||
                    (apart[ga] & members[gb]).any()) {
                    continue;
                }
                const bool same = numa[ga] >= 0 && numa[ga] == numa[gb];
                const bool open = numa[ga] < 0 || numa[gb] < 0;
                if (numbered ? !same : !open) {
                    continue;
                }
                assumed = assumed || !same;
                groups.join(ga, gb);
                const std::size_t joined = groups.find(ga);
                const std::size_t other = joined == ga ? gb : ga;
                members[joined] |= members[other];
                apart[joined] |= apart[other];
                numa[joined] = numa[joined] < 0 ? numa[other] : numa[joined];
            }
        }
    }
    if (assumed) {
        tree_.notes.push_back(
            "the table hides the PCIe path of NVLink pairs and names no NUMA node for some: such "
            "GPUs are put on one NUMA node");
    }
    return groups;
}

void TreeBuilder::add_gpu(std::size_t gpu, int parent) {
    Device device;
    device.kind = NodeKind::gpu;
    device.parent = parent;
    device.ordinal = static_cast<int>(gpu);
    device_of_[gpu] = tree_.add(device);
}

// The GPUs of one PXB group below a root port.
void TreeBuilder::add_switches(const std::vector<std::size_t>& members, int port) {
    if (members.size() == 1) {
        add_gpu(members[0], port);
        return;
    }
    Device device;
    device.kind = NodeKind::pcie_switch;
    device.parent = port;
    const int upper = tree_.add(device);
    Groups pix = nearer_or_equal(PathType::pix);
    const std::vector<std::vector<std::size_t>> groups = pix.split(members);
    for (const std::vector<std::size_t>& group : groups) {
        int parent = upper;
        if (groups.size() > 1) {
            device.parent = upper;
            parent = tree_.add(device);
        }
        for (const std::size_t gpu : group) {
            add_gpu(gpu, parent);
        }
    }
}

void TreeBuilder::add_numa_nodes() {
    std::vector<std::size_t> all(count_);
    std::iota(all.begin(), all.end(), std::size_t{0});
    Groups numa = numa_groups();
    Groups phb = nearer_or_equal(PathType::phb);
    Groups pxb = nearer_or_equal(PathType::pxb);
    const std::vector<std::vector<std::size_t>> nodes = numa.split(all);
    // Numbers: the column's, once; the rest get the next free ones.
    std::vector<int> numbers(nodes.size(), -1);
    std::map<int, std::size_t> taken;
    int next = 0;
    for (std::size_t n = 0; n < nodes.size(); ++n) {
        for (const std::size_t gpu : nodes[n]) {
            const int said = matrix_.numa[gpu];
            next = std::max(next, said + 1);
            if (said < 0 || said == numbers[n]) {
                continue;
            }
            if (numbers[n] >= 0) {
                tree_.warnings.push_back(fmt::format(
                    "{} is on NUMA node {}, but its label puts it on node {} with {}",
                    matrix_.gpus[gpu], said, numbers[n], matrix_.gpus[nodes[n].front()]));
            } else if (taken.emplace(said, n).second) {
                numbers[n] = said;
            }
        }
    }
    bool unnumbered = false;
    for (std::size_t n = 0; n < nodes.size(); ++n) {
        if (numbers[n] < 0) {
            const int said = matrix_.numa[nodes[n].front()];
            numbers[n] = next++;
            if (said >= 0) {
                tree_.notes.push_back(fmt::format(
                    "{} is SYS away from {} although both name NUMA node {}: it gets a sub-NUMA "
                    "node of its own, numbered {}",
                    matrix_.gpus[nodes[n].front()],
                    matrix_.gpus[nodes[taken.count(said) != 0 ? taken[said] : 0].front()], said,
                    numbers[n]));
            } else {
                unnumbered = true;
            }
        }
        Device device;
        device.kind = NodeKind::numa_node;
        device.numa = numbers[n];
        const int node = tree_.add(device);
        for (const std::vector<std::size_t>& bridge : phb.split(nodes[n])) {
            device = {};
            device.kind = NodeKind::root_port;
            device.parent = node;
            const int port = tree_.add(device);
            for (const std::vector<std::size_t>& group : pxb.split(bridge)) {
                add_switches(group, port);
            }
        }
    }
    if (unnumbered) {
        tree_.notes.push_back("NUMA nodes follow from the SYS labels; the table does not number them");
    }
}

void TreeBuilder::add_nvlinks() {
    Groups islands(count_);
    for (std::size_t a = 0; a < count_; ++a) {
        for (std::size_t b = a + 1; b < count_; ++b) {
            if (matrix_.at(a, b).type == PathType::nvlink) {
                islands.join(a, b);
            }
        }
    }
    std::vector<std::size_t> all(count_);
    std::iota(all.begin(), all.end(), std::size_t{0});
    bool any = false;
    for (const std::vector<std::size_t>& island : islands.split(all)) {
        if (island.size() < 2) {
            continue;
        }
        any = true;
        const int links = matrix_.at(island[0], island[1]).nvlinks;
        bool uniform = true;
        for (const std::size_t a : island) {
            for (const std::size_t b : island) {
                const TopoCell& cell = matrix_.at(a, b);
                uniform = uniform &&
                          (a == b || (cell.type == PathType::nvlink && cell.nvlinks == links));
            }
        }
        const auto peers = static_cast<int>(island.size()) - 1;
        if (uniform && peers > 1 && links * peers > kMostNvlinksPerGpu) {
            Device device;
            device.kind = NodeKind::nvswitch;
            const int nvswitch = tree_.add(device);
            for (const std::size_t gpu : island) {
                tree_.nvlinks.push_back({device_of_[gpu], nvswitch, links});
            }
            tree_.notes.push_back(fmt::format(
                "{} GPUs see each other over NV{}: more than {} links a GPU, so one NVSwitch fabric",
                island.size(), links, kMostNvlinksPerGpu));
            continue;
        }
        for (std::size_t i = 0; i < island.size(); ++i) {
            for (std::size_t k = i + 1; k < island.size(); ++k) {
                const TopoCell& cell = matrix_.at(island[i], island[k]);
                if (cell.type == PathType::nvlink) {
                    tree_.nvlinks.push_back(
                        {device_of_[island[i]], device_of_[island[k]], cell.nvlinks});
                }
            }
        }
    }
    if (any) {
        tree_.notes.push_back(
            "the PCIe path of NVLink pairs is not in the table: separate host bridges, unless other "
            "labels say more");
    }
}

// Labels that do not nest can't all be kept.
void TreeBuilder::compare() {
    std::size_t lost = 0;
    for (std::size_t a = 0; a < count_; ++a) {
        for (std::size_t b = a + 1; b < count_; ++b) {
            const PathType said = matrix_.at(a, b).type;
            if (said == PathType::nvlink) {
                continue;
            }
            const PathType built = tree_path_type(tree_, device_of_[a], device_of_[b]);
            if (built != said && lost++ < 8) {
                tree_.warnings.push_back(fmt::format(
                    "{} and {} are {} by the table, but {} follows from their neighbours' labels",
                    matrix_.gpus[a], matrix_.gpus[b], to_name(said), to_name(built)));
            }
        }
    }
    if (lost > 8) {
        tree_.warnings.push_back(
            fmt::format("{} more labels contradict their neighbours'", lost - 8));
    }
}

Expected<DeviceTree> TreeBuilder::build(const std::string& name) {
    tree_.source = fmt::format("nvidia-smi topo -m: {}", name);
    tree_.description = fmt::format("{} GPUs, read from nvidia-smi topo -m", count_);
    tree_.warnings = matrix_.warnings;
    tree_.notes.push_back("the table does not name the GPU model");
    add_numa_nodes();
    add_nvlinks();
    compare();
    if (!matrix_.nics.empty()) {
        tree_.notes.push_back(
            fmt::format("{} network devices of the table are left out", matrix_.nics.size()));
    }
    return std::move(tree_);
}

}  // namespace

Expected<DeviceTree> to_device_tree(const TopoMatrix& matrix, const std::string& name) {
    const std::size_t count = matrix.gpus.size();
    if (count == 0 || count > static_cast<std::size_t>(kMaxGpus) ||
        matrix.cells.size() != count * count || matrix.numa.size() != count) {
        return fail(ErrorCode::invalid_input, "the matrix is not square over its GPUs", name,
                    fmt::format("give 1 to {} GPUs and a label for each pair", kMaxGpus));
    }
    return TreeBuilder(matrix).build(name);
}

std::string to_text(const TopoMatrix& matrix) {
    std::string text;
    for (const std::string& gpu : matrix.gpus) {
        text += '\t' + gpu;
    }
    text += "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n";
    for (std::size_t a = 0; a < matrix.gpus.size(); ++a) {
        text += matrix.gpus[a];
        for (std::size_t b = 0; b < matrix.gpus.size(); ++b) {
            const TopoCell& cell = matrix.at(a, b);
            if (cell.type == PathType::self) {
                text += "\t X ";
            } else if (cell.type == PathType::nvlink) {
                text += fmt::format("\tNV{}", cell.nvlinks);
            } else {
                text += fmt::format("\t{}", to_name(cell.type));
            }
        }
        const int numa = matrix.numa[a];
        text += fmt::format("\t{}\t{}\t\tN/A\n", matrix.cpus[a].empty() ? "0-7" : matrix.cpus[a],
                            numa < 0 ? std::string("N/A") : std::to_string(numa));
    }
    return text;
}

}  // namespace draftboard::model
