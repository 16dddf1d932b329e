// SPDX-License-Identifier: Apache-2.0
// A measured profile beside what memory can do.
#include "backend/operation_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace draftboard::backend {
namespace {

model::Json operation(const char* key, double us, double weight, double cache, double activation, double message = 0) {
    return {{"key", key},          {"median_us", us},                 {"wait_us", 0.5},        {"weight_bytes", weight},
            {"cache_bytes", cache}, {"activation_bytes", activation}, {"message_bytes", message}};
}

model::Json profile() {
    model::Json decode = {{"pass", "decode"}, {"sequences", 2}, {"tokens", 1}, {"context", 100.0}, {"model", "target"}, {"operations", model::Json::array()}};
    decode["operations"].push_back(operation("decode/L00/attention.o_proj", 9.5, 3e6, 0, 1e6));
    decode["operations"].push_back(operation("decode/L01/attention.o_proj", 19.5, 5e6, 0, 1e6));
    decode["operations"].push_back(operation("decode/L01/mixer.all_reduce", 49.5, 0, 0, 2e6, 1e6));
    decode["operations"].push_back(operation("decode/lm_head", 4.5, 1e6, 2e6, 0));
    model::Json prefill = decode;
    prefill["pass"] = "prefill";
    return {{"passes", model::Json::array({prefill, decode})}};
}

TEST(OperationTable, Sums_the_layers_of_a_role_and_leaves_prefill_out) {
    const auto tables = operation_tables(profile());
    ASSERT_EQ(tables.size(), 1U);
    const PassTable& table = tables.front();
    EXPECT_EQ(table.pass, "decode");
    ASSERT_EQ(table.rows.size(), 3U);
    EXPECT_EQ(table.rows[0].role, "mixer.all_reduce");  // 50 us, the longest
    EXPECT_EQ(table.rows[1].role, "attention.o_proj");
    EXPECT_EQ(table.rows[1].count, 2);
    // (9.5 + 0.5) + (19.5 + 0.5) us; 3 + 1 + 5 + 1 MB; 10 MB / 30 us = 333 GB/s
    EXPECT_DOUBLE_EQ(table.rows[1].us, 30);
    EXPECT_DOUBLE_EQ(table.rows[1].bytes, 10e6);
    EXPECT_NEAR(table.rows[1].gb_per_s(), 333.33, 0.01);
    EXPECT_DOUBLE_EQ(table.us, 85);
    EXPECT_DOUBLE_EQ(table.weight_bytes, 9e6);
    EXPECT_DOUBLE_EQ(table.cache_bytes, 2e6);
}

TEST(OperationTable, Gives_collectives_no_rate_and_others_their_share_of_the_ceiling) {
    const auto tables = operation_tables(profile());
    EXPECT_DOUBLE_EQ(tables.front().rows[0].gb_per_s(), 0);
    const std::string text = to_text(tables, 1000);
    // 11 MB at 1000 GB/s are 0.011 ms.
    EXPECT_THAT(text, testing::HasSubstr("target decode, 2 x 1 rows, context 100: operations 0.085 ms, weights and caches 0.011 GB, at the ceiling of 1000 GB/s 0.011 ms"));
    EXPECT_THAT(text, testing::ContainsRegex("attention.o_proj +2 +30.0 +35.3 % +10.00 +333 +33 %"));
    EXPECT_THAT(to_text(tables, 0), testing::Not(testing::HasSubstr("at the ceiling")));
    const model::Json json = to_json(tables, 1000);
    EXPECT_EQ(json.at("passes")[0].at("operations")[1].at("role"), "attention.o_proj");
}

}  // namespace
}  // namespace draftboard::backend
