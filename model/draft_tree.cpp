// SPDX-License-Identifier: Apache-2.0
// Which nodes a draft tree holds and what they are worth; declared in acceptance.h with the formula.
#include <algorithm>
#include <cmath>
#include <queue>

#include "model/acceptance.h"

namespace draftboard::model {

namespace {

struct Candidate {
    DraftTree::Node node;
    double parent_probability = 1;
    std::size_t order = 0;  // insertion order breaks ties, so that equal input gives equal trees
};

struct Unlikelier {
    bool operator()(const Candidate& a, const Candidate& b) const {
        if (a.node.path_probability != b.node.path_probability) {
            return a.node.path_probability < b.node.path_probability;
        }
        return a.order > b.order;
    }
};

}  // namespace

double DraftTree::acceptance_length() const {
    double length = 1;
    for (const Node& node : nodes) length += node.path_probability;
    return length;
}

DraftTree build_draft_tree(const Acceptance& acceptance, int steps, int top_k, int draft_tokens,
                           double sibling_decay) {
    steps = std::clamp(steps, 0, kMaxDraftTokens);
    top_k = std::clamp(top_k, 1, kMaxDraftTokens);
    const auto wanted = static_cast<std::size_t>(std::clamp(draft_tokens, 1, kMaxDraftTokens) - 1);
    const double decay = std::isfinite(sibling_decay) ? std::clamp(sibling_decay, 0.0, 1.0) : 0.0;
    const std::vector<double> rates = acceptance.conditional(steps);

    // Best first: a node enters once its parent or its next-better sibling is taken, and is never likelier
    // than either, so the heap yields all nodes in order of falling path probability.
    std::priority_queue<Candidate, std::vector<Candidate>, Unlikelier> heap;
    std::size_t order = 0;
    const auto offer = [&](int parent, int depth, int rank, double parent_probability) {
        if (depth > steps || rank > top_k) return;
        const double a = rates[static_cast<std::size_t>(depth - 1)];
        const double conditional = a * std::pow((1.0 - a) * decay, rank - 1);
        heap.push({{parent, depth, rank, parent_probability * conditional}, parent_probability, order++});
    };
    DraftTree tree;
    tree.nodes.reserve(wanted);
    std::vector<int> expanded(static_cast<std::size_t>(steps) + 1, 0);
    offer(-1, 1, 1, std::clamp(acceptance.hit, 0.0, 1.0));
    while (tree.nodes.size() < wanted && !heap.empty()) {
        const Candidate best = heap.top();
        heap.pop();
        const auto index = static_cast<int>(tree.nodes.size());
        tree.nodes.push_back(best.node);
        if (auto& used = expanded[static_cast<std::size_t>(best.node.depth)]; used < top_k) {
            ++used;
            offer(index, best.node.depth + 1, 1, best.node.path_probability);
        }
        offer(best.node.parent, best.node.depth, best.node.rank + 1, best.parent_probability);
    }
    return tree;
}

}  // namespace draftboard::model
