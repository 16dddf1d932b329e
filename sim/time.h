// SPDX-License-Identifier: Apache-2.0
#pragma once
// Simulated time: an integer count of picoseconds. Doubles lose the order of events; integers do not.
// 2^63 ps is 106 days, far beyond any cycle.

#include <cmath>
#include <cstdint>

namespace draftboard::sim {

using Time = std::int64_t;  ///< picoseconds

inline constexpr Time kPicosecondsPerMicrosecond = 1'000'000;

/// Rounds half away from zero. Precondition: finite, and below 10^12 us.
[[nodiscard]] inline Time from_us(double us) {
    return static_cast<Time>(std::llround(us * static_cast<double>(kPicosecondsPerMicrosecond)));
}
[[nodiscard]] inline double to_us(Time time) {
    return static_cast<double>(time) / static_cast<double>(kPicosecondsPerMicrosecond);
}
[[nodiscard]] inline double to_ms(Time time) { return to_us(time) * 1e-3; }

}  // namespace draftboard::sim
