// SPDX-License-Identifier: Apache-2.0
#include "model/architecture.h"

#include <limits>

#include <gtest/gtest.h>

#include "model/architecture_library.h"
#include "model/architecture_report.h"
#include "model/data_library.h"
#include "model/parameter_count.h"

namespace draftboard::model {
namespace {

const std::string kData = std::string(DRAFTBOARD_SOURCE_DIR) + "/data";

Architecture shipped(const std::string& name) {
    auto architecture = find_architecture(name, kData);
    EXPECT_TRUE(architecture) << architecture.error().to_text();
    return architecture ? *architecture : Architecture{};
}

TEST(Architecture, Every_shipped_one_is_sound_and_names_its_source) {
    const auto names = shipped_names("architectures", kData);
    EXPECT_EQ(names.size(), 17u);
    for (const std::string& name : names) {
        const Architecture architecture = shipped(name);
        EXPECT_TRUE(architecture.validate().empty()) << name;
        ASSERT_FALSE(architecture.notes.empty()) << name;
        EXPECT_EQ(architecture.notes.back().rfind("figures: ", 0), 0u)
            << name << ": " << architecture.notes.back();
    }
}

TEST(Architecture, An_unknown_name_suggests_the_nearest_shipped_one) {
    const auto result = find_architecture("kimi-k2.6", kData);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::not_found);
    EXPECT_NE(result.error().hint.find("kimi-k2.5"), std::string::npos) << result.error().hint;
}

TEST(Architecture, A_violated_invariant_is_named_with_its_place) {
    Architecture architecture = shipped("kimi-k2.5");
    std::get<MoeFeedForward>(architecture.layers[3].feed_forward).experts_per_token = 385;
    std::get<MlaShape>(architecture.layers[7].mixer).heads = 0;
    const auto problems = architecture.validate();
    ASSERT_EQ(problems.size(), 2u);
    EXPECT_EQ(problems[0],
              (Problem{"/layers/3/feed_forward/experts_per_token", "385 is outside 1 .. 384"}));
    EXPECT_EQ(problems[1].place, "/layers/7/mixer/heads");
}

TEST(Architecture, An_empty_one_is_refused_and_not_counted) {
    const auto problems = Architecture{}.validate();
    ASSERT_EQ(problems.size(), 4u);
    EXPECT_EQ(problems[0].place, "/hidden");
    EXPECT_EQ(problems[3].place, "/layers");
}

TEST(Architecture, Shapes_within_their_limits_whose_product_is_absurd_are_refused) {
    Architecture architecture = shipped("mixtral-8x7b");
    architecture.hidden = static_cast<int>(kMaxFeatures);
    for (Layer& layer : architecture.layers) {
        auto& moe = std::get<MoeFeedForward>(layer.feed_forward);
        moe.experts = kMaxExperts;
        moe.intermediate = static_cast<int>(kMaxFeatures);
    }
    const auto problems = architecture.validate();
    ASSERT_EQ(problems.size(), 1u);
    // 3 x 2^24 x 2^24 x 2^16 x 32 is beyond 2^63: the count saturates instead of wrapping round.
    EXPECT_EQ(count_parameters(architecture).total, std::numeric_limits<std::int64_t>::max());
}

TEST(Architecture, Extreme_integers_in_every_field_are_problems_and_not_overflows) {
    for (const int extreme :
         {std::numeric_limits<int>::min(), -1, std::numeric_limits<int>::max()}) {
        Architecture architecture = shipped("qwen3.5-35b");
        for (Layer& layer : architecture.layers) {
            if (auto* gqa = std::get_if<GqaShape>(&layer.mixer))
                gqa->heads = gqa->head_dim = gqa->kv_heads = extreme;
            if (auto* net = std::get_if<DeltaNetShape>(&layer.mixer))
                net->key_heads = net->key_head_dim = extreme;
            auto& moe = std::get<MoeFeedForward>(layer.feed_forward);
            moe.experts = moe.groups = moe.top_groups = moe.experts_per_token = extreme;
        }
        EXPECT_FALSE(architecture.validate().empty());
        EXPECT_LE(architecture.validate().size(), 100u);
    }
}

TEST(ArchitectureReport, Parts_sum_to_the_totals) {
    for (const std::string& name : shipped_names("architectures", kData)) {
        const Json report = architecture_report(shipped(name));
        std::int64_t parameters = 0;
        std::int64_t active = 0;
        double bytes = 0;
        for (const auto& item : report["parameters_by_part"].items())
            parameters += item.value().get<std::int64_t>();
        for (const auto& item : report["active_parameters_by_part"].items())
            active += item.value().get<std::int64_t>();
        for (const auto& item : report["bytes_by_part"].items())
            bytes += item.value().get<double>();
        EXPECT_EQ(parameters, report["total_parameters"].get<std::int64_t>()) << name;
        EXPECT_EQ(active, report["active_parameters"].get<std::int64_t>()) << name;
        EXPECT_NEAR(bytes, report["weight_bytes"].get<double>(), 1) << name;
    }
}

TEST(ArchitectureReport, Layer_kinds_are_counted) {
    const Json report = architecture_report(shipped("qwen3.5-397b"));
    // 60 layers, every fourth with full attention: 15 and 45.
    EXPECT_EQ(report["layers"]["mixers"], (Json{{"delta_net", 45}, {"gqa", 15}}));
    EXPECT_EQ(report["layers"]["feed_forwards"], (Json{{"moe_10_of_512_shared", 60}}));
    EXPECT_EQ(report["all_reduces_per_forward"], 120);
    EXPECT_EQ(report["embedding_all_reduces"], 1);
    EXPECT_EQ(report["logits_all_gathers"], 1);
}

TEST(ArchitectureReport, The_text_states_what_the_json_states) {
    const std::string text = architecture_text(shipped("kimi-k2.5"));
    for (const char* expected :
         {"Kimi-K2.5 (kimi_k2)", "1 x dense, 60 x moe_8_of_384_shared", "1026.408 B", "31.687 B",
          "122 in the decoder", "60 x int4_g32",
          "note: figures: config.json of huggingface.co/moonshotai/Kimi-K2.5"}) {
        EXPECT_NE(text.find(expected), std::string::npos) << expected << "\n" << text;
    }
}

}  // namespace
}  // namespace draftboard::model
