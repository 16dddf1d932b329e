// SPDX-License-Identifier: Apache-2.0
#pragma once
// A cycle, predicted above measured, as an inline SVG: each operation a block in the order in which it runs, both on one axis of
// time, so that where the two drift apart is where the error is. Colours are the page's CSS variables (timeline_style()), legible
// in light and dark. Pure: blocks in, text out.

#include <string>
#include <vector>

namespace draftboard::calibration {

struct TimelineBlock {
    std::string label;  ///< "verify/L03/moe.experts"
    std::string kind;   ///< "experts", "collectives", ...: the colour; "rest" for what no operation takes
    double us = 0;
};

struct TimelineLane {
    std::string name;  ///< "predicted"
    std::vector<TimelineBlock> blocks;
};

/// Blocks too narrow to be seen are joined with the ones behind them, so that a page of a model with thousands of operations
/// stays small.
[[nodiscard]] std::string timeline_plot(const std::vector<TimelineLane>& lanes, const std::string& unit);
/// Rules for a <style> element: colours of the kinds, for light and dark.
[[nodiscard]] std::string timeline_style();

}  // namespace draftboard::calibration
