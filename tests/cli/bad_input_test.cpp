// SPDX-License-Identifier: Apache-2.0
// Bad input against the command line. Each row of bad_input_rows.cpp has to end within kSeconds, in
// an exit and not in a signal, with a short message that names the place and nothing on standard
// output.

#include "tests/cli/bad_input_rows.h"

#include <gtest/gtest.h>

#include "tests/support/process.h"

namespace draftboard::tests {
namespace {

constexpr double kSeconds = 10;

std::string expanded(std::string argument, const std::string& directory) {
    for (const auto& [from, to] :
         {std::pair<std::string, std::string>{"{file}", directory + "/input.json"},
          {"{tmp}", directory}}) {
        if (const auto at = argument.find(from); at != std::string::npos)
            argument.replace(at, from.size(), to);
    }
    return argument;
}

class BadInput : public testing::TestWithParam<Row> {};

TEST_P(BadInput, Ends_in_time_with_a_message_that_names_the_place) {
    const Row& row = GetParam();
    const TemporaryDirectory directory;
    const Keeper keeper = row.file.make(directory.path() + "/input.json");
    std::vector<std::string> arguments = {DRAFTBOARD_BINARY};
    for (const std::string& argument : row.arguments) {
        arguments.push_back(expanded(argument, directory.path()));
    }
    ProcessOptions options;
    options.timeout_seconds = kSeconds;
    options.directory = directory.path();
    options.input = row.endless_input;
    options.endless_input = !row.endless_input.empty();
    const ProcessResult result = run_process(arguments, options);

    EXPECT_EQ(result.ending(), "exit " + std::to_string(row.exit_status))
        << result.errors.substr(0, 2000);
    EXPECT_NE(result.errors, "");
    EXPECT_NE(result.errors.find(row.place), std::string::npos)
        << "the message has to name '" << row.place << "': " << result.errors.substr(0, 2000);
    EXPECT_EQ(result.output, "");
    // A person reads it: a few lines of text without control characters, whatever the input held.
    // It may quote an argument in full.
    std::size_t quoted = 0;
    for (const std::string& argument : arguments) quoted += argument.size();
    EXPECT_LT(result.errors.size(), 8192 + quoted);
    for (const char c : result.errors) {
        ASSERT_TRUE(c == '\n' || c == '\t' || static_cast<unsigned char>(c) >= 0x20)
            << result.errors;
    }
}

INSTANTIATE_TEST_SUITE_P(Cli, BadInput, testing::ValuesIn(all_rows()),
                         [](const testing::TestParamInfo<Row>& row) { return row.param.name; });

/// The table would prove nothing if the scenario that its rows break did not work when whole.
TEST(BadInputTable, The_scenario_that_the_rows_break_works_when_whole) {
    const ProcessResult result = run_process({DRAFTBOARD_BINARY, "predict", kScenario, "--json"});
    EXPECT_EQ(result.ending(), "exit 0") << result.errors;
    EXPECT_NE(result.output.find("tokens_per_second"), std::string::npos);
}

TEST(BadInputTable, The_machine_that_the_rows_break_works_when_whole) {
    const TemporaryDirectory directory;
    (void)sound_machine().make(directory.path() + "/machine.json");
    const ProcessResult result =
        run_process({DRAFTBOARD_BINARY, "machine", "show", directory.path() + "/machine.json"});
    EXPECT_EQ(result.ending(), "exit 0") << result.errors;
}

TEST(BadInputTable, The_config_that_the_rows_break_works_when_whole) {
    const TemporaryDirectory directory;
    (void)sound_config().make(directory.path() + "/config.json");
    const ProcessResult result = run_process(
        {DRAFTBOARD_BINARY, "model", "show", directory.path() + "/config.json", "--json"});
    EXPECT_EQ(result.ending(), "exit 0") << result.errors;
}

}  // namespace
}  // namespace draftboard::tests
