// SPDX-License-Identifier: Apache-2.0
#pragma once
// The window as it stands, once all it shows has been computed: for documentation and tests.

#include <QString>

namespace draftboard::gui {

class MainWindow;

/// Runs the event loop until nothing is being computed. False: it took longer than `seconds`.
bool settle(MainWindow& window, int seconds = 60);
/// .png: the window; .svg, .pdf: the shown view. `small`: a PNG of the 256 commonest colours, for documentation. Empty: written,
/// else why not.
[[nodiscard]] QString take_screenshot(MainWindow& window, const QString& path, bool small = false);

}  // namespace draftboard::gui
