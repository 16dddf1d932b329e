// SPDX-License-Identifier: Apache-2.0
#include "calibration/timeline_plot.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "calibration/parity_plot.h"

namespace draftboard::calibration {

namespace {

constexpr double kWidth = 900;
constexpr double kLabels = 80;
constexpr double kLane = 34;
constexpr double kGap = 14;
constexpr double kLeast = 0.4;  // of a block's width, in the plot's units

struct Kind {
    const char* name;
    const char* light;
    const char* dark;
};
// Distinct in hue and in lightness, in both schemes; the last is for what no operation takes.
constexpr std::array<Kind, 8> kKinds = {{{"experts", "#2f6fb0", "#6aa9e6"},
                                         {"dense", "#3f8f5a", "#7ccf97"},
                                         {"attention", "#8a5cb5", "#c09be6"},
                                         {"collectives", "#c4572a", "#ee8a5d"},
                                         {"wait", "#e3b09a", "#8a5640"},
                                         {"lm_head", "#a8861d", "#dcbb55"},
                                         {"other_kernels", "#5d7480", "#9db3bf"},
                                         {"rest", "#c9d0d8", "#3d4653"}}};

const char* known(const std::string& kind) {
    const auto found = std::find_if(kKinds.begin(), kKinds.end(), [&](const Kind& one) { return kind == one.name; });
    return found == kKinds.end() ? "other_kernels" : found->name;
}

double total(const TimelineLane& lane) {
    double us = 0;
    for (const TimelineBlock& block : lane.blocks) us += std::max(0.0, block.us);
    return us;
}

/// A round step that gives four to eight marks.
double step_for(double most) {
    const double rough = most / 6;
    const double power = std::pow(10, std::floor(std::log10(rough)));
    for (const double factor : {1.0, 2.0, 5.0}) {
        if (factor * power >= rough) return factor * power;
    }
    return 10 * power;
}

std::string block_svg(const TimelineBlock& block, double x, double width, double top, int joined, const std::string& unit) {
    return fmt::format(
        "<rect class=\"k-{}\" x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\"><title>{}{}: {:.4g} {}</title></rect>\n",
        known(block.kind), x, top, width, kLane, html_escaped(block.label),
        joined > 1 ? fmt::format(" and {} more", joined - 1) : "", block.us, html_escaped(unit));
}

}  // namespace

std::string timeline_style() {
    std::string light;
    std::string dark;
    std::string rules;
    for (const Kind& kind : kKinds) {
        light += fmt::format("--k-{}: {}; ", kind.name, kind.light);
        dark += fmt::format("--k-{}: {}; ", kind.name, kind.dark);
        rules += fmt::format(".k-{0} {{ fill: var(--k-{0}); background: var(--k-{0}); }}\n", kind.name);
    }
    return fmt::format(
        ":root {{ {}}}\n@media (prefers-color-scheme: dark) {{ :root {{ {}}} }}\n{}"
        "svg.timeline {{ max-width: none; }} .key {{ display: flex; flex-wrap: wrap; gap: .3rem 1rem; padding: 0; list-style: "
        "none; }}\n"
        ".key i {{ display: inline-block; width: .8rem; height: .8rem; margin-right: .35rem; vertical-align: -.05rem; }}\n",
        light, dark, rules);
}

std::string timeline_plot(const std::vector<TimelineLane>& lanes, const std::string& unit) {
    double most = 0;
    for (const TimelineLane& lane : lanes) most = std::max(most, total(lane));
    if (!(most > 0) || !std::isfinite(most)) return "<p>no timeline</p>\n";
    const double scale = (kWidth - kLabels - 60) / most;
    const double height = (kLane + kGap) * static_cast<double>(lanes.size()) + 34;
    std::string svg = fmt::format(
        "<svg class=\"timeline\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"the cycle, predicted and measured\">\n", kWidth,
        height);
    const double step = step_for(most);
    for (double tick = 0; tick <= most * 1.0001; tick += step) {
        const double x = kLabels + tick * scale;
        svg += fmt::format(
            "<line class=\"grid\" x1=\"{0:.1f}\" y1=\"4\" x2=\"{0:.1f}\" y2=\"{1:.1f}\"/><text class=\"small\" x=\"{0:.1f}\" "
            "y=\"{2:.1f}\" "
            "text-anchor=\"middle\">{3:g}</text>\n",
            x, height - 26, height - 10, tick);
    }
    svg += fmt::format("<text class=\"small\" x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", kWidth, height - 10,
                       html_escaped(unit));
    double top = 6;
    std::vector<std::string> kinds;
    for (const TimelineLane& lane : lanes) {
        svg += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", kLabels - 8, top + kLane / 2 + 4,
                           html_escaped(lane.name));
        double x = kLabels;
        TimelineBlock open;  // joined so far
        int joined = 0;
        double largest = 0;
        const auto close = [&] {
            if (joined > 0 && open.us > 0) svg += block_svg(open, x, open.us * scale, top, joined, unit);
            x += std::max(0.0, open.us) * scale;
            open = {};
            joined = 0;
            largest = 0;
        };
        for (const TimelineBlock& block : lane.blocks) {
            if (!(block.us > 0)) continue;
            if (std::find(kinds.begin(), kinds.end(), known(block.kind)) == kinds.end()) kinds.emplace_back(known(block.kind));
            if (joined > 0 && (open.us * scale >= kLeast)) close();
            if (block.us > largest) {  // what took longest names the joined block
                largest = block.us;
                open.label = block.label;
                open.kind = block.kind;
            }
            open.us += block.us;
            ++joined;
        }
        close();
        svg += fmt::format("<text class=\"small\" x=\"{:.1f}\" y=\"{:.1f}\">{:.4g}</text>\n", x + 5, top + kLane / 2 + 4,
                           total(lane));
        top += kLane + kGap;
    }
    svg += "</svg>\n<ul class=\"key\">";
    for (const Kind& kind : kKinds) {
        if (std::find(kinds.begin(), kinds.end(), kind.name) == kinds.end()) continue;
        std::string words = kind.name;
        std::replace(words.begin(), words.end(), '_', ' ');
        svg += fmt::format("<li><i class=\"k-{}\"></i>{}</li>", kind.name, words == "rest" ? "launch, waiting, host" : words);
    }
    return svg + "</ul>\n";
}

}  // namespace draftboard::calibration
