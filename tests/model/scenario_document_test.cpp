// SPDX-License-Identifier: Apache-2.0
#include "model/scenario_document.h"

#include <gtest/gtest.h>

namespace draftboard::model {
namespace {

Json edited(const std::string& edit) {
    Json document = default_scenario_document();
    const auto applied = apply_edit(document, edit);
    EXPECT_TRUE(applied) << applied.error().to_text();
    return document;
}

TEST(ScenarioDocument, Every_leaf_can_be_set) {
    for (const std::string& path : leaf_paths(default_scenario_document())) {
        Json document = default_scenario_document();
        EXPECT_TRUE(apply_edit(document, path + "=1")) << path;
    }
}

TEST(ScenarioDocument, Values_are_json_lists_or_strings) {
    EXPECT_EQ(edited("speculation.steps=4")["speculation"]["steps"], 4);
    EXPECT_EQ(edited("speculation.pad_misses=false")["speculation"]["pad_misses"], false);
    EXPECT_EQ(edited("machine=8x-l40s")["machine"], "8x-l40s");
    EXPECT_EQ(edited("name=42")["name"], "42");
    EXPECT_EQ(edited("memory.kv_format=fp8")["memory"]["kv_format"], "fp8");
    EXPECT_EQ(edited("speculation.acceptance.per_position=[0.6,0.4]")["speculation"]["acceptance"]["per_position"],
              Json::parse("[0.6,0.4]"));
    EXPECT_EQ(edited("constants.host.cycle_us=900")["constants"]["host.cycle_us"], 900);
    EXPECT_EQ(edited("speculation.head.kind=mla")["speculation"]["head"]["kind"], "mla");
}

TEST(ScenarioDocument, An_unknown_path_names_the_nearest_known_ones) {
    Json document = default_scenario_document();
    const auto applied = apply_edit(document, "speculation.step=4");
    ASSERT_FALSE(applied);
    EXPECT_EQ(applied.error().code, ErrorCode::not_found);
    EXPECT_NE(applied.error().hint.find("speculation.steps"), std::string::npos)
        << applied.error().hint;
    EXPECT_EQ(document, default_scenario_document());
}

TEST(ScenarioDocument, Edits_without_a_path_or_a_value_sign_are_refused) {
    Json document = default_scenario_document();
    for (const char* edit : {"", "=", "=3", "steps", "layout.tensor.x=1", "sources.7=x", ".=1", "layout.=1"}) {
        EXPECT_FALSE(apply_edit(document, edit)) << edit;
    }
    EXPECT_EQ(document, default_scenario_document());
}

TEST(ScenarioDocument, Objects_merge_and_unknown_keys_are_kept_and_named) {
    const Json changes = Json::parse(R"({"layout": {"tensor": 8, "tenser": 9}, "mine": {"a": 1}, "_note": 1})");
    const Json document = merged(default_scenario_document(), changes);
    EXPECT_EQ(document["layout"]["tensor"], 8);
    EXPECT_EQ(document["layout"]["pipeline"], 1);
    EXPECT_EQ(document["mine"]["a"], 1);
    EXPECT_EQ(unknown_paths(document), (std::vector<std::string>{"layout.tenser", "mine"}));
}

}  // namespace
}  // namespace draftboard::model
