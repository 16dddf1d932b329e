// SPDX-License-Identifier: Apache-2.0
#include "backend/byte_tokenizer.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace draftboard::backend {
namespace {

constexpr const char* kFile = R"({"format": "draftboard.byte_tokenizer", "version": 1, "bos": 256, "eos": 257})";
const std::string kReplacement = "\xEF\xBF\xBD";

std::string streamed(const std::string& bytes) {
    ByteStream stream;
    std::string text;
    for (const char c : bytes) text += stream.push(std::vector<int>{static_cast<unsigned char>(c)});
    return text + stream.finish();
}

TEST(ByteTokenizer, Encodes_bytes_after_the_begin_token_and_decodes_them) {
    const auto tokenizer = ByteTokenizer::parse(kFile, "t");
    ASSERT_TRUE(tokenizer);
    EXPECT_EQ(tokenizer->encode("a\xC3\xA9"), (std::vector<int>{256, 97, 0xC3, 0xA9}));
    EXPECT_EQ(tokenizer->encode("a", false), (std::vector<int>{97}));
    EXPECT_EQ(ByteTokenizer::decode(std::vector<int>{256, 97, 0xC3, 0xA9, 257, 300, -1}), "a\xC3\xA9");
    EXPECT_EQ(tokenizer->end_token(), 257);
}

TEST(ByteTokenizer, A_model_without_specials_has_none) {
    const auto tokenizer = ByteTokenizer::parse(R"({"format": "draftboard.byte_tokenizer", "version": 1})", "t");
    ASSERT_TRUE(tokenizer);
    EXPECT_EQ(tokenizer->encode("a"), (std::vector<int>{97}));
    EXPECT_EQ(tokenizer->end_token(), -1);
}

TEST(ByteTokenizer, Refuses_specials_that_are_bytes_equal_or_no_tokens) {
    for (const char* bad :
         {R"({"format": "draftboard.byte_tokenizer", "version": 1, "bos": 65})",
          R"({"format": "draftboard.byte_tokenizer", "version": 1, "bos": 256, "eos": 256})",
          R"({"format": "draftboard.byte_tokenizer", "version": 1, "eos": 1e12})",
          R"({"format": "draftboard.byte_tokenizer", "version": 1, "eos": "x"})",
          R"({"format": "draftboard.byte_tokenizer", "version": 2})", R"({"format": "other", "version": 1})", "[]", "{"}) {
        EXPECT_FALSE(ByteTokenizer::parse(bad, "t")) << bad;
    }
    EXPECT_FALSE(ByteTokenizer::load("no/such/byte_tokenizer.json"));
}

TEST(ByteStream, Never_gives_out_half_a_sequence) {
    ByteStream stream;
    EXPECT_EQ(stream.push(std::vector<int>{'a', 0xF0, 0x9F}), "a");
    EXPECT_EQ(stream.push(std::vector<int>{0x98}), "");
    EXPECT_EQ(stream.push(std::vector<int>{0x80, 'b'}),
              "\xF0\x9F\x98\x80"
              "b");
    EXPECT_EQ(stream.finish(), "");
}

TEST(ByteStream, Replaces_each_broken_piece_once) {
    EXPECT_EQ(streamed("\xE2\x82z"), kReplacement + "z");                             // cut short by a letter
    EXPECT_EQ(streamed("\xE2\x82"), kReplacement);                                    // cut short by the end
    EXPECT_EQ(streamed("\x80"), kReplacement);                                        // a continuation of nothing
    EXPECT_EQ(streamed("\xC0\xAF"), kReplacement + kReplacement);                     // overlong
    EXPECT_EQ(streamed("\xED\xA0\x80"), kReplacement + kReplacement + kReplacement);  // a surrogate
    EXPECT_EQ(streamed("\xF4\x90\x80\x80"), kReplacement + kReplacement + kReplacement + kReplacement);  // above U+10FFFF
    EXPECT_EQ(streamed("\xE2\xC3\xA9"), kReplacement + "\xC3\xA9");  // a lead byte begins anew
}

RC_GTEST_PROP(ByteStream, Text_that_is_UTF_8_comes_out_as_it_went_in, ()) {
    std::string text;
    const auto points = *rc::gen::container<std::vector<std::uint32_t>>(rc::gen::inRange<std::uint32_t>(1, 0x110000));
    for (std::uint32_t c : points) {
        if (c >= 0xD800 && c < 0xE000) c = 0x41;
        const auto byte = [&](std::uint32_t value) {
            text.push_back(static_cast<char>(static_cast<unsigned char>(value)));
        };
        if (c < 0x80) {
            byte(c);
        } else if (c < 0x800) {
            byte(0xC0 | (c >> 6)), byte(0x80 | (c & 63));
        } else if (c < 0x10000) {
            byte(0xE0 | (c >> 12)), byte(0x80 | ((c >> 6) & 63)), byte(0x80 | (c & 63));
        } else {
            byte(0xF0 | (c >> 18)), byte(0x80 | ((c >> 12) & 63)), byte(0x80 | ((c >> 6) & 63)), byte(0x80 | (c & 63));
        }
    }
    RC_ASSERT(streamed(text) == text);
}

}  // namespace
}  // namespace draftboard::backend
