// SPDX-License-Identifier: Apache-2.0
// calibrate and validate, killed (SIGKILL) at random moments: what was measured is still there, and a run that goes on ends with
// files that load. Bounded: a few kills, then the rest in one go.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/process.h"

namespace draftboard::tests {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr double kRestSeconds = 200;  // on a machine that others use too

/// How many things a file of progress holds; 0: there is none. A file that is there is always whole.
std::size_t kept(const std::string& partial, const char* list) {
    if (!fs::exists(partial)) return 0;
    std::ifstream file(partial);
    const Json json = Json::parse(file, nullptr, false);
    EXPECT_FALSE(json.is_discarded()) << partial << " is cut";
    if (json.is_discarded()) return 0;
    if (std::string(list) == "done") return json["done"].size();
    std::size_t rounds = 0;
    for (const Json& one : json["configurations"])
        rounds += one["rounds"].size() + one["repeated"].size() + one["profiles"].size();
    return rounds;
}

/// Kills the command `kills` times at random moments, then lets it end.
ProcessResult killed_and_resumed(std::vector<std::string> command, const std::string& partial, const char* list, int kills,
                                 double least, double most, unsigned seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> moment(least, most);
    std::size_t before = 0;
    command.push_back("--resume");
    for (int i = 0; i < kills; ++i) {
        ProcessOptions options;
        options.timeout_seconds = moment(random);
        const ProcessResult killed = run_process(command, options);
        if (!killed.timed_out) return killed;  // it was faster
        const std::size_t now = kept(partial, list);
        EXPECT_GE(now, before) << "kill " << i << " lost what was measured";
        before = now;
    }
    EXPECT_GT(before, 0U) << "nothing was kept of " << kills << " runs";
    ProcessOptions options;
    options.timeout_seconds = kRestSeconds;
    return run_process(command, options);
}

TEST(Kill, Calibrate_goes_on_after_SIGKILL_and_ends_with_a_file_that_loads) {
    const TemporaryDirectory folder;
    const std::string file = folder.path() + "/here.json";
    const ProcessResult end = killed_and_resumed({DRAFTBOARD_BINARY, "calibrate", "--device", "cpu", "--quick", "--model",
                                                  "tiny-kimi", "--ranks", "1", "-o", file, "--quiet"},
                                                 file + ".partial", "done", 3, 4.0, 8.0, 20260301);
    ASSERT_EQ(end.exit_status, 0) << end.ending() << end.errors;
    EXPECT_FALSE(fs::exists(file + ".partial"));
    const ProcessResult shown = run_process({DRAFTBOARD_BINARY, "calibrate", "show", file});
    EXPECT_EQ(shown.exit_status, 0) << shown.errors;
}

TEST(Kill, Validate_goes_on_after_SIGKILL_and_measures_no_round_twice) {
    const TemporaryDirectory folder;
    const std::string suite = folder.path() + "/suite.json";
    std::ofstream(suite)
        << R"({"format": "draftboard.suite", "version": 1, "name": "short", "description": "", "prompts": ["code"], "rounds": 60,
        "prompts_per_round": 3, "tokens": 40, "repeat": 2, "groups": [{"model": "tiny-kimi", "ranks": 1, "batch": 1, "context": 60,
        "drafters": [{"method": "none"}, {"method": "eagle3", "steps": 2}]}]})";
    const std::string report = folder.path() + "/report.html";
    const std::vector<std::string> command = {DRAFTBOARD_BINARY, "validate", suite,  "--calibration",
                                              "cpu-xeon",        "-o",       report, "--quiet"};
    const ProcessResult end = killed_and_resumed(command, report + ".partial", "configurations", 3, 2.0, 4.0, 20260302);
    // 1: predictions of another machine's calibration are outside their bound; nothing else may go wrong.
    ASSERT_TRUE(end.exit_status == 0 || end.exit_status == 1) << end.ending() << end.errors;
    EXPECT_TRUE(fs::exists(report));
    EXPECT_FALSE(fs::exists(report + ".partial"));
}

TEST(Kill, Validate_refuses_to_go_on_from_another_suite_or_a_broken_file) {
    const TemporaryDirectory folder;
    const std::string report = folder.path() + "/report.html";
    std::ofstream(report + ".partial")
        << R"({"format": "draftboard.validation_progress", "version": 1, "settings": "another suite", "box": null,
        "failed": [], "acceptance": {}, "configurations": {}})";
    const std::vector<std::string> command = {DRAFTBOARD_BINARY, "validate", "cpu-quick", "--calibration",
                                              "cpu-xeon",        "-o",       report,      "--resume"};
    const ProcessResult other = run_process(command);
    EXPECT_EQ(other.exit_status, 2);
    EXPECT_NE(other.errors.find("another suite"), std::string::npos) << other.errors;
    std::ofstream(report + ".partial") << R"({"format": "draftboard.validation_progress", "configurations": [)";
    EXPECT_EQ(run_process(command).exit_status, 2);
}

}  // namespace
}  // namespace draftboard::tests
