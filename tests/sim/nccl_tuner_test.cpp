// SPDX-License-Identifier: Apache-2.0
#include "sim/nccl_tuner.h"

#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>

#include <numeric>

#include "model/machine_builder.h"

namespace draftboard::sim {
namespace {

using model::Algorithm;
using model::CollectiveSettings;
using model::MachineBuilder;
using model::OperationKind;
using model::PathType;
using model::Protocol;

struct Host {
    std::string vendor;
    int family = 0;
    int model = 0;
};
const Host kTurin{"AuthenticAMD", 26, 2};
const Host kSapphireRapids{"GenuineIntel", 6, 0x8F};
const Host kEmeraldRapids{"GenuineIntel", 6, 0xCF};

/// Eight (or fewer) Gen5 GPUs, four a socket on ports of their own.
model::Machine direct_box(int gpus, const Host& host, const std::string& capability = "12.0",
                          int generation = 5) {
    MachineBuilder builder("box");
    builder.machine().gpu.compute_capability = capability;
    builder.machine().gpu.name = "GPU";
    builder.machine().host.vendor = host.vendor;
    builder.machine().host.family = host.family;
    builder.machine().host.model = host.model;
    const int numa0 = builder.add_numa(0, 0);
    const int numa1 = gpus > 4 ? builder.add_numa(1, 1) : -1;
    for (int g = 0; g < gpus; ++g) {
        builder.add_gpu(builder.add_root_port(g < 4 ? numa0 : numa1), generation, 16);
    }
    builder.connect_all_numa(generation);
    return builder.machine();
}

model::Machine pair_behind_a_switch() {
    MachineBuilder builder("pair");
    builder.machine().gpu.compute_capability = "12.0";
    const int hub = builder.add_switch(builder.add_root_port(builder.add_numa(0, 0)), 5, 16);
    builder.add_gpu(hub, 5, 16);
    builder.add_gpu(hub, 5, 16);
    return builder.machine();
}

model::Machine hopper_with_nvswitch(int gpus) {
    MachineBuilder builder("hopper");
    builder.machine().gpu.compute_capability = "9.0";
    builder.machine().host.vendor = "GenuineIntel";
    builder.machine().host.model = 0x8F;
    const int numa = builder.add_numa(0, 0);
    const int fabric = builder.add_nvswitch();
    for (int g = 0; g < gpus; ++g) {
        builder.connect_nvlink(builder.add_gpu(builder.add_root_port(numa), 5, 16), fabric, 18);
    }
    return builder.machine();
}

std::vector<int> first(int count) {
    std::vector<int> gpus(static_cast<std::size_t>(count));
    std::iota(gpus.begin(), gpus.end(), 0);
    return gpus;
}

NcclGraph graph_of(const model::Machine& machine, int gpus, const CollectiveSettings& settings = {},
                   const NcclBelief& belief = {}) {
    const model::Router router(machine);
    auto graph = nccl_graph(machine, router, first(gpus), settings, belief);
    EXPECT_TRUE(graph.has_value()) << (graph ? "" : graph.error().to_text());
    return graph.value_or(NcclGraph{});
}

Protocol protocol_at(const NcclGraph& graph, std::int64_t bytes) {
    return nccl_choose(graph, {}, OperationKind::all_reduce, bytes)->option.protocol;
}

TEST(NcclGraph, Gen5_gpus_of_one_AMD_socket_get_two_rings_of_24) {
    // 1 x 45 doubled to 2 x 22.5, then raised to 2 x 24 = 48 GB/s, the Gen5 x16 link. Four
    // channels.
    const NcclGraph graph = graph_of(direct_box(4, kTurin), 4);
    EXPECT_EQ(graph.search_channels, 2);
    EXPECT_DOUBLE_EQ(graph.speed_gb_s, 24);
    EXPECT_EQ(graph.channels, 4);
    EXPECT_FALSE(graph.search_failed);
}

TEST(NcclGraph, Two_AMD_sockets_fail_the_search_on_SM120) {
    // 16 GB/s between the sockets, but the ladder ends at 18: one channel of 0.1 GB/s.
    const NcclGraph graph = graph_of(direct_box(8, kTurin), 8);
    EXPECT_TRUE(graph.search_failed);
    EXPECT_DOUBLE_EQ(graph.bus_gb_s(), 0.1);
    EXPECT_EQ(graph.channels, 2);
    ASSERT_FALSE(graph.remarks.empty());
}

TEST(NcclGraph, A_graph_file_cannot_fail) {
    CollectiveSettings settings;
    settings.graph_file = true;
    const NcclGraph graph = graph_of(direct_box(8, kTurin), 8, settings);
    EXPECT_FALSE(graph.search_failed);
    EXPECT_DOUBLE_EQ(graph.bus_gb_s(), 48);
}

TEST(NcclGraph, Two_AMD_sockets_of_Ada_GPUs_get_one_ring_of_15) {
    // The older ladder has 15 below 16. Not above 25, so not doubled.
    const NcclGraph graph = graph_of(direct_box(8, kTurin, "8.9", 4), 8);
    EXPECT_EQ(graph.search_channels, 1);
    EXPECT_DOUBLE_EQ(graph.speed_gb_s, 15);
    EXPECT_EQ(graph.channels, 2);
}

TEST(NcclGraph, Intel_sockets_decide_by_their_model) {
    // Sapphire Rapids 22: 1 x 20. Emerald Rapids 40 (and 48 / 1.2 = 40 through the CPU): 1 x 40
    // doubled to 2 x 20.
    const NcclGraph sapphire = graph_of(direct_box(8, kSapphireRapids), 8);
    EXPECT_EQ(sapphire.search_channels, 1);
    EXPECT_DOUBLE_EQ(sapphire.speed_gb_s, 20);
    const NcclGraph emerald = graph_of(direct_box(8, kEmeraldRapids), 8);
    EXPECT_EQ(emerald.search_channels, 2);
    EXPECT_DOUBLE_EQ(emerald.speed_gb_s, 20);
}

TEST(NcclGraph, What_a_calibration_knows_of_the_socket_link_goes_before_the_name) {
    const NcclGraph graph = graph_of(direct_box(8, kTurin), 8, {}, {22, 0});
    EXPECT_FALSE(graph.search_failed);
    EXPECT_DOUBLE_EQ(graph.bus_gb_s(), 20);
}

TEST(NcclGraph, NVSwitch_on_Hopper_gives_twelve_rings_of_thirty) {
    // 18 links x 20.6 = 370.8: 6 x 60, doubled to 12 x 30; 24 channels.
    const NcclGraph graph = graph_of(hopper_with_nvswitch(8), 8);
    EXPECT_EQ(graph.search_channels, 12);
    EXPECT_DOUBLE_EQ(graph.speed_gb_s, 30);
    EXPECT_EQ(graph.channels, 24);
    EXPECT_TRUE(graph.nvlink);
    EXPECT_TRUE(graph.nvswitch);
    EXPECT_FALSE(graph.through_host());
}

TEST(NcclTransport, Across_host_bridges_goes_through_host_memory_unless_told_otherwise) {
    const auto machine = direct_box(4, kTurin);
    EXPECT_TRUE(graph_of(machine, 4).through_host());
    CollectiveSettings settings;
    settings.peer_level = PathType::sys;
    EXPECT_FALSE(graph_of(machine, 4, settings).through_host());
}

TEST(NcclTransport, Two_GPUs_of_an_AMD_host_talk_directly_at_any_distance) {
    EXPECT_FALSE(graph_of(direct_box(2, kTurin), 2).through_host());
    EXPECT_TRUE(graph_of(direct_box(2, kSapphireRapids), 2).through_host());
}

TEST(NcclTransport, A_pair_behind_one_switch_talks_directly_and_not_with_P2P_disabled) {
    EXPECT_FALSE(graph_of(pair_behind_a_switch(), 2).through_host());
    CollectiveSettings settings;
    settings.peer_to_peer = false;
    EXPECT_TRUE(graph_of(pair_behind_a_switch(), 2, settings).through_host());
}

TEST(NcclChoice, Predicted_times_follow_the_worked_examples) {
    const NcclGraph graph = graph_of(direct_box(8, kSapphireRapids), 8);
    const auto options = nccl_options(graph, {}, OperationKind::all_reduce, 524288);
    for (const NcclOption& option : options) {
        if (option.algorithm != Algorithm::ring) continue;
        // LL: 6.6 + 14 * 1 + 524288 / (20000 * 0.5 * 8 / 14) = 112.35 us
        if (option.protocol == Protocol::ll) {
            EXPECT_NEAR(option.predicted_us, 112.35, 0.01);
        }
        // Simple: 8.4 + 14 * 5.7 + 524288 / (20000 * 8 / 14) = 134.08 us
        if (option.protocol == Protocol::simple) {
            EXPECT_NEAR(option.predicted_us, 134.08, 0.01);
        }
    }
}

TEST(NcclChoice, A_failed_search_takes_Simple_at_8_KiB_where_a_sound_one_keeps_LL) {
    EXPECT_EQ(protocol_at(graph_of(direct_box(8, kTurin), 8), 8192), Protocol::simple);
    EXPECT_EQ(protocol_at(graph_of(direct_box(8, kSapphireRapids), 8), 8192), Protocol::ll);
}

TEST(NcclChoice, LL_ends_where_its_half_bandwidth_costs_more_than_Simple_s_latency) {
    // 67.6 us = S * (14/8) / 20000 B/us: S = 772,571 B for eight GPUs at 20 GB/s.
    const NcclGraph eight = graph_of(direct_box(8, kSapphireRapids), 8);
    EXPECT_EQ(protocol_at(eight, 772'000), Protocol::ll);
    EXPECT_EQ(protocol_at(eight, 773'000), Protocol::simple);
    // 30 us = S * 1.5 / 48000: S = 960,000 B for four at 48 GB/s.
    const NcclGraph four = graph_of(direct_box(4, kTurin), 4);
    EXPECT_EQ(protocol_at(four, 959'000), Protocol::ll);
    EXPECT_EQ(protocol_at(four, 961'000), Protocol::simple);
}

TEST(NcclChoice, LL128_needs_NVLink_or_the_user) {
    const NcclGraph pcie = graph_of(direct_box(4, kTurin), 4);
    for (const std::int64_t bytes : {1024, 65536, 1048576}) {
        EXPECT_NE(protocol_at(pcie, bytes), Protocol::ll128);
    }
    CollectiveSettings settings;
    settings.protocol = Protocol::ll128;
    EXPECT_EQ(nccl_choose(pcie, settings, OperationKind::all_reduce, 65536)->option.protocol,
              Protocol::ll128);
}

TEST(NcclChoice, Large_all_reduces_on_an_NVSwitch_are_reduced_in_the_switch) {
    const NcclGraph graph = graph_of(hopper_with_nvswitch(8), 8);
    const auto choice = nccl_choose(graph, {}, OperationKind::all_reduce, 64 << 20);
    ASSERT_TRUE(choice.has_value());
    EXPECT_TRUE(choice->option.nvls);
    // 8 heads x 40 GB/s x 0.85 x 7/8 x 2, times 8/14: 272 GB/s
    EXPECT_NEAR(choice->option.bandwidth_gb_s, 272, 0.5);
}

TEST(NcclChoice, A_tree_has_no_all_gather) {
    CollectiveSettings settings;
    settings.algorithm = Algorithm::tree;
    const auto choice =
        nccl_choose(graph_of(direct_box(4, kTurin), 4), settings, OperationKind::all_gather, 1024);
    ASSERT_FALSE(choice.has_value());
    EXPECT_EQ(choice.error().code, model::ErrorCode::unsupported);
}

TEST(NcclSplit, Ring_LL_takes_its_second_channel_at_64_KiB_over_eight_ranks) {
    const NcclGraph graph = graph_of(direct_box(8, kSapphireRapids), 8);
    // 2 channels x 512 threads x 8 B x 8 ranks = 65536 B
    EXPECT_EQ(nccl_split(graph, Algorithm::ring, Protocol::ll, 65535, 0).channels, 1);
    EXPECT_EQ(nccl_split(graph, Algorithm::ring, Protocol::ll, 65536, 0).channels, 2);
}

TEST(NcclSplit, Small_messages_halve_the_threads) {
    const NcclGraph graph = graph_of(direct_box(8, kSapphireRapids), 8);
    // 4096 B: 512 -> 256 -> 128 -> 64 threads, 64 x 64 B = 4096 B
    EXPECT_EQ(nccl_split(graph, Algorithm::ring, Protocol::ll, 4096, 0).threads, 64);
    EXPECT_EQ(nccl_split(graph, Algorithm::ring, Protocol::ll, 32768, 0).threads, 512);
}

TEST(NcclSplit, A_gather_counts_the_whole_result) {
    EXPECT_EQ(nccl_bytes(OperationKind::all_gather, 1000, 8), 8000);
    EXPECT_EQ(nccl_bytes(OperationKind::all_reduce, 1000, 8), 1000);
}

// Whatever the size, the chosen option is the cheapest that NCCL may use.
RC_GTEST_PROP(NcclChoice, Nothing_predicted_faster_is_left_aside, ()) {
    const auto machine = direct_box(8, kSapphireRapids);
    const model::Router router(machine);
    const auto graph = nccl_graph(machine, router, first(8), {});
    const std::int64_t bytes = *rc::gen::inRange<std::int64_t>(1, std::int64_t{1} << 40);
    const auto choice = nccl_choose(*graph, {}, OperationKind::all_reduce, bytes);
    for (const NcclOption& option : nccl_options(*graph, {}, OperationKind::all_reduce, bytes)) {
        RC_ASSERT(choice->option.predicted_us <= option.predicted_us);
    }
}

}  // namespace
}  // namespace draftboard::sim
