// SPDX-License-Identifier: Apache-2.0
#include "calibration/parity_plot.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

namespace draftboard::calibration {

namespace {

constexpr double kSize = 460;
constexpr double kMargin = 56;

/// 1, 2, 5, 10, 20, ... within the range.
std::vector<double> ticks(double low, double high) {
    std::vector<double> out;
    for (double decade = std::pow(10.0, std::floor(std::log10(low))); decade <= high && out.size() < 40; decade *= 10) {
        for (const double step : {1.0, 2.0, 5.0}) {
            const double value = step * decade;
            if (value >= low && value <= high) out.push_back(value);
        }
    }
    return out;
}

bool usable(const ParityPoint& point) {
    return point.measured > 0 && point.predicted > 0 && std::isfinite(point.measured) && std::isfinite(point.predicted);
}

}  // namespace

std::string html_escaped(std::string_view text) {
    std::string out;
    for (const char c : text) {
        switch (c) {
            case '&': out += "&amp;"; break;
            case '<': out += "&lt;"; break;
            case '>': out += "&gt;"; break;
            case '"': out += "&quot;"; break;
            case '\'': out += "&#39;"; break;
            default: out += c;
        }
    }
    return out;
}

std::string parity_plot(const std::vector<ParityPoint>& points, const std::string& unit, double bound) {
    double low = 0;
    double high = 0;
    for (const ParityPoint& point : points) {
        if (!usable(point)) continue;
        for (const double value : {point.measured, point.predicted}) {
            low = low == 0 ? value : std::min(low, value);
            high = std::max(high, value);
        }
    }
    if (!(low > 0)) return "<p>no points</p>\n";
    low /= 1.25;
    high *= 1.25;
    const double scale = (kSize - 2 * kMargin) / std::log(high / low);
    const auto x = [&](double value) { return kMargin + scale * std::log(std::clamp(value, low, high) / low); };
    const auto y = [&](double value) { return kSize - kMargin - scale * std::log(std::clamp(value, low, high) / low); };
    std::string svg = fmt::format("<svg class=\"plot\" viewBox=\"0 0 {0} {0}\" role=\"img\" aria-label=\"predicted over measured\">\n", kSize);
    const double up = 1 + bound;
    svg += fmt::format("<polygon class=\"band\" points=\"{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}\"/>\n", x(low), y(low),
                       x(low), y(low * up), x(high / up), y(high), x(high), y(high), x(high), y(high / up), x(low * up), y(low));
    for (const double tick : ticks(low, high)) {
        svg += fmt::format("<line class=\"grid\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\"/>"
                           "<line class=\"grid\" x1=\"{1:.1f}\" y1=\"{3:.1f}\" x2=\"{2:.1f}\" y2=\"{3:.1f}\"/>"
                           "<text x=\"{0:.1f}\" y=\"{4:.1f}\" text-anchor=\"middle\">{5:g}</text>"
                           "<text x=\"{6:.1f}\" y=\"{7:.1f}\" text-anchor=\"end\">{5:g}</text>\n",
                           x(tick), kMargin, kSize - kMargin, y(tick), kSize - kMargin + 16, tick, kMargin - 6, y(tick) + 4);
    }
    svg += fmt::format("<line class=\"diagonal\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", x(low), y(low), x(high), y(high));
    for (const ParityPoint& point : points) {
        if (!usable(point)) continue;
        if (point.low > 0 && point.high > point.low) {
            svg += fmt::format("<line class=\"interval\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\"/>", x(point.measured), y(point.low),
                               y(point.high));
        }
        svg += fmt::format("<circle class=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"><title>{}: measured {:.4g}, predicted {:.4g} {}</title></circle>\n",
                           point.held_out ? "unseen" : "seen", x(point.measured), y(point.predicted), html_escaped(point.label), point.measured,
                           point.predicted, html_escaped(unit));
    }
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">measured, {}</text>\n", kSize / 2, kSize - 12, html_escaped(unit));
    svg += fmt::format("<text transform=\"translate(14 {:.1f}) rotate(-90)\" text-anchor=\"middle\">predicted, {}</text>\n</svg>\n", kSize / 2,
                       html_escaped(unit));
    return svg;
}

std::string bar_chart(const std::vector<Bar>& bars, const std::string& unit) {
    double most = 0;
    for (const Bar& bar : bars) most = std::max({most, bar.predicted, bar.measured});
    if (!(most > 0) || !std::isfinite(most)) return "<p>no bars</p>\n";
    constexpr double kRow = 34;
    constexpr double kLabels = 210;
    constexpr double kWidth = 420;
    const double height = kRow * static_cast<double>(bars.size()) + 8;
    std::string svg = fmt::format("<svg class=\"bars\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"terms, predicted and measured\">\n",
                                  kLabels + kWidth + 90, height);
    double top = 4;
    for (const Bar& bar : bars) {
        svg += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", kLabels - 8, top + 18, html_escaped(bar.name));
        const std::array<std::pair<const char*, double>, 2> pair{{{"predicted", bar.predicted}, {"measured", bar.measured}}};
        for (std::size_t i = 0; i < pair.size(); ++i) {
            const double width = kWidth * std::max(0.0, pair[i].second) / most;
            const double at = top + 13.0 * static_cast<double>(i);
            svg += fmt::format("<rect class=\"{0}\" x=\"{1}\" y=\"{2:.1f}\" width=\"{3:.1f}\" height=\"11\"><title>{0} {4:.4g} {5}</title></rect>"
                               "<text class=\"small\" x=\"{6:.1f}\" y=\"{7:.1f}\">{4:.4g}</text>\n",
                               pair[i].first, kLabels, at, width, pair[i].second, html_escaped(unit), kLabels + width + 5, at + 10);
        }
        top += kRow;
    }
    return svg + "</svg>\n";
}

}  // namespace draftboard::calibration
