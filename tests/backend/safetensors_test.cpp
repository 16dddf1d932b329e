// SPDX-License-Identifier: Apache-2.0
#include "backend/safetensors.h"

#include <chrono>
#include <cstring>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/backend/written_checkpoint.h"

namespace draftboard::backend {
namespace {

using ::testing::HasSubstr;
using model::ErrorCode;
using testing::bytes_of_values;
using testing::raw_safetensors;
using testing::TemporaryFolder;
using testing::TensorSet;

/// One F32 tensor "a" of 4 elements, 16 bytes, padded so that the data is aligned to 8.
std::string padded(std::string header) {
    header.append((8 - header.size() % 8) % 8, ' ');
    return header;
}

TEST(Safetensors, Gives_back_what_was_written) {
    const TemporaryFolder folder;
    const std::vector<float> values{1.5f, -2, 0, 1e30f, 5, 6};
    const std::vector<std::uint8_t> marks{1, 0, 1};
    const auto numbers = bytes_of_values(values);
    const auto bools = bytes_of_values(marks);
    const std::vector<TensorToWrite> tensors{{"marks", TensorType::boolean, {3}, bools},
                                             {"w \"quoted\" \xc3\xa9", TensorType::f32, {2, 3}, numbers},
                                             {"none", TensorType::bf16, {0, 7}, {}}};
    ASSERT_TRUE(write_safetensors(folder.file("x.safetensors"), tensors, {{"format", "pt"}}));
    const auto file = SafetensorsFile::open(folder.file("x.safetensors"));
    ASSERT_TRUE(file) << file.error().to_text();
    EXPECT_EQ(file->metadata().at("format"), "pt");
    ASSERT_EQ(file->tensors().size(), 3u);
    const TensorView& w = file->tensors().find("w \"quoted\" \xc3\xa9")->second;
    EXPECT_EQ(w.shape, (std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(w.elements(), 6);
    EXPECT_EQ(std::memcmp(w.bytes.data(), numbers.data(), numbers.size()), 0);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(w.bytes.data()) % 4, 0u);
    EXPECT_EQ(file->tensors().find("none")->second.elements(), 0);
}

TEST(Safetensors, A_scalar_has_one_element_and_no_dimensions) {
    const auto bytes = raw_safetensors(padded(R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})"), 4);
    const auto file = SafetensorsFile::parse(bytes, "x");
    ASSERT_TRUE(file) << file.error().to_text();
    EXPECT_EQ(file->tensors().find("s")->second.elements(), 1);
}

TEST(Safetensors, A_file_without_tensors_is_a_file) {
    EXPECT_TRUE(SafetensorsFile::parse(raw_safetensors("{}", 0), "x"));
    EXPECT_TRUE(SafetensorsFile::parse(raw_safetensors("{}      ", 0), "x"));
}

struct LyingFile {
    const char* what;
    std::string header;
    std::size_t data;
    std::int64_t length;  ///< -1: true
    ErrorCode code;
    const char* says;     ///< in the error's text
};

std::vector<LyingFile> lying_files() {
    const auto invalid = ErrorCode::invalid_input;
    const auto large = ErrorCode::too_large;
    const std::string a = R"("a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]})";
    return {
        {"a header longer than the file", "{}", 0, 3, invalid, "header of 3 bytes is announced, but 2 follow"},
        {"a header of 2^63 bytes", "{}", 0, std::numeric_limits<std::int64_t>::max(), large, "beyond the limit"},
        {"a header of no bytes", "", 8, 0, invalid, "does not begin with '{'"},
        {"a header that is an array", "[]", 0, -1, invalid, "does not begin with '{'"},
        {"a header cut off", "{" + a, 16, -1, invalid, "not valid JSON at byte"},
        {"text behind the header's end", "{} {}", 0, -1, invalid, "not valid JSON"},
        {"a name that is not UTF-8", "{\"\xff\":{}}", 0, -1, invalid, "not valid JSON"},
        {"a tensor that reaches beyond the file", padded("{" + a + "}"), 15, -1, invalid, "\"a\" reaches to byte 16 of the data, but there are 15"},
        {"offsets near 2^64", R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[18446744073709551613,18446744073709551615]}})", 2, -1, invalid, "\"a\" reaches to byte"},
        {"two tensors in one place", padded("{" + a + R"(,"b":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})"), 16, -1, invalid, "overlaps tensor"},
        {"tensors that overlap by a little", padded("{" + a + R"(,"b":{"dtype":"F32","shape":[4],"data_offsets":[12,28]}})"), 28, -1, invalid, "\"b\" overlaps tensor \"a\" by 4 bytes"},
        {"a hole", padded("{" + a + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[20,24]}})"), 24, -1, invalid, "4 bytes before tensor \"b\" belong to no tensor"},
        {"bytes behind the last tensor", padded("{" + a + "}"), 17, -1, invalid, "1 bytes behind the last tensor \"a\""},
        {"data without a tensor", "{}", 8, -1, invalid, "8 bytes of data, but no tensor"},
        {"an unaligned tensor", padded(R"({"m":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})"), 5, -1, invalid, "\"a\" of F32 does not start at a multiple of 4"},
        {"an unknown dtype", R"({"a":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}})", 2, -1, ErrorCode::unsupported, "\"a\": dtype \"F4\" is not supported"},
        {"a shape larger than its bytes", R"({"a":{"dtype":"F32","shape":[5],"data_offsets":[0,16]}})", 16, -1, invalid, "\"a\": dtype and shape make 20 bytes, but its offsets 0 .. 16 hold 16"},
        {"a shape that overflows to its bytes", R"({"a":{"dtype":"U8","shape":[4294967296,4294967296,1],"data_offsets":[0,0]}})", 0, -1, large, "\"a\": the product of its dimensions"},
        {"a dimension of 2^63", R"({"a":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,0]}})", 0, -1, large, "\"a\": a dimension of 9223372036854775808"},
        {"a negative dimension", R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,0]}})", 0, -1, invalid, "\"a\": shape holds whole numbers from 0; found a negative number"},
        {"a dimension with a fraction", R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", 1, -1, invalid, "\"a\": shape holds whole numbers"},
        {"nine dimensions", R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", 1, -1, large, "\"a\": more than 8 dimensions"},
        {"an end before its beginning", R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,0]}})", 4, -1, invalid, "\"a\" ends at 0 before it begins at 4"},
        {"three offsets", R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4,8]}})", 4, -1, invalid, "\"a\": data_offsets has 3 numbers"},
        {"no offsets", R"({"a":{"dtype":"U8","shape":[4]}})", 4, -1, invalid, "\"a\" has no data_offsets"},
        {"no dtype", R"({"a":{"shape":[4],"data_offsets":[0,4]}})", 4, -1, invalid, "\"a\" has no dtype"},
        {"no shape", R"({"a":{"dtype":"U8","data_offsets":[0,4]}})", 4, -1, invalid, "\"a\" has no shape"},
        {"an unknown field", R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"strides":[1]}})", 4, -1, invalid, "\"a\": unknown field \"strides\""},
        {"a field given twice", R"({"a":{"dtype":"U8","shape":[4],"shape":[4],"data_offsets":[0,4]}})", 4, -1, invalid, "\"a\": shape is given twice"},
        {"a name given twice", "{" + a + "," + a + "}", 16, -1, invalid, "\"a\" is there twice"},
        {"metadata given twice", R"({"__metadata__":{},"__metadata__":{}})", 0, -1, invalid, "\"__metadata__\" is there twice"},
        {"metadata that is no text", R"({"__metadata__":{"n":3}})", 0, -1, invalid, "__metadata__ holds text only; \"n\" is a number"},
        {"a tensor that is a number", R"({"a":3})", 0, -1, invalid, "the entry \"a\" is a number"},
        {"a tensor within a tensor", R"({"a":{"dtype":{"dtype":"U8"}}})", 0, -1, invalid, "\"a\": dtype of the wrong kind: an object"},
        {"a shape within a shape", R"({"a":{"shape":[[1]]}})", 0, -1, invalid, "\"a\": shape holds whole numbers"},
        {"a control character in a name", "{\"a\\u0007b\":3}", 0, -1, invalid, "the entry \"a?b\""},
    };
}

TEST(Safetensors, A_lying_file_is_an_error_that_names_the_tensor_and_what_to_do) {
    for (const LyingFile& lie : lying_files()) {
        SCOPED_TRACE(lie.what);
        const auto bytes = raw_safetensors(lie.header, lie.data, lie.length);
        const auto file = SafetensorsFile::parse(bytes, "lie.safetensors");
        ASSERT_FALSE(file);
        EXPECT_EQ(file.error().code, lie.code);
        EXPECT_THAT(file.error().message, HasSubstr(lie.says));
        EXPECT_THAT(file.error().context, HasSubstr("lie.safetensors"));
    }
}

TEST(Safetensors, Errors_about_places_give_the_offset_in_the_file) {
    // Header of 56 + 8 bytes of length; "a" at 0 of the data.
    const std::string header = padded(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})");
    const auto file = SafetensorsFile::parse(raw_safetensors(header, 12), "x");
    ASSERT_FALSE(file);
    EXPECT_EQ(file.error().context, fmt::format("x: offset {}", 8 + header.size()));
    EXPECT_FALSE(file.error().hint.empty());
}

TEST(Safetensors, Every_truncation_of_a_good_file_is_an_error) {
    const auto whole = raw_safetensors(padded(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})"), 16);
    ASSERT_TRUE(SafetensorsFile::parse(whole, "x"));
    for (std::size_t size = 0; size < whole.size(); ++size) {
        EXPECT_FALSE(SafetensorsFile::parse(std::span(whole).first(size), "x")) << size;
    }
}

TEST(Safetensors, A_zero_sized_tensor_may_lie_between_others) {
    const auto bytes = raw_safetensors(padded(R"({"z":{"dtype":"U8","shape":[0],"data_offsets":[2,2]},)"
                                              R"("a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                                              R"("b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})"), 4);
    EXPECT_TRUE(SafetensorsFile::parse(bytes, "x"));
}

TEST(Safetensors, Folders_pipes_and_missing_files_are_errors_and_no_hang) {
    const TemporaryFolder folder;
    EXPECT_EQ(SafetensorsFile::open(folder.file("none")).error().code, ErrorCode::not_found);
    EXPECT_FALSE(SafetensorsFile::open(folder.path()));
    EXPECT_FALSE(SafetensorsFile::open("/dev/zero"));
    folder.write("empty.safetensors", "");
    EXPECT_FALSE(SafetensorsFile::open(folder.file("empty.safetensors")));
}

TEST(Safetensors, A_header_of_200000_tensors_is_read_in_seconds) {
    std::string header = "{";
    for (int i = 0; i < 200'000; ++i) {
        header += fmt::format(R"({}"model.layers.0.mlp.experts.{}.up_proj.weight":{{"dtype":"U8","shape":[1],"data_offsets":[{},{}]}})",
                              i == 0 ? "" : ",", i, i, i + 1);
    }
    header += "}";
    const auto bytes = raw_safetensors(header, 200'000);
    const auto start = std::chrono::steady_clock::now();
    const auto file = SafetensorsFile::parse(bytes, "x");
    ASSERT_TRUE(file) << file.error().to_text();
    EXPECT_EQ(file->tensors().size(), 200'000u);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));  // quadratic would take minutes
}

TEST(Safetensors, Writing_refuses_sizes_that_do_not_fit_and_names_given_twice) {
    const TemporaryFolder folder;
    const std::vector<std::byte> four(4);
    const std::vector<TensorToWrite> wrong{{"a", TensorType::f32, {2}, four}};
    EXPECT_FALSE(write_safetensors(folder.file("x"), wrong));
    const std::vector<TensorToWrite> twice{{"a", TensorType::f32, {1}, four}, {"a", TensorType::f32, {1}, four}};
    EXPECT_FALSE(write_safetensors(folder.file("x"), twice));
    const std::vector<TensorToWrite> negative{{"a", TensorType::f32, {-1, -1}, four}};
    EXPECT_FALSE(write_safetensors(folder.file("x"), negative));
    const std::vector<TensorToWrite> good{{"a", TensorType::f32, {1}, four}};
    EXPECT_FALSE(write_safetensors(folder.file("no/such/folder"), good));
}

}  // namespace
}  // namespace draftboard::backend
