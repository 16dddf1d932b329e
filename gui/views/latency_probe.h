// SPDX-License-Identifier: Apache-2.0
#pragma once
// How long an answer takes in the running window: sliders are moved, and the time until the answer stands painted on the screen
// is taken, while the shown view (the timeline, say) is kept up to date as always.

namespace draftboard::gui {

class MainWindow;

/// Prints one line of JSON with median and worst, in milliseconds; returns an exit status.
int measure_latency(MainWindow& window, int changes);

}  // namespace draftboard::gui
