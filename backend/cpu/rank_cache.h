// SPDX-License-Identifier: Apache-2.0
#pragma once
// What one rank remembers of its sequences: keys and values (or MLA's latents) by slot, and the delta nets' states. Slots are
// committed tokens first, then uncommitted rows (language_model.h); every uncommitted row of a delta net has its own
// snapshot, so that any of them can become the state.
//
// Floats throughout: 4 bytes a cached number. A layer of GQA holds 2 kv_heads dim numbers a slot, MLA latent + rope, a delta net
// (1 + snapshots) x (state + window) a sequence.

#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/delta_net.h"
#include "model/architecture.h"
#include "model/layout.h"

namespace draftboard::backend::cpu {

/// A delta net's recurrent state and convolution window.
struct RecurrentState {
    std::vector<float> state;
    std::vector<float> window;
};

struct LayerCache {
    std::vector<float> keys;    ///< slots x kv_heads dim (GQA), slots x (latent + rope) (MLA)
    std::vector<float> values;  ///< slots x kv_heads dim (GQA)
    std::int64_t slot_width = 0;
    RecurrentState committed;
    std::vector<RecurrentState> snapshots;  ///< by uncommitted row; grows, never shrinks
};

/// Sizes of a delta net on one of `ranks` attention ranks.
[[nodiscard]] DeltaNetSizes delta_net_sizes(const model::DeltaNetShape& shape, int ranks);

class SequenceCache {
   public:
    SequenceCache(const model::Architecture& architecture, const model::Layout& layout, std::int64_t max_length);

    [[nodiscard]] LayerCache& layer(int index) { return layers_[static_cast<std::size_t>(index)]; }
    /// Memory for snapshots of uncommitted rows below `count`.
    void reserve_snapshots(int count);
    /// The uncommitted rows of `path` become the tokens from slot `committed` on; the last one's snapshots the states.
    void commit(std::int64_t committed, std::span<const int> path);
    /// Forgets everything: states are zero again.
    void clear();

   private:
    std::vector<LayerCache> layers_;
    std::vector<DeltaNetSizes> delta_nets_;  // by layer; value_heads 0 where the layer has none
};

}  // namespace draftboard::backend::cpu
