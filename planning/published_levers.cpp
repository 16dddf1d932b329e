// SPDX-License-Identifier: Apache-2.0
#include "planning/published_levers.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "calibration/backtest.h"
#include "calibration/csv_table.h"
#include "planning/contest.h"

namespace draftboard::planning {

using calibration::PublishedRow;
using model::ErrorCode;
using model::Expected;

namespace {

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

tl::unexpected<model::Error> skip(const std::string& reason) { return model::fail(ErrorCode::unsupported, reason); }

/// The whole number right behind `mark`, where a word begins; none there: nothing.
std::optional<std::int64_t> number_behind(std::string_view text, std::string_view mark) {
    for (auto at = text.find(mark); at != std::string_view::npos; at = text.find(mark, at + 1)) {
        if (at > 0 && std::isalnum(static_cast<unsigned char>(text[at - 1])) != 0) continue;
        std::string digits;
        bool thousand = false;
        for (std::size_t i = at + mark.size(); i < text.size(); ++i) {
            const char c = text[i];
            if (c >= '0' && c <= '9') {
                digits += c;
            } else if (c == ',' && !digits.empty() && i + 1 < text.size() && text[i + 1] >= '0' && text[i + 1] <= '9') {
                continue;  // 10,000
            } else {
                thousand = c == 'k' || c == 'K';
                break;
            }
        }
        std::int64_t value = 0;
        if (digits.empty() || digits.size() > 9) continue;
        std::from_chars(digits.data(), digits.data() + digits.size(), value);
        return thousand ? value * 1024 : value;
    }
    return std::nullopt;
}

/// What both sides have in common, from the publisher's conditions.
Expected<PublishedRow> common_row(const PublishedPair& pair) {
    const std::string& c = pair.conditions;
    PublishedRow row;
    row.line = pair.line;
    row.id = pair.id;
    row.model = pair.model;
    const bool kimi = pair.model.starts_with("Kimi");
    row.weights_quant = kimi ? "INT4" : "NVFP4";
    row.engine = contains(c, "SGLang") || contains(c, "b12x") ? "SGLang" : "vLLM";
    if (kimi || row.engine == "vLLM") row.kv_dtype = pair.model.starts_with("Qwen") ? "" : "fp8";
    if (contains(c, "b12x")) row.engine_notes = "moe-runner b12x";
    if (contains(c, "ASUS")) row.topology = "Broadcom switches";
    row.gpus = pair.gpus;
    row.tp = static_cast<int>(number_behind(c, "TP").value_or(pair.gpus));
    row.dcp = static_cast<int>(number_behind(c, "DCP").value_or(1));
    // "0/C16" and "16k/C1" are context and users.
    std::optional<std::int64_t> users = number_behind(c, "C");
    if (!users) users = number_behind(c, "c=");
    if (!users) users = number_behind(c, "conc=");
    std::optional<std::int64_t> context = number_behind(c, "ctx ");
    if (!context) context = number_behind(c, "ctx=");
    if (!context) context = number_behind(c, "ctx");
    if (!context && contains(c, "/C")) {
        std::size_t begin = c.find("/C");
        while (begin > 0 && (std::isdigit(static_cast<unsigned char>(c[begin - 1])) != 0 || c[begin - 1] == 'k')) --begin;
        context = number_behind(std::string_view(c).substr(begin), "");
    }
    if (!context && contains(c, "128k")) context = 131072;
    if (contains(c, "ctx/C ")) {  // "ctx/C 0/64"
        const auto at = c.find("ctx/C ") + 6;
        const auto slash = c.find('/', at);
        context = number_behind(std::string_view(c).substr(at), "");
        if (slash != std::string::npos) users = number_behind(std::string_view(c).substr(slash + 1), "");
    }
    if (!users) return skip("number of users not stated");
    row.concurrency = static_cast<int>(*users);
    row.context_tokens = context.value_or(0);
    row.date = contains(pair.source, "2026-04") ? "2026-04" : "2026-05";
    row.source_path = pair.source;
    row.notes = pair.notes;
    row.spec_method = "none";
    const std::string drafter = kimi ? "eagle3" : "mtp";
    const bool off = contains(c, "no MTP") || contains(c, "MTP off") || contains(c, "spec=none") || contains(c, "spec none");
    if (!off && (contains(c, "MTP") || contains(c, "spec=")) && !contains(pair.notes, "no spec")) {
        row.spec_method = drafter;
        if (const auto k = number_behind(c, "MTP")) row.spec_k = static_cast<int>(*k);
    }
    if (contains(pair.notes, "acceptance 0.")) {
        const auto at = pair.notes.find("acceptance 0.") + 11;
        double rate = 0;
        std::from_chars(pair.notes.data() + at, pair.notes.data() + pair.notes.size(), rate);
        if (rate > 0 && rate < 1) row.acceptance_rate = rate;
    }
    return row;
}

/// Puts in what the lever changes; false: no rule.
bool apply_rule(const PublishedPair& pair, PairRows& rows) {
    const std::string& lever = pair.lever;
    PublishedRow& a = rows.before;
    PublishedRow& b = rows.after;
    const auto both = [&](auto change) {
        change(a);
        change(b);
    };
    if (contains(lever, "full CUDA graph")) {
        rows.group = "verify in a full graph";
        a.cuda_graph = "piecewise";
        b.cuda_graph = "full";
    } else if (lever.starts_with("DCP ") || lever.starts_with("KV DCP")) {
        rows.group = "DCP";
        a.dcp = static_cast<int>(number_behind(lever, "DCP ").value_or(1));
        b.dcp = static_cast<int>(number_behind(lever, "-> ").value_or(1));
    } else if (lever.starts_with("MTP/eagle3 off -> on") || lever.starts_with("MTP off -> ")) {
        rows.group = "speculation";
        if (contains(lever, "PP4")) b.pp = a.pp = 4;
        a.spec_method = "none";
        b.spec_method = pair.model.starts_with("Kimi") ? "eagle3" : "mtp";
        if (const auto k = number_behind(lever, "MTP=")) b.spec_k = static_cast<int>(*k);
        if (const auto k = number_behind(lever, "k=")) b.spec_k = static_cast<int>(*k);
        if (const auto k = number_behind(lever, "steps")) b.spec_k = static_cast<int>(*k);
        if (contains(pair.conditions, "oneshot")) both([](PublishedRow& row) { row.allreduce_impl = "PCIe oneshot"; });
    } else if (lever.starts_with("MoE backend cutlass -> b12x")) {
        rows.group = "MoE kernel";
        a.engine_notes = "moe-runner cutlass";
        b.engine_notes = "moe-runner b12x";
    } else if (lever.starts_with("VLLM_ENABLE_PCIE_ALLREDUCE")) {
        rows.group = "one-shot all-reduce";
        a.allreduce_impl = "VLLM_ENABLE_PCIE_ALLREDUCE=0";
        b.allreduce_impl = "VLLM_ENABLE_PCIE_ALLREDUCE=1";
    } else if (lever.starts_with("NCCL -> PCIe oneshot AR")) {
        rows.group = "one-shot all-reduce";
        if (contains(lever, "8 GPU")) both([](PublishedRow& row) { row.topology = "Broadcom switches"; });
        a.allreduce_impl = "NCCL";
        b.allreduce_impl = "PCIe oneshot";
    } else if (lever.starts_with("pure NCCL -> stage1")) {
        rows.group = "one-shot all-reduce";
        a.allreduce_impl = "pure NCCL";
        b.allreduce_impl = "stage1<=56KB custom AR + NCCL";
    } else if (lever.starts_with("custom AR off -> on")) {
        rows.group = "one-shot all-reduce";
        a.allreduce_impl = "NCCL";
        b.allreduce_impl = "custom AR";
        if (contains(lever, "no ForceP2P")) both([](PublishedRow& row) { row.nccl_env = "before ForceP2P"; });
    } else if (lever.starts_with("custom AR one-stage cutoff")) {
        rows.group = "cut-off of the custom all-reduce";
        const auto arrow = lever.find("-> ");
        a.allreduce_impl = "custom AR one-stage 56KB rows<=8";
        b.allreduce_impl = "custom AR one-stage " + lever.substr(arrow == std::string::npos ? 0 : arrow + 3);
    } else if (lever.starts_with("ForceP2P driver override off -> on")) {
        rows.group = "ForceP2P";
        both([](PublishedRow& row) { row.allreduce_impl = "custom AR"; });
        a.nccl_env = "before ForceP2P";
    } else if (lever.starts_with("NCCL P2P on -> off")) {
        rows.group = "NCCL peer access";
        both([](PublishedRow& row) { row.allreduce_impl = "NCCL"; });
        if (contains(lever, "no ForceP2P")) both([](PublishedRow& row) { row.nccl_env = "before ForceP2P"; });
        b.nccl_env += " NCCL_P2P_DISABLE=1 channels 16";
    } else if (lever.starts_with("P2P off -> on") || lever.starts_with("P2P disabled")) {
        rows.group = "NCCL peer access";
        both([](PublishedRow& row) { row.allreduce_impl = "NCCL"; });
        a.nccl_env = "NCCL_P2P_DISABLE=1";
    } else if (lever.starts_with("NCCL_PROTO / AR stage: pure NCCL default")) {
        rows.group = "NCCL protocol";
        both([](PublishedRow& row) { row.allreduce_impl = "pure NCCL"; });
        b.nccl_env = contains(lever, "LL128") ? "NCCL_PROTO=LL,LL128,Simple" : "NCCL_PROTO=LL";
    } else if (lever.starts_with("NCCL graph XML -> PR2127") || lever.starts_with("official NCCL+XML -> PR2127")) {
        rows.group = "NCCL graph";
        a.nccl_env = "XML";
        b.nccl_env = "PR2127 no XML";
    } else if (lever.starts_with("NCCL_P2P_LEVEL default -> SYS")) {
        rows.group = "NCCL peer access";
        both([](PublishedRow& row) { row.allreduce_impl = "PCIe oneshot"; });
        a.nccl_env = "no XML";
        b.nccl_env = "NCCL_P2P_LEVEL=SYS no XML";
    } else if (lever.starts_with("KV fp8 -> bf16")) {
        rows.group = "KV format";
        a.kv_dtype = "fp8";
        b.kv_dtype = "bf16";
    } else if (lever.starts_with("TP8 -> TP16")) {
        rows.group = "tensor parallel degree";
        a.gpus = a.tp = 8;
        b.gpus = b.tp = 16;
    } else {
        return false;
    }
    return true;
}

/// "derived from KV2-043 and KV2-021": the plain or earlier row first.
bool from_grid(const PublishedPair& pair, const std::vector<PublishedRow>& grid, PairRows& rows) {
    const std::string mark = "derived from ";
    const auto at = pair.notes.find(mark);
    const auto middle = pair.notes.find(" and ", at == std::string::npos ? 0 : at);
    if (at == std::string::npos || middle == std::string::npos) return false;
    const std::string first = pair.notes.substr(at + mark.size(), middle - at - mark.size());
    const std::string rest = pair.notes.substr(middle + 5);
    const std::string second = rest.substr(0, rest.find_first_of("; ,"));
    const PublishedRow* found[2] = {nullptr, nullptr};
    for (const PublishedRow& row : grid) {
        if (row.id == first) found[0] = &row;
        if (row.id == second) found[1] = &row;
    }
    if (found[0] == nullptr || found[1] == nullptr) return false;
    rows.before = *found[0];
    rows.after = *found[1];
    return true;
}

double median(std::vector<double> values) {
    if (values.empty()) return 0;
    std::sort(values.begin(), values.end());
    const std::size_t n = values.size();
    return n % 2 == 1 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

PairGroup summary(const std::string& name, const std::vector<PairResult>& results, bool all) {
    PairGroup group;
    group.name = name;
    std::vector<double> errors;
    for (const PairResult& one : results) {
        if (!one.is_predicted() || (!all && one.group != name)) continue;
        errors.push_back(std::fabs(one.predicted.value / one.measured - 1));
        group.held += one.held() ? 1 : 0;
        if (std::fabs(std::log(one.measured)) <= std::log1p(calibration::kNoise)) continue;
        ++group.sign_pairs;
        group.sign_right += (one.measured > 1) == (one.predicted.value > 1) ? 1 : 0;
    }
    group.pairs = errors.size();
    group.median_error = median(std::move(errors));
    return group;
}

/// What a contest needs of a predicted cell.
sim::Prediction prediction_of(const calibration::BacktestCell& cell) {
    sim::Prediction p;
    p.terms = cell.terms;
    p.tokens_per_second = cell.predicted;
    p.acceptance_length = {1, 1, 1};
    if (cell.speculates) p.acceptance_length = sim::interval_around(2, calibration::kAcceptanceSpread);
    return p;
}

}  // namespace

Expected<std::vector<PublishedPair>> parse_published_pairs(std::string_view text, const std::string& name) {
    const auto table = calibration::CsvTable::parse(text, name);
    if (!table) return tl::unexpected(table.error());
    if (auto complete =
            table->require({"id", "lever", "model", "gpus", "before_value", "after_value", "unit", "conditions", "source_path"});
        !complete) {
        return tl::unexpected(complete.error());
    }
    if (table->rows() > calibration::kMaxPublishedRows) {
        return model::fail(ErrorCode::too_large,
                           fmt::format("{} rows; {} is the most", table->rows(), calibration::kMaxPublishedRows), name, "");
    }
    std::vector<PublishedPair> pairs;
    for (std::size_t i = 0; i < table->rows(); ++i) {
        PublishedPair pair;
        pair.line = table->line(i);
        const auto field = [&](std::string_view column) {
            return table->has(column) ? table->text(i, column).value_or("") : std::string();
        };
        const auto value = [&](std::string_view column) -> Expected<std::optional<double>> {
            if (field(column).empty()) return std::optional<double>();
            const auto read = table->number(i, column, 0, 1e12);
            if (!read) return tl::unexpected(read.error());
            return std::optional<double>(*read);
        };
        pair.id = field("id");
        pair.lever = field("lever");
        pair.model = field("model");
        pair.conditions = field("conditions");
        pair.unit = field("unit");
        pair.source = field("source_path");
        pair.notes = field("notes");
        if (!field("gpus").empty()) {
            const auto gpus = table->integer(i, "gpus", 0, 1 << 20);
            if (!gpus) return tl::unexpected(gpus.error());
            pair.gpus = static_cast<int>(*gpus);
        }
        const auto before = value("before_value");
        const auto after = value("after_value");
        if (!before) return tl::unexpected(before.error());
        if (!after) return tl::unexpected(after.error());
        pair.before = *before;
        pair.after = *after;
        pairs.push_back(std::move(pair));
    }
    return pairs;
}

Expected<PairRows> rows_of(const PublishedPair& pair, const std::vector<PublishedRow>& grid) {
    if (!pair.before || !pair.after || *pair.before <= 0 || *pair.after <= 0) return skip("one of the two values is not stated");
    if (pair.unit != "tok/s") return skip("not a rate of decoding (" + pair.unit.substr(0, 40) + ")");
    if (contains(pair.notes, "not a valid") || contains(pair.conditions, "broken acceptance"))
        return skip("the publisher says that it is no valid pair");
    PairRows rows;
    auto common = common_row(pair);
    if (common) {
        rows.before = *common;
        rows.after = *common;
    }
    if (!apply_rule(pair, rows)) return skip("nothing in a scenario stands for this lever");
    if (!from_grid(pair, grid, rows) && !common) return tl::unexpected(common.error());
    rows.before.id = pair.id + " before";
    rows.after.id = pair.id + " after";
    rows.before.tokens_per_second = pair.before;
    rows.after.tokens_per_second = pair.after;
    return rows;
}

Expected<PairReport> hold_against_published(const std::vector<PublishedPair>& pairs, const std::vector<PublishedRow>& grid,
                                            const std::string& data_directory) {
    PairReport report;
    std::vector<PublishedRow> rows;
    calibration::BacktestLibrary library(data_directory);
    for (const PublishedPair& pair : pairs) {
        PairResult result;
        result.pair = pair;
        if (const auto both = rows_of(pair, grid); !both) {
            result.reason = both.error().message;
        } else {
            result.group = both->group;
            for (const PublishedRow* row : {&both->before, &both->after}) {
                if (const auto told = library.scenario_of(*row); !told && result.reason.empty())
                    result.reason = told.error().message;
            }
            if (result.reason.empty()) {
                rows.push_back(both->before);
                rows.push_back(both->after);
            }
        }
        report.results.push_back(std::move(result));
    }
    const auto backtest = calibration::backtest(rows, data_directory);
    if (!backtest) return tl::unexpected(backtest.error());
    std::map<std::string, const calibration::BacktestCell*> cells;
    for (const calibration::BacktestCell& cell : backtest->cells) cells[cell.row.id] = &cell;
    for (PairResult& result : report.results) {
        if (!result.is_predicted()) continue;
        const auto before = cells.find(result.pair.id + " before");
        const auto after = cells.find(result.pair.id + " after");
        if (before == cells.end() || after == cells.end()) {
            result.reason = "could not be predicted";
            continue;
        }
        model::Scenario a;
        model::Scenario b;
        if (before->second->speculates) a.speculation.method = model::SpeculationMethod::mtp;
        if (after->second->speculates) b.speculation.method = model::SpeculationMethod::mtp;
        // The unmeasured shape of drafts does not enter: both sides draft alike, or one not at all.
        a.speculation.acceptance.tree_length = b.speculation.acceptance.tree_length = 1;
        const Contest duel = contest(a, prediction_of(*before->second), b, prediction_of(*after->second));
        result.measured = *result.pair.after / *result.pair.before;
        result.before = before->second->predicted.value;
        result.after = after->second->predicted.value;
        result.predicted = sim::interval_around(duel.gain.value, std::hypot(duel.sigma, sim::kRunSigma, sim::kRunSigma));
    }
    std::map<std::string, bool> names;
    for (const PairResult& result : report.results) {
        if (result.is_predicted()) {
            names[result.group] = true;
        } else {
            ++report.reasons[result.reason];
        }
    }
    report.overall = summary("all", report.results, true);
    for (const auto& [name, present] : names) report.groups.push_back(summary(name, report.results, false));
    return report;
}

namespace {

std::string percent(double ratio) { return fmt::format("{:+.1f} %", 100 * (ratio - 1)); }

}  // namespace

Document pair_document(const PairReport& report, const std::string& table_name) {
    Document document;
    document.title = "Predicted gains against published pairs";
    auto& blocks = document.blocks;
    blocks.push_back(
        Paragraph{fmt::format("{}: {} pairs, {} of them predicted. Median error of the ratio {:.1f} %; right side of 1 in {} of "
                              "{} pairs that differ by more than 5 %; "
                              "{} of {} inside of the 90 % interval.",
                              table_name, report.results.size(), report.overall.pairs, 100 * report.overall.median_error,
                              report.overall.sign_right, report.overall.sign_pairs, report.overall.held, report.overall.pairs)});
    blocks.push_back(Heading{2, "By lever"});
    Table groups;
    groups.head = {"lever", "pairs", "median error", "sign right", "inside 90 %"};
    for (const PairGroup& group : report.groups) {
        groups.rows.push_back({group.name, std::to_string(group.pairs), fmt::format("{:.1f} %", 100 * group.median_error),
                               fmt::format("{} of {}", group.sign_right, group.sign_pairs),
                               fmt::format("{} of {}", group.held, group.pairs)});
    }
    blocks.push_back(std::move(groups));
    blocks.push_back(Heading{2, "Each pair"});
    Table pairs;
    pairs.head = {"id", "lever", "model", "conditions", "measured", "predicted", "low", "high", ""};
    pairs.text_columns = 4;
    for (const PairResult& one : report.results) {
        if (!one.is_predicted()) continue;
        pairs.rows.push_back({one.pair.id, one.pair.lever, one.pair.model, one.pair.conditions, percent(one.measured),
                              percent(one.predicted.value), percent(one.predicted.low), percent(one.predicted.high),
                              one.held() ? "" : "outside"});
    }
    blocks.push_back(std::move(pairs));
    blocks.push_back(Heading{2, "Not predicted"});
    Table rest;
    rest.head = {"id", "lever", "model", "conditions", "why", "measured"};
    rest.text_columns = 5;
    for (const PairResult& one : report.results) {
        if (one.is_predicted()) continue;
        const bool both = one.pair.before && one.pair.after && *one.pair.before > 0;
        rest.rows.push_back({one.pair.id, one.pair.lever, one.pair.model, one.pair.conditions, one.reason,
                             both ? percent(*one.pair.after / *one.pair.before) : "-"});
    }
    blocks.push_back(std::move(rest));
    return document;
}

model::Json pair_json(const PairReport& report) {
    const auto group_json = [](const PairGroup& group) {
        return model::Json{{"name", group.name},
                           {"pairs", group.pairs},
                           {"median_absolute_error", group.median_error},
                           {"sign_pairs", group.sign_pairs},
                           {"sign_right", group.sign_right},
                           {"inside_90", group.held}};
    };
    model::Json json = group_json(report.overall);
    model::Json out{{"format", "draftboard.published_levers"}, {"version", 1}, {"overall", json}};
    model::Json groups = model::Json::array();
    for (const PairGroup& group : report.groups) groups.push_back(group_json(group));
    out["groups"] = std::move(groups);
    model::Json pairs = model::Json::array();
    for (const PairResult& one : report.results) {
        model::Json entry{
            {"id", one.pair.id}, {"lever", one.pair.lever}, {"model", one.pair.model}, {"conditions", one.pair.conditions}};
        if (one.is_predicted()) {
            entry["measured"] = one.measured;
            entry["predicted"] = {{"value", one.predicted.value}, {"low", one.predicted.low}, {"high", one.predicted.high}};
            entry["predicted_before"] = one.before;
            entry["predicted_after"] = one.after;
        } else {
            entry["reason"] = one.reason;
        }
        pairs.push_back(std::move(entry));
    }
    out["pairs"] = std::move(pairs);
    return out;
}

}  // namespace draftboard::planning
