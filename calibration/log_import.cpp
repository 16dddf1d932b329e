// SPDX-License-Identifier: Apache-2.0
#include "calibration/log_import.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "calibration/cost_constants.h"
#include "calibration/engine_terms.h"
#include "calibration/imported_terms.h"
#include "calibration/logs/log_text.h"
#include "calibration/logs/read_log.h"
#include "model/data_library.h"
#include "model/machine_json.h"

namespace draftboard::calibration {

using model::ErrorCode;
using model::Expected;
using model::fail;

namespace {

constexpr double kPoorFit = 0.10;  // mean error of collectives that is worth a word

struct Logs {
    std::vector<NamedLinkLog> links;
    std::vector<std::pair<std::string, NsightExport>> recordings;
    std::vector<ServingLog> servers;
};

/// By content. A text that no reader of links knows may be a server's log; if it is none either, both say why.
Expected<void> read_one(const std::string& path, Logs& logs) {
    const auto database = is_sqlite_file(path);
    if (!database) return tl::unexpected(database.error());
    if (*database) {
        auto recording = load_nsight_export(path);
        if (!recording) return tl::unexpected(recording.error());
        logs.recordings.emplace_back(path, std::move(*recording));
        return {};
    }
    // Servers' logs may be gigabytes: they are streamed, and tried first.
    auto server = load_serving_log(path);
    if (server) {
        logs.servers.push_back(std::move(*server));
        return {};
    }
    const auto text = model::read_file(path);
    if (!text) return tl::unexpected(text.error());
    auto log = read_log(*text, path);
    if (!log) {
        model::Error error = log.error();
        error.hint += "; as a server's log: " + server.error().message;
        return tl::unexpected(std::move(error));
    }
    logs.links.push_back({path, std::move(*log)});
    return {};
}

Expected<Logs> read_all(const std::vector<std::string>& paths) {
    Logs logs;
    for (const std::string& path : paths) {
        if (auto ok = read_one(path, logs); !ok) return tl::unexpected(ok.error());
    }
    return logs;
}

/// What a recording tells of the host, under the constants' names.
void add_recorded(const std::string& file, const NsightExport& log, const sim::HostConstants& before,
                  std::vector<RecordedTerm>& terms) {
    const std::vector<std::pair<const char*, std::pair<const TimeSummary*, bool>>> kTerms = {
        {"host.kernel_gap_us", {&log.graph_gaps, false}},
        {"host.stream_gap_us", {&log.queued_gaps, false}},
        {"host.eager_launch_us", {&log.launch_intervals, false}},
        {"host.graph_launch_us", {&log.graph_launches, false}},
        {"host.launch_latency_us", {&log.launch_latency, true}}};  // least of it: later starts waited for something
    for (const auto& [name, what] : kTerms) {
        const auto& [us, least] = what;
        const auto* info = sim::find_host_constant(name);
        if (info == nullptr) continue;
        RecordedTerm term{name, before.*(info->field), least ? us->p10 : us->median, us->count, us->p10, us->p90, false, file};
        term.determined = us->count >= kFewRecorded && term.value >= info->low && term.value <= info->high;
        const auto same =
            std::find_if(terms.begin(), terms.end(), [&](const RecordedTerm& one) { return one.name == term.name; });
        if (same == terms.end())
            terms.push_back(term);
        else if (term.count > same->count)
            *same = term;  // the recording with most of it
    }
}

class Importer {
 public:
    explicit Importer(const LogImportOptions& options) : options_(options) {}

    Expected<LogImport> run() {
        if (options_.logs.empty())
            return fail(ErrorCode::invalid_input, "there is no log to import", {}, "name one or more logs");
        auto logs = read_all(options_.logs);
        if (!logs) return tl::unexpected(logs.error());
        logs_ = std::move(*logs);
        if (auto ok = find_base(); !ok) return tl::unexpected(ok.error());
        for (const auto step : {&Importer::fit_pairs, &Importer::fit_rows, &Importer::take_recordings, &Importer::fit_servers}) {
            if (auto ok = (this->*step)(); !ok) return tl::unexpected(ok.error());
        }
        for (const NamedLinkLog& log : logs_.links) {
            if (!log.log.tuning.empty() || !log.log.choices.empty()) {
                note(fmt::format("{}: what NCCL believes is no measurement; the tuning table is left aside", log.file));
            }
            for (const std::string& finding : log.log.findings) note(log.file + ": " + finding);
        }
        if (!result_.collectives && result_.links.empty() && !result_.serving &&
            std::none_of(result_.recorded.begin(), result_.recorded.end(), [](const auto& one) { return one.determined; })) {
            return fail(
                ErrorCode::invalid_input,
                result_.notes.empty() ? "the logs determine nothing" : "the logs determine nothing: " + result_.notes.front(),
                options_.logs.front(), "see docs/validation.md for what each log tells");
        }
        finish();
        return std::move(result_);
    }

 private:
    void note(const std::string& text) {
        if (std::find(result_.notes.begin(), result_.notes.end(), text) == result_.notes.end()) result_.notes.push_back(text);
    }

    Expected<void> find_base() {
        std::string base = options_.base;
        if (!options_.machine.empty()) {
            auto machine = model::find_machine(options_.machine, options_.data_directory);
            if (!machine) return tl::unexpected(machine.error());
            machine_ = std::move(*machine);
        }
        if (!options_.scenario.empty()) {
            auto scenario = model::load_scenario(options_.scenario, options_.data_directory, options_.edits);
            if (!scenario) return tl::unexpected(scenario.error());
            if (options_.machine.empty()) machine_ = scenario->machine;
            if (base.empty() && !scenario->calibration.empty()) base = scenario->calibration;
        }
        if (machine_ && base.empty()) base = machine_->calibration;
        Calibration& out = result_.calibration;
        if (!base.empty()) {
            auto found = find_calibration(base, options_.data_directory);
            if (!found) return tl::unexpected(found.error());
            out = std::move(*found);
            auto terms = load_engine_terms(out.name, options_.data_directory);
            if (!terms) return tl::unexpected(terms.error());
            // The engines' terms go by the base's name; the result has another one and carries them itself.
            for (const auto& [key, kernel] : terms->kernels.entries) out.kernels.entries[key] = kernel;
            auto imported = imported_terms(out);
            if (!imported) return tl::unexpected(imported.error());
            terms_ = std::move(*imported);
            for (const auto& [engine, own] : terms->engines) terms_.engines[engine].insert(own.begin(), own.end());
            base_ = out.name;
        } else if (machine_) {
            out.gpu = machine_->gpu;
        } else {
            out.gpu.name = "unknown";
        }
        const std::string name = options_.name.empty() ? (machine_        ? machine_->name
                                                          : base_.empty() ? "logs"
                                                                          : base_) +
                                                             "-imported"
                                                       : options_.name;
        const auto shipped = model::shipped_names("calibrations", options_.data_directory);
        if (std::find(shipped.begin(), shipped.end(), "engines-" + name) != shipped.end()) {
            return fail(ErrorCode::invalid_input, "is the name of a shipped calibration whose terms would come on top", name,
                        "give another --name");
        }
        out.name = name;
        return {};
    }

    Expected<void> need_machine(const char* what) const {
        if (machine_) return {};
        return fail(ErrorCode::invalid_input, fmt::format("the logs hold {}, and no machine is named that they belong to", what),
                    options_.logs.front(), "name it: --machine FILE, or a shipped one (`draftboard machine show` lists them)");
    }

    Expected<void> fit_pairs() {
        const bool any =
            std::any_of(logs_.links.begin(), logs_.links.end(), [](const auto& one) { return !one.log.matrices.empty(); });
        if (!any) return {};
        if (auto ok = need_machine("pairs of GPUs"); !ok) return ok;
        auto fit = fit_links(logs_.links, *machine_);
        if (!fit) return tl::unexpected(fit.error());
        for (const std::string& text : fit->notes) note(text);
        result_.links = std::move(*fit);
        if (result_.links.empty()) return {};
        machine_ = with_links(std::move(*machine_), result_.links);
        result_.machine = machine_;
        return {};
    }

    Expected<void> fit_rows() {
        std::vector<CollectiveMeasurement> rows;
        std::string files;
        for (const NamedLinkLog& log : logs_.links) {
            if (log.log.rows.empty()) continue;
            if (auto ok = need_machine("collectives"); !ok) return ok;
            auto more = collective_rows_of(log, machine_->name, result_.notes);
            rows.insert(rows.end(), more.begin(), more.end());
            files += (files.empty() ? "" : ", ") + log.file;
        }
        if (rows.empty()) return {};
        CollectiveFitOptions fit_options;
        fit_options.leave_out = options_.leave_out;
        fit_options.source = options_.source.empty() ? files : options_.source + " (" + files + ")";
        auto fit = fit_collectives(rows, *machine_, fit_options);
        if (!fit) return tl::unexpected(fit.error());
        result_.undetermined = undetermined_constants(*fit, fit_options);
        terms_.collectives = fit->constants;
        if (fit->mean_error > kPoorFit) {
            note(
                fmt::format("the collectives are met with {:.0f} % on average only: the machine may be another one, or settings "
                            "of NCCL that no log says",
                            100 * fit->mean_error));
        }
        result_.collectives = std::move(*fit);
        note(fmt::format("collectives are taken as of the first GPUs of {}, back to back as nccl-tests runs them",
                         machine_->name));
        return {};
    }

    Expected<void> take_recordings() {
        sim::CostConstants constants;
        if (auto ok = apply(terms_, constants); !ok) return ok;
        for (const auto& [file, log] : logs_.recordings) {
            add_recorded(file, log, constants.host, result_.recorded);
            for (const std::string& warning : log.warnings) note(file + ": " + warning);
        }
        for (const RecordedTerm& term : result_.recorded) {
            if (term.determined) terms_.host[term.name] = term.value;
        }
        if (!result_.recorded.empty())
            note("a profiler slows the host's calls: launch costs that were recorded are upper bounds");
        return {};
    }

    Expected<void> fit_servers() {
        if (logs_.servers.empty()) return {};
        if (options_.scenario.empty()) {
            return fail(ErrorCode::invalid_input, "a server's log does not say which model, machine and drafter it was",
                        logs_.servers.front().name, "name what the server ran: --scenario SCENARIO");
        }
        ServingFitOptions asked;
        asked.scenario = options_.scenario;
        asked.edits = options_.edits;
        asked.data_directory = options_.data_directory;
        auto scenario = model::load_scenario(options_.scenario, options_.data_directory, options_.edits);
        if (!scenario) return tl::unexpected(scenario.error());
        Calibration so_far = result_.calibration;
        set_imported_terms(so_far, terms_);
        auto constants = cost_constants_of(so_far, *scenario, options_.data_directory);
        if (!constants) return tl::unexpected(constants.error());
        asked.constants = std::move(*constants);
        auto fit = fit_serving_logs(logs_.servers, asked);
        if (!fit) return tl::unexpected(fit.error());
        for (const ServingTerm& term : fit->terms) {
            if (term.determined && term.name.rfind("host.", 0) == 0) terms_.engines[fit->engine][term.name] = term.value;
        }
        result_.calibration.kernels = scaled_kernels(std::move(result_.calibration.kernels), fit->kernel_factor);
        for (const std::string& text : fit->notes) note(text);
        result_.serving = std::move(*fit);
        return {};
    }

    void finish() {
        Calibration& out = result_.calibration;
        set_imported_terms(out, terms_);
        out.description = fmt::format("{}{} as its own logs have it", machine_ ? machine_->name : "A box",
                                      base_.empty() ? "" : ", kernels of " + base_ + ",");
        std::vector<std::string> lines;
        if (!options_.source.empty()) lines.push_back(options_.source);
        for (const std::string& log : options_.logs) lines.push_back("imported: " + log);
        if (result_.collectives) {
            const CollectiveFit& fit = *result_.collectives;
            std::string line = fmt::format("collectives: {} rows, mean error {:.1f} %", fit.points.size(), 100 * fit.mean_error);
            if (fit.held_out_worst_error > 0) line += fmt::format(", of sizes left out {:.1f} %", 100 * fit.held_out_mean_error);
            lines.push_back(std::move(line));
        }
        for (const LinkFactor& link : result_.links.factors) {
            lines.push_back(fmt::format("{} links x {:.3f} over {} pairs, in the machine file", model::to_name(link.kind),
                                        link.factor, link.pairs));
        }
        for (const RecordedTerm& term : result_.recorded) {
            if (term.determined)
                lines.push_back(fmt::format("{} = {:.3g}: {} times in {}", term.name, term.value, term.count, term.file));
        }
        if (result_.serving) {
            for (const ServingTerm& term : result_.serving->terms) {
                if (term.determined)
                    lines.push_back(fmt::format("{} = {:.4g} +- {:.2g}: serving logs of {}", term.name, term.value, term.error,
                                                result_.serving->engine));
            }
        }
        if (!base_.empty()) lines.push_back("the rest: calibration " + base_);
        out.provenance.insert(out.provenance.begin(), lines.begin(), lines.end());
    }

    const LogImportOptions& options_;
    Logs logs_;
    std::optional<model::Machine> machine_;
    std::string base_;
    ImportedTerms terms_;
    LogImport result_;
};

}  // namespace

std::vector<CollectiveMeasurement> collective_rows_of(const NamedLinkLog& log, const std::string& system,
                                                      std::vector<std::string>& notes) {
    std::vector<CollectiveMeasurement> out;
    std::map<std::string, int> aside;
    if (log.log.nodes > 1) {
        notes.push_back(fmt::format("{}: {} hosts; only collectives within one are modelled, its rows are left aside", log.file,
                                    log.log.nodes));
        return out;
    }
    for (const CollectiveRow& row : log.log.rows) {
        const CollectiveTiming& timing = row.out_of_place.measured ? row.out_of_place : row.in_place;
        const auto operation = sim::collective_from_name(row.operation == "alltoall" ? "all_to_all" : row.operation);
        if (!operation)
            ++aside["of operations that are not modelled"];
        else if (row.ranks < 2)
            ++aside["without a known number of ranks"];
        else if (timing.errors > 0)
            ++aside["with wrong results"];
        else if (row.bytes < row.ranks || row.bytes > sim::kMaxCollectiveBytes || !(timing.time_us > 0))
            ++aside["without bytes or time"];
        else
            out.push_back({system, "nccl", *operation, row.ranks, row.bytes, timing.time_us});
    }
    for (const auto& [why, rows] : aside) notes.push_back(fmt::format("{}: {} rows {} are left aside", log.file, rows, why));
    return out;
}

std::vector<std::string> undetermined_constants(const CollectiveFit& fit, const CollectiveFitOptions& options) {
    // The fit's own error of a constant that no row touches: the width of what was assumed, in units of the rows' scatter.
    constexpr double kScatter = 0.05;  // collective_fit.cpp weighs what was assumed as one row of it
    double squares = 0;
    for (const CollectiveFitPoint& point : fit.points)
        squares += std::pow(std::log(point.fitted_us / point.measurement.latency_us), 2);
    const double freedom = std::max(1.0, static_cast<double>(fit.points.size()) - static_cast<double>(fit.fitted.size()));
    const double untouched = options.prior_width * std::sqrt(squares / freedom) / kScatter;
    std::vector<std::string> out;
    for (const FittedConstant& constant : fit.fitted) {
        if (constant.standard_error >= kDetermined * untouched) out.push_back(constant.name);
    }
    return out;
}

Expected<LogImport> import_logs(const LogImportOptions& options) { return Importer(options).run(); }

}  // namespace draftboard::calibration
