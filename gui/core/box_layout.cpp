// SPDX-License-Identifier: Apache-2.0
#include "gui/core/box_layout.h"

#include <algorithm>

#include "model/fabric_tree.h"

namespace draftboard::gui {

using model::NodeKind;

namespace {

class Placer {
 public:
    Placer(const model::Machine& machine, BoxLayout& out)
        : machine_(machine), out_(out), tree_(model::build_fabric_tree(machine)) {
        const std::size_t count = machine.nodes.size();
        children_.resize(count);
        out_.nodes.resize(count);
        for (std::size_t i = 0; i < count; ++i) {
            out_.nodes[i].node = static_cast<int>(i);
            if (tree_.parent[i] >= 0) children_[static_cast<std::size_t>(tree_.parent[i])].push_back(static_cast<int>(i));
        }
    }

    void run() {
        for (std::size_t i = 0; i < machine_.nodes.size(); ++i) {
            if (tree_.parent[i] < 0 && machine_.nodes[i].kind == NodeKind::numa_node) place(static_cast<int>(i), 1);
        }
        for (std::size_t i = 0; i < machine_.nodes.size(); ++i) {
            if (!placed_[i] && tree_.parent[i] < 0 && machine_.nodes[i].kind == NodeKind::gpu) place(static_cast<int>(i), 1);
        }
        int deepest = 1;
        for (const BoxNode& node : out_.nodes) deepest = std::max(deepest, node.level);
        for (std::size_t i = 0; i < machine_.nodes.size(); ++i) {
            if (machine_.nodes[i].kind == NodeKind::gpu) out_.nodes[i].level = deepest;
        }
        out_.columns = std::max(1.0, next_);
        place_edges(deepest);
    }

 private:
    double place(int index, int level) {
        const auto i = static_cast<std::size_t>(index);
        placed_[i] = true;
        out_.nodes[i].level = level;
        if (children_[i].empty()) {
            out_.nodes[i].column = next_ + 0.5;
            next_ += 1;
            return out_.nodes[i].column;
        }
        double first = 0;
        double last = 0;
        for (std::size_t c = 0; c < children_[i].size(); ++c) {
            const double at = place(children_[i][c], level + 1);
            if (c == 0) first = at;
            last = at;
        }
        out_.nodes[i].column = (first + last) / 2;
        if (level == 1) next_ += 0.4;  // air between sockets
        return out_.nodes[i].column;
    }

    void place_edges(int deepest) {
        int edge = 0;
        int total = 0;
        for (std::size_t i = 0; i < machine_.nodes.size(); ++i) total += machine_.nodes[i].kind == NodeKind::nvswitch ? 1 : 0;
        bool below = false;
        for (std::size_t i = 0; i < machine_.nodes.size(); ++i) {
            BoxNode& node = out_.nodes[i];
            if (placed_[i]) continue;
            if (machine_.nodes[i].kind == NodeKind::nvswitch) {
                node.column = out_.columns * (edge + 0.5) / std::max(1, total);
                node.level = deepest + 1;
                ++edge;
                below = true;
                continue;
            }
            node.level = 0;  // memory stands over its NUMA node
            node.column = 0.5;
            for (const model::MachineLink& link : machine_.links) {
                const int other = link.a == node.node ? link.b : link.b == node.node ? link.a : -1;
                if (other >= 0) node.column = out_.nodes[static_cast<std::size_t>(other)].column;
            }
        }
        out_.levels = deepest + (below ? 2 : 1);
    }

    const model::Machine& machine_;
    BoxLayout& out_;
    model::FabricTree tree_;
    std::vector<std::vector<int>> children_;
    std::vector<bool> placed_ = std::vector<bool>(machine_.nodes.size(), false);
    double next_ = 0;
};

}  // namespace

BoxLayout layout_box(const model::Machine& machine) {
    BoxLayout out;
    Placer(machine, out).run();
    for (std::size_t i = 0; i < machine.links.size(); ++i)
        out.links.push_back({static_cast<int>(i), machine.links[i].a, machine.links[i].b});
    return out;
}

}  // namespace draftboard::gui
