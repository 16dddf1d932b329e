// SPDX-License-Identifier: Apache-2.0
#include "gui/core/sweep.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

#include <fmt/format.h>

namespace draftboard::gui {

using model::Json;

namespace {

std::vector<Json> numbers_over(const Knob& knob, int points, double low, double high, double present) {
    std::vector<double> values;
    const double ratio = high / low;
    for (int i = 0; i < points; ++i) {
        const double at = points > 1 ? static_cast<double>(i) / (points - 1) : 0;
        double value = knob.logarithmic ? low * std::pow(ratio, at) : low + at * (high - low);
        if (knob.whole()) value = std::round(value);
        values.push_back(value);
    }
    if (present >= low && present <= high) {
        // The present value takes the place of its nearest neighbour, so that the curve goes through it.
        const auto near = std::min_element(values.begin(), values.end(),
                                           [&](double a, double b) { return std::fabs(a - present) < std::fabs(b - present); });
        if (near != values.end()) *near = present;
    }
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    std::vector<Json> out;
    for (const double value : values) {
        if (knob.whole())
            out.emplace_back(static_cast<std::int64_t>(std::llround(value)));
        else
            out.emplace_back(value);
    }
    return out;
}

SweepPoint solve(Answerer& answerer, const Answer& base, const std::vector<SweepAxis>& axes, std::size_t index) {
    SweepPoint point;
    Variant variant = base.variant;
    std::size_t rest = index;
    for (const SweepAxis& axis : axes) {
        const Json& value = axis.values[rest % axis.values.size()];
        rest /= axis.values.size();
        point.values.push_back(value);
        const auto edits = knob_edits(axis.knob, value, base);
        if (!edits) {
            point.error = edits.error().message;
            return point;
        }
        for (const Edit& edit : *edits) variant.set(edit.path, edit.value);
    }
    const auto answer = answerer.quick(variant);
    if (!answer) {
        point.error = answer.error().message;
        return point;
    }
    const sim::Prediction& p = answer->prediction;
    point.tokens_per_second = p.tokens_per_second;
    point.per_user = p.per_user_tokens_per_second;
    point.plain = p.plain_tokens_per_second;
    point.speedup = p.speedup;
    point.acceptance_length = p.acceptance_length.value;
    point.break_even = p.break_even_acceptance_length;
    point.cycle_ms = p.cycle_ms;
    point.fits = p.memory.fits;
    return point;
}

}  // namespace

SweepAxis sweep_axis(const Knob& knob, int points, const Answer& answer) {
    SweepAxis axis{knob, {}};
    if (knob.kind == KnobKind::choice) {
        for (const std::string& choice : knob.choices) axis.values.emplace_back(choice);
        return axis;
    }
    if (knob.kind == KnobKind::toggle) {
        axis.values = {false, true};
        return axis;
    }
    const KnobState state = knob_state(knob, answer);
    const double present = state.value.is_number() ? state.value.get<double>() : knob.low;
    double high = knob.high;
    if (knob.kind == KnobKind::acceptance_length) high = 1.0 + answer.scenario.speculation.steps;
    const bool degree = knob.path == "layout.tensor" || knob.path == "layout.expert" || knob.path == "machine.pcie_width";
    if (degree) {
        for (int value = 1; value <= static_cast<int>(high); value *= 2) axis.values.emplace_back(value);
        return axis;
    }
    axis.values = numbers_over(knob, std::max(points, 2), knob.low, high, present);
    return axis;
}

model::Expected<Sweep> run_sweep(const Answer& base, std::vector<SweepAxis> axes, const std::string& data_directory, int threads,
                                 const std::stop_token& stop, const SweepProgress& progress) {
    if (axes.empty() || axes.size() > 2) {
        return model::fail(model::ErrorCode::invalid_input, "a sweep has one axis or two", "sweep", "choose a knob");
    }
    std::size_t all = 1;
    for (const SweepAxis& axis : axes) all *= axis.values.size();
    if (all == 0 || all > kMaxSweepPoints) {
        return model::fail(model::ErrorCode::too_large, fmt::format("a sweep of {} points", all), "sweep",
                           "take between 1 and 10000 points");
    }
    Sweep out;
    out.axes = std::move(axes);
    out.points.resize(all);
    std::atomic<std::size_t> next{0};
    std::atomic<std::size_t> done{0};
    const auto work = [&] {
        Answerer answerer(data_directory);
        for (std::size_t i = next++; i < all && !stop.stop_requested(); i = next++) {
            out.points[i] = solve(answerer, base, out.axes, i);
            ++done;
        }
    };
    {
        std::vector<std::jthread> workers;
        for (int i = 0; i < std::max(threads, 1); ++i) workers.emplace_back(work);
        while (progress && done < all && !stop.stop_requested()) {
            progress(done, all);
            std::this_thread::sleep_for(std::chrono::milliseconds(30));
        }
    }
    out.complete = done == all;
    if (progress) progress(done, all);
    return out;
}

std::vector<double> crossings_of(const Sweep& sweep, const std::vector<double>& values, double level) {
    std::vector<double> out;
    if (sweep.axes.size() != 1) return out;
    for (std::size_t i = 1; i < sweep.points.size(); ++i) {
        const SweepPoint& a = sweep.points[i - 1];
        const SweepPoint& b = sweep.points[i];
        if (a.values.empty() || b.values.empty() || !a.values[0].is_number() || !b.values[0].is_number()) continue;
        const double before = values[i - 1] - level;
        const double after = values[i] - level;
        if (!(before * after < 0) && !(after == 0 && before != 0)) continue;
        const double x0 = a.values[0].get<double>();
        const double x1 = b.values[0].get<double>();
        out.push_back(x0 + (x1 - x0) * before / (before - after));
    }
    return out;
}

std::vector<double> break_even_points(const Sweep& sweep) {
    std::vector<double> speedups;
    for (const SweepPoint& point : sweep.points) speedups.push_back(point.error.empty() ? point.speedup.value : std::nan(""));
    return crossings_of(sweep, speedups, 1);
}

std::optional<std::size_t> best_point(const Sweep& sweep) {
    std::optional<std::size_t> best;
    for (std::size_t i = 0; i < sweep.points.size(); ++i) {
        const SweepPoint& point = sweep.points[i];
        if (!point.error.empty() || !point.fits || point.values.empty()) continue;
        if (!best || point.tokens_per_second.value > sweep.points[*best].tokens_per_second.value) best = i;
    }
    return best;
}

std::string value_text(const Json& value) {
    if (value.is_string()) return value.get_ref<const std::string&>().empty() ? "(default)" : value.get<std::string>();
    if (value.is_boolean()) return value.get<bool>() ? "on" : "off";
    if (value.is_number_integer()) return std::to_string(value.get<std::int64_t>());
    if (value.is_number()) return fmt::format("{:.4g}", value.get<double>());
    if (value.is_null()) return "";
    return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string sweep_csv(const Sweep& sweep) {
    std::string text;
    for (const SweepAxis& axis : sweep.axes) text += axis.knob.path + ",";
    text +=
        "tokens_per_second,low,high,plain_tokens_per_second,speedup,acceptance_length,break_even_acceptance_length,cycle_ms,fits,"
        "error\n";
    for (const SweepPoint& point : sweep.points) {
        for (const Json& value : point.values) text += value_text(value) + ",";
        std::string error = point.error;
        std::replace(error.begin(), error.end(), '"', '\'');
        if (!point.error.empty()) {
            text += fmt::format(",,,,,,,,,\"{}\"\n", error);
            continue;
        }
        text += fmt::format("{},{},{},{},{},{},{},{},{},\n", point.tokens_per_second.value, point.tokens_per_second.low,
                            point.tokens_per_second.high, point.plain.value, point.speedup.value, point.acceptance_length,
                            point.break_even, point.cycle_ms, point.fits ? "yes" : "no");
    }
    return text;
}

}  // namespace draftboard::gui
