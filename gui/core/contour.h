// SPDX-License-Identifier: Apache-2.0
#pragma once
// Lines of equal value on a grid, by marching squares: for each cell, the straight pieces where the linear interpolation along
// its edges reaches the level. A saddle is cut by the mean of its corners. Positions are in grid units: (2.5, 0) lies halfway
// between the third and the fourth column on the first row.

#include <cstddef>
#include <vector>

namespace draftboard::gui {

struct ContourPiece {
    double x0 = 0;
    double y0 = 0;
    double x1 = 0;
    double y1 = 0;
};

/// `values` row by row, `columns` in each; cells with a value that is not finite are left out.
[[nodiscard]] std::vector<ContourPiece> contour(const std::vector<double>& values, std::size_t columns, double level);

}  // namespace draftboard::gui
