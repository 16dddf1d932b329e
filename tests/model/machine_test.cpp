// SPDX-License-Identifier: Apache-2.0
#include "model/machine.h"

#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>

#include <limits>

#include <fmt/format.h>

#include "model/link_defaults.h"
#include "model/machine_builder.h"
#include "model/machine_report.h"

namespace draftboard::model {
namespace {

/// Two GPUs behind one switch: numa0 memory0 port0 switch0 gpu0 gpu1; links memory-numa, port-numa,
/// switch-port, gpu0-switch, gpu1-switch.
Machine pair_behind_a_switch() {
    MachineBuilder builder("pair");
    const int hub = builder.add_switch(builder.add_root_port(builder.add_numa(0)), 5, 16);
    builder.add_gpu(hub, 5, 16);
    builder.add_gpu(hub, 5, 16);
    return builder.machine();
}

bool has_problem(const Machine& machine, const std::string& place, const std::string& word) {
    for (const Problem& problem : machine.validate()) {
        if (problem.place == place && problem.message.find(word) != std::string::npos) return true;
    }
    return false;
}

TEST(Machine, A_box_from_the_builder_is_sound) {
    EXPECT_TRUE(pair_behind_a_switch().validate().empty());
}

TEST(Machine, Labels_are_read_back_as_they_are_printed) {
    for (const PathType type :
         {PathType::self, PathType::nvlink, PathType::pix, PathType::pxb, PathType::phb,
          PathType::node, PathType::sys, PathType::disconnected}) {
        EXPECT_EQ(path_type_from_name(to_name(type)), type);
    }
    EXPECT_EQ(path_type_from_name("NV18"), PathType::nvlink);
    EXPECT_EQ(path_type_from_name("SOC"), PathType::sys);
    EXPECT_FALSE(path_type_from_name("NVX"));
    EXPECT_FALSE(path_type_from_name("OK"));
    EXPECT_FALSE(path_type_from_name(""));
}

TEST(Machine, Packed_cpu_families_are_the_same_as_plain_ones) {
    // base 15 + extended e, packed as 15 + 16 e: e = 8, 10, 11 -> 143, 175, 191 and 23, 25, 26.
    EXPECT_EQ(normalised_cpu_family(143), 23);
    EXPECT_EQ(normalised_cpu_family(175), 25);
    EXPECT_EQ(normalised_cpu_family(191), 26);
    EXPECT_EQ(normalised_cpu_family(26), 26);
    EXPECT_EQ(normalised_cpu_family(6), 6);
    EXPECT_EQ(normalised_cpu_family(std::numeric_limits<int>::max()),
              std::numeric_limits<int>::max());
}

TEST(Machine, No_gpu_is_a_problem) {
    MachineBuilder builder("empty");
    builder.add_numa(0);
    EXPECT_TRUE(has_problem(builder.machine(), "/nodes", "no GPU"));
    EXPECT_TRUE(has_problem(Machine{}, "/nodes", "no GPU"));
}

TEST(Machine, Unknown_ends_self_links_and_equal_names_are_named_with_their_place) {
    Machine machine = pair_behind_a_switch();
    machine.links[3].a = 99;
    machine.links[4].b = -1;
    EXPECT_TRUE(has_problem(machine, "/links/3/a", "no node 99"));
    EXPECT_TRUE(has_problem(machine, "/links/4/b", "no node -1"));
    machine = pair_behind_a_switch();
    machine.links[4].b = machine.links[4].a;
    EXPECT_TRUE(has_problem(machine, "/links/4", "with itself"));
    machine = pair_behind_a_switch();
    machine.nodes[5].id = "gpu0";
    EXPECT_TRUE(has_problem(machine, "/nodes/5/id", "also node 4"));
}

TEST(Machine, Figures_must_be_positive_and_finite) {
    for (const double bad : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(),
                             std::numeric_limits<double>::infinity(), 1e30}) {
        Machine machine = pair_behind_a_switch();
        machine.links[3].forward.write_gb_s = bad;
        machine.links[3].backward.read_gb_s = bad;
        machine.links[2].latency_ns = bad;
        machine.gpu.memory_gb_s = bad == 0.0 ? -1.0 : bad;
        const auto problems = machine.validate();
        EXPECT_EQ(problems.size(), 4u) << bad;
        EXPECT_TRUE(has_problem(machine, "/links/3/gb_s/forward/write", "not above 0"));
        EXPECT_TRUE(has_problem(machine, "/links/3/gb_s/backward/read", "not above 0"));
        EXPECT_TRUE(has_problem(machine, "/links/2/latency_ns", "not above 0"));
        EXPECT_TRUE(has_problem(machine, "/gpu/memory_gb_s", "not within"));
    }
}

TEST(Machine, A_cycle_of_pcie_links_is_refused_and_one_of_sockets_is_not) {
    MachineBuilder builder("cycle");
    const int port = builder.add_root_port(builder.add_numa(0));
    const int a = builder.add_switch(port, 5, 16);
    const int b = builder.add_switch(a, 5, 16);
    const int c = builder.add_switch(b, 5, 16);
    builder.add_gpu(c, 5, 16);
    ASSERT_TRUE(builder.build());
    const int closing = builder.connect(a, c, LinkKind::pcie, internal_figures(), 5, 16);
    EXPECT_TRUE(has_problem(builder.machine(), fmt::format("/links/{}", closing), "cycle"));

    MachineBuilder sockets("sockets");
    for (int i = 0; i < 3; ++i) {
        sockets.add_gpu(sockets.add_root_port(sockets.add_numa(i, i)), 5, 16);
    }
    sockets.connect_all_numa(5);  // a triangle
    EXPECT_TRUE(sockets.build());
}

TEST(Machine, A_path_inside_a_switch_chip_closes_no_cycle) {
    MachineBuilder builder("chip");
    const int numa = builder.add_numa(0);
    const int a = builder.add_switch(builder.add_root_port(numa), 5, 16);
    const int b = builder.add_switch(builder.add_root_port(numa), 5, 16);
    builder.add_gpu(a, 5, 16);
    builder.add_gpu(b, 5, 16);
    builder.connect(a, b, LinkKind::internal, internal_figures());
    EXPECT_TRUE(builder.build());
}

TEST(Machine, Gpus_that_no_path_connects_are_named) {
    MachineBuilder builder("islands");
    const int gpu0 = builder.add_gpu(builder.add_root_port(builder.add_numa(0, 0)), 5, 16);
    const int gpu1 = builder.add_gpu(builder.add_root_port(builder.add_numa(1, 1)), 5, 16);
    EXPECT_TRUE(has_problem(builder.machine(), fmt::format("/nodes/{}", gpu1), "no path joins"));
    // NVLink alone does not make a machine: host traffic would still be cut.
    builder.machine().gpu.compute_capability = "9.0";
    builder.connect_nvlink(gpu0, gpu1, 18);
    EXPECT_TRUE(has_problem(builder.machine(), fmt::format("/nodes/{}", gpu1), "no path joins"));
}

TEST(Machine, A_gpu_without_a_host_is_refused) {
    Machine machine = pair_behind_a_switch();
    machine.links.pop_back();
    EXPECT_TRUE(has_problem(machine, "/nodes/5", "NUMA node"));
    machine = pair_behind_a_switch();
    machine.links.erase(machine.links.begin());  // memory0 - numa0
    EXPECT_TRUE(has_problem(machine, "/nodes/4", "host memory"));
}

TEST(Machine, Kinds_that_do_not_go_together_are_refused) {
    Machine machine = pair_behind_a_switch();
    machine.links[3].kind = LinkKind::inter_socket;
    EXPECT_TRUE(has_problem(machine, "/links/3/kind", "can't join a gpu and a pcie_switch"));
    machine = pair_behind_a_switch();
    machine.nodes[4].numa = 3;
    EXPECT_TRUE(has_problem(machine, "/nodes/4/numa", "lead to NUMA node 0"));
    machine = pair_behind_a_switch();
    machine.links.push_back(machine.links[3]);
    EXPECT_TRUE(has_problem(machine, "/links/5", "a second pcie link"));
    machine = pair_behind_a_switch();
    machine.write_collapse.push_back({{4}, 2, 2.7, ""});  // a GPU
    EXPECT_TRUE(has_problem(machine, "/write_collapse/0/switches/0", "no PCIe switch"));
    machine = pair_behind_a_switch();
    machine.peer.level = PathType::self;
    EXPECT_TRUE(has_problem(machine, "/peer/level", "must be one of"));
}

TEST(Machine, Too_many_nodes_links_or_gpus_end_at_once) {
    Machine machine;
    machine.nodes.resize(kMaxNodes + 1);
    ASSERT_EQ(machine.validate().size(), 1u);
    EXPECT_EQ(machine.validate()[0].place, "/nodes");
    machine = pair_behind_a_switch();
    machine.links.resize(kMaxLinks + 1);
    ASSERT_EQ(machine.validate().size(), 1u);
    EXPECT_EQ(machine.validate()[0].place, "/links");
    MachineBuilder builder("many");
    const int hub = builder.add_switch(builder.add_numa(0), 5, 16);
    for (int i = 0; i <= kMaxGpus; ++i) builder.add_gpu(hub, 5, 16, {}, fmt::format("g{}", i));
    EXPECT_TRUE(has_problem(builder.machine(), "/nodes", "1025 GPUs"));
}

TEST(Machine, A_chain_of_switches_deeper_than_the_limit_is_refused) {
    MachineBuilder builder("deep");
    int node = builder.add_root_port(builder.add_numa(0));
    for (int i = 0; i < kMaxPcieDepth; ++i) node = builder.add_switch(node, 5, 16);
    builder.add_gpu(node, 5, 16);
    const auto machine = builder.build();
    ASSERT_FALSE(machine);
    EXPECT_NE(machine.error().message.find("links below its NUMA node"), std::string::npos);
}

TEST(MachineBuilder, Wrong_parents_and_generations_become_problems) {
    MachineBuilder builder("wrong");
    builder.add_gpu(-5, 5, 16);
    builder.add_gpu(1000, 5, 16);
    builder.add_gpu(builder.add_numa(0), 9, 16);
    const auto machine = builder.build("file.txt");
    ASSERT_FALSE(machine);
    EXPECT_TRUE(machine.error().context.starts_with("file.txt: /links/"))
        << machine.error().context;
}

TEST(MachineBuilder, Two_sockets_share_one_link_however_many_numa_nodes_they_have) {
    MachineBuilder builder("nps4");
    for (int i = 0; i < 8; ++i)
        builder.add_gpu(builder.add_root_port(builder.add_numa(i, i / 4)), 4, 16);
    builder.connect_all_numa(4);
    int inside = 0;
    int across = 0;
    for (const MachineLink& link : builder.machine().links) {
        if (link.kind != LinkKind::inter_socket) continue;
        const auto& nodes = builder.machine().nodes;
        (nodes[link.a].socket == nodes[link.b].socket ? inside : across) += 1;
    }
    // Two sockets of four NUMA nodes: 2 * 4 * 3 / 2 inside, 1 across.
    EXPECT_EQ(inside, 12);
    EXPECT_EQ(across, 1);
}

TEST(LinkDefaults, Width_scales_bandwidth_and_generation_scales_latency) {
    const auto x16 = pcie_figures(4, 16, NodeKind::gpu, NodeKind::root_port);
    const auto x8 = pcie_figures(4, 8, NodeKind::root_port, NodeKind::gpu);
    ASSERT_TRUE(x16 && x8);
    EXPECT_DOUBLE_EQ(x8->capacity.write_gb_s, 26.3 / 2);
    EXPECT_DOUBLE_EQ(x8->latency_ns, 1.2 * 280);
    EXPECT_DOUBLE_EQ(x16->latency_ns, x8->latency_ns);
    EXPECT_FALSE(pcie_figures(0, 16, NodeKind::gpu, NodeKind::root_port));
    EXPECT_FALSE(pcie_figures(7, 16, NodeKind::gpu, NodeKind::root_port));
    EXPECT_FALSE(pcie_figures(5, 64, NodeKind::gpu, NodeKind::root_port));
    // width 0 is unknown and counts as 16
    EXPECT_DOUBLE_EQ(pcie_figures(5, 0, NodeKind::gpu, NodeKind::root_port)->capacity.read_gb_s,
                     55.5);
}

TEST(LinkDefaults, Nvlink_is_known_for_gpus_that_have_it) {
    // 18 links of 20.6 GB/s.
    EXPECT_DOUBLE_EQ(nvlink_figures(18, "9.0")->capacity.write_gb_s, 18 * 20.6);
    EXPECT_FALSE(nvlink_figures(18, "12.0"));
    EXPECT_FALSE(nvlink_figures(0, "9.0"));
}

TEST(MachineReport, A_pair_is_reported_with_its_way_or_with_the_one_through_host_memory) {
    Machine machine = pair_behind_a_switch();
    Json report = machine_report(machine);
    EXPECT_EQ(report["topology"].dump(), R"([["X","PIX"],["PIX","X"]])");
    ASSERT_EQ(report["pairs"].size(), 2u);
    EXPECT_EQ(report["pairs"][0]["peer"], true);
    EXPECT_DOUBLE_EQ(report["pairs"][0]["write_gb_s"].get<double>(), 55.5);
    EXPECT_DOUBLE_EQ(report["pairs"][0]["latency_ns"].get<double>(), 680);
    machine.peer.enabled = false;
    report = machine_report(machine);
    EXPECT_EQ(report["pairs"][0]["peer"], false);
    EXPECT_FALSE(report["pairs"][0].contains("write_gb_s"));
    EXPECT_DOUBLE_EQ(report["pairs"][0]["staged_gb_s"].get<double>(), 55.5);
    EXPECT_NE(machine_text(machine).find("55.5*"), std::string::npos);
}

TEST(MachineReport, An_unsound_machine_is_reported_as_such) {
    const Json report = machine_report(Machine{});
    ASSERT_TRUE(report.contains("problems"));
    EXPECT_FALSE(report.contains("pairs"));
    EXPECT_NE(machine_text(Machine{}).find("not sound"), std::string::npos);
}

TEST(MachineReport, Large_machines_say_what_is_left_out) {
    MachineBuilder builder("many");
    const int hub = builder.add_switch(builder.add_numa(0), 5, 16);
    for (int i = 0; i <= kMaxReportedGpus; ++i) builder.add_gpu(hub, 5, 16);
    const Json report = machine_report(builder.machine());
    EXPECT_EQ(report["gpus"].size(), 65u);
    EXPECT_FALSE(report.contains("pairs"));
    EXPECT_TRUE(report.contains("left_out"));
}

RC_GTEST_PROP(Machine, Random_graphs_are_validated_without_a_crash, ()) {
    Machine machine;
    const int nodes = *rc::gen::inRange(0, 12);
    for (int i = 0; i < nodes; ++i) {
        MachineNode node;
        node.id = fmt::format("n{}", *rc::gen::inRange(0, 14));
        node.kind = static_cast<NodeKind>(*rc::gen::inRange(0, 7));
        node.numa = *rc::gen::inRange(-1, 3);
        machine.nodes.push_back(node);
    }
    const int links = *rc::gen::inRange(0, 20);
    for (int i = 0; i < links; ++i) {
        MachineLink link;
        link.a = *rc::gen::inRange(-1, 13);
        link.b = *rc::gen::inRange(-1, 13);
        link.kind = static_cast<LinkKind>(*rc::gen::inRange(0, 5));
        link.latency_ns = *rc::gen::inRange(0, 3);
        link.forward = link.backward = {1.0, 1.0};
        machine.links.push_back(link);
    }
    const auto problems = machine.validate();
    for (const Problem& problem : problems) {
        RC_ASSERT(problem.place.starts_with("/"));
        RC_ASSERT(!problem.message.empty());
    }
    // The report of anything at all: problems, or pairs for each two GPUs.
    const Json report = machine_report(machine);
    RC_ASSERT(report.contains("problems") == !problems.empty());
    if (problems.empty()) {
        const std::size_t gpus = machine.gpus().size();
        RC_ASSERT(report["pairs"].size() == gpus * (gpus - 1));
    }
}

}  // namespace
}  // namespace draftboard::model
