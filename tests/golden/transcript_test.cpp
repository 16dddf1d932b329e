// SPDX-License-Identifier: Apache-2.0
#include "tests/golden/transcript.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace draftboard::tests {
namespace {

Transcript parse(const std::string& text) {
    std::string error;
    const auto transcript = parse_transcript(text, error);
    EXPECT_TRUE(transcript) << error;
    return transcript.value_or(Transcript{});
}

TEST(Transcript, Commands_carry_their_directives_and_their_output) {
    const Transcript transcript = parse(
        "# about\n"
        "$ draftboard one\n"
        "first\n"
        "\n"
        "$ draftboard two\n"
        "# exit 2\n"
        "# stderr contains: /a/b\n"
        "## why\n"
        "\\# a heading\n");
    ASSERT_EQ(transcript.steps.size(), 2u);
    EXPECT_EQ(transcript.preamble, std::vector<std::string>{"# about"});
    EXPECT_EQ(transcript.steps[0].output, "first\n");  // the blank line before "$" is a separator
    EXPECT_EQ(transcript.steps[0].exit_status, 0);
    EXPECT_EQ(transcript.steps[1].exit_status, 2);
    EXPECT_EQ(transcript.steps[1].errors_contain, std::vector<std::string>{"/a/b"});
    EXPECT_EQ(transcript.steps[1].output, "# a heading\n");
    EXPECT_EQ(transcript.steps[1].line, 5);
}

TEST(Transcript, A_misspelled_directive_is_an_error_that_names_its_line) {
    for (const char* line :
         {"# exits 2", "# exit two", "# exit 2 ", "# exit 256", "# exit", "#exit 2"}) {
        std::string error;
        EXPECT_FALSE(parse_transcript(std::string("$ draftboard\n") + line + "\n", error)) << line;
        EXPECT_TRUE(error.starts_with("line 2: ")) << error;
    }
}

TEST(Transcript, A_file_without_a_command_is_an_error) {
    std::string error;
    EXPECT_FALSE(parse_transcript("", error));
    EXPECT_FALSE(parse_transcript("# only a comment\n", error));
    EXPECT_FALSE(parse_transcript("stray text\n$ draftboard\n", error));
}

RC_GTEST_PROP(Transcript, Any_output_survives_writing_and_reading, ()) {
    // Lines out of the characters that mean something to the format.
    const auto line = rc::gen::container<std::string>(rc::gen::element('$', '#', '\\', ' ', 'x'));
    Transcript transcript;
    const auto outputs =
        *rc::gen::nonEmpty(rc::gen::container<std::vector<std::vector<std::string>>>(
            rc::gen::container<std::vector<std::string>>(line)));
    for (const auto& lines : outputs) {
        GoldenStep step;
        step.command = "draftboard x";
        step.exit_status = static_cast<int>(lines.size() % 4);
        for (const std::string& text : lines) step.output += text + "\n";
        transcript.steps.push_back(step);
    }
    std::string error;
    const auto back = parse_transcript(write_transcript(transcript), error);
    RC_ASSERT(back.has_value());
    RC_ASSERT(back->steps.size() == transcript.steps.size());
    for (std::size_t i = 0; i < back->steps.size(); ++i) {
        RC_ASSERT(back->steps[i].output == transcript.steps[i].output);
        RC_ASSERT(back->steps[i].exit_status == transcript.steps[i].exit_status);
    }
}

TEST(SplitCommand, Quotes_group_and_backslash_keeps) {
    const std::vector<std::string> expected = {"a", "b c", "d\"e", "", "f g"};
    EXPECT_EQ(split_command("a 'b c'  d\\\"e '' \"f g\""), expected);
    EXPECT_FALSE(split_command("a 'b"));
    EXPECT_FALSE(split_command("a \\"));
}

TEST(Placeholders, Inner_folders_come_first_and_the_text_comes_back) {
    const Placeholders placeholders = {{"{data}", "/src/data"}, {"{source}", "/src"}};
    const std::string text = "/src/data/x.json and /src/y";
    EXPECT_EQ(contract(text, placeholders), "{data}/x.json and {source}/y");
    EXPECT_EQ(expand(contract(text, placeholders), placeholders), text);
}

TEST(MaskRevision, Only_the_value_of_the_member_is_replaced) {
    EXPECT_EQ(mask_revision("{\"revision\": \"b2950\", \"revision\": \"\"} revision"),
              "{\"revision\": \"{revision}\", \"revision\": \"{revision}\"} revision");
    EXPECT_EQ(mask_revision("\"revision\": \"cut"), "\"revision\": \"cut");
}

TEST(DescribeDifference, The_first_differing_line_is_named) {
    EXPECT_EQ(describe_difference("a\nb\n", "a\nb\n"), "");
    EXPECT_TRUE(describe_difference("a\nb\n", "a\nc\n").starts_with("line 2 "));
    EXPECT_TRUE(describe_difference("a\n", "a\nb\n").starts_with("line 2 "));
    EXPECT_NE(describe_difference("a\n", "a").find("newline"), std::string::npos);
}

}  // namespace
}  // namespace draftboard::tests
