// SPDX-License-Identifier: Apache-2.0
#include "planning/published_levers.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "model/json_reader.h"

namespace draftboard::planning {
namespace {

const std::string kData = std::string(DRAFTBOARD_SOURCE_DIR) + "/data";
const std::string kShared = std::string(DRAFTBOARD_SHARED_DIR) + "/published";

constexpr const char* kTable =
    "id,lever,model,gpus,before_value,after_value,unit,conditions,source_path,notes\n"
    "A,DCP 1 -> 4,Kimi-K2.6,8,100,80,tok/s,spec=none C1 ctx16384,page-2026-05,\n"
    "B,MTP off -> MTP=2,GLM-5.1,8,50,80,tok/s,\"DCP2 C16, ctx 2,000\",page,\n"
    "C,ForceP2P driver override off -> on (custom AR on),Kimi-K2.6,8,25,100,tok/s,MTP3 DCP1 16k/C4,page,\n"
    "D,a new paint,Kimi-K2.6,8,25,100,tok/s,C1,page,\n"
    "E,DCP 1 -> 4,Kimi-K2.6,8,1,2,s TTFT,C1,page,\n"
    "F,MTP/eagle3 off -> on,Kimi-K2.6,8,60,50,tok/s,C9,page,derived from P1 and P2; more\n";

std::vector<PublishedPair> pairs() { return parse_published_pairs(kTable, "table").value(); }

TEST(PublishedLevers, A_pair_becomes_two_rows_that_differ_in_the_lever_alone) {
    const auto dcp = rows_of(pairs()[0], {});
    ASSERT_TRUE(dcp) << dcp.error().to_text();
    EXPECT_EQ(dcp->before.dcp, 1);
    EXPECT_EQ(dcp->after.dcp, 4);
    EXPECT_EQ(dcp->before.context_tokens, 16384);
    EXPECT_EQ(dcp->before.concurrency, 1);
    EXPECT_EQ(dcp->before.spec_method, "none");
    const auto mtp = rows_of(pairs()[1], {});
    ASSERT_TRUE(mtp);
    EXPECT_EQ(mtp->before.spec_method, "none");
    EXPECT_EQ(mtp->after.spec_method, "mtp");
    EXPECT_EQ(mtp->after.spec_k, 2);
    EXPECT_EQ(mtp->after.context_tokens, 2000);
    EXPECT_EQ(mtp->after.concurrency, 16);
    EXPECT_EQ(mtp->after.dcp, 2);
    const auto driver = rows_of(pairs()[2], {});
    ASSERT_TRUE(driver);
    EXPECT_EQ(driver->before.nccl_env, "before ForceP2P");
    EXPECT_EQ(driver->after.context_tokens, 16384);
    EXPECT_EQ(driver->after.spec_method, "eagle3");
    EXPECT_EQ(driver->after.spec_k, 3);
}

TEST(PublishedLevers, What_no_rule_covers_is_left_out_with_a_reason) {
    for (const std::size_t i : {3U, 4U}) {
        const auto rows = rows_of(pairs()[i], {});
        ASSERT_FALSE(rows);
        EXPECT_FALSE(rows.error().message.empty());
    }
}

TEST(PublishedLevers, Rows_of_a_grid_stand_in_where_the_pair_was_derived_from_them) {
    calibration::PublishedRow plain;
    plain.id = "P1";
    plain.concurrency = 7;
    calibration::PublishedRow speculating = plain;
    speculating.id = "P2";
    speculating.spec_method = "eagle3";
    const auto rows = rows_of(pairs()[5], {speculating, plain});
    ASSERT_TRUE(rows);
    EXPECT_EQ(rows->before.concurrency, 7);
    EXPECT_EQ(rows->after.spec_method, "eagle3");
    EXPECT_EQ(rows->before.tokens_per_second, 60);
}

TEST(PublishedLevers, A_report_counts_each_pair_once) {
    const auto report = hold_against_published(pairs(), {}, kData);
    ASSERT_TRUE(report) << report.error().to_text();
    std::size_t left_out = 0;
    for (const auto& [reason, count] : report->reasons) left_out += count;
    EXPECT_EQ(report->overall.pairs + left_out, 6U);
    EXPECT_EQ(report->overall.pairs, 4U);
    std::size_t in_groups = 0;
    for (const PairGroup& group : report->groups) in_groups += group.pairs;
    EXPECT_EQ(in_groups, 4U);
    for (const PairResult& one : report->results) {
        EXPECT_NEAR(one.is_predicted() ? one.predicted.value * one.before : one.after, one.after, 1e-9);
    }
}

TEST(PublishedLevers, A_malformed_table_names_its_line) {
    EXPECT_FALSE(parse_published_pairs("id,lever\n1,2\n", "table"));
    const auto bad = parse_published_pairs(
        "id,lever,model,gpus,before_value,after_value,unit,conditions,source_path\n1,x,y,8,fast,2,tok/s,C1,p\n", "table");
    ASSERT_FALSE(bad);
    EXPECT_NE(bad.error().context.find("2"), std::string::npos);
}

TEST(PublishedLevers, Most_published_pairs_are_predicted_with_the_right_sign) {
    const std::string table = kShared + "/levers.csv";
    if (!std::filesystem::exists(table)) GTEST_SKIP() << "no published tables beside the repository";
    const auto all = parse_published_pairs(model::read_file(table).value(), table);
    ASSERT_TRUE(all) << all.error().to_text();
    const auto grid = calibration::load_published_grid(kShared + "/decode_grid.csv");
    const auto report = hold_against_published(*all, grid ? *grid : std::vector<calibration::PublishedRow>{}, kData);
    ASSERT_TRUE(report) << report.error().to_text();
    EXPECT_GT(report->overall.pairs, report->results.size() * 7 / 10);
    EXPECT_LT(report->overall.median_error, 0.08);
    EXPECT_GT(static_cast<double>(report->overall.sign_right), 0.88 * static_cast<double>(report->overall.sign_pairs));
    EXPECT_GT(static_cast<double>(report->overall.held), 0.88 * static_cast<double>(report->overall.pairs));
}

}  // namespace
}  // namespace draftboard::planning
