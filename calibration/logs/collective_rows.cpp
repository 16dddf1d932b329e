// SPDX-License-Identifier: Apache-2.0
#include "calibration/logs/collective_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "calibration/logs/log_text.h"

namespace draftboard::calibration {
namespace {

constexpr double kSlack = 1e-9;  // of double arithmetic, relative

enum class Shape { unknown, twice, once, whole };

Shape shape_of(const std::string& operation) {
    if (operation == "all_reduce") return Shape::twice;
    for (const char* name :
         {"all_gather", "reduce_scatter", "alltoall", "gather", "scatter", "all_gather or alltoall", "gather or scatter"}) {
        if (operation == name) return Shape::once;
    }
    for (const char* name : {"broadcast", "reduce", "sendrecv"}) {
        if (operation == name) return Shape::whole;
    }
    return Shape::unknown;
}

bool reduces(const std::string& reduction) { return !reduction.empty() && reduction != "none"; }

std::string place_of(const CollectiveRow& row) {
    return row.line > 0 ? fmt::format("line {}", row.line) : fmt::format("{} B", row.bytes);
}

// How often the count goes into the bytes, equal in all rows; 0: rows differ, or nothing can be said.
int bytes_per_count(const CollectiveRun& run) {
    double ratio = 0;
    for (const PrintedRow& printed : run.rows) {
        const CollectiveRow& row = printed.row;
        const int element = element_bytes(row.dtype);
        if (row.bytes == 0 || row.count == 0 || element == 0) continue;
        const double own = static_cast<double>(row.bytes) / (static_cast<double>(row.count) * element);
        if (ratio != 0 && own != ratio) return 0;
        ratio = own;
    }
    return ratio >= 1 && ratio <= kMaxLogRanks && ratio == std::floor(ratio) ? static_cast<int>(ratio) : 0;
}

std::string operation_by_columns(const CollectiveRow& row, int parts) {
    const bool rooted = row.root >= 0;
    if (reduces(row.reduction)) return parts > 1 ? "reduce_scatter" : rooted ? "reduce" : "all_reduce";
    if (parts > 1) return rooted ? "gather or scatter" : "all_gather or alltoall";
    return rooted ? "broadcast" : std::string();
}

struct Range {
    double low = 0;
    double high = std::numeric_limits<double>::infinity();
};

// The factors that all rows allow.
Range factor_range(const CollectiveRun& run) {
    Range range;
    const auto narrow = [&](const CollectiveTiming& timing, const PrintedHalves& half) {
        if (!timing.measured || timing.algorithm_gb_s <= half.algorithm) return;
        range.low = std::max(range.low, (timing.bus_gb_s - half.bus) / (timing.algorithm_gb_s + half.algorithm));
        range.high = std::min(range.high, (timing.bus_gb_s + half.bus) / (timing.algorithm_gb_s - half.algorithm));
    };
    for (const PrintedRow& printed : run.rows) {
        narrow(printed.row.out_of_place, printed.out_of_place);
        narrow(printed.row.in_place, printed.in_place);
    }
    return range;
}

// n with f(n) in the range: f = top (1 - 1/n).
Range ranks_range(const Range& factor, double top) {
    const auto ranks = [&](double f) { return f >= top ? std::numeric_limits<double>::infinity() : 1 / (1 - f / top); };
    return {std::ceil(ranks(factor.low * (1 - kSlack)) - 1e-6), std::floor(ranks(factor.high * (1 + kSlack)) + 1e-6)};
}

void check_timing(const CollectiveRow& row, const CollectiveTiming& timing, const PrintedHalves& half, const char* place,
                  LinkLog& log) {
    if (!timing.measured) return;
    if (timing.errors > 0) {
        remark(log.findings, fmt::format("{}: {}: the result is wrong, {:g} errors", place_of(row), place, timing.errors));
    }
    if (row.bytes > 0 && timing.time_us > half.time) {
        const double bytes = static_cast<double>(row.bytes) / 1e3;
        const double low = bytes / (timing.time_us + half.time) - half.algorithm;
        const double high = bytes / (timing.time_us - half.time) + half.algorithm;
        if (timing.algorithm_gb_s < low * (1 - kSlack) || timing.algorithm_gb_s > high * (1 + kSlack)) {
            remark(log.findings, fmt::format("{}: {}: {} B in {:g} us are {:.2f} GB/s, algbw says {:g}", place_of(row), place,
                                             row.bytes, timing.time_us, bytes / timing.time_us, timing.algorithm_gb_s));
        }
    }
    const double factor = row.ranks > 0 ? bus_factor(row.operation, row.ranks) : 0;
    if (row.ranks > 0 && shape_of(row.operation) != Shape::unknown) {
        const double low = (timing.algorithm_gb_s - half.algorithm) * factor - half.bus;
        const double high = (timing.algorithm_gb_s + half.algorithm) * factor + half.bus;
        if (timing.bus_gb_s < low - kSlack || timing.bus_gb_s > high * (1 + kSlack) + kSlack) {
            remark(log.findings, fmt::format("{}: {}: {} over {} ranks makes {:g} GB/s x {:.4f} = {:.2f} GB/s, busbw says {:g}",
                                             place_of(row), place, row.operation, row.ranks, timing.algorithm_gb_s, factor,
                                             timing.algorithm_gb_s * factor, timing.bus_gb_s));
        }
    }
}

// Fewer elements than bytes allow is a matter of alignment; more can't be.
void check_count(const CollectiveRow& row, LinkLog& log) {
    const int element = element_bytes(row.dtype);
    const double bytes = static_cast<double>(row.count) * element;
    if (element > 0 && bytes > static_cast<double>(row.bytes)) {
        remark(log.findings, fmt::format("{}: {} elements of {} are {:.0f} B, size says {}", place_of(row), row.count, row.dtype,
                                         bytes, row.bytes));
    }
}

std::string where(const CollectiveRun& run) {
    const int line = run.rows.front().row.line;
    return line > 0 ? fmt::format("rows from line {}", line) : std::string("the rows");
}

std::string range_text(const Range& range) {
    if (range.low == range.high) return fmt::format("{:.0f}", range.low);
    if (range.low > range.high) return "no number that fits all rows";
    return range.high > kMaxLogRanks ? fmt::format("{:.0f} or more", range.low)
                                     : fmt::format("{:.0f} to {:.0f}", range.low, range.high);
}

int ranks_of(const CollectiveRun& run, const std::string& operation, int parts, LinkLog& log) {
    const Shape shape = shape_of(operation);
    if (run.listed_ranks > 0) {
        if (shape == Shape::once && parts > 1 && parts != run.listed_ranks) {
            remark(log.findings,
                   fmt::format("{}: the device list says {} ranks, the counts say {}", where(run), run.listed_ranks, parts));
        }
    }
    if (shape != Shape::twice && shape != Shape::once) return run.listed_ranks;
    const Range range = ranks_range(factor_range(run), shape == Shape::twice ? 2 : 1);
    if (run.listed_ranks > 0) {
        // Where no number fits all rows, each row is held against the list.
        if (range.low > range.high || (run.listed_ranks >= range.low && run.listed_ranks <= range.high)) return run.listed_ranks;
        remark(
            log.findings,
            fmt::format("{}: the device list says {} ranks, busbw / algbw says {} in every row; the number of ranks is left open",
                        where(run), run.listed_ranks, range_text(range)));
        return 0;
    }
    if (shape == Shape::once && parts > 1) {
        if (parts < range.low || parts > range.high) {
            remark(log.findings,
                   fmt::format("{}: the counts say {} ranks, busbw / algbw says {}; the number of ranks is left open", where(run),
                               parts, range_text(range)));
            return 0;
        }
        remark(log.warnings, fmt::format("{}: no complete list of devices; {} ranks follow from the counts", where(run), parts));
        return parts;
    }
    if (range.low == range.high && range.low >= 1 && range.low <= kMaxLogRanks) {
        remark(log.warnings,
               fmt::format("{}: no list of devices; {:.0f} ranks follow from busbw / algbw", where(run), range.low));
        return static_cast<int>(range.low);
    }
    if (range.low > range.high) {
        remark(log.findings,
               fmt::format("{}: busbw / algbw differs between rows; no number of ranks fits all of them", where(run)));
    } else {
        remark(log.warnings, fmt::format("{}: no list of devices, and the digits leave the number of ranks open ({:.0f} or more)",
                                         where(run), std::max(1.0, range.low)));
    }
    return 0;
}

}  // namespace

double bus_factor(const std::string& operation, int ranks) {
    switch (shape_of(operation)) {
        case Shape::twice: return 2.0 * (ranks - 1) / ranks;
        case Shape::once: return 1.0 * (ranks - 1) / ranks;
        case Shape::whole: return 1;
        case Shape::unknown: break;
    }
    return 0;
}

std::string bus_formula(const std::string& operation) {
    switch (shape_of(operation)) {
        case Shape::twice: return "2 (n-1)/n";
        case Shape::once: return "(n-1)/n";
        case Shape::whole: return "1";
        case Shape::unknown: break;
    }
    return {};
}

int element_bytes(const std::string& dtype) {
    struct Entry {
        const char* name;
        int bytes;
    };
    static constexpr std::array<Entry, 18> kTypes = {{{"int8", 1},
                                                      {"uint8", 1},
                                                      {"char", 1},
                                                      {"fp8_e4m3", 1},
                                                      {"fp8_e5m2", 1},
                                                      {"f8e4m3", 1},
                                                      {"f8e5m2", 1},
                                                      {"half", 2},
                                                      {"float16", 2},
                                                      {"bfloat16", 2},
                                                      {"int32", 4},
                                                      {"uint32", 4},
                                                      {"int", 4},
                                                      {"float", 4},
                                                      {"int64", 8},
                                                      {"uint64", 8},
                                                      {"double", 8},
                                                      {"float64", 8}}};
    for (const Entry& entry : kTypes) {
        if (dtype == entry.name) return entry.bytes;
    }
    return 0;
}

void settle_run(CollectiveRun run, LinkLog& log) {
    if (run.rows.empty()) return;
    const int parts = bytes_per_count(run);
    std::string operation = run.operation;
    if (operation.empty()) {
        operation = operation_by_columns(run.rows.back().row, parts);
        remark(log.warnings,
               operation.empty()
                   ? fmt::format("{}: neither a name nor the columns tell the operation; busbw is not checked", where(run))
                   : fmt::format("{}: the log does not name the operation; the columns fit {}", where(run), operation));
    } else if (shape_of(operation) == Shape::unknown) {
        remark(log.warnings, fmt::format("{}: the factor of {} is not known; busbw is not checked", where(run), operation));
    }
    const int ranks = ranks_of(run, operation, parts, log);
    for (PrintedRow& printed : run.rows) {
        printed.row.operation = operation;
        printed.row.ranks = ranks;
        check_count(printed.row, log);
        check_timing(printed.row, printed.row.out_of_place, printed.out_of_place, "out of place", log);
        check_timing(printed.row, printed.row.in_place, printed.in_place, "in place", log);
        log.rows.push_back(std::move(printed.row));
    }
}

}  // namespace draftboard::calibration
