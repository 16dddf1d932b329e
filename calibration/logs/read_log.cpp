// SPDX-License-Identifier: Apache-2.0
#include "calibration/logs/read_log.h"

#include <array>

#include <fmt/format.h>

#include "calibration/logs/log_text.h"

namespace draftboard::calibration {
namespace {

using model::ErrorCode;

const char* const kKnown = "read are nccl-tests, nvbandwidth, p2pBandwidthLatencyTest, NCCL's tuning tables and SQLite exports of Nsight Systems";

// The first line on which each tool shows itself; 0: nowhere.
struct Marks {
    int nccl_tests = 0;
    int nvbandwidth = 0;
    int p2p = 0;
    int tuning = 0;
    int topology = 0;
    const char* stranger = nullptr;  // a tool that is known and not read
    int stranger_line = 0;
    int first_line = 0;
    std::string first_words;
};

bool is_nvbandwidth(std::string_view text) {
    return contains(text, "nvbandwidth Version") || starts_with(text, "Waiving ") ||
           (starts_with(text, "Running ") && (contains(text, "_memcpy_") || contains(text, "_latency_"))) ||
           ((contains(text, "(row)") || contains(text, "(column)")) && (contains(text, "GB/s") || contains(text, "(ns)")));
}

bool is_nccl_tests(std::string_view text) {
    return contains(text, "Collective test ") || contains(text, "nccl-tests version") ||
           (contains(text, "nThread ") && contains(text, "minBytes ")) || (contains(text, "algbw") && contains(text, "busbw")) ||
           is_nccl_tests_row(text);
}

bool is_tuning(std::string_view text) {
    return contains(text, " Bytes -> Algo ") || contains(text, "Latency/AlgBw |") ||
           (contains(text, "Algorithm ") && contains(text, "|") && (contains(text, "Tree") || contains(text, "Ring")));
}

Marks find_marks(const std::string& text) {
    struct Stranger {
        const char* mark;
        const char* tool;
    };
    static constexpr std::array<Stranger, 4> kStrangers = {
        {{"# OSU MPI", "the OSU micro-benchmarks"},
         {"#bytes     #iterations", "perftest (ib_write_bw and others)"},
         {"Bandwidth Test] - Starting", "bandwidthTest of the CUDA samples"},
         {"<system version=", "a topology of NCCL; `draftboard machine import` reads it"}}};
    Marks marks;
    LogLines lines(text);
    LogLine line;
    while (lines.next(line)) {
        if (line.text.empty()) continue;
        const std::string_view words = line.text;
        if (marks.first_line == 0) {
            marks.first_line = line.number;
            marks.first_words = shown(words, 60);
        }
        const auto mark = [&](int& at, bool found) {
            if (at == 0 && found) at = line.number;
        };
        mark(marks.p2p, contains(words, "P2P=") && contains(words, "Matrix"));
        if (marks.nvbandwidth == 0) mark(marks.nvbandwidth, is_nvbandwidth(words));
        if (marks.tuning == 0) mark(marks.tuning, is_tuning(words));
        if (marks.nccl_tests == 0) mark(marks.nccl_tests, is_nccl_tests(words));
        mark(marks.topology, starts_with(words, "GPU0") && (contains(words, " X ") || contains(words, "\tX")));
        for (const Stranger& stranger : kStrangers) {
            if (marks.stranger == nullptr && contains(words, stranger.mark)) {
                marks.stranger = stranger.tool;
                marks.stranger_line = line.number;
            }
        }
    }
    return marks;
}

model::Expected<LinkLog> read_json(const std::string& text, const std::string& name) {
    // The tools' own keys tell them apart before anything is parsed; a broken document is still refused by the parser.
    if (contains(text, "\"nvbandwidth\"")) return read_nvbandwidth_json(text, name);
    if (contains(text, "\"results\"") &&
        (contains(text, "\"out_of_place\"") || contains(text, "\"in_place\"") || contains(text, "\"nccl_version\""))) {
        return read_nccl_tests_json(text, name);
    }
    const auto document = parse_log_json(text, name);
    if (!document) return tl::unexpected<model::Error>(document.error());
    return model::fail(ErrorCode::unsupported, "this is JSON, but neither of nvbandwidth nor of nccl-tests", name, kKnown);
}

}  // namespace

const char* to_name(LogTool tool) {
    switch (tool) {
        case LogTool::nccl_tests: return "nccl-tests";
        case LogTool::nvbandwidth: return "nvbandwidth";
        case LogTool::p2p_bandwidth: return "p2pBandwidthLatencyTest";
        case LogTool::nccl_tuning: return "NCCL tuning";
    }
    return "";
}

model::Expected<LinkLog> read_log(const std::string& text, const std::string& name) {
    const std::size_t begin = text.find_first_not_of(" \t\r\n");
    if (begin == std::string::npos) {
        return model::fail(ErrorCode::invalid_input, "the input is empty", name, kKnown);
    }
    if (text[begin] == '{') return read_json(text, name);
    const Marks marks = find_marks(text);
    const int tools =
        (marks.nccl_tests > 0 || marks.tuning > 0 ? 1 : 0) + (marks.nvbandwidth > 0 ? 1 : 0) + (marks.p2p > 0 ? 1 : 0);
    if (tools > 1) {
        return model::fail(
            ErrorCode::unsupported,
            fmt::format("the log holds the output of several tools:{}{}{}",
                        marks.nccl_tests > 0 ? fmt::format(" nccl-tests from line {},", marks.nccl_tests) : "",
                        marks.nvbandwidth > 0 ? fmt::format(" nvbandwidth from line {},", marks.nvbandwidth) : "",
                        marks.p2p > 0 ? fmt::format(" p2pBandwidthLatencyTest from line {}", marks.p2p) : " no more"),
            at_line(name, marks.first_line), "give each tool's output a file of its own");
    }
    if (marks.nvbandwidth > 0) return read_nvbandwidth_log(text, name);
    if (marks.p2p > 0) return read_p2p_bandwidth_log(text, name);
    if (marks.nccl_tests > 0) {
        auto log = read_nccl_tests_log(text, name);
        if (marks.tuning == 0) return log;
        auto tuning = read_nccl_tuning_log(text, name);
        if (!log) return tuning ? std::move(tuning) : std::move(log);
        if (!tuning) {
            remark(log->warnings, "the tuning table beside it: " + tuning.error().message);
            return log;
        }
        log->tuning = std::move(tuning->tuning);
        log->choices = std::move(tuning->choices);
        for (std::string& warning : tuning->warnings) remark(log->warnings, std::move(warning));
        return log;
    }
    if (marks.tuning > 0) return read_nccl_tuning_log(text, name);
    if (marks.stranger != nullptr) {
        return model::fail(ErrorCode::unsupported,
                           fmt::format("this is the output of {}, which is not read here", marks.stranger),
                           at_line(name, marks.stranger_line), kKnown);
    }
    if (marks.topology > 0) {
        return model::fail(ErrorCode::unsupported, "this is a topology of `nvidia-smi topo -m`, not a measurement",
                           at_line(name, marks.topology), "`draftboard machine import` reads it");
    }
    return model::fail(ErrorCode::invalid_input, fmt::format("no known tool wrote this; it begins with: {}", marks.first_words),
                       at_line(name, std::max(1, marks.first_line)), kKnown);
}

}  // namespace draftboard::calibration
