// SPDX-License-Identifier: Apache-2.0
// What NCCL writes with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=TUNING: at the start one table of latency (us) and algorithm bandwidth
// (GB/s) for each operation, algorithm and protocol, later one line for each call's choice. It is what NCCL believes, not a
// measurement: believed time = latency + bytes / bandwidth; 0/0 cells are pairs that are switched off.
// Worked example: 25.2/11.3 for Tree LL: 14336 B are believed to take 25.2 + 14336 / 11300 = 26.5 us.

#include <algorithm>
#include <array>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "calibration/logs/log_text.h"
#include "calibration/logs/read_log.h"

namespace draftboard::calibration {
namespace {

const char* const kRunTuning = "set NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=TUNING and save what the program prints";

using Cells = std::vector<std::string_view>;

// The fields between bars, trimmed; an empty field behind the last bar is none.
Cells split_bars(std::string_view text) {
    Cells cells;
    while (cells.size() < 128) {
        const std::size_t bar = text.find('|');
        const std::string_view cell = trimmed(text.substr(0, bar));
        if (bar == std::string_view::npos) {
            if (!cell.empty()) cells.push_back(cell);
            break;
        }
        cells.push_back(cell);
        text.remove_prefix(bar + 1);
    }
    return cells;
}

bool is_function(std::string_view word) {
    for (const char* name :
         {"Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce", "SendRecv", "Send", "Recv", "AlltoAll"}) {
        if (word == name) return true;
    }
    return false;
}

std::string operation_name(std::string_view function) {
    std::string name;
    for (const char c : function) {
        const bool upper = c >= 'A' && c <= 'Z';
        if (upper && !name.empty() && name != "send") name += '_';
        name += upper ? static_cast<char>(c - 'A' + 'a') : c;
    }
    return name == "allto_all" ? "alltoall" : name;
}

// Old versions number what they choose.
std::string numbered_name(std::string_view word, bool algorithm) {
    static constexpr std::array<const char*, 7> kAlgorithms = {"Tree",     "Ring", "CollNetDirect", "CollNetChain", "NVLS",
                                                               "NVLSTree", "PAT"};
    static constexpr std::array<const char*, 3> kProtocols = {"LL", "LL128", "Simple"};
    const auto number = whole_number(word);
    if (!number) {
        if (word == "TREE") return "Tree";
        if (word == "RING") return "Ring";
        if (word == "SIMPLE") return "Simple";
        return shown(word, 30);
    }
    const auto at = static_cast<std::size_t>(*number);
    if (*number >= 0 && algorithm && at < kAlgorithms.size()) return kAlgorithms[at];
    if (*number >= 0 && !algorithm && at < kProtocols.size()) return kProtocols[at];
    return shown(word, 30);
}

class TuningReader {
 public:
    explicit TuningReader(std::string name) : name_(std::move(name)) {
        log_.tool = LogTool::nccl_tuning;
        log_.format = "text";
    }
    model::Expected<LinkLog> read(const std::string& text);

 private:
    void take_header(const Cells& cells);
    void take_row(const LogLine& line, const Cells& cells);
    void take_choice(const LogLine& line, std::string_view text);
    void end_table();

    std::string name_;
    LinkLog log_;
    std::vector<std::string> algorithms_;  // by column
    std::vector<std::string> groups_;      // of an "Algorithm" line, each over several protocols
    std::vector<std::string> protocols_;
    std::vector<TuningEntry> table_;
    std::unordered_set<std::string> known_;    // operation, algorithm, protocol of this table
    std::unordered_set<std::string> printed_;  // whole tables
    std::unordered_map<std::string, std::size_t> choice_at_;
    int tables_ = 0;
    int repeated_ = 0;
    bool too_many_ = false;
    bool seen_ = false;
};

// Ranks of one communicator may print the same table; it counts once.
void TuningReader::end_table() {
    if (table_.empty()) return;
    std::string key;
    for (const TuningEntry& entry : table_) {
        key += fmt::format("{} {} {} {} {};", entry.operation, entry.algorithm, entry.protocol, entry.latency_us,
                           entry.bandwidth_gb_s);
    }
    if (printed_.insert(std::move(key)).second) {
        for (TuningEntry& entry : table_) {
            entry.table = tables_;
            log_.tuning.push_back(std::move(entry));
        }
        ++tables_;
    } else {
        ++repeated_;
    }
    table_.clear();
    known_.clear();
}

void TuningReader::take_header(const Cells& cells) {
    seen_ = true;
    if (cells.front() == "Algorithm") {
        groups_.clear();
        algorithms_.clear();
        for (std::size_t i = 1; i < cells.size(); ++i) groups_.push_back(shown(cells[i], 30));
        return;
    }
    protocols_.clear();
    if (cells.front() == "Protocol") {
        for (std::size_t i = 1; i < cells.size(); ++i) protocols_.push_back(shown(cells[i], 30));
        algorithms_.clear();
        const std::size_t span = groups_.empty() ? 0 : protocols_.size() / groups_.size();
        for (std::size_t i = 0; span > 0 && i < span * groups_.size(); ++i) algorithms_.push_back(groups_[i / span]);
        return;
    }
    // "Latency/AlgBw | Tree/ LL | ...": old versions, one line.
    algorithms_.clear();
    for (std::size_t i = 1; i < cells.size(); ++i) {
        const std::size_t slash = cells[i].find('/');
        algorithms_.push_back(shown(trimmed(cells[i].substr(0, slash)), 30));
        protocols_.push_back(slash == std::string_view::npos ? std::string() : shown(trimmed(cells[i].substr(slash + 1)), 30));
    }
}

void TuningReader::take_row(const LogLine& line, const Cells& cells) {
    seen_ = true;
    if (algorithms_.empty() || protocols_.size() < algorithms_.size()) {
        remark(log_.warnings, fmt::format("line {}: a row of a tuning table without its header; it is left out", line.number));
        return;
    }
    if (cells.size() - 1 != algorithms_.size()) {
        remark(log_.warnings, fmt::format("line {}: {} cells where the header has {}{}", line.number, cells.size() - 1,
                                          algorithms_.size(), cells.size() - 1 < algorithms_.size() ? ": the line is cut" : ""));
    }
    const std::string operation = operation_name(cells.front());
    for (std::size_t i = 1; i < cells.size() && i <= algorithms_.size(); ++i) {
        const std::size_t slash = cells[i].find('/');
        if (slash == std::string_view::npos) break;
        const auto latency = printed_number(trimmed(cells[i].substr(0, slash)));
        const auto bandwidth = printed_number(trimmed(cells[i].substr(slash + 1)));
        const bool last_is_cut = line.last && i + 1 == cells.size() && i < algorithms_.size();
        if (!latency || !bandwidth || latency->value < 0 || bandwidth->value < 0 || last_is_cut) {
            remark(log_.warnings,
                   fmt::format("line {}: '{}' is no latency/bandwidth; it is left out", line.number, shown(cells[i], 30)));
            continue;
        }
        const std::string key = operation + " " + algorithms_[i - 1] + " " + protocols_[i - 1];
        if (known_.count(key) != 0) end_table();
        known_.insert(key);
        if (log_.tuning.size() + table_.size() >= kMaxLogRows) {
            too_many_ = true;
            return;
        }
        table_.push_back({line.number, 0, operation, algorithms_[i - 1], protocols_[i - 1], latency->value, bandwidth->value});
    }
}

// "AllReduce: 4096 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..1}", before 2.2x "4096 Bytes -> Algo 0 proto 0 time 26.5"
void TuningReader::take_choice(const LogLine& line, std::string_view text) {
    const std::size_t at = text.find(" Bytes -> Algo ");
    const auto before = split_words(text.substr(0, at));
    const auto behind = split_words(text.substr(at + 15));
    if (before.empty() || behind.size() < 3 || behind[1] != "proto") return;
    TuningChoice choice;
    choice.line = line.number;
    choice.bytes = whole_number(before.back()).value_or(-1);
    if (choice.bytes < 0) return;
    seen_ = true;
    if (before.size() > 1 && before[before.size() - 2].back() == ':') {
        std::string_view function = before[before.size() - 2];
        function.remove_suffix(1);
        if (is_function(function)) choice.operation = operation_name(function);
    }
    choice.algorithm = numbered_name(behind[0], true);
    choice.protocol = numbered_name(behind[2], false);
    if (const auto channels = after(text, "={")) {
        const std::size_t dots = channels->find("..");
        const std::size_t end = channels->find('}');
        if (dots != std::string_view::npos && end != std::string_view::npos && dots + 2 <= end) {
            const std::int64_t low = whole_number(channels->substr(0, dots)).value_or(-1);
            const std::int64_t high = whole_number(channels->substr(dots + 2, end - dots - 2)).value_or(-1);
            if (low >= 0 && high >= low && high < 1024) {
                choice.channel_low = static_cast<int>(low);
                choice.channel_high = static_cast<int>(high);
            }
        }
    }
    if (behind.size() >= 5 && behind[3] == "time") {
        const auto time = printed_number(behind[4]);
        if (time && time->value >= 0) choice.time_us = time->value;
    }
    const std::string key = fmt::format("{} {} {} {} {} {} {}", choice.operation, choice.bytes, choice.algorithm, choice.protocol,
                                        choice.channel_low, choice.channel_high, choice.time_us);
    const auto found = choice_at_.find(key);
    if (found != choice_at_.end()) {
        ++log_.choices[found->second].calls;
    } else if (log_.choices.size() >= kMaxLogRows) {
        too_many_ = true;
    } else {
        choice_at_.emplace(key, log_.choices.size());
        log_.choices.push_back(std::move(choice));
    }
}

model::Expected<LinkLog> TuningReader::read(const std::string& text) {
    LogLines lines(text);
    LogLine line;
    while (lines.next(line)) {
        const std::string_view body = after(line.text, "NCCL INFO").value_or(line.text);
        if (const auto rest = after(body, "NCCL version "); rest && log_.version.empty()) {
            log_.version = shown(rest->substr(0, rest->find(' ')), 40);
        }
        if (const auto rest = after(body, "nRanks "); rest && log_.ranks == 0) {
            const std::int64_t ranks = whole_number(rest->substr(0, rest->find(' '))).value_or(0);
            if (ranks > 0 && ranks <= kMaxLogRanks) log_.ranks = static_cast<int>(ranks);
        }
        if (const auto rest = after(body, "nNodes "); rest && log_.nodes == 0) {
            const std::int64_t nodes = whole_number(rest->substr(0, rest->find(' '))).value_or(0);
            if (nodes > 0 && nodes <= kMaxLogRanks) log_.nodes = static_cast<int>(nodes);
        }
        if (contains(body, " Bytes -> Algo ")) {
            take_choice(line, body);
            continue;
        }
        if (!contains(body, "|")) continue;
        const Cells cells = split_bars(body);
        if (cells.size() < 2) continue;
        if (cells.front() == "Algorithm" || cells.front() == "Protocol" || cells.front() == "Latency/AlgBw") {
            take_header(cells);
        } else if (is_function(cells.front()) && contains(cells[1], "/")) {
            take_row(line, cells);
        }
        if (too_many_) break;
    }
    end_table();
    if (too_many_) {
        return model::fail(model::ErrorCode::too_large, fmt::format("the log has more than {} entries of tuning", kMaxLogRows),
                           name_, "split it");
    }
    if (log_.tuning.empty() && log_.choices.empty()) {
        return model::fail(model::ErrorCode::invalid_input,
                           seen_ ? "the tuning table is cut before its first row ends" : "there is no tuning table of NCCL in it",
                           at_line(name_, 1), kRunTuning);
    }
    if (tables_ > 1) {
        remark(log_.warnings, fmt::format("{} different tables: several communicators, or several runs", tables_));
    }
    if (repeated_ > 0) remark(log_.warnings, fmt::format("{} repeated tables are left out", repeated_));
    return std::move(log_);
}

}  // namespace

model::Expected<LinkLog> read_nccl_tuning_log(const std::string& text, const std::string& name) {
    return TuningReader(name).read(text);
}

}  // namespace draftboard::calibration
