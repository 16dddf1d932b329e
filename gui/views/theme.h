// SPDX-License-Identifier: Apache-2.0
#pragma once
// Colours, light and dark. Kinds of time have Okabe-Ito's colours, which colour-blind people tell apart; waiting is hatched
// besides, so it also differs in print. Qt 6.4 has no switch for dark, so the palette of the Fusion style is set here.

#include <QBrush>
#include <QColor>
#include <QPalette>

#include "gui/core/timeline.h"
#include "sim/coverage.h"

class QApplication;
class QCPAxis;
class QCustomPlot;

namespace draftboard::gui {

enum class ThemeChoice { system, light, dark };

struct Theme {
    bool dark = false;
    QColor window, base, raised, border, text, muted, accent, good, bad, warn, grid;

    [[nodiscard]] QColor of(sim::TermKind kind) const;
    [[nodiscard]] QColor of(SliceKind kind, sim::TermKind term) const;
    [[nodiscard]] QColor of(sim::Coverage coverage) const;
    /// The n-th of a set that is told apart.
    [[nodiscard]] QColor series(int n) const;
    /// Hatched on the background for waiting.
    [[nodiscard]] QBrush hatch(const QColor& colour) const;
};

/// The theme in use, told from the application's palette.
[[nodiscard]] const Theme& theme();
void apply_theme(QApplication& application, ThemeChoice choice);
/// Axes, grid and background of a plot in the theme's colours.
void style_plot(QCustomPlot& plot);
/// A logarithmic axis from `low` to `high`, ticks at 1, 2 and 5 times powers of ten (powers alone over more than two decades).
void set_log_axis(QCPAxis& axis, double low, double high);

}  // namespace draftboard::gui
