// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/rank_cache.h"

#include <algorithm>

#include "model/sharding.h"

namespace draftboard::backend::cpu {

DeltaNetSizes delta_net_sizes(const model::DeltaNetShape& shape, int ranks) {
    return {shape.key_heads / ranks, shape.value_heads / ranks, shape.key_head_dim, shape.value_head_dim, shape.conv_kernel};
}

SequenceCache::SequenceCache(const model::Architecture& architecture, const model::Layout& layout, std::int64_t max_length) {
    const int ranks = model::attention_tensor(layout);
    layers_.resize(architecture.layers.size());
    delta_nets_.resize(architecture.layers.size());
    for (std::size_t i = 0; i < layers_.size(); ++i) {
        LayerCache& cache = layers_[i];
        const model::TokenMixer& mixer = architecture.layers[i].mixer;
        if (const auto* latent = std::get_if<model::MlaShape>(&mixer)) {
            cache.slot_width = latent->kv_lora_rank + latent->qk_rope_head_dim;
            cache.keys.assign(static_cast<std::size_t>(max_length * cache.slot_width), 0.0f);
        } else if (const auto* grouped = std::get_if<model::GqaShape>(&mixer)) {
            cache.slot_width = model::kv_heads_per_rank(grouped->kv_heads, ranks) * grouped->head_dim;
            cache.keys.assign(static_cast<std::size_t>(max_length * cache.slot_width), 0.0f);
            cache.values.assign(cache.keys.size(), 0.0f);
        } else {
            delta_nets_[i] = delta_net_sizes(std::get<model::DeltaNetShape>(mixer), ranks);
            cache.committed.state.assign(static_cast<std::size_t>(delta_nets_[i].state()), 0.0f);
            cache.committed.window.assign(static_cast<std::size_t>(delta_nets_[i].window()), 0.0f);
        }
    }
}

void SequenceCache::reserve_snapshots(int count) {
    for (std::size_t i = 0; i < layers_.size(); ++i) {
        if (delta_nets_[i].value_heads == 0) continue;
        auto& snapshots = layers_[i].snapshots;
        while (snapshots.size() < static_cast<std::size_t>(count)) {
            snapshots.push_back({std::vector<float>(static_cast<std::size_t>(delta_nets_[i].state())),
                                 std::vector<float>(static_cast<std::size_t>(delta_nets_[i].window()))});
        }
    }
}

void SequenceCache::commit(std::int64_t committed, std::span<const int> path) {
    if (path.empty()) return;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
        LayerCache& cache = layers_[i];
        if (delta_nets_[i].value_heads != 0) {
            const RecurrentState& kept = cache.snapshots[static_cast<std::size_t>(path.back())];
            std::ranges::copy(kept.state, cache.committed.state.begin());
            std::ranges::copy(kept.window, cache.committed.window.begin());
            continue;
        }
        // Rows of a path ascend, so a slot is never overwritten before it has been moved.
        for (std::size_t depth = 0; depth < path.size(); ++depth) {
            if (path[depth] == static_cast<int>(depth)) continue;
            const auto move = [&](std::vector<float>& numbers) {
                if (numbers.empty()) return;
                const auto from = numbers.begin() + (committed + path[depth]) * cache.slot_width;
                std::copy(from, from + cache.slot_width,
                          numbers.begin() + (committed + static_cast<std::int64_t>(depth)) * cache.slot_width);
            };
            move(cache.keys);
            move(cache.values);
        }
    }
}

void SequenceCache::clear() {
    for (LayerCache& cache : layers_) {
        std::ranges::fill(cache.committed.state, 0.0f);
        std::ranges::fill(cache.committed.window, 0.0f);
    }
}

}  // namespace draftboard::backend::cpu
