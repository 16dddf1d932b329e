// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which slots of the cache the rows of a pass see, in order. Position p of a row is the p-th slot that it sees: committed
// slots first, then its ancestors among the uncommitted rows, then itself. In a chain position and slot are the same
// number; in a tree the uncommitted part is a list. Attention (attention.h) walks positions, so that a row of a tree gives
// the bits that it gives after it was committed, wherever its slot was.

#include <cstddef>
#include <cstdint>

#include "backend/cpu/attention.h"

namespace draftboard::backend::cpu {

/// Keys and values of one kv head, slot after slot.
struct KeyValueStream {
    const float* keys = nullptr;
    const float* values = nullptr;
    std::int64_t stride = 0;
    std::size_t key_width = 0;
    std::size_t value_width = 0;
};

class AttentionSlots {
   public:
    /// Keeps its lists in scratch.slots. Time and memory: the depths of the rows that are not part of a plain chain.
    AttentionSlots(const AttentionRows& rows, Scratch& scratch);

    /// Number of slots that row i of the pass sees: the context, its ancestors and itself.
    [[nodiscard]] std::int64_t visible(int row) const { return context_ + depth_[first_ + row]; }
    /// Uncommitted rows that row i sees, ascending; nullptr where they are 0, 1, 2, ... (a chain).
    [[nodiscard]] const std::int32_t* list(int row) const { return start_[row] < 0 ? nullptr : lists_ + start_[row]; }
    /// The slot at a position of a row with that list.
    [[nodiscard]] std::int64_t slot(const std::int32_t* list, std::int64_t position) const {
        return list == nullptr || position < context_ ? position : context_ + list[position - context_];
    }

   private:
    std::int64_t context_ = 0;
    int first_ = 0;
    const std::int32_t* depth_ = nullptr;
    const std::int32_t* start_ = nullptr;
    const std::int32_t* lists_ = nullptr;
};

}  // namespace draftboard::backend::cpu
