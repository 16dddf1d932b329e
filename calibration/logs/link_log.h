// SPDX-License-Identifier: Apache-2.0
#pragma once
// What one log says about links and collectives: plain data in Draftboard's units, whichever tool wrote it. It is not a
// calibration and draws no conclusions; it keeps apart what the log states, what was inferred from it (a warning says so) and
// what contradicts itself (a finding). Next: read_log.h, the entry over all readers; log_report.h, how it is shown.
//
// Units: bytes, us, GB/s = 1e9 bytes a second, whatever the log printed. Lines are 1-based; 0 in JSON, which has none.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace draftboard::calibration {

enum class LogTool { nccl_tests, nvbandwidth, p2p_bandwidth, nccl_tuning };

/// A device as the log lists it; what it leaves out stays -1 or empty.
struct LogGpu {
    int rank = -1;
    int device = -1;
    std::string host;
    std::string bus_id;
    std::string name;
};

/// One of the two halves of a row of nccl-tests.
///   algbw = bytes / time;  busbw = algbw x factor(operation, ranks), see collective_rows.h
/// Worked example: all_reduce of 1048576 B on 8 ranks in 28.56 us: 36.71 GB/s, x 2 (8-1)/8 = 64.25 GB/s.
struct CollectiveTiming {
    bool measured = false;
    double time_us = 0;
    double algorithm_gb_s = 0;
    double bus_gb_s = 0;
    double errors = -1;  ///< wrong elements; -1: not checked, or not counted (old versions)
};

struct CollectiveRow {
    int line = 0;
    std::string operation;  ///< "all_reduce", ...; "a or b" where the log can't tell them apart; empty: unknown
    int ranks = 0;          ///< 0: unknown
    std::int64_t bytes = 0;
    std::int64_t count = 0;
    std::string dtype;
    std::string reduction;  ///< "sum", "none"; empty: the column is missing
    int root = -1;
    CollectiveTiming out_of_place;
    CollectiveTiming in_place;
};

/// From source to destination; -1 stands for all devices of that kind together.
struct PairValue {
    int from = 0;
    int to = 0;
    double value = 0;
};

/// One table over pairs. Cells that say nothing (N/A, and 0 between a GPU and itself) are left out.
struct PairMatrix {
    int line = 0;
    std::string what;  ///< the test's name or title
    std::string unit;  ///< "GB/s" or "us"
    std::string from_kind;
    std::string to_kind;         ///< "GPU", "CPU", "all GPUs"
    bool bidirectional = false;  ///< there is traffic the other way meanwhile
    std::string peer_access;     ///< "on", "off", empty: not said
    std::string timed_by;        ///< "GPU" or "CPU" where the log keeps the two apart
    std::vector<PairValue> values;
};

/// What NCCL believes: time = latency + bytes / bandwidth. Bandwidth 0: the pair is switched off.
struct TuningEntry {
    int line = 0;
    int table = 0;  ///< a log may hold the tables of several communicators
    std::string operation;
    std::string algorithm;
    std::string protocol;
    double latency_us = 0;
    double bandwidth_gb_s = 0;
};

/// What NCCL chose for one call.
struct TuningChoice {
    int line = 0;
    std::string operation;  ///< empty in old versions
    std::int64_t bytes = 0;
    std::string algorithm;
    std::string protocol;
    int channel_low = -1;  ///< -1: not printed
    int channel_high = -1;
    double time_us = -1;  ///< NCCL's estimate, -1: not printed
    int calls = 1;        ///< equal lines
};

struct LinkLog {
    LogTool tool = LogTool::nccl_tests;
    std::string format;   ///< "text" or "JSON"
    std::string version;  ///< of the tool; for NCCL's own logs of NCCL; empty: not printed
    int ranks = 0;        ///< 0: unknown or several
    int nodes = 0;        ///< different host names; 0: unknown
    std::vector<LogGpu> gpus;
    std::vector<std::pair<std::string, std::string>> facts;  ///< what else the head says: driver, iterations, graph
    std::vector<CollectiveRow> rows;
    std::vector<PairMatrix> matrices;
    std::vector<TuningEntry> tuning;
    std::vector<TuningChoice> choices;
    std::vector<std::string> warnings;  ///< gaps, and what was inferred
    std::vector<std::string> findings;  ///< contradictions, wrong results, failed tests
};

}  // namespace draftboard::calibration
