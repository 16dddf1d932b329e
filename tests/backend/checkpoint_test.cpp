// SPDX-License-Identifier: Apache-2.0
#include "backend/checkpoint.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/weight_map.h"
#include "tests/backend/written_checkpoint.h"

namespace draftboard::backend {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using model::ErrorCode;
using testing::TemporaryFolder;
using testing::TensorSet;

void write_one(const TemporaryFolder& folder, const char* file, const std::vector<std::string>& names) {
    TensorSet set;
    for (const std::string& name : names) set.add_counting(name, {2, 3});
    set.write(folder.file(file));
}

TEST(Checkpoint, One_file_gives_its_tensors_by_name) {
    const TemporaryFolder folder;
    folder.write("config.json", "{}");
    write_one(folder, "model.safetensors", {"b", "a"});
    const auto checkpoint = Checkpoint::open(folder.path());
    ASSERT_TRUE(checkpoint) << checkpoint.error().to_text();
    EXPECT_THAT(checkpoint->names(), ElementsAre("a", "b"));
    EXPECT_EQ(checkpoint->bytes(), 2u * 6 * 2);  // two tensors of 6 bf16
    EXPECT_EQ(checkpoint->find("c"), nullptr);
    EXPECT_EQ(checkpoint->find("a")->shape, (std::vector<std::int64_t>{2, 3}));
    EXPECT_FALSE(checkpoint->has_byte_tokenizer());
    folder.write("byte_tokenizer.json", "{}");
    EXPECT_TRUE(Checkpoint::open(folder.path())->has_byte_tokenizer());
}

TEST(Checkpoint, Several_files_are_put_together_by_their_index) {
    const TemporaryFolder folder;
    folder.write("config.json", "{}");
    write_one(folder, "m-1.safetensors", {"a", "b"});
    write_one(folder, "m-2.safetensors", {"c"});
    folder.write("model.safetensors.index.json",
                 R"({"metadata": {"total_size": 36, "x": [1, {"weight_map": 3}]},
                     "weight_map": {"a": "m-1.safetensors", "b": "m-1.safetensors", "c": "m-2.safetensors"}})");
    auto checkpoint = Checkpoint::open(folder.path());
    ASSERT_TRUE(checkpoint) << checkpoint.error().to_text();
    const Checkpoint moved = std::move(*checkpoint);  // views stay valid
    EXPECT_THAT(moved.names(), ElementsAre("a", "b", "c"));
    EXPECT_EQ(moved.find("c")->bytes[1], moved.find("a")->bytes[1]);
}

TEST(Checkpoint, An_index_that_does_not_fit_its_files_is_an_error) {
    struct Row {
        const char* map;
        const char* says;
    };
    for (const Row& row : {Row{R"({"a": "m-1.safetensors", "b": "m-3.safetensors"})", "m-3.safetensors"},
                           Row{R"({"a": "m-1.safetensors", "z": "m-1.safetensors"})", "tensor \"z\" is not in m-1.safetensors"},
                           Row{R"({"a": "m-1.safetensors", "b": "m-2.safetensors"})", "tensor \"b\" is in this file and in another"},
                           Row{R"({"a": "../m-1.safetensors"})", "\"a\" is said to be in \"../m-1.safetensors\""},
                           Row{R"({"a": "/etc/passwd"})", "/etc/passwd"}, Row{R"({"a": ".safetensors"})", "\".safetensors\""},
                           Row{R"({"a": "x/m-1.safetensors"})", "x/m-1"}, Row{R"({"a": "m-1.bin"})", "m-1.bin"},
                           Row{R"({"a": 3})", "tensor \"a\" is in a number"}, Row{R"({"a": {"b": "m"}})", "tensor \"a\" is in an object"},
                           Row{R"({"a": "m-1.safetensors", "a": "m-1.safetensors"})", "tensor \"a\" is there twice"},
                           Row{R"([])", "weight_map is an array"}, Row{R"("m")", "weight_map is a string"},
                           Row{R"({})", "no weight_map, or it is empty"}}) {
        SCOPED_TRACE(row.map);
        const TemporaryFolder folder;
        folder.write("config.json", "{}");
        write_one(folder, "m-1.safetensors", {"a", "b"});
        write_one(folder, "m-2.safetensors", {"b"});
        folder.write("model.safetensors.index.json", fmt::format(R"({{"weight_map": {}}})", row.map));
        const auto checkpoint = Checkpoint::open(folder.path());
        ASSERT_FALSE(checkpoint);
        EXPECT_THAT(checkpoint.error().to_text(), HasSubstr(row.says));
    }
}

TEST(Checkpoint, An_index_that_is_no_object_or_has_two_maps_is_an_error) {
    for (const char* text : {"[]", "3", "{\"weight_map\": {\"a\": \"x.safetensors\"}, \"weight_map\": {\"a\": \"x.safetensors\"}}",
                             "{\"weight_map\": {\"a\": \"x.safetensors\"}", "", "null"}) {
        EXPECT_FALSE(read_weight_map(text, "index")) << text;
    }
}

TEST(Checkpoint, An_index_of_200000_tensors_is_read_in_seconds) {
    std::string text = R"({"weight_map": {)";
    for (int i = 0; i < 200'000; ++i) text += fmt::format("{}\"layer.{}\": \"m.safetensors\"", i == 0 ? "" : ",", i);
    const auto map = read_weight_map(text + "}}", "index");
    ASSERT_TRUE(map) << map.error().to_text();
    EXPECT_EQ(map->size(), 200'000u);
}

TEST(Checkpoint, What_is_missing_is_said) {
    const TemporaryFolder folder;
    EXPECT_EQ(Checkpoint::open(folder.file("none")).error().code, ErrorCode::not_found);
    EXPECT_THAT(Checkpoint::open(folder.path()).error().to_text(), HasSubstr("config.json"));
    folder.write("config.json", "{}");
    EXPECT_THAT(Checkpoint::open(folder.file("config.json")).error().message, HasSubstr("not a folder"));
    EXPECT_THAT(Checkpoint::open(folder.path()).error().message, HasSubstr("neither model.safetensors nor"));
    folder.write("pytorch_model.bin", "x");
    EXPECT_THAT(Checkpoint::open(folder.path()).error().hint, HasSubstr("pickled"));
}

TEST(Checkpoint, A_missing_tensor_is_reported_with_the_nearest_names) {
    const TemporaryFolder folder;
    folder.write("config.json", "{}");
    write_one(folder, "model.safetensors", {"model.norm.weight", "lm_head.weight"});
    const auto checkpoint = Checkpoint::open(folder.path());
    const auto tensor = checkpoint->require("model.norn.weight");
    ASSERT_FALSE(tensor);
    EXPECT_EQ(tensor.error().code, ErrorCode::not_found);
    EXPECT_THAT(tensor.error().message, HasSubstr("model.norn.weight"));
    EXPECT_THAT(tensor.error().hint, HasSubstr("model.norm.weight"));
}

TEST(Checkpoint, A_head_is_told_from_a_model) {
    const TemporaryFolder folder;
    folder.write("config.json", R"({"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama"})");
    write_one(folder, "model.safetensors", {"fc.weight"});
    const auto checkpoint = Checkpoint::open(folder.path());
    EXPECT_TRUE(checkpoint->is_eagle3_head());
    EXPECT_THAT(checkpoint->architecture().error().message, HasSubstr("EAGLE-3 head"));
}

}  // namespace
}  // namespace draftboard::backend
