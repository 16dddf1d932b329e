// SPDX-License-Identifier: Apache-2.0
#include "gui/models/tables.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "gui/models/text.h"

namespace draftboard::gui {

namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

Cell number(double value, int digits, const QString& tip = {}) { return {fixed(value, digits), value, tip, false, 0}; }
Cell text(std::string_view value) { return {qs(value), {}, {}, false, 0}; }

/// "verify/L03/moe.experts" -> "verify"
std::string pass_of(const std::string& key) { return key.substr(0, key.find('/')); }

}  // namespace

Table terms_table(const Answer& answer, const Answer* baseline) {
    Table table;
    table.name = "terms";
    table.columns = {{"term", "A part of the cycle, mean over ranks", false},
                     {"ms", "Milliseconds on the critical path", true},
                     {"share", "Of the cycle", true},
                     {"+/- ms", "One standard deviation", true},
                     {"coverage", "How far the number is from a measurement", false}};
    std::map<std::string, double> other;
    if (baseline != nullptr) {
        table.columns.push_back({"baseline ms", "The pinned variant's", true});
        table.columns.push_back({"difference", "Milliseconds against the pinned variant", true});
        for (const sim::Term& term : baseline->prediction.terms) other[term.name] = term.ms;
    }
    auto terms = answer.prediction.terms;
    std::stable_sort(terms.begin(), terms.end(), [](const sim::Term& a, const sim::Term& b) { return a.ms > b.ms; });
    for (const sim::Term& term : terms) {
        std::vector<Cell> row{text(term.name),
                              number(term.ms, 3),
                              {fixed(100 * term.share, 1) + " %", term.share, {}, false, 0},
                              number(term.sigma_ms, 3),
                              text(to_name(term.coverage))};
        if (baseline != nullptr) {
            const auto at = other.find(term.name);
            const double ms = at == other.end() ? 0 : at->second;
            row.push_back(number(ms, 3));
            row.push_back({fmt::format("{:+.3f}", term.ms - ms).c_str(), term.ms - ms, {}, false, 0});
        }
        table.rows.push_back(std::move(row));
    }
    return table;
}

std::vector<const sim::ExplainedOperation*> chosen_operations(const Details& details, const std::string& pass,
                                                              const std::string& term) {
    // "collectives.wait" is about collectives; "launch" and "host" are about no operation more than another.
    const std::string wanted = term.substr(0, term.find('.'));
    const bool all = wanted.empty() || wanted == "launch" || wanted == "host" || wanted == "contention";
    std::vector<const sim::ExplainedOperation*> out;
    for (const sim::ExplainedPass& of : details.explanation.passes) {
        if (!pass.empty() && of.name != pass) continue;
        for (const sim::ExplainedOperation& operation : of.operations) {
            const auto at = details.terms.find(operation.key);
            const std::string name = at == details.terms.end() ? std::string() : at->second;
            if (all || name == wanted) out.push_back(&operation);
        }
    }
    std::stable_sort(out.begin(), out.end(), [](const sim::ExplainedOperation* a, const sim::ExplainedOperation* b) {
        return a->total_ms > b->total_ms;
    });
    return out;
}

Table operations_table(const Details& details, const std::string& pass, const std::string& term) {
    Table table;
    table.name = "operations";
    table.columns = {{"operation", "Role in the plan; the key of calibrations and traces", false},
                     {"pass", "", false},
                     {"count", "Equal operations in the pass", true},
                     {"us", "Microseconds of one", true},
                     {"ms", "Milliseconds of all", true},
                     {"GB/s", "Bytes by time", true},
                     {"coverage", "How far the number is from a measurement", false},
                     {"shape", "", false}};
    for (const sim::ExplainedOperation* operation : chosen_operations(details, pass, term)) {
        const double rate = operation->us > 0 ? operation->bytes / operation->us * 1e-3 : 0;
        table.rows.push_back({text(operation->role), text(pass_of(operation->key)), number(operation->count, 0),
                              number(operation->us, 2), number(operation->total_ms, 4), number(rate, 0),
                              text(to_name(operation->coverage)), text(operation->shape)});
        table.rows.back()[0].tip = qs(operation->formula);
    }
    return table;
}

Table constants_table(const sim::Explanation& explanation) {
    Table table;
    table.name = "constants";
    table.columns = {{"constant", "", false}, {"value", "", true}, {"meaning", "", false}, {"source", "", false}};
    for (const sim::ExplainedConstant& constant : explanation.constants) {
        table.rows.push_back({text(constant.name),
                              {qs(fmt::format("{}", constant.value)), constant.value, {}, false, 0},
                              text(constant.meaning),
                              text(constant.source)});
    }
    return table;
}

Table memory_table(const Answer& answer) {
    Table table;
    table.name = "memory";
    table.columns = {{"part", "On the fullest GPU", false},
                     {"GiB", "2^30 bytes", true},
                     {"share", "Of what the engine may fill", true},
                     {"formula", "", false}};
    for (const model::MemoryPart& part : answer.prediction.memory.parts) {
        const double share = part.bytes / answer.prediction.memory.usable_bytes;
        table.rows.push_back({text(part.name),
                              number(part.bytes / kGiB, 2),
                              {fixed(100 * share, 1) + " %", share, {}, false, share},
                              text(part.formula)});
    }
    return table;
}

Table variants_table(const Session& session) {
    Table table;
    table.name = "variants";
    table.columns = {{"variant", "Bold: shown; pin: the baseline", false},
                     {"tok/s", "All sequences together", true},
                     {"90 % interval", "", false},
                     {"vs baseline", "Tokens per second against the pinned variant", true},
                     {"speed-up", "Over plain decoding", true},
                     {"length", "Acceptance length: tokens a cycle, bonus included", true},
                     {"break-even", "Acceptance length at which speculation pays", true},
                     {"cycle ms", "", true},
                     {"verify ms", "", true},
                     {"draft ms", "", true},
                     {"host ms", "", true},
                     {"fits", "In the GPUs' memory", false},
                     {"coverage", "", false}};
    const AnswerPointer baseline = session.baseline();
    const Project& project = session.project();
    for (std::size_t i = 0; i < project.variants.size(); ++i) {
        const Variant& variant = project.variants[i];
        const Compared compared = session.compared(variant);
        const QString pin = static_cast<int>(i) == project.baseline ? "  (baseline)" : "";
        std::vector<Cell> row{{qs(variant.name) + pin, {}, qs(command_line(variant)), false, 0}};
        if (!compared.answer) {
            row.push_back({compared.error.isEmpty() ? "..." : "no answer", -1.0, compared.error, true, 0});
            while (row.size() < table.columns.size()) row.push_back({"", {}, compared.error, true, 0});
            table.rows.push_back(std::move(row));
            continue;
        }
        const sim::Prediction& p = compared.answer->prediction;
        row.push_back(number(p.tokens_per_second.value, 1));
        row.push_back({range_text(p.tokens_per_second, 1), p.tokens_per_second.low, {}, false, 0});
        const double reference = baseline ? baseline->prediction.tokens_per_second.value : 0;
        row.push_back({change_text(p.tokens_per_second.value, reference), p.tokens_per_second.value, {}, false, 0});
        row.push_back(number(p.speedup.value, 2));
        row.push_back(number(p.acceptance_length.value, 2));
        row.push_back(number(p.break_even_acceptance_length, 2));
        row.push_back(number(p.cycle_ms, 2));
        row.push_back(number(p.verify_ms, 2));
        row.push_back(number(p.draft_ms, 2));
        row.push_back(number(p.host_ms, 2));
        row.push_back({p.memory.fits ? "yes" : "no", {}, qs(p.memory.verdict), false, 0});
        row.push_back(text(to_name(p.coverage)));
        table.rows.push_back(std::move(row));
    }
    return table;
}

Table sweep_table(const Sweep& sweep) {
    Table table;
    table.name = "sweep";
    for (const SweepAxis& axis : sweep.axes) table.columns.push_back({qs(axis.knob.label), qs(axis.knob.path), true});
    for (const char* title : {"tok/s", "low", "high", "plain tok/s", "speed-up", "length", "break-even", "cycle ms"}) {
        table.columns.push_back({title, "", true});
    }
    table.columns.push_back({"remark", "", false});
    for (const SweepPoint& point : sweep.points) {
        std::vector<Cell> row;
        for (const model::Json& value : point.values) {
            row.push_back({qs(value_text(value)), value.is_number() ? QVariant(value.get<double>()) : QVariant(), {}, false, 0});
        }
        if (!point.error.empty()) {
            while (row.size() + 1 < table.columns.size()) row.push_back({"", {}, qs(point.error), true, 0});
            row.push_back({qs(point.error), {}, {}, true, 0});
        } else {
            row.push_back(number(point.tokens_per_second.value, 1));
            row.push_back(number(point.tokens_per_second.low, 1));
            row.push_back(number(point.tokens_per_second.high, 1));
            row.push_back(number(point.plain.value, 1));
            row.push_back(number(point.speedup.value, 2));
            row.push_back(number(point.acceptance_length, 2));
            row.push_back(number(point.break_even, 2));
            row.push_back(number(point.cycle_ms, 2));
            row.push_back({point.fits ? "" : "does not fit", {}, {}, false, 0});
        }
        while (row.size() < table.columns.size()) row.emplace_back();
        table.rows.push_back(std::move(row));
    }
    return table;
}

Table levers_table(const std::vector<LeverResult>& results) {
    Table table;
    table.name = "levers";
    table.columns = {
        {"change", "One change alone", false},
        {"kind", "setting: a switch of the engine; load; hardware: another box; uncertainty: a constant at the end of its doubt",
         false},
        {"gain", "Of tokens per second", true},
        {"effect", "Bar: gain against the largest", false},
        {"tok/s", "", true},
        {"90 % interval", "", false},
        {"speed-up", "Over plain decoding", true},
        {"remark", "", false}};
    double largest = 0;
    for (const LeverResult& result : results) largest = std::max(largest, std::fabs(result.gain));
    for (const LeverResult& result : results) {
        std::vector<Cell> row{text(result.lever.name), text(to_name(result.lever.kind))};
        if (!result.error.empty()) {
            for (int i = 0; i < 5; ++i) row.push_back({"", {}, qs(result.error), true, 0});
            row[2] = {"", -1e9, {}, true, 0};
            row.push_back({qs(result.error), {}, {}, true, 0});
            table.rows.push_back(std::move(row));
            continue;
        }
        row.push_back({qs(fmt::format("{:+.1f} %", 100 * result.gain)), result.gain, {}, false, 0});
        row.push_back({"", std::fabs(result.gain), {}, false, largest > 0 ? result.gain / largest : 0});
        row.push_back(number(result.tokens_per_second.value, 1));
        row.push_back({range_text(result.tokens_per_second, 1), result.tokens_per_second.low, {}, false, 0});
        row.push_back(number(result.speedup.value, 2));
        row.push_back({result.fits ? "" : "does not fit in memory", {}, {}, false, 0});
        table.rows.push_back(std::move(row));
    }
    return table;
}

Table differences_table(const Session& session) {
    Table table;
    table.name = "differences";
    table.columns = {{"field", "", false}, {"base", "The base scenario's value", false}, {"here", "", false}};
    const AnswerPointer answer = session.answer();
    if (!answer) return table;
    for (const Edit& edit : session.project().shown().edits) {
        const auto shorten = [](const model::Json& value) {
            std::string out = value_text(value);
            if (out.size() > 80) out = out.substr(0, 77) + "...";
            return out;
        };
        table.rows.push_back(
            {text(edit.path), text(shorten(value_at(answer->document.base, edit.path))), text(shorten(edit.value))});
    }
    return table;
}

}  // namespace draftboard::gui
