// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which part of a timeline is seen, and where it lies in pixels: zoom, pan, what is under a point, and what to draw. Slices
// narrower than a pixel are merged into one mark of the kind that fills most of it, so drawing costs pixels and not slices.
// No widget; timeline_widget.h draws it.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "gui/core/timeline.h"

namespace draftboard::gui {

/// One rectangle to draw.
struct Mark {
    std::size_t row = 0;
    double left = 0;
    double right = 0;
    SliceKind kind = SliceKind::kernel;
    sim::TermKind term = sim::TermKind::other;
    bool critical = false;
    std::ptrdiff_t slice = -1;  ///< index in the row; -1: several merged
};

struct Tick {
    double x = 0;
    std::string label;
};

class TimelineView {
 public:
    void set_extent(sim::Time total, double width);
    [[nodiscard]] double x_of(sim::Time time) const;
    [[nodiscard]] sim::Time time_at(double x) const;
    /// Keeps the time under x where it is. factor > 1: closer.
    void zoom(double factor, double x);
    void pan(double pixels);
    void show(sim::Time from, sim::Time to);
    void reset() { show(0, total_); }
    [[nodiscard]] sim::Time from() const { return from_; }
    [[nodiscard]] sim::Time to() const { return to_; }
    [[nodiscard]] double width() const { return width_; }

    [[nodiscard]] std::vector<Mark> marks(const Timeline& timeline) const;
    /// Round times, some 80 pixels apart.
    [[nodiscard]] std::vector<Tick> ticks() const;
    /// The slice of `row` under x, the nearest within two pixels.
    [[nodiscard]] std::optional<std::size_t> slice_at(const TimelineRow& row, double x) const;

 private:
    sim::Time total_ = 1;
    sim::Time from_ = 0;
    sim::Time to_ = 1;
    double width_ = 1;
};

struct SliceRef {
    std::size_t row = 0;
    std::size_t slice = 0;
    bool operator==(const SliceRef&) const = default;
};
/// Slices whose key holds `text` (letters of either case), in time order of their row.
[[nodiscard]] std::vector<SliceRef> find_slices(const Timeline& timeline, const std::string& text);

}  // namespace draftboard::gui
