// SPDX-License-Identifier: Apache-2.0
#include "gui/core/timeline_view.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include <fmt/format.h>

namespace draftboard::gui {

using sim::Time;

namespace {

constexpr Time kShortest = 1000;  // a nanosecond: nothing is shorter

std::string lower(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
}

}  // namespace

void TimelineView::set_extent(Time total, double width) {
    const bool whole = from_ == 0 && to_ == total_;
    const bool other = total != total_;
    total_ = std::max<Time>(total, 1);
    width_ = std::max(width, 1.0);
    if (whole || (other && from_ >= total_)) {
        from_ = 0;
        to_ = total_;
    } else {
        show(from_, to_);
    }
}

double TimelineView::x_of(Time time) const {
    return static_cast<double>(time - from_) / static_cast<double>(to_ - from_) * width_;
}

Time TimelineView::time_at(double x) const {
    return from_ + static_cast<Time>(std::llround(x / width_ * static_cast<double>(to_ - from_)));
}

void TimelineView::show(Time from, Time to) {
    Time span = std::clamp(to - from, std::min(kShortest, total_), total_);
    from_ = std::clamp<Time>(from, 0, total_ - span);
    to_ = from_ + span;
}

void TimelineView::zoom(double factor, double x) {
    const Time fixed = time_at(x);
    const double span = static_cast<double>(to_ - from_) / factor;
    const double share = x / width_;
    const auto from = static_cast<Time>(std::llround(static_cast<double>(fixed) - share * span));
    show(from, from + static_cast<Time>(std::llround(span)));
}

void TimelineView::pan(double pixels) {
    const auto shift = static_cast<Time>(std::llround(pixels / width_ * static_cast<double>(to_ - from_)));
    show(from_ + shift, to_ + shift);
}

std::vector<Mark> TimelineView::marks(const Timeline& timeline) const {
    std::vector<Mark> out;
    for (std::size_t r = 0; r < timeline.rows.size(); ++r) {
        const auto& slices = timeline.rows[r].slices;
        auto i = static_cast<std::size_t>(
            std::partition_point(slices.begin(), slices.end(), [&](const Slice& slice) { return slice.end <= from_; }) -
            slices.begin());
        while (i < slices.size() && slices[i].start < to_) {
            const Slice& slice = slices[i];
            Mark mark{r,
                      std::max(0.0, x_of(slice.start)),
                      std::min(width_, x_of(slice.end)),
                      slice.kind,
                      slice.term,
                      slice.critical,
                      static_cast<std::ptrdiff_t>(i)};
            if (mark.right - mark.left >= 1) {
                out.push_back(mark);
                ++i;
                continue;
            }
            // A pixel's worth of short slices: the longest of them gives the colour.
            const double pixel = std::floor(mark.left) + 1;
            Time longest = 0;
            std::size_t count = 0;
            for (; i < slices.size() && slices[i].start < to_ && x_of(slices[i].start) < pixel &&
                   x_of(slices[i].end) - x_of(slices[i].start) < 1;
                 ++i) {
                const Slice& part = slices[i];
                if (part.end - part.start > longest) {
                    longest = part.end - part.start;
                    mark.kind = part.kind;
                    mark.term = part.term;
                    mark.slice = static_cast<std::ptrdiff_t>(i);
                }
                mark.critical = mark.critical || part.critical;
                mark.right = std::min(width_, x_of(part.end));
                ++count;
            }
            if (count > 1) mark.slice = -1;
            mark.right = std::max(mark.right, mark.left + 0.5);
            out.push_back(mark);
        }
    }
    return out;
}

std::vector<Tick> TimelineView::ticks() const {
    std::vector<Tick> out;
    const double span_us = sim::to_us(to_ - from_);
    const double wanted = span_us / std::max(1.0, width_ / 80);
    double step = std::pow(10.0, std::floor(std::log10(wanted)));
    for (const double factor : {2.0, 5.0, 10.0}) {
        if (step * 1.0001 >= wanted) break;
        step = std::pow(10.0, std::floor(std::log10(wanted))) * factor;
    }
    const bool ms = span_us > 2000;
    const double first = std::ceil(sim::to_us(from_) / step) * step;
    for (int i = 0; i < 1000; ++i) {
        const double us = first + i * step;
        if (us > sim::to_us(to_) * (1 + 1e-12)) break;
        out.push_back({x_of(sim::from_us(us)), ms ? fmt::format("{:g} ms", std::round(us) / 1000) : fmt::format("{:g} us", us)});
    }
    return out;
}

std::optional<std::size_t> TimelineView::slice_at(const TimelineRow& row, double x) const {
    const Time time = time_at(x);
    const Time reach = time_at(2) - time_at(0);
    std::optional<std::size_t> best;
    Time nearest = reach + 1;
    const auto begin =
        std::partition_point(row.slices.begin(), row.slices.end(), [&](const Slice& slice) { return slice.end < time - reach; });
    for (auto at = begin; at != row.slices.end() && at->start <= time + reach; ++at) {
        const Time distance = time < at->start ? at->start - time : time >= at->end ? time - at->end + 1 : 0;
        if (distance < nearest) {
            nearest = distance;
            best = static_cast<std::size_t>(at - row.slices.begin());
        }
    }
    return best;
}

std::vector<SliceRef> find_slices(const Timeline& timeline, const std::string& text) {
    std::vector<SliceRef> out;
    if (text.empty()) return out;
    const std::string wanted = lower(text);
    // Keys repeat over ranks and passes: each is looked at once.
    std::vector<std::vector<bool>> hits;
    for (const auto& keys : timeline.keys) {
        std::vector<bool> of_pass;
        for (const std::string& key : keys) of_pass.push_back(lower(key).find(wanted) != std::string::npos);
        hits.push_back(std::move(of_pass));
    }
    for (std::size_t r = 0; r < timeline.rows.size(); ++r) {
        for (std::size_t i = 0; i < timeline.rows[r].slices.size(); ++i) {
            const Slice& slice = timeline.rows[r].slices[i];
            const auto source = static_cast<std::size_t>(timeline.passes[static_cast<std::size_t>(slice.pass)].source);
            if (hits[source][static_cast<std::size_t>(slice.operation)]) out.push_back({r, i});
        }
    }
    return out;
}

}  // namespace draftboard::gui
