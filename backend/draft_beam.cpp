// SPDX-License-Identifier: Apache-2.0
#include "backend/draft_beam.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace draftboard::backend {

void DraftBeam::start(int top_k) {
    top_k_ = top_k;
    nodes_.clear();
    frontier_.assign(1, -1);
    origins_.clear();
}

bool DraftBeam::grow(std::span<const float> logits, int vocabulary) {
    const auto size = static_cast<std::size_t>(vocabulary);
    const int first = static_cast<int>(nodes_.size());
    std::vector<int> origin_of_child;
    order_.resize(size);
    for (std::size_t f = 0; f < frontier_.size(); ++f) {
        const auto row = logits.subspan(f * size, size);
        const GreedyChoice best = greedy_choice(row);
        if (best.token < 0) return false;
        const double largest = static_cast<double>(row[static_cast<std::size_t>(best.token)]);
        double sum = 0;
        for (const float logit : row) sum += std::exp(static_cast<double>(logit) - largest);

        std::iota(order_.begin(), order_.end(), 0);
        std::partial_sort(order_.begin(), order_.begin() + top_k_, order_.end(), [&](int a, int b) {
            const float la = row[static_cast<std::size_t>(a)];
            const float lb = row[static_cast<std::size_t>(b)];
            return la != lb ? la > lb : a < b;
        });
        const int parent = frontier_[f];
        const double above = parent < 0 ? 1.0 : nodes_[static_cast<std::size_t>(parent)].score;
        for (int j = 0; j < top_k_; ++j) {
            const int token = order_[static_cast<std::size_t>(j)];
            const double q = std::exp(static_cast<double>(row[static_cast<std::size_t>(token)]) - largest) / sum;
            nodes_.push_back({token, parent, above * q});
            origin_of_child.push_back(static_cast<int>(f));
        }
    }
    std::vector<int> children(origin_of_child.size());
    std::iota(children.begin(), children.end(), first);
    std::stable_sort(children.begin(), children.end(), [&](int a, int b) {
        return nodes_[static_cast<std::size_t>(a)].score > nodes_[static_cast<std::size_t>(b)].score;
    });
    children.resize(static_cast<std::size_t>(top_k_));
    frontier_ = children;
    origins_.clear();
    for (const int child : children) origins_.push_back(origin_of_child[static_cast<std::size_t>(child - first)]);
    return true;
}

std::vector<int> DraftBeam::best(int count) const {
    std::vector<int> chosen(nodes_.size());
    std::iota(chosen.begin(), chosen.end(), 0);
    std::stable_sort(chosen.begin(), chosen.end(), [&](int a, int b) {
        return nodes_[static_cast<std::size_t>(a)].score > nodes_[static_cast<std::size_t>(b)].score;
    });
    chosen.resize(std::min(chosen.size(), static_cast<std::size_t>(std::max(count, 0))));
    return chosen;
}

}  // namespace draftboard::backend
