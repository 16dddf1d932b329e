// SPDX-License-Identifier: Apache-2.0
#pragma once
// One cycle as slices on rows, for drawing: a row for each rank's main stream (and side stream where one is used), a slice for
// each kernel, and for each collective two, its wait and its transport. Plain structs: what runs when comes from the simulated
// passes as it is, the same times as `predict --trace` writes. timeline_view.h maps them to pixels.
//
// The critical path is walked backwards from the slice that ends last: an operation's cause is what its rank did before it,
// except that a collective is caused by the rank that arrived last.

#include <string>
#include <vector>

#include "sim/pass_cost.h"
#include "sim/time.h"

namespace draftboard::gui {

struct Answer;

enum class SliceKind { kernel, transport, wait, contention };

struct Slice {
    sim::Time start = 0;
    sim::Time end = 0;
    SliceKind kind = SliceKind::kernel;
    sim::TermKind term = sim::TermKind::other;
    int pass = 0;       ///< index into Timeline::passes
    int operation = 0;  ///< index into the pass's plan
    bool critical = false;
};

struct TimelineRow {
    std::string name;  ///< "rank 3", "rank 3 side"
    int rank = 0;
    bool side = false;
    std::vector<Slice> slices;  ///< by start; they don't overlap
};

/// One pass of the cycle, or one repetition of it.
struct TimelinePass {
    std::string name;  ///< "draft 2"
    int source = 0;    ///< index into Answer::passes
    sim::Time start = 0;
    sim::Time end = 0;
};

struct LinkUse {
    sim::Time at = 0;
    double bytes_per_s = 0;
};
/// What a link carries over the cycle, each direction; steps, by time.
struct LinkTrack {
    int link = 0;
    bool forward = true;
    std::vector<LinkUse> uses;
    [[nodiscard]] double at(sim::Time time) const;
};

struct Timeline {
    std::vector<TimelinePass> passes;
    std::vector<TimelineRow> rows;
    std::vector<LinkTrack> links;
    sim::Time total = 0;
    /// Keys of operations, [pass source][operation].
    std::vector<std::vector<std::string>> keys;

    [[nodiscard]] const std::string& key(const Slice& slice) const {
        return keys[static_cast<std::size_t>(passes[static_cast<std::size_t>(slice.pass)].source)]
                   [static_cast<std::size_t>(slice.operation)];
    }
};

/// The speculative cycle, or the plain step where nothing is drafted.
[[nodiscard]] Timeline build_timeline(const Answer& answer);

/// Sums over a stretch of time, all rows: for the ruler.
struct StretchSum {
    double kernel_ms = 0;
    double transport_ms = 0;
    double wait_ms = 0;
    double idle_ms = 0;
};
/// Means over ranks of what main streams do between two times.
[[nodiscard]] StretchSum sum_stretch(const Timeline& timeline, sim::Time from, sim::Time to);

}  // namespace draftboard::gui
