// SPDX-License-Identifier: Apache-2.0
#include "backend/prompt_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace draftboard::backend {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(PromptFile, Reads_a_prompt_a_line_and_passes_over_blank_ones) {
    const auto prompts = parse_prompt_lines("{\"prompt\": \"one\", \"kind\": 3}\n\n \t\r\n{\"prompt\": \"two\\nlines\"}", "p");
    ASSERT_TRUE(prompts) << prompts.error().to_text();
    EXPECT_THAT(*prompts, ElementsAre("one", "two\nlines"));
}

TEST(PromptFile, Names_the_line_that_holds_no_prompt) {
    for (const char* line : {"{\"text\": \"x\"}", "{\"prompt\": \"\"}", "{\"prompt\": 3}", "[1]", "{\"prompt\": \"x"}) {
        const auto prompts = parse_prompt_lines(std::string("{\"prompt\": \"one\"}\n\n") + line + "\n", "set.jsonl");
        ASSERT_FALSE(prompts) << line;
        EXPECT_THAT(prompts.error().to_text(), HasSubstr("set.jsonl:3")) << line;
    }
}

TEST(PromptFile, Says_that_an_empty_file_holds_no_prompt) {
    const auto prompts = parse_prompt_lines("\n\n", "empty.jsonl");
    ASSERT_FALSE(prompts);
    EXPECT_THAT(prompts.error().to_text(), HasSubstr("holds no prompt"));
    EXPECT_THAT(prompts.error().to_text(), HasSubstr("empty.jsonl"));
}

TEST(PromptFile, Refuses_one_prompt_too_many) {
    std::string text;
    for (std::size_t i = 0; i < kMaxPrompts; ++i) text += "{\"prompt\":\"x\"}\n";
    const auto most = parse_prompt_lines(text, "p");
    ASSERT_TRUE(most);
    EXPECT_EQ(most->size(), kMaxPrompts);
    const auto more = parse_prompt_lines(text + "{\"prompt\":\"x\"}\n", "p");
    ASSERT_FALSE(more);
    EXPECT_EQ(more.error().code, model::ErrorCode::too_large);
}

TEST(PromptFile, Reads_token_ids_between_spaces_and_commas) {
    const auto sequences = parse_token_lines("1 2,3\n\n\t7\r\n", "t");
    ASSERT_TRUE(sequences) << sequences.error().to_text();
    EXPECT_THAT(*sequences, ElementsAre(ElementsAre(1, 2, 3), ElementsAre(7)));
    EXPECT_THAT(parse_token_lines("1\n-2\n", "t").error().to_text(), HasSubstr("t:2"));
    EXPECT_FALSE(parse_token_lines("1 x\n", "t"));
    EXPECT_FALSE(parse_token_lines(" \n", "t"));
}

}  // namespace
}  // namespace draftboard::backend
