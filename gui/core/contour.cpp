// SPDX-License-Identifier: Apache-2.0
#include "gui/core/contour.h"

#include <array>
#include <cmath>

namespace draftboard::gui {

std::vector<ContourPiece> contour(const std::vector<double>& values, std::size_t columns, double level) {
    std::vector<ContourPiece> out;
    if (columns < 2) return out;
    const std::size_t rows = values.size() / columns;
    for (std::size_t row = 0; row + 1 < rows; ++row) {
        for (std::size_t column = 0; column + 1 < columns; ++column) {
            const std::size_t at = row * columns + column;
            // Corners in order around the cell.
            const std::array<double, 4> corner{values[at], values[at + 1], values[at + columns + 1], values[at + columns]};
            bool finite = true;
            for (const double value : corner) finite = finite && std::isfinite(value);
            if (!finite) continue;
            const std::array<double, 4> xs{0, 1, 1, 0};
            const std::array<double, 4> ys{0, 0, 1, 1};
            std::array<std::array<double, 2>, 4> cut{};
            std::array<bool, 4> has{};
            int count = 0;
            for (std::size_t edge = 0; edge < 4; ++edge) {
                const double a = corner[edge] - level;
                const double b = corner[(edge + 1) % 4] - level;
                has[edge] = (a < 0) != (b < 0);
                if (!has[edge]) continue;
                const double share = a / (a - b);
                cut[edge] = {static_cast<double>(column) + xs[edge] + share * (xs[(edge + 1) % 4] - xs[edge]),
                             static_cast<double>(row) + ys[edge] + share * (ys[(edge + 1) % 4] - ys[edge])};
                ++count;
            }
            const auto piece = [&](std::size_t a, std::size_t b) { out.push_back({cut[a][0], cut[a][1], cut[b][0], cut[b][1]}); };
            if (count == 2) {
                std::size_t first = 0;
                while (!has[first]) ++first;
                std::size_t second = first + 1;
                while (!has[second]) ++second;
                piece(first, second);
            } else if (count == 4) {
                const bool middle_below = (corner[0] + corner[1] + corner[2] + corner[3]) / 4 < level;
                const bool joined = middle_below == (corner[0] < level);
                piece(joined ? 0 : 3, joined ? 1 : 0);
                piece(joined ? 2 : 1, joined ? 3 : 2);
            }
        }
    }
    return out;
}

}  // namespace draftboard::gui
