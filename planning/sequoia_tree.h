// SPDX-License-Identifier: Apache-2.0
#pragma once
// The best draft tree of each size, by the dynamic programme of Sequoia (Chen et al., 2024), with rates that differ by depth. A
// node at depth d that is its parent's j-th choice is accepted, given its parent is, with probability
//
//   p(d, j) = a_d ((1 - a_d) s)^(j - 1)                    a_d conditional rate, s sibling decay (model/acceptance.h)
//   F(n, d) = 1 + max over n_1 + ... + n_k = n - 1 of sum_j p(d + 1, j) F(n_j, d + 1)     mean tokens below and with a node of
//                                                           depth d, subtree of n nodes, at most k children, at most D deep
//   G(m, j, d) = max over i of p(d, j) F(i, d) + G(m - i, j + 1, d)                        children j, j + 1, ... with m nodes
//
// F(n, 0) is the acceptance length of the best tree that verifies n tokens, root included. What n pays is decided by the verify
// pass's cost, which grows with distinct experts: optimum.h. O(D k n^2).
// Worked example: a = (0.6, 0.5), s = 1, n = 3: a chain gives 1 + 0.6 + 0.3 = 1.9, two siblings 1 + 0.6 + 0.24 = 1.84: the chain.

#include <vector>

#include "model/acceptance.h"

namespace draftboard::planning {

inline constexpr int kMaxTreeTokens = 256;

struct TreeShape {
    int tokens = 1;             ///< verified, root included
    int depth = 0;              ///< longest path below the root
    int widest = 0;             ///< most children of a node
    double length = 1;          ///< acceptance length
    std::vector<int> by_depth;  ///< nodes at depth 1, 2, ...
    std::vector<int> parents;   ///< of each node but the root, in depth-first order; -1: the root
};

/// The best tree for each n = 1 .. most_tokens (entry n - 1), at most `depth` deep with at most `children` a node.
[[nodiscard]] std::vector<TreeShape> best_trees(const model::Acceptance& acceptance, int depth, int children, int most_tokens,
                                                double sibling_decay);

}  // namespace draftboard::planning
