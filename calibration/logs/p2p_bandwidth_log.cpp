// SPDX-License-Identifier: Apache-2.0
// What p2pBandwidthLatencyTest of the CUDA samples prints: bandwidth matrices in one and in both directions and latency matrices,
// each without and with peer access. The row's GPU is the source of a write ("P2P Writes", and where nothing is said), the
// destination of a read. The diagonal is a copy within one GPU, its reads and writes counted both. Latencies are in us: one
// matrix timed on the GPU, one on the CPU.

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "calibration/logs/log_text.h"
#include "calibration/logs/pair_table.h"
#include "calibration/logs/read_log.h"

namespace draftboard::calibration {
namespace {

const char* const kRunTool = "save the whole output of p2pBandwidthLatencyTest";

// "Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)"
std::optional<PairMatrix> read_title(std::string_view text, bool& reads) {
    if (!contains(text, "P2P=") || !contains(text, "Matrix")) return std::nullopt;
    PairMatrix matrix;
    matrix.from_kind = matrix.to_kind = "GPU";
    matrix.bidirectional = contains(text, "Bidirectional");
    matrix.peer_access = contains(text, "P2P=Enabled") ? "on" : "off";
    matrix.unit = contains(text, "(us)") ? "us" : contains(text, "GB/s") ? "GB/s" : "";
    if (matrix.unit.empty()) return std::nullopt;
    reads = contains(text, "P2P Reads");
    matrix.what = std::string(matrix.unit == "us"    ? "latency"
                              : matrix.bidirectional ? "bandwidth, both directions added"
                                                     : "bandwidth, one direction");
    matrix.what += reads ? ", reads" : ", writes";
    return matrix;
}

class P2pReader {
 public:
    explicit P2pReader(std::string name) : name_(std::move(name)) {
        log_.tool = LogTool::p2p_bandwidth;
        log_.format = "text";
    }
    model::Expected<LinkLog> read(const std::string& text);

 private:
    void end_table();

    std::string name_;
    LinkLog log_;
    std::optional<PairMatrix> title_;
    int title_line_ = 0;
    bool title_used_ = false;
    bool reads_ = false;
    PairTable table_;
    std::string corner_;
    std::size_t cells_ = 0;
};

void P2pReader::end_table() {
    if (title_ && table_.has_header()) {
        if (table_.rows() == 0) {
            remark(log_.warnings, fmt::format("line {}: the matrix has no rows", table_.line()));
        } else {
            if (table_.rows() < table_.columns()) {
                remark(log_.warnings, fmt::format("line {}: the matrix is cut: {} of {} rows are there", table_.line(),
                                                  table_.rows(), table_.columns()));
            }
            PairMatrix matrix = *title_;
            matrix.line = table_.line();
            matrix.timed_by = matrix.unit == "us" ? corner_ : std::string();
            for (const PairCell& cell : table_.cells()) {
                const int from = reads_ ? cell.column : cell.row;
                const int to = reads_ ? cell.row : cell.column;
                if (cell.number.value < 0) {
                    remark(log_.findings, fmt::format("line {}: a negative value from {} to {}", table_.line(), from, to));
                    continue;
                }
                matrix.values.push_back({from, to, cell.number.value});
            }
            cells_ += table_.cells().size();
            title_used_ = true;
            log_.matrices.push_back(std::move(matrix));
        }
    }
    table_ = {};
}

model::Expected<LinkLog> P2pReader::read(const std::string& text) {
    LogLines lines(text);
    LogLine line;
    while (lines.next(line)) {
        if (line.text.empty()) continue;
        const auto words = split_words(line.text);
        if (title_ && table_.has_header()) {
            if (table_.take_row(words, line, log_.warnings)) continue;
            end_table();
        }
        bool reads = false;
        if (auto title = read_title(line.text, reads)) {
            if (title_ && !title_used_)
                remark(log_.warnings, fmt::format("line {}: a matrix is announced and not there", title_line_));
            title_ = std::move(title);
            title_line_ = line.number;
            title_used_ = false;
            reads_ = reads;
        } else if (title_ && words.size() > 1 && (words[0] == "D\\D" || words[0] == "GPU" || words[0] == "CPU") &&
                   table_.take_header(words, line.number)) {
            corner_ = std::string(words[0]);
        } else if (starts_with(line.text, "Device: ") && log_.gpus.size() < static_cast<std::size_t>(kMaxLogDevices)) {
            // "Device: 0, NVIDIA A40, pciBusID: 1, pciDeviceID: 0, pciDomainID:0"
            const std::string_view rest = line.text.substr(8);
            const std::size_t comma = rest.find(", ");
            const auto device = whole_number(rest.substr(0, comma));
            if (comma != std::string_view::npos && device && *device >= 0 && *device < kMaxLogDevices) {
                LogGpu gpu;
                gpu.device = static_cast<int>(*device);
                const std::string_view name = rest.substr(comma + 2);
                gpu.name = shown(name.substr(0, name.find(", pciBusID")), 60);
                log_.gpus.push_back(std::move(gpu));
            }
        } else if (contains(line.text, "CUDA failure") || contains(line.text, "Cuda failure")) {
            remark(log_.findings, fmt::format("line {}: {}", line.number, shown(line.text, 100)));
        } else if (title_ && title_used_ && !contains(line.text, "Matrix")) {
            title_.reset();  // prose: what follows belongs to no matrix
        }
        if (cells_ > kMaxLogCells || log_.matrices.size() >= kMaxLogMatrices) {
            return model::fail(model::ErrorCode::too_large, "the log holds more matrices than any machine has pairs",
                               at_line(name_, line.number), "split it");
        }
    }
    end_table();
    if (log_.matrices.empty()) {
        return model::fail(
            model::ErrorCode::invalid_input,
            title_ ? "a matrix is announced and cut before its first row" : "there is no matrix of p2pBandwidthLatencyTest in it",
            at_line(name_, std::max(1, title_line_)), kRunTool);
    }
    if (title_ && !title_used_) remark(log_.warnings, fmt::format("line {}: a matrix is announced and not there", title_line_));
    if (lines.numbered()) remark(log_.warnings, "an editor's line numbers stand before each line; they were taken off");
    return std::move(log_);
}

}  // namespace

model::Expected<LinkLog> read_p2p_bandwidth_log(const std::string& text, const std::string& name) {
    return P2pReader(name).read(text);
}

}  // namespace draftboard::calibration
