// SPDX-License-Identifier: Apache-2.0
#include "calibration/validation_report.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "calibration/engine_measurements.h"
#include "calibration/parity_plot.h"
#include "calibration/timeline_plot.h"

namespace draftboard::calibration {

using model::Json;

namespace {

constexpr std::size_t kMostOperationRows = 60;

constexpr const char* kStyle = R"(<style>
:root { color-scheme: light dark; --ink: #1c2430; --paper: #ffffff; --soft: #67707d; --line: #d9dee5; --seen: #2f6fb0; --unseen: #c4572a; --band: #2f6fb022; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ee; --paper: #14181f; --soft: #98a2b0; --line: #343c48; --seen: #6aa9e6; --unseen: #ee8a5d; --band: #6aa9e622; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; } th, td { text-align: right; padding: .2rem .5rem; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; } td:not(:first-child) { white-space: nowrap; } th { color: var(--soft); font-weight: 600; } .scroll { overflow-x: auto; }
.tiles { display: flex; flex-wrap: wrap; gap: .8rem; padding: 0; list-style: none; } .tiles li { border: 1px solid var(--line); border-radius: .5rem; padding: .5rem .8rem; min-width: 9rem; }
.tiles b { display: block; font-size: 1.3rem; } .soft { color: var(--soft); } .verdict { font-weight: 600; }
svg { width: 100%; max-width: 46rem; height: auto; } svg text { fill: var(--ink); font-size: 12px; } svg text.small { fill: var(--soft); font-size: 11px; }
.grid { stroke: var(--line); } .diagonal { stroke: var(--soft); stroke-dasharray: 4 3; } .band { fill: var(--band); } .interval { stroke: var(--soft); opacity: .6; }
.seen { fill: none; stroke: var(--seen); stroke-width: 2; } .unseen { fill: var(--unseen); } .predicted { fill: var(--seen); } .measured { fill: var(--unseen); } .plot { max-width: 32rem; }
</style>
)";

/// The page's rules and the timelines', in one element.
std::string page_style() {
    std::string style = kStyle;
    style.insert(style.find("</style>"), timeline_style());
    return style;
}

std::string percent(double share) { return fmt::format("{:+.1f} %", 100 * share); }
std::string unsigned_percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::vector<const ConfigurationResult*> worst_first(const Validation& validation) {
    std::vector<const ConfigurationResult*> out;
    for (const ConfigurationResult& result : validation.results) out.push_back(&result);
    std::stable_sort(out.begin(), out.end(), [](auto* a, auto* b) { return std::abs(a->error()) > std::abs(b->error()); });
    return out;
}

/// "verify/L03/moe.experts" -> "verify/moe.experts".
std::string without_layer(const std::string& key) {
    const auto first = key.find('/');
    const auto second = first == std::string::npos ? first : key.find('/', first + 1);
    return second == std::string::npos ? key : key.substr(0, first) + key.substr(second);
}

std::string tile(const std::string& value, const std::string& label) {
    return fmt::format("<li><b>{}</b>{}</li>\n", html_escaped(value), html_escaped(label));
}

std::string verdict(const Validation& validation, const ValidationSummary& s) {
    return fmt::format("{}: the median error of tok/s is {}, the bound {}", validation.within_bound() ? "within the bound" : "OUTSIDE THE BOUND",
                       unsigned_percent(s.median_error), unsigned_percent(validation.bound));
}

/// The name that a measured term has: transport and latency of collectives are one, launches and host too.
std::string term_name(std::string name) {
    if (name.ends_with(".collectives.latency") || name.ends_with(".collectives.transport")) name.resize(name.rfind('.'));
    if (name.ends_with(".launch") || name == "host") name = "launch and host";
    return name;
}

/// Predicted terms under the names that measured ones have.
std::vector<Bar> bars_of(const ConfigurationResult& result) {
    std::map<std::string, Bar> bars;
    for (const auto& [name, us] : result.measured_terms) bars[name].measured += us;
    for (const sim::Term& term : result.terms) {
        const std::string name = term_name(term.name);
        bars[name].predicted += term.ms * 1e3;
    }
    std::vector<Bar> out;
    for (auto& [name, bar] : bars) {
        bar.name = name;
        if (bar.predicted > 0 || bar.measured > 0) out.push_back(bar);
    }
    return out;
}

/// A cycle as two lanes; what operations do not take is the rest, at the end.
std::string timelines(const ConfigurationResult& result) {
    TimelineLane predicted{"predicted", {}};
    TimelineLane measured{"measured", {}};
    double predicted_us = 0;
    double measured_us = 0;
    for (const TimelineOperation& operation : result.timeline) {
        predicted.blocks.push_back({operation.key, operation.term, operation.predicted_us});
        measured.blocks.push_back({operation.key, operation.term, operation.measured_us});
        measured.blocks.push_back({operation.key + ", waiting", "wait", operation.measured_wait_us});
        predicted_us += operation.predicted_us;
        measured_us += operation.measured_us + operation.measured_wait_us;
    }
    predicted.blocks.push_back({"launch, waiting and host", "rest", result.predicted_cycle_us - predicted_us});
    measured.blocks.push_back({"launch and host", "rest", result.measured_cycle_us - measured_us});
    return timeline_plot({predicted, measured}, "us");
}

/// Terms of one configuration: predicted, measured, and how far the prediction of it is from a measurement.
std::string term_table(const ConfigurationResult& result) {
    std::map<std::string, sim::Coverage> coverage;
    for (const sim::Term& term : result.terms) {
        std::string name = term_name(term.name);
        const auto [at, fresh] = coverage.try_emplace(name, term.coverage);
        if (!fresh) at->second = std::max(at->second, term.coverage);  // the farther one
    }
    std::string html = "<table><tr><th>term</th><th>predicted us</th><th>measured</th><th>error</th><th>of the cycle</th><th>coverage</th></tr>\n";
    auto bars = bars_of(result);
    std::stable_sort(bars.begin(), bars.end(), [](const Bar& a, const Bar& b) { return std::abs(a.predicted - a.measured) > std::abs(b.predicted - b.measured); });
    for (const Bar& bar : bars) {
        const auto known = coverage.find(bar.name);
        html += fmt::format("<tr><td>{}</td><td>{:.1f}</td><td>{:.1f}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n", html_escaped(bar.name), bar.predicted, bar.measured,
                            bar.measured > 0 ? percent(bar.predicted / bar.measured - 1) : "-",
                            result.measured_cycle_us > 0 ? percent((bar.predicted - bar.measured) / result.measured_cycle_us) : "-",
                            known == coverage.end() ? "-" : std::string(sim::to_name(known->second)));
    }
    return html + "</table>\n";
}

/// Each term over all configurations that have it.
std::string all_terms_table(const Validation& validation) {
    struct Group {
        std::vector<double> errors;
        std::vector<double> shares;  ///< of the error in the measured cycle
    };
    std::map<std::string, Group> groups;
    for (const ConfigurationResult& result : validation.results) {
        for (const Bar& bar : bars_of(result)) {
            if (!(bar.measured > 0) || !(result.measured_cycle_us > 0)) continue;
            groups[bar.name].errors.push_back(bar.predicted / bar.measured - 1);
            groups[bar.name].shares.push_back((bar.predicted - bar.measured) / result.measured_cycle_us);
        }
    }
    std::string html = "<table><tr><th>term</th><th>configurations</th><th>median |error|</th><th>bias</th><th>bias, of the cycle</th></tr>\n";
    for (auto& [name, group] : groups) {
        const std::size_t count = group.errors.size();
        const double bias = median_of(group.errors);
        for (double& error : group.errors) error = std::abs(error);
        html += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n", html_escaped(name), count, unsigned_percent(median_of(group.errors)),
                            percent(bias), percent(median_of(group.shares)));
    }
    return html + "</table>\n";
}

std::string configuration_table(const std::vector<const ConfigurationResult*>& results) {
    std::string html =
        "<div class=\"scroll\"><table><tr><th>configuration</th><th>measured tok/s</th><th>predicted</th><th>90 %</th><th>error</th>"
        "<th>cycle us</th><th>predicted</th><th>tokens a cycle</th><th>predicted</th><th>rounds differ</th><th>calibration saw it</th></tr>\n";
    for (const ConfigurationResult* r : results) {
        html += fmt::format("<tr><td>{}</td><td>{:.1f}</td><td>{:.1f}</td><td>{:.1f} .. {:.1f}{}</td><td>{}</td><td>{:.1f}</td><td>{:.1f}</td>"
                            "<td>{:.2f}</td><td>{:.2f}</td><td>{}</td><td>{}</td></tr>\n",
                            html_escaped(r->configuration.name()), r->measured, r->predicted.value, r->predicted.low, r->predicted.high,
                            r->inside() ? "" : " (outside)", percent(r->error()), r->measured_cycle_us, r->predicted_cycle_us, r->measured_length,
                            r->predicted_length, unsigned_percent(r->spread), r->unseen ? "no" : "yes");
    }
    return html + "</table></div>\n";
}

std::string operation_table(const std::vector<OperationRow>& rows) {
    std::string html =
        "<div class=\"scroll\"><table><tr><th>operation</th><th>seen</th><th>measured us</th><th>predicted</th><th>median |error|</th><th>bias</th>"
        "<th>in the interval</th><th>share of time</th></tr>\n";
    for (std::size_t i = 0; i < rows.size() && i < kMostOperationRows; ++i) {
        const OperationRow& row = rows[i];
        html += fmt::format("<tr><td>{}</td><td>{}</td><td>{:.2f}</td><td>{:.2f}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n", html_escaped(row.key),
                            row.count, row.measured_us, row.predicted_us, unsigned_percent(row.median_error), percent(row.bias),
                            unsigned_percent(row.coverage_90), unsigned_percent(row.share));
    }
    html += "</table></div>\n";
    if (rows.size() > kMostOperationRows) html += fmt::format("<p class=\"soft\">{} more with smaller weighted errors</p>\n", rows.size() - kMostOperationRows);
    return html;
}

}  // namespace

std::vector<OperationRow> operation_rows(const Validation& validation) {
    struct Group {
        std::vector<double> measured;
        std::vector<double> predicted;
        std::vector<double> errors;
        double time = 0;
        double inside = 0;
    };
    std::map<std::string, Group> groups;
    double total = 0;
    for (const ConfigurationResult& result : validation.results) {
        for (const OperationComparison& operation : result.operations) {
            Group& group = groups[operation.engine + " " + without_layer(operation.key)];
            group.measured.push_back(operation.measured_us);
            group.predicted.push_back(operation.predicted_us);
            group.errors.push_back(operation.error());
            group.time += operation.measured_us;
            group.inside += operation.inside() ? 1 : 0;
            total += operation.measured_us;
        }
    }
    std::vector<OperationRow> rows;
    for (auto& [key, group] : groups) {
        OperationRow row;
        row.key = key;
        row.count = static_cast<int>(group.errors.size());
        row.measured_us = median_of(group.measured);
        row.predicted_us = median_of(group.predicted);
        row.bias = median_of(group.errors);
        for (double& error : group.errors) error = std::abs(error);
        row.median_error = median_of(group.errors);
        row.coverage_90 = group.inside / static_cast<double>(group.errors.size());
        row.share = total > 0 ? group.time / total : 0;
        rows.push_back(std::move(row));
    }
    std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.median_error * a.share > b.median_error * b.share; });
    return rows;
}

std::string validation_html(const Validation& validation) {
    const ValidationSummary s = validation.summary();
    const auto results = worst_first(validation);
    std::string html = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">";
    html += fmt::format("<title>Draftboard validation: {}</title>\n{}</head><body>\n", html_escaped(validation.suite.name), page_style());
    html += fmt::format("<h1>Predicted against measured: {}</h1>\n<p>{}</p>\n<p class=\"verdict\">{}</p>\n", html_escaped(validation.suite.name),
                        html_escaped(validation.suite.description), html_escaped(verdict(validation, s)));
    html += "<ul class=\"tiles\">\n";
    html += tile(unsigned_percent(s.median_error), fmt::format("median |error| of tok/s, {} configurations", s.configurations));
    html += tile(unsigned_percent(s.median_error_unseen), fmt::format("of the {} that the calibration never saw", s.unseen));
    html += tile(unsigned_percent(s.median_cycle_error), "median |error| of cycle times");
    html += tile(unsigned_percent(s.median_operation_error), fmt::format("median |error| of {} operations", s.operations));
    html += tile(unsigned_percent(s.coverage_90), "of tok/s within their 90 % interval");
    html += tile(unsigned_percent(s.operation_coverage_90), "of operations within theirs");
    html += tile(unsigned_percent(s.worst_regret), "lost by the predicted best drafter, worst group");
    html += tile(s.repeated > 0 ? unsigned_percent(s.noise_floor) : "-", fmt::format("noise floor: {} configurations run twice", s.repeated));
    html += tile(unsigned_percent(s.disturbed), "of cycles left out: the system took a core away");
    html += "</ul>\n";

    std::vector<ParityPoint> points;
    for (const ConfigurationResult& r : validation.results) {
        points.push_back({r.measured, r.predicted.value, r.predicted.low, r.predicted.high, r.unseen, r.configuration.name()});
    }
    html += "<h2>Tokens per second</h2>\n" + parity_plot(points, "tok/s", validation.bound);
    html += "<p class=\"soft\">Filled: the calibration never saw a pass of this shape. The band is the bound.</p>\n";
    html += configuration_table(results);

    html += "<h2>Which drafter</h2>\n<table><tr><th>group</th><th>predicted best</th><th>measured best</th><th>lost</th></tr>\n";
    auto groups = validation.groups;
    std::stable_sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) { return a.regret > b.regret; });
    for (const GroupResult& group : groups) {
        html += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n", html_escaped(group.name), html_escaped(group.predicted_best),
                            html_escaped(group.measured_best), unsigned_percent(group.regret));
    }
    html += "</table>\n";

    if (!results.empty()) {
        html += fmt::format("<h2>Where the time goes in the worst case: {}</h2>\n", html_escaped(results.front()->configuration.name()));
        html += timelines(*results.front());
        html += bar_chart(bars_of(*results.front()), "us a cycle");
        html += "<p class=\"soft\">Upper bars predicted, lower bars measured. Measured operations carry their clock and are medians, so they need not add "
                "up to the cycle. In the timelines an operation's block is its time alone; what is predicted to be waiting stands with launches and host "
                "at the end.</p>\n";
        html += term_table(*results.front());
        html += "<h2>Errors by term</h2>\n" + all_terms_table(validation);
    }
    std::vector<ParityPoint> operations;
    for (const OperationRow& row : operation_rows(validation)) operations.push_back({row.measured_us, row.predicted_us, 0, 0, true, row.key});
    html += "<h2>Operations</h2>\n" + parity_plot(operations, "us", 0.15) + operation_table(operation_rows(validation));

    html += "<h2>Environment</h2>\n<table>\n";
    for (const auto& item : validation.environment.items()) {
        html += fmt::format("<tr><td>{}</td><td>{}</td></tr>\n", html_escaped(item.key()),
                            html_escaped(item.value().is_string() ? item.value().get<std::string>() : item.value().dump()));
    }
    html += "</table>\n";
    for (const std::string& note : validation.notes) html += fmt::format("<p>{}</p>\n", html_escaped(note));
    return html + "</body></html>\n";
}

std::string validation_text(const Validation& validation) {
    const ValidationSummary s = validation.summary();
    std::string text = fmt::format("{:<44} {:>9} {:>9} {:>8} {:>17} {:>9} {:>9}  {}\n", "configuration", "measured", "predicted", "error", "90 %", "cycle us",
                                   "predicted", "seen");
    for (const ConfigurationResult* r : worst_first(validation)) {
        text += fmt::format("{:<44} {:>9.1f} {:>9.1f} {:>8} {:>17} {:>9.1f} {:>9.1f}  {}\n", r->configuration.name(), r->measured, r->predicted.value,
                            percent(r->error()), fmt::format("{:.0f} .. {:.0f}{}", r->predicted.low, r->predicted.high, r->inside() ? "" : "!"),
                            r->measured_cycle_us, r->predicted_cycle_us, r->unseen ? "no" : "yes");
    }
    text += fmt::format("\n{:<36} {:<22} {:<22} {}\n", "group", "predicted best", "measured best", "lost");
    for (const GroupResult& group : validation.groups) {
        text += fmt::format("{:<36} {:<22} {:<22} {}\n", group.name, group.predicted_best, group.measured_best, unsigned_percent(group.regret));
    }
    text += fmt::format("\ntok/s: median |error| {}, of {} never seen by the calibration {}, 90th percentile {}, worst {}\n",
                        unsigned_percent(s.median_error), s.unseen, unsigned_percent(s.median_error_unseen), unsigned_percent(s.p90_error),
                        unsigned_percent(s.worst_error));
    text += fmt::format("cycles: median |error| {}; intervals hold {} of tok/s and {} of operations\n", unsigned_percent(s.median_cycle_error),
                        unsigned_percent(s.coverage_90), unsigned_percent(s.operation_coverage_90));
    text += fmt::format("operations: median |error| {} of {}, weighted by time {}\n", unsigned_percent(s.median_operation_error), s.operations,
                        unsigned_percent(s.weighted_operation_error));
    text += fmt::format("the predicted best drafter loses at most {}", unsigned_percent(s.worst_regret));
    if (s.repeated > 0) text += fmt::format("; noise floor {} ({} configurations run twice)", unsigned_percent(s.noise_floor), s.repeated);
    if (s.disturbed > 0.005) text += fmt::format("; {} of cycles left out, a core was taken away", unsigned_percent(s.disturbed));
    text += "\n" + verdict(validation, s) + "\n";
    for (const std::string& note : validation.notes) text += "note: " + note + "\n";
    return text;
}

Json validation_json(const Validation& validation) {
    const ValidationSummary s = validation.summary();
    Json json = {{"suite", validation.suite.name},
                 {"calibration", validation.calibration},
                 {"bound", validation.bound},
                 {"within_bound", validation.within_bound()},
                 {"median_absolute_error", s.median_error},
                 {"median_absolute_error_unseen", s.median_error_unseen},
                 {"p90_absolute_error", s.p90_error},
                 {"worst_absolute_error", s.worst_error},
                 {"median_cycle_error", s.median_cycle_error},
                 {"coverage_90", s.coverage_90},
                 {"operations", {{"count", s.operations}, {"median_absolute_error", s.median_operation_error},
                                 {"weighted_error", s.weighted_operation_error}, {"coverage_90", s.operation_coverage_90}}},
                 {"worst_regret", s.worst_regret},
                 {"noise_floor", s.noise_floor},
                 {"disturbed", s.disturbed},
                 {"environment", validation.environment}};
    json["configurations"] = Json::array();
    for (const ConfigurationResult& r : validation.results) {
        Json terms = Json::array();  // us a cycle
        for (const sim::Term& term : r.terms) terms.push_back({{"name", term.name}, {"predicted_us", term.ms * 1e3}});
        for (const auto& [name, us] : r.measured_terms) {
            const auto same = std::find_if(terms.begin(), terms.end(), [&](const Json& one) { return one["name"] == name; });
            if (same != terms.end()) (*same)["measured_us"] = us;
            else terms.push_back({{"name", name}, {"measured_us", us}});
        }
        json["configurations"].push_back({{"name", r.configuration.name()},
                                          {"group", r.configuration.group_name()},
                                          {"unseen", r.unseen},
                                          {"measured_tokens_per_second", r.measured},
                                          {"predicted_tokens_per_second", {{"value", r.predicted.value}, {"low", r.predicted.low}, {"high", r.predicted.high}}},
                                          {"error", r.error()},
                                          {"measured_cycle_us", r.measured_cycle_us},
                                          {"predicted_cycle_us", r.predicted_cycle_us},
                                          {"measured_acceptance_length", r.measured_length},
                                          {"predicted_acceptance_length", r.predicted_length},
                                          {"spread", r.spread},
                                          {"terms", std::move(terms)},
                                          {"repeated_tokens_per_second", r.repeated}});
    }
    json["groups"] = Json::array();
    for (const GroupResult& group : validation.groups) {
        json["groups"].push_back({{"name", group.name}, {"predicted_best", group.predicted_best}, {"measured_best", group.measured_best}, {"regret", group.regret}});
    }
    json["operation_rows"] = Json::array();
    for (const OperationRow& row : operation_rows(validation)) {
        json["operation_rows"].push_back({{"key", row.key}, {"count", row.count}, {"measured_us", row.measured_us}, {"predicted_us", row.predicted_us},
                                          {"median_absolute_error", row.median_error}, {"bias", row.bias}, {"share", row.share},
                                          {"coverage_90", row.coverage_90}});
    }
    json["notes"] = validation.notes;
    return json;
}

}  // namespace draftboard::calibration
