// SPDX-License-Identifier: Apache-2.0
#pragma once
// The cycle as a waterfall: one bar a term, each beginning where the one before ends, grouped by pass; beside each the
// baseline's. The break-even budget, acceptance length x plain step, is what a cycle may take at most to pay. Geometry only:
// milliseconds.

#include <string>
#include <vector>

#include "sim/prediction.h"

namespace draftboard::gui {

struct WaterfallBar {
    std::string name;  ///< "collectives.wait"
    std::string pass;  ///< "verify"; "host"
    double from_ms = 0;
    double to_ms = 0;
    double sigma_ms = 0;
    double share = 0;
    double baseline_ms = 0;  ///< of the same term; 0: none
    sim::TermKind kind = sim::TermKind::other;
    bool host = false;
    sim::Coverage coverage = sim::Coverage::datasheet;
};

struct Waterfall {
    std::vector<WaterfallBar> bars;  ///< passes in cycle order, largest term first within a pass
    double cycle_ms = 0;
    double budget_ms = 0;    ///< acceptance length x plain step; 0: nothing is drafted
    double baseline_ms = 0;  ///< the baseline's cycle; 0: none
};
[[nodiscard]] Waterfall build_waterfall(const sim::Prediction& prediction, const sim::Prediction* baseline);

}  // namespace draftboard::gui
