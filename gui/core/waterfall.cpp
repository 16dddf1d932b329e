// SPDX-License-Identifier: Apache-2.0
#include "gui/core/waterfall.h"

#include <algorithm>
#include <map>

namespace draftboard::gui {

namespace {

int order_of(const std::string& pass) {
    const char* const passes[] = {"draft_extend", "draft", "verify", "plain", "host"};
    for (int i = 0; i < 5; ++i) {
        if (pass == passes[i]) return i;
    }
    return 5;
}

sim::TermKind kind_of(const std::string& name) {
    for (int i = 0; i < sim::kTermKinds; ++i) {
        const auto kind = static_cast<sim::TermKind>(i);
        if (name == sim::to_name(kind)) return kind;
    }
    return sim::TermKind::other;
}

}  // namespace

Waterfall build_waterfall(const sim::Prediction& prediction, const sim::Prediction* baseline) {
    Waterfall out;
    std::map<std::string, double> other;
    if (baseline != nullptr) {
        for (const sim::Term& term : baseline->terms) {
            other[term.name] = term.ms;
            out.baseline_ms += term.ms;
        }
    }
    for (const sim::Term& term : prediction.terms) {
        WaterfallBar bar;
        const auto dot = term.name.find('.');
        bar.pass = term.name.substr(0, dot);
        bar.name = dot == std::string::npos ? term.name : term.name.substr(dot + 1);
        bar.host = dot == std::string::npos;
        bar.kind = kind_of(bar.name);
        bar.to_ms = term.ms;
        bar.sigma_ms = term.sigma_ms;
        bar.share = term.share;
        bar.coverage = term.coverage;
        if (const auto at = other.find(term.name); at != other.end()) bar.baseline_ms = at->second;
        out.cycle_ms += term.ms;
        out.bars.push_back(std::move(bar));
    }
    std::stable_sort(out.bars.begin(), out.bars.end(), [](const WaterfallBar& a, const WaterfallBar& b) {
        const int pass_a = order_of(a.pass);
        const int pass_b = order_of(b.pass);
        return pass_a != pass_b ? pass_a < pass_b : a.to_ms > b.to_ms;
    });
    double at = 0;
    for (WaterfallBar& bar : out.bars) {
        bar.from_ms = at;
        at += bar.to_ms;
        bar.to_ms = at;
    }
    if (prediction.verify_ms > 0) out.budget_ms = prediction.acceptance_length.value * prediction.plain_step_ms;
    return out;
}

}  // namespace draftboard::gui
