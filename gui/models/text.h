// SPDX-License-Identifier: Apache-2.0
#pragma once
// Numbers as the command line prints them, in Qt's strings. The digits are those of `draftboard predict`, so what the window
// shows can be held against it character by character.

#include <QString>
#include <string>
#include <string_view>

#include "model/acceptance.h"

namespace draftboard::gui {

[[nodiscard]] inline QString qs(std::string_view text) {
    return QString::fromUtf8(text.data(), static_cast<qsizetype>(text.size()));
}

[[nodiscard]] inline QString fixed(double value, int digits) { return QString::number(value, 'f', digits); }
/// "46.6 .. 76.6"
[[nodiscard]] inline QString range_text(const model::Interval& interval, int digits) {
    return fixed(interval.low, digits) + " .. " + fixed(interval.high, digits);
}
/// "+12.3 %"
[[nodiscard]] inline QString change_text(double value, double reference) {
    if (!(reference > 0)) return {};
    const double share = 100 * (value / reference - 1);
    return (share >= 0 ? "+" : "") + fixed(share, 1) + " %";
}

}  // namespace draftboard::gui
