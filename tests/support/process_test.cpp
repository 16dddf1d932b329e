// SPDX-License-Identifier: Apache-2.0
#include "tests/support/process.h"

#include <filesystem>

#include <gtest/gtest.h>

namespace draftboard::tests {
namespace {

ProcessResult shell(const std::string& script, const ProcessOptions& options = {}) {
    return run_process({"/bin/sh", "-c", script}, options);
}

TEST(Process, Both_streams_and_the_exit_status_arrive) {
    const ProcessResult result = shell("echo out; echo err >&2; exit 3");
    EXPECT_EQ(result.output, "out\n");
    EXPECT_EQ(result.errors, "err\n");
    EXPECT_EQ(result.ending(), "exit 3");
}

TEST(Process, A_signal_is_not_an_exit_status) {
    const ProcessResult result = shell("kill -SEGV $$");
    EXPECT_EQ(result.exit_status, -1);
    EXPECT_EQ(result.ending(), "signal 11");
}

TEST(Process, The_time_limit_ends_a_program_and_its_children) {
    ProcessOptions options;
    options.timeout_seconds = 0.3;
    const ProcessResult result = shell("sleep 30 & sleep 30", options);
    EXPECT_TRUE(result.timed_out);
    EXPECT_LT(result.seconds, 10);
    EXPECT_EQ(result.exit_status, -1);
}

TEST(Process, Output_larger_than_a_pipe_is_read_and_cut_at_the_limit) {
    ProcessOptions options;
    options.max_output_bytes = 100'000;
    const ProcessResult result = shell("head -c 5000000 /dev/zero", options);
    EXPECT_EQ(result.ending(), "exit 0");  // it would hang if the pipe were not drained
    EXPECT_EQ(result.output.size(), 100'000u);
}

TEST(Process, Input_is_fed_and_closed) {
    ProcessOptions options;
    options.input = std::string(300'000, 'x');
    EXPECT_EQ(shell("wc -c", options).output, "300000\n");
}

TEST(Process, Endless_input_stops_when_the_reader_does) {
    ProcessOptions options;
    options.input = "y\n";
    options.endless_input = true;
    options.timeout_seconds = 20;
    EXPECT_EQ(shell("head -n 100000 | tail -n 1", options).output, "y\n");
}

TEST(Process, A_missing_program_did_not_start) {
    const ProcessResult result = run_process({"/no/such/program"});
    EXPECT_FALSE(result.started);
    EXPECT_TRUE(result.ending().starts_with("did not start")) << result.ending();
    EXPECT_FALSE(run_process({}).started);
}

TEST(Process, Arguments_are_not_seen_by_a_shell) {
    EXPECT_EQ(run_process({"printf", "%s", "$HOME * 'x'"}).output, "$HOME * 'x'");
}

TEST(TemporaryDirectory, It_is_gone_at_the_end_of_its_scope) {
    std::string path;
    {
        const TemporaryDirectory directory;
        path = directory.path();
        EXPECT_TRUE(std::filesystem::is_directory(path));
    }
    EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace draftboard::tests
