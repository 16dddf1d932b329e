// SPDX-License-Identifier: Apache-2.0
#pragma once
// One field of a scenario that a sweep varies, and the values it takes, as a user writes them:
//
//   path=a,b,c           a list; commas inside brackets, braces and quotes belong to the value
//   path=1..8            whole numbers, in steps of 1
//   path=0.4..0.9:0.05   in steps; the end belongs to it if a step reaches it
//   path=1..64:*2        in ratios: 1, 2, 4, ... 64
//   path=0.4..0.9        a range without a step, which only samples can fill
//
// Values are kept as text and become edits of the scenario's document, so every field that --set reaches can be varied. What
// values are combined to rows is grid.h.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/error.h"

namespace draftboard::planning {

inline constexpr std::size_t kMaxAxisValues = 1'000'000;

struct Axis {
    std::string path;
    std::vector<std::string> values;  ///< empty: the continuous range low .. high
    double low = 0;
    double high = 0;

    [[nodiscard]] bool continuous() const { return values.empty(); }
    /// The value at u in [0, 1): each of a list alike, a point of a continuous range.
    [[nodiscard]] std::string at(double u) const;
};

/// At commas that stand outside of brackets, braces and quotes.
[[nodiscard]] std::vector<std::string> split_list(std::string_view text);

[[nodiscard]] model::Expected<Axis> parse_axis(std::string_view text);

}  // namespace draftboard::planning
