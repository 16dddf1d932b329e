// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/attention_slots.h"

#include <cassert>

namespace draftboard::backend::cpu {

AttentionSlots::AttentionSlots(const AttentionRows& rows, Scratch& scratch) : context_(rows.context), first_(rows.first_row) {
    const int uncommitted = rows.first_row + rows.rows;
    const auto parent_of = [&](int u) { return rows.parents == nullptr ? u - 1 : rows.parents[u]; };

    // A row ends a chain if its parent is the row before it and that one ends a chain; then it sees rows 0 .. u.
    std::int64_t listed = 0;
    std::int32_t* head = scratch.slots.get(static_cast<std::size_t>(uncommitted + rows.rows));
    std::int32_t chain = 0;
    for (int u = 0; u < uncommitted; ++u) {
        const std::int32_t parent = parent_of(u);
        assert(parent >= -1 && parent < u);
        head[u] = parent < 0 ? 1 : head[parent] + 1;
        if (chain == u && parent == u - 1) ++chain;
        if (u >= chain && u >= first_) listed += head[u];
    }
    std::int32_t* depth = scratch.slots.get(static_cast<std::size_t>(uncommitted + rows.rows) + static_cast<std::size_t>(listed));
    std::int32_t* start = depth + uncommitted;
    std::int32_t* lists = start + rows.rows;
    std::int32_t end = 0;
    for (int u = 0; u < uncommitted; ++u) {
        const std::int32_t parent = parent_of(u);
        depth[u] = parent < 0 ? 1 : depth[parent] + 1;
        if (u < first_) continue;
        start[u - first_] = -1;
        if (u < chain) continue;
        start[u - first_] = end;
        end += depth[u];
        std::int32_t at = end;
        for (std::int32_t row = u; row >= 0; row = parent_of(row)) lists[--at] = row;
    }
    depth_ = depth;
    start_ = start;
    lists_ = lists;
}

}  // namespace draftboard::backend::cpu
