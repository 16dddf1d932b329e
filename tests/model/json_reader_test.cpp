// SPDX-License-Identifier: Apache-2.0
#include "model/json_reader.h"

#include <gtest/gtest.h>

namespace draftboard::model {
namespace {

TEST(ParseJson, A_truncated_document_names_file_line_and_column) {
    const auto result = parse_json("{\n  \"a\": [1, 2", "x.json");
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::invalid_input);
    EXPECT_TRUE(result.error().context.starts_with("x.json:2:")) << result.error().context;
}

TEST(ParseJson, NaN_is_refused) { EXPECT_FALSE(parse_json("{\"a\": NaN}", "x")); }

TEST(ParseJson, Nesting_beyond_the_limit_is_an_error_and_not_a_crash) {
    const auto result = parse_json(std::string(1'000'000, '['), "x");
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::too_large);
}

TEST(ParseJson, Binary_garbage_gives_a_printable_message) {
    const auto result = parse_json(std::string("\x7f\x45\x4c\x46\x00\xff\xfe", 7), "x");
    ASSERT_FALSE(result);
    for (const char c : result.error().message) EXPECT_TRUE(c >= 0x20 && c < 0x7f);
}

TEST(JsonReader, Wrong_types_and_ranges_are_collected_with_their_pointers) {
    const Json document = Json::parse(R"({"n": -3, "s": 5, "list": [1, "x"], "f": 1.5, "deep": {"a/b": true}})");
    std::vector<Problem> problems;
    const JsonReader reader(document, problems);
    EXPECT_EQ(reader.integer("n", 1, 10), 1);
    EXPECT_EQ(reader.string("s"), "");
    EXPECT_TRUE(reader.numbers_or("list", {}, 0, 2).empty());
    EXPECT_EQ(reader.integer("f", 0, 10), 0);
    EXPECT_EQ(reader.at("deep").number("a/b", 0, 1), 0);
    EXPECT_EQ(reader.integer("missing", 0, 10), 0);
    ASSERT_EQ(problems.size(), 6u);
    EXPECT_EQ(problems[0], (Problem{"/n", "-3 is outside 1 .. 10"}));
    EXPECT_EQ(problems[1], (Problem{"/s", "expected a string, found an integer"}));
    EXPECT_EQ(problems[2].place, "/list/1");
    EXPECT_EQ(problems[3], (Problem{"/f", "expected an integer, found 1.5"}));
    EXPECT_EQ(problems[4].place, "/deep/a~1b");
    EXPECT_EQ(problems[5], (Problem{"/missing", "required field is missing"}));
}

TEST(ReadFile, A_directory_and_a_missing_file_are_told_apart) {
    EXPECT_EQ(read_file("/").error().code, ErrorCode::invalid_input);
    EXPECT_EQ(read_file("/no/such/file").error().code, ErrorCode::not_found);
}

TEST(ReadFile, More_than_the_limit_is_refused_without_reading_on) {
    EXPECT_EQ(read_file("/dev/zero").error().code, ErrorCode::too_large);
}

}  // namespace
}  // namespace draftboard::model
