// SPDX-License-Identifier: Apache-2.0
#include "gui/core/levers.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "gui/core/sweep.h"
#include "sim/host_constants.h"

namespace draftboard::gui {

using model::Json;

const char* to_name(LeverKind kind) {
    switch (kind) {
        case LeverKind::setting: return "setting";
        case LeverKind::load: return "load";
        case LeverKind::hardware: return "hardware";
        case LeverKind::uncertainty: return "uncertainty";
    }
    return "?";
}

namespace {

class Collector {
 public:
    Collector(const Answer& answer, const std::vector<Knob>& knobs) : answer_(answer), knobs_(knobs) {}

    /// The knob at another value, unless it is there already or has no effect.
    void add(LeverKind kind, const std::string& path, const Json& value) {
        const Knob* knob = find_knob(knobs_, path);
        if (knob == nullptr) return;
        const KnobState state = knob_state(*knob, answer_);
        if (!state.applies || value_text(state.value) == value_text(value)) return;
        const auto edits = knob_edits(*knob, value, answer_);
        if (!edits) return;
        std::string name = fmt::format("{}: {}", knob->label, value_text(value));
        if (kind == LeverKind::uncertainty || kind == LeverKind::load) {
            name = fmt::format("{}: {} to {} {}", knob->label, value_text(state.value), value_text(value), knob->unit);
        }
        while (name.ends_with(' ')) name.pop_back();
        levers_.push_back({std::move(name), kind, *edits});
    }

    /// A number moved by a factor.
    void move(LeverKind kind, const std::string& path, double factor) {
        const Knob* knob = find_knob(knobs_, path);
        if (knob == nullptr) return;
        const KnobState state = knob_state(*knob, answer_);
        if (!state.value.is_number() || state.value.get<double>() == 0) return;
        const double moved = state.value.get<double>() * factor;
        add(kind, path, knob->whole() ? Json(static_cast<std::int64_t>(std::llround(moved))) : Json(moved));
    }

    std::vector<Lever> levers_;

 private:
    const Answer& answer_;
    const std::vector<Knob>& knobs_;
};

}  // namespace

std::vector<Lever> levers_of(const Answer& answer, const std::vector<Knob>& knobs) {
    using L = LeverKind;
    Collector collect(answer, knobs);
    for (const char* pass : {"verify", "draft", "decode"}) collect.add(L::setting, std::string("engine.launch.") + pass, "graph");
    for (const char* path : {"engine.overlap_scheduling", "engine.fused_all_reduce_norm", "engine.overlap_shared_experts"}) {
        collect.add(L::setting, path, true);
    }
    for (const char* name : {"nccl", "one_shot", "two_shot", "hierarchical", "host_staged"})
        collect.add(L::setting, "collective.implementation", name);
    for (const char* name : {"ring", "tree"}) collect.add(L::setting, "collective.algorithm", name);
    for (const char* name : {"ll", "ll128", "simple"}) collect.add(L::setting, "collective.protocol", name);
    for (const int channels : {2, 8, 16, 32}) collect.add(L::setting, "collective.channels", channels);
    const int steps = answer.scenario.speculation.steps;
    for (const int depth : {1, 2, steps - 1, steps + 1, steps + 2}) {
        if (depth >= 1 && steps >= 1) collect.add(L::setting, "speculation.steps", depth);
    }
    collect.add(L::setting, "speculation.method", "none");
    collect.add(L::setting, "layout.expert", answer.scenario.layout.tensor);
    const double length = answer.prediction.acceptance_length.value;
    for (const double factor : {0.9, 1.1})
        collect.move(L::uncertainty, "speculation.acceptance.acceptance_length", 1 / length * (1 + (length - 1) * factor));
    for (const double factor : {0.5, 2.0}) {
        collect.move(L::load, "workload.context_tokens", factor);
        collect.move(L::load, "workload.concurrency", factor);
    }
    const int generation =
        answer.scenario.machine.gpus().empty()
            ? 0
            : static_cast<int>(knob_state(*find_knob(knobs, "machine.pcie_generation"), answer).value.get<int>());
    if (generation > 0) {
        for (const int other : {generation - 1, generation + 1}) {
            if (other >= 3 && other <= 6) collect.add(L::hardware, "machine.pcie_generation", other);
        }
    }
    for (const sim::HostConstantInfo& info : sim::host_constant_table()) {
        for (const double factor : {1 / (1 + answer.host.relative_uncertainty), 1 + answer.host.relative_uncertainty}) {
            collect.move(L::uncertainty, "constants." + info.name, factor);
        }
    }
    // A depth may have been asked for twice.
    std::vector<Lever> out;
    for (Lever& lever : collect.levers_) {
        if (std::find(out.begin(), out.end(), lever) == out.end()) out.push_back(std::move(lever));
    }
    return out;
}

std::vector<LeverResult> run_levers(const Answer& base, const std::vector<Lever>& levers, const std::string& data_directory,
                                    const std::stop_token& stop, const std::function<void(std::size_t, std::size_t)>& progress) {
    std::vector<LeverResult> results;
    Answerer answerer(data_directory);
    for (const Lever& lever : levers) {
        if (stop.stop_requested()) break;
        LeverResult result;
        result.lever = lever;
        Variant variant = base.variant;
        for (const Edit& edit : lever.edits) variant.set(edit.path, edit.value);
        if (const auto answer = answerer.quick(variant)) {
            result.tokens_per_second = answer->prediction.tokens_per_second;
            result.speedup = answer->prediction.speedup;
            result.fits = answer->prediction.memory.fits;
            result.gain = result.tokens_per_second.value / base.prediction.tokens_per_second.value - 1;
        } else {
            result.error = answer.error().message;
        }
        results.push_back(std::move(result));
        if (progress) progress(results.size(), levers.size());
    }
    std::stable_sort(results.begin(), results.end(), [](const LeverResult& a, const LeverResult& b) {
        if (a.error.empty() != b.error.empty()) return a.error.empty();
        return std::fabs(a.gain) > std::fabs(b.gain);
    });
    return results;
}

std::string levers_markdown(const Answer& base, const std::vector<LeverResult>& results) {
    std::string text =
        fmt::format("# What would help: {}\n\n{}\n\nAs it is: {:.1f} tok/s ({:.1f} .. {:.1f}). Each row is one change alone.\n\n",
                    base.variant.name, base.prediction.verdict, base.prediction.tokens_per_second.value,
                    base.prediction.tokens_per_second.low, base.prediction.tokens_per_second.high);
    const auto table = [&](const char* title, auto take) {
        text +=
            fmt::format("## {}\n\n| change | kind | tok/s | 90 % interval | gain | how |\n|---|---|---|---|---|---|\n", title);
        for (const LeverResult& result : results) {
            if (!result.error.empty() || !take(result)) continue;
            std::string how;
            for (const Edit& edit : result.lever.edits) {
                if (!how.empty()) how += " ";
                how += edit.value.is_object() && edit.path == "machine" ? std::string("another box")
                                                                        : "`--set " + edit.to_text() + "`";
            }
            text +=
                fmt::format("| {} | {} | {:.1f} | {:.1f} .. {:.1f} | {:+.1f} % | {}{} |\n", result.lever.name,
                            to_name(result.lever.kind), result.tokens_per_second.value, result.tokens_per_second.low,
                            result.tokens_per_second.high, 100 * result.gain, how, result.fits ? "" : "; does not fit in memory");
        }
        text += "\n";
    };
    table("Gains", [](const LeverResult& r) { return r.gain > 0 && r.lever.kind != LeverKind::uncertainty; });
    table("Losses", [](const LeverResult& r) { return r.gain <= 0 && r.lever.kind != LeverKind::uncertainty; });
    table("How far the answer hangs on what is not known",
          [](const LeverResult& r) { return r.lever.kind == LeverKind::uncertainty; });
    text += "## Not possible here\n\n";
    for (const LeverResult& result : results) {
        if (!result.error.empty()) text += fmt::format("- {}: {}\n", result.lever.name, result.error);
    }
    text += fmt::format("\nCoverage: {}. Kernels: {}; collectives: {}.\n\n    {}\n", to_name(base.prediction.coverage),
                        base.kernels, base.collectives, command_line(base.variant));
    return text;
}

}  // namespace draftboard::gui
