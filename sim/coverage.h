// SPDX-License-Identifier: Apache-2.0
#pragma once
// What carries a number. Every time the simulator states has a Coverage and a relative uncertainty;
// a sum is covered as badly as its worst considerable part.

#include <string_view>

namespace draftboard::sim {

/// From best to worst.
enum class Coverage { measured, published, interpolated, extrapolated, datasheet };

[[nodiscard]] constexpr std::string_view to_name(Coverage coverage) {
    switch (coverage) {
        case Coverage::measured: return "measured";
        case Coverage::published: return "published";
        case Coverage::interpolated: return "interpolated";
        case Coverage::extrapolated: return "extrapolated";
        case Coverage::datasheet: return "datasheet";
    }
    return "?";
}

[[nodiscard]] constexpr Coverage worse(Coverage a, Coverage b) { return a < b ? b : a; }

}  // namespace draftboard::sim
