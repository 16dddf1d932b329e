// SPDX-License-Identifier: Apache-2.0
// The text that all_reduce_perf and its sisters print, whole or pasted in part. A row is found by its beginning (two whole
// numbers and a type of element), so that it may stand behind launcher tags, among NCCL's own lines, or without a header.
// The JSON form is nccl_tests_json.cpp's; what rows mean together is collective_rows.h's.

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include <fmt/format.h>

#include "calibration/logs/collective_rows.h"
#include "calibration/logs/log_text.h"
#include "calibration/logs/read_log.h"

namespace draftboard::calibration {
namespace {

const char* const kRunTests = "save the whole output of the test, as in `all_reduce_perf -b 8 -e 128M -f 2 -g 8 | tee log.txt`";

using Words = std::vector<std::string_view>;

// Where size, count, type stand; words.size() if they don't.
std::size_t row_begin(const Words& words) {
    for (std::size_t i = 0; i + 3 <= words.size() && i < 8; ++i) {
        const bool type = words[i + 2].size() < 12 && element_bytes(std::string(words[i + 2])) > 0;
        if (type && whole_number(words[i]).value_or(-1) >= 0 && whole_number(words[i + 1]).value_or(-1) >= 0) return i;
    }
    return words.size();
}

// "./build/all_reduce_perf" -> "all_reduce"; empty for other words.
std::string operation_of(std::string_view word) {
    if (const std::size_t slash = word.rfind('/'); slash != std::string_view::npos) word.remove_prefix(slash + 1);
    while (!word.empty() && !std::isalnum(static_cast<unsigned char>(word.back()))) word.remove_suffix(1);
    while (!word.empty() && !std::isalnum(static_cast<unsigned char>(word.front()))) word.remove_prefix(1);
    if (word.size() > 4 && word.substr(word.size() - 4) == "_mpi") word.remove_suffix(4);
    if (word.size() <= 5 || word.size() > 40 || word.substr(word.size() - 5) != "_perf") return {};
    word.remove_suffix(5);
    for (const char c : word) {
        if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_') return {};
    }
    return std::string(word);
}

class TestsReader {
 public:
    explicit TestsReader(std::string name) : name_(std::move(name)) {
        log_.tool = LogTool::nccl_tests;
        log_.format = "text";
    }
    model::Expected<LinkLog> read(const std::string& text);

 private:
    void take(const LogLine& line);
    bool take_head(const LogLine& line, const Words& words);
    void take_device(const Words& words, std::size_t at);
    void take_row(const LogLine& line, const Words& words, std::size_t at);
    bool read_timing(const Words& fields, std::size_t at, CollectiveTiming& timing, PrintedHalves& half) const;
    void begin_run();
    void end_run();
    void fact(const char* key, std::string_view value);

    std::string name_;
    LinkLog log_;
    CollectiveRun run_;
    std::size_t run_devices_ = 0;
    std::size_t rows_ = 0;
    bool header_ = false;      // of this run
    bool has_root_ = false;    // as the header or the rows before say
    bool tests_seen_ = false;  // anything at all that nccl-tests prints
    int first_line_ = 0;
    bool deviations_ = false;  // the header's last column is the old "error"
    bool too_many_ = false;
    bool list_cut_ = false;
    std::unordered_set<std::string> hosts_;
    std::unordered_set<int> ranks_seen_;
};

void TestsReader::fact(const char* key, std::string_view value) {
    if (log_.facts.size() < 32 && !value.empty()) log_.facts.emplace_back(key, shown(value, 60));
}

void TestsReader::end_run() {
    if (run_devices_ > 0 && static_cast<int>(ranks_seen_.size()) < run_.listed_ranks && !run_.rows.empty()) {
        remark(log_.warnings,
               fmt::format("the list of devices is cut: {} of {} ranks are in it", ranks_seen_.size(), run_.listed_ranks));
        list_cut_ = true;
    }
    settle_run(std::move(run_), log_);
}

// Rows that follow belong to another run, unless none was read yet.
void TestsReader::begin_run() {
    if (run_.rows.empty()) return;
    end_run();
    run_ = {};
    run_devices_ = 0;
    ranks_seen_.clear();
    header_ = false;
    deviations_ = false;
}

// "Rank 3 Group 0 Pid 77 on host device 3 [0000:0b:00] NVIDIA H100"
void TestsReader::take_device(const Words& words, std::size_t at) {
    const std::int64_t rank = whole_number(words[at + 1]).value_or(-1);
    if (rank < 0 || rank >= kMaxLogRanks) return;
    begin_run();
    tests_seen_ = true;
    LogGpu gpu;
    gpu.rank = static_cast<int>(rank);
    for (std::size_t i = at + 2; i + 1 < words.size(); ++i) {
        if (words[i] == "on" && gpu.host.empty()) gpu.host = shown(words[i + 1], 60);
        if (words[i] != "device") continue;
        gpu.device = static_cast<int>(std::clamp<std::int64_t>(whole_number(words[i + 1]).value_or(-1), -1, kMaxLogRanks));
        if (i + 2 < words.size() && words[i + 2].front() == '[')
            gpu.bus_id = shown(words[i + 2].substr(1, words[i + 2].find(']') - 1), 20);
        for (std::size_t k = i + 3; k < words.size(); ++k) {
            gpu.name += gpu.name.empty() ? "" : " ";
            gpu.name += shown(words[k], 40);
        }
        break;
    }
    ++run_devices_;
    ranks_seen_.insert(gpu.rank);
    run_.listed_ranks = std::max(run_.listed_ranks, gpu.rank + 1);
    if (!gpu.host.empty() && hosts_.size() < static_cast<std::size_t>(kMaxLogDevices)) hosts_.insert(gpu.host);
    if (log_.gpus.size() < static_cast<std::size_t>(kMaxLogDevices)) log_.gpus.push_back(std::move(gpu));
}

bool TestsReader::take_head(const LogLine& line, const Words& words) {
    const std::string_view text = line.text;
    for (const char* mark : {"Collective test starting:", "Collective test concluded:"}) {
        const auto rest = after(text, mark);
        if (!rest) continue;
        if (mark[16] == 's') begin_run();
        if (run_.operation.empty()) run_.operation = operation_of(*rest);
        return tests_seen_ = true;
    }
    if (const auto rest = after(text, "nThread ")) {
        begin_run();
        fact("threads", rest->substr(0, rest->find(' ')));
        if (const auto value = after(text, "nGpus ")) fact("gpus a thread", value->substr(0, value->find(' ')));
        if (const auto value = after(text, " iters: ")) fact("warm-up iterations", value->substr(0, value->find(' ')));
        if (const auto value = after(text, "graph: ")) fact("graph launches", value->substr(0, value->find(' ')));
        return tests_seen_ = true;
    }
    if (contains(text, "algbw") && contains(text, "size")) {
        begin_run();
        header_ = true;
        deviations_ = !contains(text, "#wrong");
        has_root_ = std::find(words.begin(), words.end(), "root") != words.end();
        return tests_seen_ = true;
    }
    if (const auto rest = after(text, "Out of bounds values :")) {
        if (contains(*rest, "FAILED"))
            remark(log_.findings, fmt::format("line {}: the test failed: {} values out of bounds", line.number,
                                              shown(rest->substr(0, rest->find(' ')), 20)));
        return tests_seen_ = true;
    }
    if (const auto rest = after(text, "Avg bus bandwidth")) {
        const auto value = after(*rest, ":");
        if (value) fact("average busbw, GB/s", value->substr(0, value->find(' ')));
        return tests_seen_ = true;
    }
    if (const auto rest = after(text, "nccl-tests version ")) {
        log_.version = shown(rest->substr(0, rest->find(' ')), 40);
        return tests_seen_ = true;
    }
    if (const auto rest = after(text, "NCCL version ")) {
        fact("NCCL", rest->substr(0, rest->find(' ')));
        return false;
    }
    if (contains(text, "NCCL WARN")) {
        remark(log_.warnings, fmt::format("line {}: {}", line.number, shown(text, 120)));
        return true;
    }
    for (const char* failure : {"Test NCCL failure", "Test CUDA failure", "Test failure"}) {
        if (!contains(text, failure)) continue;
        remark(log_.findings, fmt::format("line {}: {}", line.number, shown(text, 120)));
        return true;
    }
    return false;
}

bool TestsReader::read_timing(const Words& fields, std::size_t at, CollectiveTiming& timing, PrintedHalves& half) const {
    const auto time = printed_number(fields[at]);
    const auto algorithm = printed_number(fields[at + 1]);
    const auto bus = printed_number(fields[at + 2]);
    const auto errors = printed_number(fields[at + 3]);
    if (!time || !algorithm || !bus || (!errors && fields[at + 3] != "N/A")) return false;
    if (time->value < 0 || algorithm->value < 0 || bus->value < 0) return false;
    // Old versions print the largest deviation, which is not zero for right results either: not a count.
    const bool counted =
        errors && errors->value >= 0 && (errors->value == 0 || (!deviations_ && errors->value == std::floor(errors->value)));
    timing = {true, time->value, algorithm->value, bus->value, counted ? errors->value : -1};
    half = {time->half, algorithm->half, bus->half};
    return true;
}

void TestsReader::take_row(const LogLine& line, const Words& words, std::size_t at) {
    tests_seen_ = true;
    if (++rows_ > kMaxLogRows) {
        too_many_ = true;
        return;
    }
    PrintedRow printed;
    CollectiveRow& row = printed.row;
    row.line = line.number;
    row.bytes = whole_number(words[at]).value_or(0);
    row.count = whole_number(words[at + 1]).value_or(0);
    row.dtype = std::string(words[at + 2]);
    std::size_t next = at + 3;
    if (next < words.size() && std::isalpha(static_cast<unsigned char>(words[next].front())) && words[next] != "N/A" &&
        words[next] != "nan" && words[next] != "inf") {
        row.reduction = shown(words[next++], 20);
    }
    const std::size_t left = words.size() - next;
    // Without a header: nine fields are a root and two times four; fewer (a cut row) are like the row before.
    if (!header_ && left >= 9) has_root_ = whole_number(words[next]).has_value();
    if (!header_ && left == 8) has_root_ = false;
    if (has_root_ && left > 0) {
        const auto root = whole_number(words[next]);
        if (root && *root >= -1 && *root < kMaxLogRanks) row.root = static_cast<int>(*root);
        ++next;
    }
    const Words fields(words.begin() + static_cast<std::ptrdiff_t>(std::min(next, words.size())), words.end());
    if (fields.size() < 4) {
        remark(log_.warnings,
               fmt::format("line {}: the row is cut before its first four numbers end; it is left out", line.number));
        return;
    }
    const bool first = read_timing(fields, 0, row.out_of_place, printed.out_of_place);
    const bool second = fields.size() >= 8 && read_timing(fields, 4, row.in_place, printed.in_place);
    if (!first && !second) {
        remark(log_.warnings,
               fmt::format("line {}: its numbers can't be read; it is left out: {}", line.number, shown(line.text, 80)));
        return;
    }
    if (fields.size() < 8) {
        remark(log_.warnings, fmt::format("line {}: the row is cut, its in-place half is missing", line.number));
    } else if (!first || !second) {
        remark(log_.warnings,
               fmt::format("line {}: the {} half can't be read", line.number, first ? "in-place" : "out-of-place"));
    }
    run_.rows.push_back(std::move(printed));
}

void TestsReader::take(const LogLine& line) {
    if (line.text.empty()) return;
    const Words words = split_words(line.text);
    for (std::size_t i = 0; i + 2 < words.size() && i < 4; ++i) {
        if (words[i] == "Rank" && contains(line.text, " device ")) return take_device(words, i);
    }
    const bool before = tests_seen_;
    if (take_head(line, words)) {
        if (!before && tests_seen_) first_line_ = line.number;
        return;
    }
    if (const std::size_t at = row_begin(words); at < words.size()) return take_row(line, words, at);
    // A command line, or prose, that names the test; it counts for the rows below it.
    if (contains(line.text, "_perf") && !contains(line.text, "NCCL INFO")) {
        for (const std::string_view word : words) {
            std::string operation = operation_of(word);
            if (operation.empty()) continue;
            begin_run();
            if (run_.operation.empty()) run_.operation = std::move(operation);
            return;
        }
    }
}

model::Expected<LinkLog> TestsReader::read(const std::string& text) {
    LogLines lines(text);
    LogLine line;
    while (lines.next(line)) take(line);
    end_run();
    if (too_many_) {
        return model::fail(model::ErrorCode::too_large, fmt::format("the log has more than {} rows", kMaxLogRows), name_,
                           "split it");
    }
    if (log_.rows.empty()) {
        const std::string context = at_line(name_, std::max(first_line_, 1));
        if (!log_.findings.empty()) {
            return model::fail(model::ErrorCode::invalid_input, "nccl-tests failed before it measured: " + log_.findings.front(),
                               context, kRunTests);
        }
        if (!log_.warnings.empty()) {
            return model::fail(model::ErrorCode::invalid_input, "no row of nccl-tests can be read: " + log_.warnings.front(),
                               context, kRunTests);
        }
        return model::fail(model::ErrorCode::invalid_input,
                           tests_seen_ ? "nccl-tests started and ended, and there is no row of measurements between"
                                       : "there is no row of nccl-tests in it",
                           context, kRunTests);
    }
    log_.ranks = log_.rows.front().ranks;
    for (const CollectiveRow& row : log_.rows) log_.ranks = row.ranks == log_.ranks ? log_.ranks : 0;
    log_.nodes = list_cut_ ? 0 : static_cast<int>(hosts_.size());
    return std::move(log_);
}

}  // namespace

bool is_nccl_tests_row(std::string_view line) {
    const Words words = split_words(line.substr(0, 256));
    return row_begin(words) < words.size();
}

model::Expected<LinkLog> read_nccl_tests_log(const std::string& text, const std::string& name) {
    return TestsReader(name).read(text);
}

}  // namespace draftboard::calibration
