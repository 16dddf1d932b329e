// SPDX-License-Identifier: Apache-2.0
// What nvbandwidth prints, as text (several runs one after the other, too) and as JSON (-j). The line above a matrix says which
// side is the source: "GPU(row) <- GPU(column)" moves from the column's GPU to the row's. Values become GB/s and us.
// A matrix's SUM is held against its cells: |SUM - sum of cells| <= half a digit of each.

#include <cmath>
#include <limits>
#include <optional>
#include <unordered_set>

#include <fmt/format.h>

#include "calibration/logs/log_text.h"
#include "calibration/logs/pair_table.h"
#include "calibration/logs/read_log.h"

namespace draftboard::calibration {
namespace {

using model::ErrorCode;
using nlohmann::json;

const char* const kRunTool = "save the whole output of `nvbandwidth -t NAME`, or of `nvbandwidth -j`";

enum class Side { row, column, all };

struct Description {
    std::string from_kind;
    std::string to_kind;
    Side from = Side::row;
    Side to = Side::column;
    bool bidirectional = false;
    double scale = 1;  // to GB/s or us
    std::string unit;
};

Side side_of(std::string_view text, std::string& kind) {
    kind = contains(text, "CPU") ? "CPU" : "GPU";
    if (contains(text, "(row)")) return Side::row;
    if (contains(text, "(column)")) return Side::column;
    kind = "all GPUs";
    return Side::all;
}

// "memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)"; JSON has the unit without parentheses.
std::optional<Description> read_description(std::string_view text) {
    if (!contains(text, "(row)") && !contains(text, "(column)")) return std::nullopt;
    Description description;
    if (contains(text, "GB/s")) {
        description.unit = "GB/s";
    } else if (contains(text, "(ns)") || contains(text, " ns")) {
        description.unit = "us";
        description.scale = 1e-3;
    } else if (contains(text, "(us)") || contains(text, " us")) {
        description.unit = "us";
    } else {
        return std::nullopt;
    }
    for (const char* arrow : {"<->", "<-", "->"}) {
        const std::size_t at = text.find(arrow);
        if (at == std::string_view::npos) continue;
        const bool backward = arrow[0] == '<' && arrow[1] == '-' && arrow[2] == '\0';
        const std::string_view left = text.substr(0, at);
        const std::string_view right = text.substr(at + std::string_view(arrow).size());
        description.bidirectional = arrow[0] == '<' && !backward;
        description.from = side_of(backward ? right : left, description.from_kind);
        description.to = side_of(backward ? left : right, description.to_kind);
        return description;
    }
    // Within one GPU: "memcpy local GPU(column)".
    description.from = side_of(text, description.from_kind);
    description.to = side_of(text, description.to_kind);
    return description;
}

int index_at(Side side, int row, int column) { return side == Side::row ? row : side == Side::column ? column : -1; }

PairMatrix begin_matrix(const std::string& test, const Description& description, int line) {
    PairMatrix matrix;
    matrix.line = line;
    matrix.what = test;
    matrix.unit = description.unit;
    matrix.from_kind = description.from_kind;
    matrix.to_kind = description.to_kind;
    // A latency's arrow has two heads because it is a round trip of loads, not because of traffic.
    matrix.bidirectional = description.unit == "GB/s" && (description.bidirectional || contains(test, "bidirectional"));
    // Of two opposite copies between host and GPU, the test's name says which one is timed.
    if (starts_with(test, "device_to_host") && matrix.from_kind == "CPU" && matrix.to_kind == "GPU") {
        std::swap(matrix.from_kind, matrix.to_kind);
    }
    return matrix;
}

void add_cell(PairMatrix& matrix, const Description& description, int row, int column, double value) {
    int from = index_at(description.from, row, column);
    int to = index_at(description.to, row, column);
    if (description.from_kind != matrix.from_kind) std::swap(from, to);
    const bool same_kind = matrix.from_kind == matrix.to_kind;
    const bool itself = same_kind && from == to && description.from != description.to;
    if (itself && value == 0) return;  // a GPU and itself: not measured
    matrix.values.push_back({from, to, value * description.scale});
}

class TextReader {
 public:
    explicit TextReader(std::string name) : name_(std::move(name)) {
        log_.tool = LogTool::nvbandwidth;
        log_.format = "text";
    }
    model::Expected<LinkLog> read(const std::string& text);

 private:
    bool take_head(const LogLine& line);
    void end_matrix();
    void check_sum(const LogLine& line);
    void fact(const char* key, std::string_view value);

    std::string name_;
    LinkLog log_;
    std::string test_;
    std::optional<Description> description_;
    int description_line_ = 0;
    PairTable table_;
    std::size_t cells_ = 0;
    bool has_sum_ = false;  // of the matrix before
    double sum_ = 0;
    double sum_half_ = 0;
    int runs_ = 0;
    int failed_line_ = 0;
    std::vector<std::string> waived_;
    std::unordered_set<int> devices_;
};

void TextReader::fact(const char* key, std::string_view value) {
    for (const auto& entry : log_.facts) {
        if (entry.first == key) return;
    }
    if (!value.empty()) log_.facts.emplace_back(key, shown(value, 60));
}

void TextReader::end_matrix() {
    if (description_) {
        if (table_.rows() == 0) {
            remark(log_.warnings, fmt::format("line {}: a matrix is announced and not there", description_line_));
        } else if (log_.matrices.size() < kMaxLogMatrices) {
            PairMatrix matrix = begin_matrix(test_, *description_, table_.line());
            has_sum_ = true;
            sum_ = sum_half_ = 0;
            for (const PairCell& cell : table_.cells()) {
                add_cell(matrix, *description_, cell.row, cell.column, cell.number.value);
                sum_ += cell.number.value;
                sum_half_ += cell.number.half;
            }
            cells_ += table_.cells().size();
            if (test_.empty())
                remark(log_.warnings, fmt::format("line {}: the test of the matrix is not named", description_line_));
            log_.matrices.push_back(std::move(matrix));
        }
    }
    description_.reset();
    table_ = {};
}

// "SUM host_to_device_memcpy_ce 441.72"
void TextReader::check_sum(const LogLine& line) {
    const auto words = split_words(line.text);
    const auto sum = words.size() >= 3 ? printed_number(words.back()) : std::nullopt;
    if (!sum || !has_sum_) return;
    has_sum_ = false;
    if (std::abs(sum->value - sum_) > (sum->half + sum_half_) * (1 + 1e-9)) {
        remark(log_.findings,
               fmt::format("line {}: SUM says {:.2f}, the cells of the matrix make {:.2f}", line.number, sum->value, sum_));
    }
}

bool TextReader::take_head(const LogLine& line) {
    const std::string_view text = line.text;
    if (const auto version = after(text, "nvbandwidth Version:")) {
        ++runs_;
        if (log_.version.empty()) log_.version = shown(*version, 40);
    } else if (const auto cuda = after(text, "CUDA Runtime Version:")) {
        fact("CUDA runtime", *cuda);
    } else if (const auto driver = after(text, "Driver Version:"); driver && starts_with(text, "Driver")) {
        fact("driver", *driver);
    } else if (starts_with(text, "Device ") && contains(text, ":")) {
        const std::size_t colon = text.find(':');
        const auto device = whole_number(text.substr(7, colon - 7));
        if (!device || *device < 0 || *device >= kMaxLogDevices || !devices_.insert(static_cast<int>(*device)).second)
            return false;
        LogGpu gpu;
        gpu.device = static_cast<int>(*device);
        std::string_view rest = trimmed(text.substr(colon + 1));
        const std::size_t bus = rest.rfind(" (");
        if (bus != std::string_view::npos && !rest.empty() && rest.back() == ')') {
            gpu.bus_id = shown(rest.substr(bus + 2, rest.size() - bus - 3), 20);
            rest = rest.substr(0, bus);
        }
        gpu.name = shown(rest, 60);
        log_.gpus.push_back(std::move(gpu));
    } else if (starts_with(text, "Running ")) {
        std::string_view test = trimmed(text.substr(8));
        while (!test.empty() && test.back() == '.') test.remove_suffix(1);
        test_ = shown(test, 80);
    } else if (starts_with(text, "Waiving ") || starts_with(text, "Waived")) {
        if (waived_.size() < 4) waived_.push_back(fmt::format("line {}: {}", line.number, shown(text, 80)));
        if (waived_.size() == 4) waived_.back() = fmt::format("line {}: further tests are waived", line.number);
    } else if (starts_with(text, "ERROR") || starts_with(text, "ASSERT") || contains(text, "[ERROR]") ||
               starts_with(text, "Invalid value when") || contains(text, "NVML_ERROR") || contains(text, "CUDA_ERROR")) {
        failed_line_ = failed_line_ == 0 ? line.number : failed_line_;
        remark(log_.findings,
               fmt::format("line {}: {} failed: {}", line.number, test_.empty() ? "a test" : test_, shown(text, 100)));
    } else if (starts_with(text, "SUM ")) {
        check_sum(line);
    } else {
        return false;
    }
    return true;
}

model::Expected<LinkLog> TextReader::read(const std::string& text) {
    LogLines lines(text);
    LogLine line;
    while (lines.next(line)) {
        if (line.text.empty()) continue;
        const auto words = split_words(line.text);
        if (description_) {
            const bool taken =
                table_.has_header() ? table_.take_row(words, line, log_.warnings) : table_.take_header(words, line.number);
            if (taken) continue;
            end_matrix();
        }
        if (take_head(line)) continue;
        description_ = read_description(line.text);
        description_line_ = line.number;
        if (cells_ + table_.cells().size() > kMaxLogCells || log_.matrices.size() >= kMaxLogMatrices) {
            return model::fail(ErrorCode::too_large, "the log holds more matrices than any machine has pairs",
                               at_line(name_, line.number), "split it");
        }
    }
    end_matrix();
    if (log_.matrices.empty()) {
        if (failed_line_ > 0) {
            return model::fail(ErrorCode::invalid_input, "nvbandwidth failed and printed no matrix: " + log_.findings.front(),
                               at_line(name_, failed_line_), "run the other tests, each with -t NAME, and save their output");
        }
        if (!waived_.empty()) {
            return model::fail(ErrorCode::invalid_input, "nvbandwidth measured nothing: " + waived_.front(), at_line(name_, 1),
                               "tests between GPUs are waived where they have no peer access; run the host tests");
        }
        return model::fail(ErrorCode::invalid_input, "there is no matrix of nvbandwidth in it", at_line(name_, 1), kRunTool);
    }
    for (std::string& waived : waived_) remark(log_.warnings, std::move(waived));
    if (runs_ > 1) remark(log_.warnings, fmt::format("{} runs, one after the other; the head is that of the first", runs_));
    return std::move(log_);
}

// A cell of JSON is a number or the text of one; nothing: N/A.
model::Expected<std::optional<double>> json_cell(const json& cell, const std::string& place) {
    if (cell.is_number()) {
        const double value = cell.get<double>();
        if (std::isfinite(value) && std::abs(value) <= 1e18) return value;
    } else if (cell.is_string()) {
        const std::string& text = cell.get_ref<const std::string&>();
        if (text == "N/A") return std::optional<double>();
        if (const auto number = printed_number(trimmed(text))) return number->value;
    }
    return model::fail(ErrorCode::invalid_input,
                       fmt::format("the matrix has a cell that is neither a number nor N/A: {}",
                                   cell.is_string() ? "'" + json_text({{"cell", cell}}, "cell") + "'" : cell.type_name()),
                       place, kRunTool);
}

model::Expected<void> read_json_matrix(const json& test, const std::string& name, const std::string& pointer, std::size_t& cells,
                                       LinkLog& log) {
    const std::string test_name = json_text(test, "name");
    const std::string words = json_text(test, "bandwidth_description");
    const auto description = read_description(words);
    if (test_name.empty() || !description) {
        return model::fail(ErrorCode::invalid_input,
                           description ? "a matrix without the name of its test"
                                       : "a matrix without a description that says what its rows, columns and unit are",
                           name + ": " + pointer, kRunTool);
    }
    const json& matrix = test.at("bandwidth_matrix");
    PairMatrix out = begin_matrix(test_name, *description, 0);
    double sum = 0;
    std::size_t width = 0;
    for (std::size_t row = 0; row < matrix.size(); ++row) {
        const std::string place = fmt::format("{}: {}/bandwidth_matrix/{}", name, pointer, row);
        if (!matrix[row].is_array())
            return model::fail(ErrorCode::invalid_input, "a row of the matrix is no list", place, kRunTool);
        width = row == 0 ? matrix[row].size() : width;
        if (matrix[row].size() != width || width == 0 || width > static_cast<std::size_t>(kMaxLogDevices) ||
            row >= static_cast<std::size_t>(kMaxLogDevices)) {
            return model::fail(ErrorCode::invalid_input,
                               fmt::format("row {} of the matrix has {} cells, the first has {}", row, matrix[row].size(), width),
                               place, kRunTool);
        }
        cells += width;
        if (cells > kMaxLogCells)
            return model::fail(ErrorCode::too_large, "the log holds more cells than any machine has pairs", place, "split it");
        for (std::size_t column = 0; column < width; ++column) {
            const auto cell = json_cell(matrix[row][column], fmt::format("{}/{}", place, column));
            if (!cell) return tl::unexpected<model::Error>(cell.error());
            if (!*cell) continue;
            sum += **cell;
            add_cell(out, *description, static_cast<int>(row), static_cast<int>(column), **cell);
        }
    }
    const auto printed = test.find("sum");
    if (printed != test.end() && printed->is_number()) {
        const double stated = printed->get<double>();
        const double half = 0.005 * static_cast<double>(matrix.size() * width + 1);
        if (std::abs(stated - sum) > half * (1 + 1e-9) + 1e-9 * std::abs(sum)) {
            remark(log.findings, fmt::format("{}/sum says {:.2f}, the cells of the matrix make {:.2f}", pointer, stated, sum));
        }
    }
    log.matrices.push_back(std::move(out));
    return {};
}

}  // namespace

model::Expected<LinkLog> read_nvbandwidth_log(const std::string& text, const std::string& name) {
    return TextReader(name).read(text);
}

model::Expected<LinkLog> read_nvbandwidth_json(const std::string& text, const std::string& name) {
    const auto document = parse_log_json(text, name);
    if (!document) return tl::unexpected<model::Error>(document.error());
    const json* body = document->is_object() && document->contains("nvbandwidth") ? &document->at("nvbandwidth") : nullptr;
    if (body == nullptr || !body->is_object() || !body->contains("testcases") || !body->at("testcases").is_array()) {
        return model::fail(ErrorCode::invalid_input, "there are no test cases of nvbandwidth in it",
                           name + ": /nvbandwidth/testcases", kRunTool);
    }
    LinkLog log;
    log.tool = LogTool::nvbandwidth;
    log.format = "JSON";
    log.version = json_text(*body, "git_version");
    if (std::string driver = json_text(*body, "Driver Version"); !driver.empty())
        log.facts.emplace_back("driver", std::move(driver));
    if (std::string cuda = json_text(*body, "CUDA Runtime Version"); !cuda.empty())
        log.facts.emplace_back("CUDA runtime", std::move(cuda));
    const json& tests = body->at("testcases");
    std::size_t cells = 0;
    std::string unmeasured;
    for (std::size_t i = 0; i < tests.size(); ++i) {
        const std::string pointer = fmt::format("/nvbandwidth/testcases/{}", i);
        const json& test = tests[i];
        if (log.matrices.size() >= kMaxLogMatrices) {
            return model::fail(ErrorCode::too_large, "the log holds more matrices than nvbandwidth has tests",
                               name + ": " + pointer, "split it");
        }
        const std::string status = test.is_object() ? json_text(test, "status") : std::string();
        if (test.is_object() && test.contains("bandwidth_matrix") && test.at("bandwidth_matrix").is_array() &&
            !test.at("bandwidth_matrix").empty()) {
            const auto done = read_json_matrix(test, name, pointer, cells, log);
            if (!done) return tl::unexpected<model::Error>(done.error());
        } else {
            std::string text_of = fmt::format("{} has no matrix (status: {})", pointer, status.empty() ? "not given" : status);
            if (unmeasured.empty()) unmeasured = text_of;
            remark(log.warnings, std::move(text_of));
        }
        if (!status.empty() && status != "Passed" && status != "passed" && status != "Waived" && status != "waived") {
            remark(log.findings, fmt::format("{} has the status {}", pointer, status));
        }
    }
    if (log.matrices.empty()) {
        return model::fail(
            ErrorCode::invalid_input,
            "nvbandwidth measured nothing: " + (unmeasured.empty() ? std::string("the list of test cases is empty") : unmeasured),
            name + ": /nvbandwidth/testcases", kRunTool);
    }
    return log;
}

}  // namespace draftboard::calibration
