// SPDX-License-Identifier: Apache-2.0
#pragma once
// The draft tree of one sequence while it grows (EAGLE-2's dynamic tree, as SGLang runs it): every step expands the top_k
// frontier nodes with top_k children each, and of all nodes the likeliest draft_tokens - 1 are verified. It sees
// probabilities, not models; model_drafter.h feeds it. model::build_draft_tree() is the expected shape of the same tree.
//
//   score(node) = product of the drafter's probabilities along its path, q = softmax(logits) at temperature 1
//   step 1: the root's top_k tokens. step i: of the top_k^2 children the top_k best scores are the next frontier
//   kept: the draft_tokens - 1 best of all top_k + (steps - 1) top_k^2 nodes, older ones first among equals
//
// A child scores at most its parent and is younger, so what is kept is a tree, and parents come before their children.

#include <cstdint>
#include <span>
#include <vector>

#include "backend/drafter.h"

namespace draftboard::backend {

class DraftBeam {
   public:
    /// Most nodes there can be: top_k + (steps - 1) top_k^2.
    [[nodiscard]] static std::int64_t node_count(int steps, int top_k) {
        return top_k + std::int64_t{steps - 1} * top_k * top_k;
    }

    void start(int top_k);
    /// Row `i` of logits belongs to frontier node i (at first to the root: one row). Precondition: top_k <= vocabulary.
    /// False: logits that are NaN or infinite.
    [[nodiscard]] bool grow(std::span<const float> logits, int vocabulary);

    struct Node {
        int token = 0;        ///< of the drafter's vocabulary
        int parent = -1;      ///< node, -1: the root
        double score = 0;
    };
    [[nodiscard]] const std::vector<Node>& nodes() const { return nodes_; }
    [[nodiscard]] const std::vector<int>& frontier() const { return frontier_; }  ///< nodes, best first
    /// For each frontier node which node of the frontier before it comes from; for the first frontier all 0 (the root).
    [[nodiscard]] const std::vector<int>& origins() const { return origins_; }

    /// The `count` best nodes, parents first. Indices into nodes().
    [[nodiscard]] std::vector<int> best(int count) const;

   private:
    int top_k_ = 1;
    std::vector<Node> nodes_;
    std::vector<int> frontier_;
    std::vector<int> origins_;
    std::vector<int> order_;  ///< scratch
};

}  // namespace draftboard::backend
