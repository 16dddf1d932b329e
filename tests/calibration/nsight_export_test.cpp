// SPDX-License-Identifier: Apache-2.0
// SQLite exports of Nsight Systems: fixtures with known content (make_export.py), and files that lie.

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "calibration/logs/nsight_export.h"
#include "model/json_reader.h"

namespace draftboard::calibration {
namespace {

std::string path_of(const std::string& name) { return std::string(DRAFTBOARD_SOURCE_DIR) + "/tests/fixtures/nsight/" + name; }

NsightExport load(const std::string& name) {
    auto log = load_nsight_export(path_of(name));
    EXPECT_TRUE(log.has_value()) << log.error().to_text();
    return log.value_or(NsightExport());
}

model::Error refusal(const std::string& name) {
    const auto log = load_nsight_export(path_of(name));
    EXPECT_FALSE(log.has_value()) << name;
    return log ? model::Error() : log.error();
}

TEST(NsightExport, Kernels_stand_by_name_with_most_time_first) {
    const NsightExport log = load("eager_and_graph.sqlite");
    // Two GPUs, three eager passes and three replays: 12 of each kernel; attention takes 30 us.
    ASSERT_EQ(log.kernels.size(), 4U);
    EXPECT_EQ(log.kernels.front().name, "attention");
    EXPECT_EQ(log.kernels.front().us.count, 12);
    EXPECT_DOUBLE_EQ(log.kernels.front().us.median, 30);
    EXPECT_DOUBLE_EQ(log.kernels.front().us.total, 360);
    EXPECT_EQ(log.gpus.size(), 2U);
    EXPECT_EQ(log.version, "3.13.1");
}

TEST(NsightExport, Messages_of_NCCL_stand_apart_by_their_size_where_a_range_tells_it) {
    const NsightExport log = load("eager_and_graph.sqlite");
    // Eager launches stand in a range with the payload; replays of a graph do not.
    ASSERT_EQ(log.collectives.size(), 2U);
    EXPECT_EQ(log.collectives[0].bytes, -1);
    EXPECT_EQ(log.collectives[0].us.count, 6);
    EXPECT_EQ(log.collectives[1].call, "ncclAllReduce");
    EXPECT_EQ(log.collectives[1].bytes, 14336);
    EXPECT_EQ(log.collectives[1].channels, 4);
    EXPECT_DOUBLE_EQ(log.collectives[1].us.median, 12);
    EXPECT_THAT(log.warnings, testing::Contains(testing::HasSubstr("not recorded")));
}

TEST(NsightExport, Gaps_and_launch_costs_are_told_apart) {
    const NsightExport log = load("eager_and_graph.sqlite");
    // Graph: 3 replays x 3 gaps x 2 GPUs of 0.5 us. Queued: the same of 1 us, launched every 5 us at 4 us each.
    EXPECT_EQ(log.graph_gaps.count, 18);
    EXPECT_DOUBLE_EQ(log.graph_gaps.median, 0.5);
    EXPECT_DOUBLE_EQ(log.queued_gaps.median, 1.0);
    EXPECT_EQ(log.queued_gaps.count, 18);
    EXPECT_DOUBLE_EQ(log.launch_intervals.median, 5);
    EXPECT_DOUBLE_EQ(log.kernel_launches.median, 4);
    EXPECT_EQ(log.graph_launches.count, 3);
    EXPECT_DOUBLE_EQ(log.graph_launches.median, 6);
    EXPECT_EQ(log.launch_latency.count, 6);  // the first kernel of each eager pass
    EXPECT_DOUBLE_EQ(log.launch_latency.p10, 7);
    // The GPU waits for the host between passes, 5 times on each of two GPUs.
    EXPECT_EQ(log.host_gaps.count, 10);
}

TEST(NsightExport, The_share_of_collectives_is_of_the_busy_time) {
    const NsightExport log = load("eager_and_graph.sqlite");
    ASSERT_EQ(log.devices.size(), 2U);
    // 12 of 72 us.
    EXPECT_DOUBLE_EQ(log.devices[1].busy_us, 6 * 72);
    EXPECT_NEAR(log.devices[1].collective_share(), 12.0 / 72, 1e-12);
    ASSERT_EQ(log.copies.size(), 1U);
    EXPECT_DOUBLE_EQ(log.copies[0].gb_s(), 50);  // 5 MB in 100 us
}

TEST(NsightExport, Graphs_recorded_whole_are_counted_and_said_to_hide_their_kernels) {
    const NsightExport log = load("graphs.sqlite");
    EXPECT_EQ(log.graphs.count, 5);
    EXPECT_DOUBLE_EQ(log.graphs.median, 73.5);
    EXPECT_TRUE(log.kernels.empty());
    EXPECT_THAT(log.warnings, testing::Contains(testing::HasSubstr("--cuda-graph-trace=node")));
}

TEST(NsightExport, From_memory_and_from_a_file_the_same_is_read) {
    const auto bytes = model::read_file(path_of("eager_and_graph.sqlite"));
    ASSERT_TRUE(bytes.has_value());
    EXPECT_TRUE(is_sqlite(*bytes));
    const auto log = read_nsight_export(*bytes, "x");
    ASSERT_TRUE(log.has_value()) << log.error().to_text();
    EXPECT_EQ(to_json(*log, "x").dump(), to_json(load("eager_and_graph.sqlite"), "x").dump());
}

TEST(NsightExport, Files_that_lie_are_refused_with_the_place) {
    EXPECT_THAT(refusal("backwards.sqlite").to_text(),
                testing::AllOf(testing::HasSubstr("before"), testing::HasSubstr("CUPTI_ACTIVITY_KIND_KERNEL: row 4")));
    EXPECT_THAT(refusal("column_missing.sqlite").message, testing::HasSubstr("no column streamId"));
    EXPECT_THAT(refusal("words_for_times.sqlite").message, testing::HasSubstr("no whole number"));
    // A view is no table, whatever its name: this one would never end.
    EXPECT_THAT(refusal("view.sqlite").message, testing::HasSubstr("nothing ran on a GPU"));
    EXPECT_THAT(refusal("stranger.sqlite").message, testing::HasSubstr("no export of Nsight Systems"));
}

TEST(NsightExport, A_file_cut_anywhere_is_read_in_part_or_refused_and_never_more) {
    const auto bytes = model::read_file(path_of("eager_and_graph.sqlite")).value_or("");
    ASSERT_GT(bytes.size(), 4000U);
    int refused = 0;
    for (std::size_t size = 0; size < bytes.size(); size += 64) {
        const auto log = read_nsight_export(std::string_view(bytes).substr(0, size), "cut");
        if (log) continue;
        ++refused;
        EXPECT_FALSE(log.error().hint.empty());
    }
    EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace draftboard::calibration
