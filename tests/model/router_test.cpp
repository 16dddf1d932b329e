// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>
#include <set>

#include <fmt/format.h>

#include "model/machine.h"
#include "model/machine_builder.h"

namespace draftboard::model {
namespace {

/// Sockets with `ports` root ports each, one GPU a port, Gen5 x16.
Machine direct_box(int sockets, int ports) {
    MachineBuilder builder("direct");
    builder.machine().host.vendor = "AuthenticAMD";
    builder.machine().host.family = 26;
    for (int s = 0; s < sockets; ++s) {
        const int numa = builder.add_numa(s, s);
        for (int p = 0; p < ports; ++p) builder.add_gpu(builder.add_root_port(numa), 5, 16);
    }
    builder.connect_all_numa(5);
    return builder.machine();
}

/// One switch below a root port, `gpus` GPUs behind it.
Machine switched_box(int gpus) {
    MachineBuilder builder("switched");
    const int hub = builder.add_switch(builder.add_root_port(builder.add_numa(0)), 5, 16);
    for (int i = 0; i < gpus; ++i) builder.add_gpu(hub, 5, 16);
    return builder.machine();
}

/// The hops of a route are a way from one node to another: each starts where the last ended.
void expect_way(const Machine& machine, const Route& route, int from, int to) {
    int at = from;
    for (const Hop& hop : route.hops) {
        const MachineLink& link = machine.links[hop.link];
        ASSERT_EQ(at, hop.forward ? link.a : link.b);
        at = hop.forward ? link.b : link.a;
    }
    EXPECT_EQ(at, to);
}

TEST(Router, Two_gpus_behind_one_switch_are_PIX) {
    const Machine machine = switched_box(2);
    const Router router(machine);
    EXPECT_EQ(router.path_type(0, 1), PathType::pix);
    EXPECT_EQ(router.path_type(0, 0), PathType::self);
    const auto route = router.gpu_to_gpu(0, 1, TransferKind::write);
    ASSERT_TRUE(route);
    // Two links of 340 ns and 55.5 GB/s; the port is not climbed to.
    EXPECT_EQ(route->hops.size(), 2u);
    EXPECT_DOUBLE_EQ(route->latency_ns, 680);
    EXPECT_DOUBLE_EQ(route->bottleneck_gb_s, 55.5);
    EXPECT_EQ(route->type, PathType::pix);
    EXPECT_TRUE(route->remarks.empty());
    expect_way(machine, *route, machine.gpus()[0], machine.gpus()[1]);
}

TEST(Router, Gpus_on_two_leaf_switches_below_a_root_switch_are_PXB) {
    MachineBuilder builder("tree");
    const int top = builder.add_switch(builder.add_root_port(builder.add_numa(0)), 5, 16);
    const int left = builder.add_switch(top, 5, 16);
    const int right = builder.add_switch(top, 5, 16);
    builder.add_gpu(left, 5, 16);
    builder.add_gpu(left, 5, 16);
    builder.add_gpu(right, 5, 16);
    builder.add_gpu(top, 5, 16);
    const Router router(builder.machine());
    EXPECT_EQ(router.path_type(0, 1), PathType::pix);
    EXPECT_EQ(router.path_type(0, 2), PathType::pxb);
    EXPECT_EQ(router.path_type(0, 3), PathType::pxb);
}

TEST(Router, Ports_of_one_host_bridge_are_PHB_of_two_NODE_and_of_two_numa_nodes_SYS) {
    MachineBuilder builder("bridges");
    const int numa0 = builder.add_numa(0, 0);
    const int numa1 = builder.add_numa(1, 0);
    builder.add_gpu(builder.add_root_port(numa0, 7), 5, 16);
    builder.add_gpu(builder.add_root_port(numa0, 7), 5, 16);
    builder.add_gpu(builder.add_root_port(numa0, 8), 5, 16);
    builder.add_gpu(builder.add_root_port(numa1, 9), 5, 16);
    builder.connect_all_numa(5);
    const Router router(builder.machine());
    EXPECT_EQ(router.path_type(0, 1), PathType::phb);
    EXPECT_EQ(router.path_type(0, 2), PathType::node);
    EXPECT_EQ(router.path_type(0, 3), PathType::sys);
    EXPECT_EQ(router.path_type(3, 0), PathType::sys);
}

TEST(Router, Gpus_directly_below_a_numa_node_count_as_one_bridge) {
    MachineBuilder builder("flat");
    const int numa = builder.add_numa(0);
    builder.add_gpu(numa, 5, 16);
    builder.add_gpu(numa, 5, 16);
    const Router router(builder.machine());
    EXPECT_EQ(router.path_type(0, 1), PathType::phb);
    // The port that is not shown is in the link: 2 * (280 + 70).
    EXPECT_DOUBLE_EQ(router.gpu_to_gpu(0, 1, TransferKind::read)->latency_ns, 700);
}

TEST(Router, A_flow_across_sockets_gets_what_one_flow_gets_and_not_the_capacity) {
    const Machine machine = direct_box(2, 4);
    const Router router(machine);
    const auto inside = router.gpu_to_gpu(0, 3, TransferKind::write);
    const auto across = router.gpu_to_gpu(0, 4, TransferKind::write);
    ASSERT_TRUE(inside && across);
    EXPECT_EQ(inside->type, PathType::node);
    EXPECT_DOUBLE_EQ(inside->bottleneck_gb_s, 55.5);
    // min(55.5, 95, 51); latency 2 * (280 + 70) + 100.
    EXPECT_DOUBLE_EQ(across->bottleneck_gb_s, 51);
    EXPECT_DOUBLE_EQ(across->latency_ns, 800);
    expect_way(machine, *across, machine.gpus()[0], machine.gpus()[4]);
    // Four flows a direction share the sockets' link: 95 / 4 = 23.75 GB/s each, as published.
    for (const Hop& hop : across->hops) {
        const MachineLink& link = machine.links[hop.link];
        if (link.kind == LinkKind::inter_socket) {
            EXPECT_DOUBLE_EQ(link.forward.write_gb_s / 4, 23.75);
        }
    }
}

TEST(Router, Writes_and_reads_and_directions_have_their_own_capacity) {
    Machine machine = switched_box(2);
    MachineLink& link = machine.links[3];  // gpu0 - switch0, forward leaves the GPU
    link.forward = {40, 30};
    link.backward = {20, 10};
    const Router router(machine);
    EXPECT_DOUBLE_EQ(router.gpu_to_gpu(0, 1, TransferKind::write)->bottleneck_gb_s, 40);
    EXPECT_DOUBLE_EQ(router.gpu_to_gpu(0, 1, TransferKind::read)->bottleneck_gb_s, 30);
    EXPECT_DOUBLE_EQ(router.gpu_to_gpu(1, 0, TransferKind::write)->bottleneck_gb_s, 20);
    EXPECT_DOUBLE_EQ(router.gpu_to_gpu(1, 0, TransferKind::read)->bottleneck_gb_s, 10);
}

TEST(Router, Acs_redirect_sends_switch_traffic_over_the_root_port_up_and_down) {
    Machine machine = switched_box(2);
    machine.peer.acs_redirect = true;
    const Router router(machine);
    const auto route = router.gpu_to_gpu(0, 1, TransferKind::write);
    ASSERT_TRUE(route);
    EXPECT_EQ(route->type, PathType::pix);
    // gpu0 - switch - port - switch - gpu1: 340 + 120 + 120 + 340.
    ASSERT_EQ(route->hops.size(), 4u);
    EXPECT_DOUBLE_EQ(route->latency_ns, 920);
    EXPECT_EQ(route->hops[1].link, route->hops[2].link);
    EXPECT_NE(route->hops[1].forward, route->hops[2].forward);
    // The way back uses the same two resources, so both ways together have one uplink: half each.
    const auto back = router.gpu_to_gpu(1, 0, TransferKind::write);
    EXPECT_EQ(back->hops[1].link, route->hops[1].link);
    ASSERT_EQ(route->remarks.size(), 1u);
    EXPECT_NE(route->remarks[0].find("ACS"), std::string::npos);
}

TEST(Router, A_path_inside_a_switch_chip_is_taken_unless_acs_redirects) {
    MachineBuilder builder("chip");
    const int numa = builder.add_numa(0);
    const int a = builder.add_switch(builder.add_root_port(numa), 5, 16);
    const int b = builder.add_switch(builder.add_root_port(numa), 5, 16);
    builder.add_gpu(a, 5, 16);
    builder.add_gpu(b, 5, 16);
    LinkFigures inside = internal_figures();
    inside.capacity = {53.6, 53.6};
    const int chip = builder.connect(a, b, LinkKind::internal, inside);
    auto route = Router(builder.machine()).gpu_to_gpu(0, 1, TransferKind::write);
    ASSERT_TRUE(route);
    EXPECT_EQ(route->type, PathType::node);  // the label knows the PCI tree alone
    EXPECT_EQ(route->hops.size(), 3u);
    EXPECT_DOUBLE_EQ(route->bottleneck_gb_s, 53.6);
    builder.machine().peer.acs_redirect = true;
    route = Router(builder.machine()).gpu_to_gpu(0, 1, TransferKind::write);
    ASSERT_TRUE(route);
    for (const Hop& hop : route->hops) EXPECT_NE(hop.link, chip);
    EXPECT_EQ(route->hops.size(), 6u);
}

TEST(Router, Iommu_translation_costs_what_crosses_the_root_and_nothing_else) {
    Machine machine = switched_box(2);
    machine.peer.iommu = IommuMode::translated;
    EXPECT_DOUBLE_EQ(Router(machine).gpu_to_gpu(0, 1, TransferKind::write)->efficiency, 1);
    machine = direct_box(1, 2);
    machine.peer.iommu = IommuMode::translated;
    const auto route = Router(machine).gpu_to_gpu(0, 1, TransferKind::write);
    // 55.5 * 0.85
    EXPECT_DOUBLE_EQ(route->bottleneck_gb_s, 47.175);
    EXPECT_DOUBLE_EQ(route->efficiency, 0.85);
    EXPECT_DOUBLE_EQ(Router(machine).gpu_to_host(0, -1, TransferKind::write)->efficiency, 0.85);
}

TEST(Router, Without_force_p2p_kernels_but_not_copies_are_slower_across_the_root) {
    Machine machine = direct_box(1, 2);
    machine.peer.force_p2p = false;
    const auto node = Router(machine).gpu_to_gpu(0, 1, TransferKind::read);
    EXPECT_DOUBLE_EQ(node->kernel_access_factor, 15);
    EXPECT_DOUBLE_EQ(node->bottleneck_gb_s, 55.5);
    machine = switched_box(2);
    machine.peer.force_p2p = false;
    EXPECT_DOUBLE_EQ(Router(machine).gpu_to_gpu(0, 1, TransferKind::read)->kernel_access_factor, 1);
}

TEST(Router, Peer_access_off_is_an_error_that_names_the_way_out) {
    Machine machine = direct_box(2, 1);
    machine.peer.enabled = false;
    const Router router(machine);
    EXPECT_FALSE(router.peer_reachable(0, 1));
    EXPECT_TRUE(router.peer_reachable(0, 0));
    const auto route = router.gpu_to_gpu(0, 1, TransferKind::write);
    ASSERT_FALSE(route);
    EXPECT_EQ(route.error().code, ErrorCode::unsupported);
    EXPECT_NE(route.error().hint.find("host memory"), std::string::npos);
}

TEST(Router, Staging_goes_into_the_receivers_memory_and_out_of_it) {
    Machine machine = direct_box(2, 1);
    machine.peer.enabled = false;
    const Router router(machine);
    const auto staged = router.host_staged(0, 1);
    ASSERT_TRUE(staged);
    const auto memory = std::find_if(machine.nodes.begin(), machine.nodes.end(),
                                     [](const MachineNode& node) { return node.id == "memory1"; });
    const int memory1 = static_cast<int>(memory - machine.nodes.begin());
    expect_way(machine, staged->first, machine.gpus()[0], memory1);
    expect_way(machine, staged->second, memory1, machine.gpus()[1]);
    // Into it across the sockets: 51 GB/s, 280 + 70 + 100 + 100 ns. Out of it: 55.5, 100 + 70 +
    // 280.
    EXPECT_DOUBLE_EQ(staged->first.bottleneck_gb_s, 51);
    EXPECT_DOUBLE_EQ(staged->first.latency_ns, 550);
    EXPECT_DOUBLE_EQ(staged->second.bottleneck_gb_s, 55.5);
    EXPECT_DOUBLE_EQ(staged->second.latency_ns, 450);
}

TEST(Router, Peer_level_ends_reachability_at_its_distance) {
    Machine machine = direct_box(2, 2);
    machine.peer.level = PathType::node;
    const Router router(machine);
    EXPECT_TRUE(router.peer_reachable(0, 1));
    EXPECT_FALSE(router.peer_reachable(0, 2));
    EXPECT_FALSE(router.gpu_to_gpu(0, 2, TransferKind::write));
}

TEST(Router, Host_memory_is_the_gpus_own_or_the_one_asked_for) {
    const Machine machine = direct_box(2, 1);
    const Router router(machine);
    const auto own = router.gpu_to_host(1, -1, TransferKind::write);
    const auto other = router.host_to_gpu(1, 0, TransferKind::read);
    ASSERT_TRUE(own && other);
    EXPECT_EQ(own->type, PathType::phb);
    EXPECT_EQ(other->type, PathType::sys);
    EXPECT_DOUBLE_EQ(own->bottleneck_gb_s, 55.5);
    EXPECT_DOUBLE_EQ(other->bottleneck_gb_s, 51);
    EXPECT_FALSE(router.gpu_to_host(0, 5, TransferKind::write));
}

TEST(Router, A_numa_node_without_memory_uses_the_nearest) {
    Machine machine = direct_box(2, 1);
    machine.links.erase(machine.links.begin());  // memory0 - numa0
    const Router router(machine);
    const auto route = router.gpu_to_host(0, -1, TransferKind::write);
    ASSERT_TRUE(route);
    EXPECT_DOUBLE_EQ(route->latency_ns, 550);  // as far as the other socket's
}

TEST(Router, Nvlink_is_used_alone_and_never_through_a_third_gpu) {
    MachineBuilder builder("mesh");
    builder.machine().gpu.compute_capability = "8.0";
    const int numa = builder.add_numa(0);
    std::vector<int> gpus;
    for (int i = 0; i < 3; ++i) gpus.push_back(builder.add_gpu(builder.add_root_port(numa), 4, 16));
    builder.connect_nvlink(gpus[0], gpus[1], 4);
    builder.connect_nvlink(gpus[1], gpus[2], 2);
    const Router router(builder.machine());
    EXPECT_EQ(router.path_type(0, 1), PathType::nvlink);
    EXPECT_EQ(router.nvlinks(1, 0), 4);
    EXPECT_EQ(router.path_type(0, 2), PathType::node);
    EXPECT_EQ(router.nvlinks(0, 2), 0);
    // 4 links of 20 GB/s.
    EXPECT_DOUBLE_EQ(router.gpu_to_gpu(0, 1, TransferKind::write)->bottleneck_gb_s, 80);
    const auto far = router.gpu_to_gpu(0, 2, TransferKind::write);
    ASSERT_TRUE(far);
    for (const Hop& hop : far->hops) {
        EXPECT_NE(builder.machine().links[hop.link].kind, LinkKind::nvlink);
    }
}

TEST(Router, Through_an_nvswitch_the_fewer_links_count) {
    MachineBuilder builder("fabric");
    builder.machine().gpu.compute_capability = "9.0";
    const int numa = builder.add_numa(0);
    const int fabric = builder.add_nvswitch();
    for (const int links : {18, 12}) {
        builder.connect_nvlink(builder.add_gpu(builder.add_root_port(numa), 5, 16), fabric, links);
    }
    const Router router(builder.machine());
    EXPECT_EQ(router.nvlinks(0, 1), 12);
    const auto route = router.gpu_to_gpu(0, 1, TransferKind::write);
    ASSERT_TRUE(route);
    EXPECT_EQ(route->hops.size(), 2u);
    EXPECT_DOUBLE_EQ(route->bottleneck_gb_s, 12 * 20.6);
    EXPECT_DOUBLE_EQ(route->latency_ns, 600);
}

TEST(Router, Wrong_ordinals_are_errors) {
    const Router router(switched_box(2));
    for (const int wrong :
         {-1, 2, std::numeric_limits<int>::max(), std::numeric_limits<int>::min()}) {
        EXPECT_EQ(router.gpu_to_gpu(0, wrong, TransferKind::write).error().code,
                  ErrorCode::not_found);
        EXPECT_EQ(router.gpu_to_gpu(wrong, 0, TransferKind::write).error().code,
                  ErrorCode::not_found);
        EXPECT_FALSE(router.gpu_to_host(wrong, -1, TransferKind::write));
        EXPECT_FALSE(router.host_staged(0, wrong));
        EXPECT_EQ(router.path_type(0, wrong), PathType::disconnected);
        EXPECT_FALSE(router.peer_reachable(wrong, 0));
        EXPECT_EQ(router.numa_of(wrong), -1);
    }
    EXPECT_FALSE(router.gpu_to_gpu(1, 1, TransferKind::write));
}

TEST(Router, An_unsound_machine_answers_with_its_problems) {
    Machine machine = switched_box(2);
    machine.links[3].b = 77;
    const Router router(machine);
    EXPECT_EQ(router.gpu_count(), 0);
    const auto route = router.gpu_to_gpu(0, 1, TransferKind::write);
    ASSERT_FALSE(route);
    EXPECT_NE(route.error().context.find("/links/3/b"), std::string::npos)
        << route.error().to_text();
    EXPECT_FALSE(router.host_to_gpu(0, -1, TransferKind::read));
}

TEST(TopologyTable, Prints_labels_as_the_tool_does) {
    EXPECT_EQ(topology_table(direct_box(2, 1)),
              "\tGPU0\tGPU1\tNUMA Affinity\n"
              "GPU0\t X \tSYS\t0\n"
              "GPU1\tSYS\t X \t1\n");
}

TEST(Router, A_thousand_gpus_behind_nested_switches_are_labelled_quickly) {
    MachineBuilder builder("large");
    const int top = builder.add_switch(builder.add_root_port(builder.add_numa(0)), 5, 16);
    for (int s = 0; s < 32; ++s) {
        const int leaf = builder.add_switch(top, 5, 16, fmt::format("s{}", s));
        for (int g = 0; g < 32; ++g) builder.add_gpu(leaf, 5, 16);
    }
    const Router router(builder.machine());
    ASSERT_EQ(router.gpu_count(), 1024);
    EXPECT_EQ(router.path_type(0, 31), PathType::pix);
    EXPECT_EQ(router.path_type(0, 1023), PathType::pxb);
    EXPECT_GT(topology_table(builder.machine()).size(), 1024u * 1024u * 4u);
}

/// A random PCIe forest over one or two sockets.
Machine random_box() {
    MachineBuilder builder("random");
    const int sockets = *rc::gen::inRange(1, 3);
    std::vector<int> places;
    for (int s = 0; s < sockets; ++s) {
        const int numa = builder.add_numa(s, s);
        const int ports = *rc::gen::inRange(1, 4);
        for (int p = 0; p < ports; ++p) places.push_back(builder.add_root_port(numa));
    }
    const int switches = *rc::gen::inRange(0, 5);
    for (int i = 0; i < switches; ++i) {
        places.push_back(
            builder.add_switch(*rc::gen::elementOf(places), *rc::gen::inRange(3, 6), 16));
    }
    const int gpus = *rc::gen::inRange(2, 7);
    for (int i = 0; i < gpus; ++i)
        builder.add_gpu(*rc::gen::elementOf(places), *rc::gen::inRange(3, 6), 16);
    builder.connect_all_numa(5);
    builder.machine().peer.acs_redirect = *rc::gen::arbitrary<bool>();
    builder.machine().peer.iommu = *rc::gen::element(IommuMode::off, IommuMode::translated);
    return builder.machine();
}

RC_GTEST_PROP(Router, Ways_are_connected_symmetric_and_no_better_than_their_links, ()) {
    const Machine machine = random_box();
    RC_ASSERT(machine.validate().empty());
    const Router router(machine);
    const std::vector<int> gpus = machine.gpus();
    for (int i = 0; i < router.gpu_count(); ++i) {
        for (int j = 0; j < router.gpu_count(); ++j) {
            RC_ASSERT(router.path_type(i, j) == router.path_type(j, i));
            if (i == j) continue;
            const auto there = router.gpu_to_gpu(i, j, TransferKind::write);
            const auto back = router.gpu_to_gpu(j, i, TransferKind::write);
            RC_ASSERT(there && back);
            RC_ASSERT(there->latency_ns == back->latency_ns ||
                      std::abs(there->latency_ns - back->latency_ns) < 1e-6);
            double latency = 0;
            int at = gpus[i];
            std::set<std::pair<int, bool>> used;
            for (const Hop& hop : there->hops) {
                const MachineLink& link = machine.links[hop.link];
                RC_ASSERT(at == (hop.forward ? link.a : link.b));
                at = hop.forward ? link.b : link.a;
                latency += link.latency_ns;
                RC_ASSERT(there->bottleneck_gb_s <= link.forward.write_gb_s + 1e-9);
                RC_ASSERT(
                    used.emplace(hop.link, hop.forward).second);  // nothing twice the same way
            }
            RC_ASSERT(at == gpus[j]);
            RC_ASSERT(std::abs(latency - there->latency_ns) < 1e-6);
            RC_ASSERT(there->bottleneck_gb_s > 0);
        }
    }
}

}  // namespace
}  // namespace draftboard::model
