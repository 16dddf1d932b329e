// SPDX-License-Identifier: Apache-2.0
#pragma once
// Predicted over measured as an inline SVG, both axes logarithmic: the diagonal is a perfect prediction, a band beside it is the
// bound. Colours come from the page's CSS variables, so that it is legible in light and dark. Pure: points in, text out.

#include <string>
#include <vector>

namespace draftboard::calibration {

struct ParityPoint {
    double measured = 0;
    double predicted = 0;
    double low = 0;        ///< of the prediction's interval; 0: none
    double high = 0;
    bool held_out = false; ///< drawn filled
    std::string label;     ///< shown by the browser when pointed at
};

/// Points that are not positive and finite are left out. `bound`: relative half-width of the band.
[[nodiscard]] std::string parity_plot(const std::vector<ParityPoint>& points, const std::string& unit, double bound);

struct Bar {
    std::string name;
    double predicted = 0;
    double measured = 0;
};
/// Pairs of bars, predicted above measured, on one linear scale.
[[nodiscard]] std::string bar_chart(const std::vector<Bar>& bars, const std::string& unit);

/// &, <, > and quotes as HTML writes them.
[[nodiscard]] std::string html_escaped(std::string_view text);

}  // namespace draftboard::calibration
