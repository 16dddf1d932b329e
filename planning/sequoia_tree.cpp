// SPDX-License-Identifier: Apache-2.0
#include "planning/sequoia_tree.h"

#include <algorithm>
#include <cmath>

namespace draftboard::planning {

namespace {

/// Tables of F and G with the choices that gave them.
class Programme {
 public:
    Programme(const model::Acceptance& acceptance, int depth, int children, int most, double decay)
        : depth_(depth),
          children_(children),
          most_(most),
          decay_(decay),
          rates_(acceptance.conditional(depth)),
          hit_(acceptance.hit) {
        const std::size_t size = static_cast<std::size_t>(most + 1);
        value_.assign(static_cast<std::size_t>(depth + 1), std::vector<double>(size, 0.0));
        for (int d = depth; d >= 0; --d) fill(d);
    }

    [[nodiscard]] TreeShape shape(int tokens) const {
        TreeShape tree;
        tree.length = value_[0][static_cast<std::size_t>(tokens)];
        tree.by_depth.assign(static_cast<std::size_t>(depth_), 0);
        grow(tree, tokens, 0, -1);
        tree.tokens = static_cast<int>(tree.parents.size()) + 1;
        while (!tree.by_depth.empty() && tree.by_depth.back() == 0) tree.by_depth.pop_back();
        tree.depth = static_cast<int>(tree.by_depth.size());
        return tree;
    }

 private:
    /// Of the j-th child at depth d; the first step also has to fire (n-gram).
    [[nodiscard]] double probability(int d, int j) const {
        const double a = rates_[static_cast<std::size_t>(d - 1)];
        return a * std::pow((1 - a) * decay_, j - 1) * (d == 1 ? hit_ : 1.0);
    }

    /// F of every size at depth d; needs depth d + 1.
    void fill(int d) {
        const std::size_t size = static_cast<std::size_t>(most_ + 1);
        std::vector<double>& value = value_[static_cast<std::size_t>(d)];
        if (d == depth_) {  // a leaf, however many nodes there are to give
            for (int n = 1; n <= most_; ++n) value[static_cast<std::size_t>(n)] = 1;
            splits_.emplace_back();
            return;
        }
        const std::vector<double>& below = value_[static_cast<std::size_t>(d + 1)];
        // best[j][m]: children j.. with m nodes; split[j][m]: nodes of child j.
        std::vector<std::vector<double>> best(static_cast<std::size_t>(children_ + 2), std::vector<double>(size, 0.0));
        std::vector<std::vector<int>> split(static_cast<std::size_t>(children_ + 2), std::vector<int>(size, 0));
        for (int j = children_; j >= 1; --j) {
            const double p = probability(d + 1, j);
            for (int m = 1; m <= most_; ++m) {
                for (int i = 1; i <= m; ++i) {
                    const double gain = p * below[static_cast<std::size_t>(i)] +
                                        best[static_cast<std::size_t>(j + 1)][static_cast<std::size_t>(m - i)];
                    if (gain <= best[static_cast<std::size_t>(j)][static_cast<std::size_t>(m)] + 1e-15) continue;
                    best[static_cast<std::size_t>(j)][static_cast<std::size_t>(m)] = gain;
                    split[static_cast<std::size_t>(j)][static_cast<std::size_t>(m)] = i;
                }
            }
        }
        for (int n = 1; n <= most_; ++n) value[static_cast<std::size_t>(n)] = 1 + best[1][static_cast<std::size_t>(n - 1)];
        splits_.push_back(std::move(split));
    }

    /// Adds the children of a node at depth d whose subtree has `tokens` nodes.
    void grow(TreeShape& tree, int tokens, int d, int parent) const {
        if (d == depth_) return;
        const auto& split = splits_[static_cast<std::size_t>(depth_ - d)];
        int left = tokens - 1;
        for (int j = 1; j <= children_ && left > 0; ++j) {
            const int given = split[static_cast<std::size_t>(j)][static_cast<std::size_t>(left)];
            if (given == 0) break;
            tree.widest = std::max(tree.widest, j);
            tree.parents.push_back(parent);
            ++tree.by_depth[static_cast<std::size_t>(d)];
            grow(tree, given, d + 1, static_cast<int>(tree.parents.size()) - 1);
            left -= given;
        }
    }

    int depth_;
    int children_;
    int most_;
    double decay_;
    std::vector<double> rates_;
    double hit_;
    std::vector<std::vector<double>> value_;             // (depth, nodes)
    std::vector<std::vector<std::vector<int>>> splits_;  // (max depth - depth, child, nodes)
};

}  // namespace

std::vector<TreeShape> best_trees(const model::Acceptance& acceptance, int depth, int children, int most_tokens,
                                  double sibling_decay) {
    depth = std::clamp(depth, 0, 64);
    children = std::clamp(children, 1, 64);
    most_tokens = std::clamp(most_tokens, 1, kMaxTreeTokens);
    const Programme programme(acceptance, depth, children, most_tokens, std::clamp(sibling_decay, 0.0, 1.0));
    std::vector<TreeShape> trees;
    for (int n = 1; n <= most_tokens; ++n) trees.push_back(programme.shape(n));
    return trees;
}

}  // namespace draftboard::planning
