// SPDX-License-Identifier: Apache-2.0
// Logs of links and collectives: fixtures of our own making with known content, texts with one thing wrong, and the shared
// corpus, of which every file is read or refused with a place and advice (waived where it is absent).

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "calibration/logs/collective_rows.h"
#include "calibration/logs/log_report.h"
#include "calibration/logs/log_text.h"
#include "calibration/logs/read_log.h"
#include "model/json_reader.h"

namespace draftboard::calibration {
namespace {

std::string fixture(const std::string& name) {
    return model::read_file(std::string(DRAFTBOARD_SOURCE_DIR) + "/tests/fixtures/logs/" + name).value_or(std::string());
}

LinkLog read_fixture(const std::string& name) {
    const auto log = read_log(fixture(name), name);
    EXPECT_TRUE(log.has_value()) << log.error().to_text();
    return log.value_or(LinkLog());
}

model::Error refusal(const std::string& text) {
    const auto log = read_log(text, "log");
    EXPECT_FALSE(log.has_value()) << text.substr(0, 200);
    return log ? model::Error() : log.error();
}

void expect_complete(const model::Error& error) {
    EXPECT_FALSE(error.message.empty());
    EXPECT_FALSE(error.context.empty());
    EXPECT_FALSE(error.hint.empty());
}

bool mentions(const std::vector<std::string>& list, const std::string& part) {
    for (const std::string& entry : list) {
        if (contains(entry, part)) return true;
    }
    return false;
}

double value_at(const PairMatrix& matrix, int from, int to) {
    for (const PairValue& value : matrix.values) {
        if (value.from == from && value.to == to) return value.value;
    }
    return -1;
}

TEST(PrintedNumbers, Half_a_unit_of_the_last_digit_is_kept) {
    EXPECT_DOUBLE_EQ(printed_number("12.90")->half, 0.005);
    EXPECT_DOUBLE_EQ(printed_number("15791")->half, 0.5);
    // 1.2e+03: the last digit is worth 100.
    EXPECT_DOUBLE_EQ(printed_number("1.2e+03")->half, 50);
    for (const char* word : {"", "nan", "inf", "1e999", "12ms", "0x10", "1.2.3", "-", ".", "1e", "N/A"}) {
        EXPECT_FALSE(printed_number(word).has_value()) << word;
    }
}

TEST(CollectiveRows, Bus_factors_are_those_of_the_operations) {
    EXPECT_DOUBLE_EQ(bus_factor("all_reduce", 8), 2 * 7.0 / 8);
    EXPECT_DOUBLE_EQ(bus_factor("all_gather", 4), 3.0 / 4);
    EXPECT_DOUBLE_EQ(bus_factor("broadcast", 8), 1);
    EXPECT_DOUBLE_EQ(bus_factor("hypercube", 8), 0);
}

TEST(NcclTestsLog, A_whole_log_gives_its_head_its_devices_and_both_halves_of_each_row) {
    const LinkLog log = read_fixture("nccl_tests.txt");
    EXPECT_EQ(log.tool, LogTool::nccl_tests);
    EXPECT_EQ(log.version, "2.17.8");
    EXPECT_EQ(log.ranks, 8);
    EXPECT_EQ(log.nodes, 1);
    ASSERT_EQ(log.gpus.size(), 8U);
    EXPECT_EQ(log.gpus[3].bus_id, "0000:13:00");
    EXPECT_EQ(log.gpus[3].name, "Drawing Board 9000");
    ASSERT_EQ(log.rows.size(), 4U);
    const CollectiveRow& row = log.rows[2];
    EXPECT_EQ(row.operation, "all_reduce");
    EXPECT_EQ(row.bytes, 1 << 20);
    EXPECT_EQ(row.dtype, "bfloat16");
    EXPECT_EQ(row.reduction, "sum");
    // The fixture's law: t = 9 us + bytes / 40 GB/s = 9 + 26.21; in place 0.13 us more.
    EXPECT_DOUBLE_EQ(row.out_of_place.time_us, 35.21);
    EXPECT_DOUBLE_EQ(row.in_place.time_us, 35.34);
    EXPECT_DOUBLE_EQ(row.out_of_place.errors, 0);
    EXPECT_TRUE(log.warnings.empty());
    EXPECT_TRUE(log.findings.empty());
}

TEST(NcclTestsLog, Several_tests_of_several_nodes_behind_launcher_tags_stay_apart) {
    const LinkLog log = read_fixture("nccl_tests_two_nodes.txt");
    EXPECT_EQ(log.ranks, 16);
    EXPECT_EQ(log.nodes, 2);
    ASSERT_EQ(log.rows.size(), 6U);
    EXPECT_EQ(log.rows[0].operation, "all_gather");
    EXPECT_EQ(log.rows[5].operation, "reduce_scatter");
    EXPECT_LT(log.rows[0].out_of_place.errors, 0);  // N/A: not checked
    EXPECT_TRUE(log.findings.empty());
}

TEST(NcclTestsLog, A_row_that_contradicts_itself_and_wrong_results_are_findings_with_their_lines) {
    const LinkLog log = read_fixture("nccl_tests_contradiction.txt");
    // 65536 B / 10.64 us = 6.16 GB/s, printed is 9.99; and 9.99 x 1.75 = 17.48, printed is 10.78.
    EXPECT_TRUE(mentions(log.findings, "line 20: out of place: 65536 B in 10.64 us are 6.16 GB/s, algbw says 9.99"));
    EXPECT_TRUE(mentions(log.findings, "17.48 GB/s, busbw says 10.78"));
    EXPECT_TRUE(mentions(log.findings, "line 21: in place: the result is wrong, 7 errors"));
    EXPECT_TRUE(mentions(log.findings, "7 values out of bounds"));
    EXPECT_EQ(log.findings.size(), 4U);
}

TEST(NcclTestsLog, JSON_says_the_same_as_text) {
    const LinkLog text = read_fixture("nccl_tests.txt");
    const LinkLog json = read_fixture("nccl_tests.json");
    EXPECT_EQ(json.format, "JSON");
    EXPECT_EQ(json.ranks, 8);
    EXPECT_TRUE(json.findings.empty());
    ASSERT_EQ(json.rows.size(), text.rows.size());
    for (std::size_t i = 0; i < text.rows.size(); ++i) {
        EXPECT_EQ(json.rows[i].operation, text.rows[i].operation);
        EXPECT_EQ(json.rows[i].bytes, text.rows[i].bytes);
        EXPECT_EQ(json.rows[i].root, -1);
        EXPECT_NEAR(json.rows[i].in_place.time_us, text.rows[i].in_place.time_us, 0.05);
        EXPECT_NEAR(json.rows[i].out_of_place.bus_gb_s, text.rows[i].out_of_place.bus_gb_s, 0.005);
    }
}

TEST(NcclTestsLog, JSON_with_numbers_beyond_all_machines_is_read_or_refused) {
    std::string text = fixture("nccl_tests.json");
    text.replace(text.find("\"ngpus\": 8"), 10, "\"ngpus\": 999999999999999999");
    text.replace(text.find("\"nthreads\": 1"), 13, "\"nthreads\": 999999999999999999");
    const auto log = read_log(text, "log");
    ASSERT_TRUE(log.has_value()) << log.error().to_text();
    EXPECT_NE(log->ranks, 8);
    text.replace(text.find("\"size\": 14336"), 13, "\"size\": 99999999999999999999");
    EXPECT_TRUE(contains(refusal(text).context, "/results/0"));
}

TEST(NcclTestsLog, Ranks_and_operation_follow_from_bare_rows_where_the_digits_allow) {
    // 167.09 x f = 313.29: f = 1.87498 +- 0.00009, n = 2 / (2 - f) = 16.
    const auto log = read_log("1073741824 268435456 float sum -1 6426.3 167.09 313.29 0 6426.1 167.09 313.29 0\n", "log");
    ASSERT_TRUE(log.has_value());
    EXPECT_EQ(log->ranks, 16);
    EXPECT_EQ(log->rows[0].operation, "all_reduce");
    EXPECT_TRUE(mentions(log->warnings, "16 ranks follow from busbw / algbw"));
    // 0.01 and 0.01 GB/s fit any number.
    const auto coarse = read_log("128 32 float sum -1 21.89 0.01 0.01 0 17.61 0.01 0.01 0\n", "log");
    ASSERT_TRUE(coarse.has_value());
    EXPECT_EQ(coarse->ranks, 0);
    EXPECT_TRUE(coarse->findings.empty());
}

TEST(NcclTestsLog, A_device_list_that_no_row_agrees_with_leaves_the_ranks_open) {
    // f = 1.75 belongs to 8 ranks; the list says 4.
    const auto log = read_log(
        "#  Rank  0 Group  0 Pid 1 on a device  0 [0x10] X\n#  Rank  3 Group  0 Pid 1 on a device  3 [0x13] X\n"
        "1000000000 250000000 float sum -1 10000 100.00 175.00 0 10000 100.00 175.00 0\n",
        "log");
    ASSERT_TRUE(log.has_value());
    EXPECT_EQ(log->ranks, 0);
    EXPECT_TRUE(mentions(log->findings, "the device list says 4 ranks, busbw / algbw says 8"));
    EXPECT_TRUE(mentions(log->warnings, "2 of 4 ranks"));
    EXPECT_EQ(log->nodes, 0);
}

TEST(NcclTestsLog, The_deviation_that_old_versions_print_is_no_count_of_errors) {
    const std::string row = "1000000000 250000000 float sum 10000 100.00 175.00 1e-06 10000 100.00 175.00 0e+00\n";
    for (const std::string& header :
         {std::string(), std::string("# size count type redop time algbw busbw error time algbw busbw error\n")}) {
        const auto log = read_log(header + row, "log");
        ASSERT_TRUE(log.has_value()) << log.error().to_text();
        EXPECT_EQ(log->ranks, 8);
        EXPECT_DOUBLE_EQ(log->rows[0].out_of_place.errors, -1);
        EXPECT_DOUBLE_EQ(log->rows[0].in_place.errors, 0);
        EXPECT_TRUE(log->findings.empty());
    }
}

TEST(NcclTestsLog, A_cut_row_keeps_its_whole_half) {
    const std::string whole = "33554432 8388608 float sum -1 3966.7 8.46 12.69 0 3942.4 8.51 12.77 0\n";
    const auto log = read_log(whole + "67108864 16777216 float sum -1 7888.2 8.51 12.76 0 78", "log");
    ASSERT_TRUE(log.has_value());
    ASSERT_EQ(log->rows.size(), 2U);
    EXPECT_EQ(log->ranks, 4);
    EXPECT_TRUE(log->rows[1].out_of_place.measured);
    EXPECT_FALSE(log->rows[1].in_place.measured);
    EXPECT_TRUE(mentions(log->warnings, "line 2"));
    const auto shorter = read_log(whole + "67108864 16777216 float sum -1 7888.2 8.5", "log");
    ASSERT_TRUE(shorter.has_value());
    EXPECT_EQ(shorter->rows.size(), 1U);
}

TEST(NvbandwidthLog, Arrows_say_which_side_is_the_source) {
    const LinkLog log = read_fixture("nvbandwidth.txt");
    EXPECT_EQ(log.version, "v0.8");
    EXPECT_EQ(log.gpus.size(), 4U);
    EXPECT_TRUE(log.findings.empty());
    EXPECT_TRUE(mentions(log.warnings, "Waiving device_to_device_bidirectional_memcpy_read_sm"));
    ASSERT_EQ(log.matrices.size(), 6U);
    // Both have 50.25 in row 0, column 1: once from 0 to 1, once from 1 to 0.
    EXPECT_DOUBLE_EQ(value_at(log.matrices[0], 0, 1), 50.25);
    EXPECT_DOUBLE_EQ(value_at(log.matrices[1], 1, 0), 50.25);
    EXPECT_EQ(log.matrices[0].values.size(), 12U);  // no diagonal
    // device_to_host: the GPU is the source, whatever the two-headed arrow says.
    EXPECT_EQ(log.matrices[2].from_kind, "GPU");
    EXPECT_TRUE(log.matrices[2].bidirectional);
    EXPECT_DOUBLE_EQ(value_at(log.matrices[2], 3, 0), 23);
    EXPECT_EQ(log.matrices[3].to_kind, "all GPUs");
    EXPECT_DOUBLE_EQ(value_at(log.matrices[3], 2, -1), 22);
    EXPECT_DOUBLE_EQ(value_at(log.matrices[4], 2, 2), 900);
    // 801 ns
    EXPECT_EQ(log.matrices[5].unit, "us");
    EXPECT_DOUBLE_EQ(value_at(log.matrices[5], 0, 1), 0.801);
    EXPECT_FALSE(log.matrices[5].bidirectional);
}

TEST(NvbandwidthLog, JSON_says_the_same_as_text) {
    const LinkLog text = read_fixture("nvbandwidth.txt");
    const LinkLog json = read_fixture("nvbandwidth.json");
    ASSERT_EQ(json.matrices.size(), 1U);
    EXPECT_TRUE(json.findings.empty());
    EXPECT_TRUE(mentions(json.warnings, "Waived"));
    for (const PairValue& value : text.matrices[1].values) {
        EXPECT_DOUBLE_EQ(value_at(json.matrices[0], value.from, value.to), value.value);
    }
}

TEST(NvbandwidthLog, A_sum_that_its_cells_do_not_make_is_a_finding) {
    std::string text = fixture("nvbandwidth.txt");
    text.replace(text.find("SUM device_local_copy 3600.00"), 29, "SUM device_local_copy 3600.10");
    const auto log = read_log(text, "log");
    ASSERT_TRUE(log.has_value());
    EXPECT_EQ(log->findings.size(), 1U);
    EXPECT_TRUE(mentions(log->findings, "SUM says 3600.10, the cells of the matrix make 3600.00"));
}

TEST(P2pBandwidthLog, Writes_go_from_the_row_and_reads_to_it) {
    const LinkLog log = read_fixture("p2p_bandwidth.txt");
    EXPECT_EQ(log.gpus.size(), 3U);
    EXPECT_TRUE(log.warnings.empty());
    ASSERT_EQ(log.matrices.size(), 6U);
    EXPECT_EQ(log.matrices[0].peer_access, "off");
    // Row 0, column 2: 50.50 written from 0 to 2, 40.50 read from 2 to 0.
    EXPECT_DOUBLE_EQ(value_at(log.matrices[1], 0, 2), 50.5);
    EXPECT_DOUBLE_EQ(value_at(log.matrices[2], 2, 0), 40.5);
    EXPECT_TRUE(log.matrices[3].bidirectional);
    EXPECT_EQ(log.matrices[4].unit, "us");
    EXPECT_EQ(log.matrices[4].timed_by, "GPU");
    EXPECT_EQ(log.matrices[5].timed_by, "CPU");
}

TEST(P2pBandwidthLog, Line_numbers_of_an_editor_are_taken_off_and_a_cut_matrix_keeps_what_is_whole) {
    std::string numbered;
    int line = 0;
    for (std::string text : {"P2P=Disabled Latency Matrix (us)", "   GPU     0      1", "     0   2.61  14.95",
                             "     1  11.09   2.10", "", "   CPU     0      1", "     0   2.67   6.78", "     1   6.7"}) {
        numbered += (line > 0 ? "\n" : "") + std::to_string(line + 1) + " " + text;
        ++line;
    }
    const auto log = read_log(numbered, "log");
    ASSERT_TRUE(log.has_value()) << log.error().to_text();
    ASSERT_EQ(log->matrices.size(), 2U);
    EXPECT_DOUBLE_EQ(value_at(log->matrices[0], 1, 0), 11.09);
    // The last row lost its second value, and its first may have lost digits.
    EXPECT_EQ(log->matrices[1].values.size(), 2U);
    EXPECT_TRUE(mentions(log->warnings, "line numbers"));
    EXPECT_TRUE(mentions(log->warnings, "cut"));
}

TEST(NcclTuningLog, Tables_and_choices_are_read_in_both_notations) {
    const LinkLog log = read_fixture("nccl_tuning.txt");
    EXPECT_EQ(log.version, "2.28.9+cuda13.0");
    EXPECT_EQ(log.ranks, 8);
    // Two operations, six algorithms, three protocols.
    ASSERT_EQ(log.tuning.size(), 36U);
    const LinkLog old = read_fixture("nccl_tuning_old.txt");
    ASSERT_EQ(old.tuning.size(), 6U);
    for (const TuningEntry& entry : old.tuning) {
        bool found = false;
        for (const TuningEntry& other : log.tuning) {
            found = found || (other.operation == entry.operation && other.algorithm == entry.algorithm &&
                              other.protocol == entry.protocol && other.latency_us == entry.latency_us &&
                              other.bandwidth_gb_s == entry.bandwidth_gb_s);
        }
        EXPECT_TRUE(found) << entry.algorithm << " " << entry.protocol;
    }
    ASSERT_EQ(log.choices.size(), 2U);
    EXPECT_EQ(log.choices[0].calls, 3);
    EXPECT_EQ(log.choices[0].algorithm, "Tree");
    EXPECT_EQ(log.choices[1].channel_high, 7);
    ASSERT_EQ(old.choices.size(), 1U);
    EXPECT_EQ(old.choices[0].protocol, "LL");
    EXPECT_DOUBLE_EQ(old.choices[0].time_us, 11.8);
}

TEST(NcclTuningLog, A_log_of_nccl_tests_keeps_the_tuning_beside_its_rows_and_equal_tables_count_once) {
    const std::string tuning = fixture("nccl_tuning.txt");
    const auto log = read_log(tuning + fixture("nccl_tests.txt") + tuning, "log");
    ASSERT_TRUE(log.has_value());
    EXPECT_EQ(log->tool, LogTool::nccl_tests);
    EXPECT_EQ(log->rows.size(), 4U);
    EXPECT_EQ(log->tuning.size(), 36U);
    EXPECT_EQ(log->choices[0].calls, 6);
    EXPECT_TRUE(mentions(log->warnings, "1 repeated tables"));
}

TEST(ReadLog, What_measures_nothing_or_is_of_another_tool_is_refused_with_place_and_advice) {
    const std::string tests = fixture("nccl_tests.txt");
    for (const std::string& text : {
             std::string(),
             std::string("\n\n"),
             std::string("hello\n"),
             std::string("{"),
             std::string("{}"),
             std::string("{\"nvbandwidth\": 7}"),
             std::string("{\"results\": [], \"nccl_version\": 1}"),
             std::string("# Collective test starting: all_reduce_perf\n"),
             std::string("Running device_to_device_memcpy_read_ce.\nERROR: no\n"),
             std::string("Waiving device_to_device_memcpy_read_ce.\n"),
             std::string("Unidirectional P2P=Enabled Bandwidth Matrix (GB/s)\n"),
             std::string("# OSU MPI Allreduce Latency Test\n"),
             std::string("\tGPU0\tGPU1\nGPU0\t X \tSYS\nGPU1\tSYS\t X \n"),
             tests + fixture("p2p_bandwidth.txt"),
             std::string(100, '\0'),
         }) {
        SCOPED_TRACE(text.substr(0, 60));
        expect_complete(refusal(text));
    }
    EXPECT_TRUE(contains(refusal("Waiving device_to_device_memcpy_read_ce.\n").message, "line 1"));
    EXPECT_TRUE(contains(
        refusal(
            "{\"nvbandwidth\": {\"testcases\": [{\"name\": \"t\", \"bandwidth_description\": \"GPU(row) -> GPU(column) GB/s\", "
            "\"bandwidth_matrix\": [[\"x\"]]}]}}")
            .context,
        "/nvbandwidth/testcases/0/bandwidth_matrix/0/0"));
}

TEST(ReadLog, Every_beginning_of_a_log_is_read_or_refused) {
    for (const char* name :
         {"nccl_tests.txt", "nccl_tests.json", "nvbandwidth.txt", "nvbandwidth.json", "p2p_bandwidth.txt", "nccl_tuning.txt"}) {
        const std::string text = fixture(name);
        for (std::size_t size = 0; size < text.size(); size += 7) {
            const auto log = read_log(text.substr(0, size), name);
            if (!log) {
                expect_complete(log.error());
            } else {
                EXPECT_FALSE(to_text(*log, name).empty());
                EXPECT_TRUE(to_json(*log, name).is_object());
            }
        }
    }
}

// Doubling the input may double the time; these would take minutes if it quadrupled.
TEST(ReadLog, Hostile_sizes_are_refused_or_read_within_seconds) {
    const auto begin = std::chrono::steady_clock::now();
    std::string rows;
    for (int i = 0; i < 200'000; ++i) rows += "128 32 float sum -1 21.89 0.01 0.01 0 17.61 0.01 0.01 0\n";
    EXPECT_EQ(refusal(rows).code, model::ErrorCode::too_large);
    std::string choices;
    for (int i = 0; i < 200'000; ++i) choices += std::to_string(i) + " Bytes -> Algo 0 proto 0 time 1\n";
    EXPECT_EQ(refusal(choices).code, model::ErrorCode::too_large);
    EXPECT_EQ(refusal(std::string(1 << 20, '{')).code, model::ErrorCode::too_large);
    std::string keys = "{\"nvbandwidth\": {";
    for (int i = 0; i < 200'000; ++i) keys += "\"k" + std::to_string(i) + "\": 1, ";
    expect_complete(refusal(keys + "\"testcases\": []}}"));
    expect_complete(refusal(std::string(8 << 20, '\n') + std::string(8 << 20, 'x')));
    expect_complete(refusal("x " + std::string(4 << 20, '\x1b')));
    EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 60);
}

struct CorpusFile {
    const char* file;
    const char* tool;   ///< nullptr: refused
    int ranks;          ///< of nccl-tests, 0: left open
    std::size_t parts;  ///< rows or matrices
    bool findings;
};

constexpr CorpusFile kCorpus[] = {
    {"nccltests/001.txt", "nccl-tests", 16, 3, true},  // made-up bandwidths
    {"nccltests/002.txt", "nccl-tests", 0, 1, false},  // two digits leave the ranks open
    {"nccltests/004.txt", "nccl-tests", 16, 7, false},
    {"nccltests/005.txt", "nccl-tests", 8, 32, false},
    {"nccltests/006.txt", "nccl-tests", 96, 5, false},
    {"nccltests/007.txt", "nccl-tests", 72, 5, false},
    {"nccltests/008.txt", "nccl-tests", 0, 6, true},  // the list says 144 ranks, the factor 128
    {"nccltests/009.txt", "nccl-tests", 1440, 6, false},
    {"nccltests/012.txt", "nccl-tests", 8, 34, false},
    {"nccltests/014.txt", "nccl-tests", 8, 34, false},
    {"nccltests/016.txt", "nccl-tests", 16, 4, false},
    {"nccltests/017.txt", "nccl-tests", 16, 5, false},
    {"nccltests/023.txt", "nccl-tests", 24, 3, false},
    {"nccltests/024.txt", "nccl-tests", 4, 1, false},
    {"nccltests/025.txt", "nccl-tests", 8, 8, false},
    {"nccltests/027.txt", "nccl-tests", 2, 2, false},
    {"nccltests/028.txt", "nccl-tests", 2, 9, false},
    {"nccltests/029.txt", "nccl-tests", 4, 12, false},
    {"nccltests/030.txt", nullptr, 0, 0, false},      // no row
    {"nccltests/031.txt", "nccl-tests", 0, 1, true},  // counts say 16 ranks, the factor 8
    {"nvbandwidth/002.txt", "nvbandwidth", 0, 1, false},
    {"nvbandwidth/003.txt", "nvbandwidth", 0, 1, false},
    {"nvbandwidth/004.txt", "nvbandwidth", 0, 1, false},
    {"nvbandwidth/009.txt", nullptr, 0, 0, false},  // failed
    {"nvbandwidth/010.txt", nullptr, 0, 0, false},  // waived
    {"nvbandwidth/012.txt", "nvbandwidth", 0, 2, false},
    {"nvbandwidth/013.txt", "nvbandwidth", 0, 3, true},  // edited cells under the old sums
    {"nvbandwidth/015.txt", nullptr, 0, 0, false},       // a matrix without name and description
    {"nvbandwidth/017.txt", nullptr, 0, 0, false},       // no matrix
    {"nvbandwidth/019.txt", nullptr, 0, 0, false},       // a cell "foo"
    {"nvbandwidth/020.txt", "nvbandwidth", 0, 1, true},  // two of eight rows under the sum of all
    {"p2pbw/002.txt", "p2pBandwidthLatencyTest", 0, 1, false},
    {"p2pbw/004.txt", "p2pBandwidthLatencyTest", 0, 2, false},
    {"p2pbw/009.txt", "p2pBandwidthLatencyTest", 0, 4, false},
    {"p2pbw/011.txt", "p2pBandwidthLatencyTest", 0, 2, false},
};

TEST(LogCorpus, Every_public_log_is_read_as_it_says_or_refused_with_what_is_odd) {
    const char* chosen = std::getenv("DRAFTBOARD_SHARED_DIR");
    const std::filesystem::path corpus = std::filesystem::path(chosen != nullptr ? chosen : DRAFTBOARD_SHARED_DIR) / "corpus";
    if (!std::filesystem::exists(corpus)) GTEST_SKIP() << "no shared corpus";
    for (const CorpusFile& file : kCorpus) {
        SCOPED_TRACE(file.file);
        if (!std::filesystem::exists(corpus / file.file)) continue;
        const auto log = read_log(model::read_file((corpus / file.file).string()).value_or(std::string()), file.file);
        if (file.tool == nullptr) {
            ASSERT_FALSE(log.has_value());
            expect_complete(log.error());
            continue;
        }
        ASSERT_TRUE(log.has_value()) << log.error().to_text();
        EXPECT_STREQ(to_name(log->tool), file.tool);
        EXPECT_EQ(log->ranks, file.ranks);
        EXPECT_EQ(log->rows.size() + log->matrices.size(), file.parts);
        EXPECT_EQ(!log->findings.empty(), file.findings);
    }
}

TEST(LogCorpus, Files_that_are_new_are_read_or_refused_and_topologies_are_never_measurements) {
    const char* chosen = std::getenv("DRAFTBOARD_SHARED_DIR");
    const std::filesystem::path corpus = std::filesystem::path(chosen != nullptr ? chosen : DRAFTBOARD_SHARED_DIR) / "corpus";
    if (!std::filesystem::exists(corpus)) GTEST_SKIP() << "no shared corpus";
    for (const auto& entry : std::filesystem::recursive_directory_iterator(corpus)) {
        if (!entry.is_regular_file() || entry.path().extension() != ".txt") continue;
        SCOPED_TRACE(entry.path());
        const std::string kind = entry.path().parent_path().filename();
        const auto log = read_log(model::read_file(entry.path().string()).value_or(std::string()), entry.path().filename());
        if (!log) {
            expect_complete(log.error());
            continue;
        }
        EXPECT_TRUE(kind == "nccltests" || kind == "nvbandwidth" || kind == "p2pbw");
    }
}

}  // namespace
}  // namespace draftboard::calibration
