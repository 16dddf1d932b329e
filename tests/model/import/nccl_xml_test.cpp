// SPDX-License-Identifier: Apache-2.0
#include "model/import/nccl_xml.h"

#include <gtest/gtest.h>

#include "tests/model/import/fixture.h"

namespace draftboard::model {
namespace {

TEST(NcclXml, Switches_and_direct_links_keep_speed_and_width) {
    const auto machine = import_fixture("nccl/switch_and_direct.xml");
    ASSERT_TRUE(machine.has_value());
    EXPECT_EQ(labels_of(machine->machine, 0), "PIX SYS SYS");
    EXPECT_EQ(labels_of(machine->machine, 3), "SYS SYS NODE");
    EXPECT_EQ(machine->machine.gpu.compute_capability, "12.0");
    const std::vector<int> gpus = machine->machine.gpus();
    EXPECT_EQ(link_at(machine->machine, gpus[0]).generation, 5);
    EXPECT_EQ(link_at(machine->machine, gpus[3]).generation, 4);
    EXPECT_EQ(link_at(machine->machine, gpus[3]).width, 8);
    EXPECT_EQ(machine->machine.nodes[static_cast<std::size_t>(gpus[3])].bus_id, "0000:91:00.0");
}

TEST(NcclXml, Switches_below_a_switch_are_PXB_apart) {
    const auto machine = import_fixture("nccl/nested_switches.xml");
    ASSERT_TRUE(machine.has_value());
    EXPECT_EQ(labels_of(machine->machine, 0), "PXB");
    EXPECT_EQ(machine->machine.host.vendor, "GenuineIntel");
    EXPECT_EQ(machine->machine.host.model, 143);
}

TEST(NcclXml, A_switch_written_once_for_each_GPU_is_one_switch) {
    const auto machine = import_fixture("nccl/repeated_switch.xml");
    ASSERT_TRUE(machine.has_value());
    EXPECT_EQ(count_nodes(machine->machine, NodeKind::pcie_switch), 1);
    EXPECT_EQ(labels_of(machine->machine, 0), "PIX");
}

TEST(NcclXml, Without_gpu_elements_display_class_devices_of_GPU_makers_count) {
    const auto machine = import_fixture("nccl/skeleton.xml");
    ASSERT_TRUE(machine.has_value());
    EXPECT_EQ(machine->machine.gpus().size(), 2U);  // not the 0x1a03 display
    EXPECT_EQ(labels_of(machine->machine, 0), "SYS");
}

TEST(NcclXml, NVSwitches_are_one_fabric_of_all_links) {
    const auto machine = import_fixture("nccl/nvswitch.xml");
    ASSERT_TRUE(machine.has_value());
    EXPECT_EQ(count_nodes(machine->machine, NodeKind::nvswitch), 1);
    EXPECT_EQ(Router(machine->machine).nvlinks(0, 3), 18);  // 9 + 9
}

TEST(NcclXml, Of_two_link_counts_the_fewer_counts_and_CPUs_are_no_NVSwitch) {
    const auto machine = import_fixture("nccl/nvlink_pairs.xml");
    ASSERT_TRUE(machine.has_value());
    EXPECT_EQ(Router(machine->machine).nvlinks(0, 1), 8);
    EXPECT_EQ(count_nodes(machine->machine, NodeKind::nvswitch), 0);
    EXPECT_EQ(machine->warnings.size(), 1U);
}

TEST(NcclXml, XGMI_of_RCCL_is_read_as_links_of_its_own_rate) {
    const auto machine = import_fixture("nccl/rccl_xgmi.xml");
    ASSERT_TRUE(machine.has_value());
    EXPECT_EQ(machine->machine.gpu.name, "AMD gfx910");
    bool found = false;
    for (const MachineLink& link : machine->machine.links) {
        if (link.kind == LinkKind::nvlink) {
            found = true;
            EXPECT_DOUBLE_EQ(link.forward.write_gb_s, 4 * 36.0);  // 4 links of 36 GB/s
        }
    }
    EXPECT_TRUE(found);
}

TEST(NcclXml, Unknown_speed_is_assumed_and_width_zero_is_sixteen) {
    const auto machine = import_fixture("nccl/unknown_speed.xml", ImportOptions{4, 8});
    ASSERT_TRUE(machine.has_value());
    const int gpu = machine->machine.gpus()[0];
    EXPECT_EQ(link_at(machine->machine, gpu).generation, 4);
    EXPECT_EQ(link_at(machine->machine, gpu).width, 16);
    EXPECT_EQ(Router(machine->machine).numa_of(0), 0);  // numaid -1
}

TEST(NcclXml, Pcilinks_join_switches_inside_a_chip) {
    const auto machine = import_fixture("nccl/chip_link.xml");
    ASSERT_TRUE(machine.has_value());
    int internal = 0;
    for (const MachineLink& link : machine->machine.links) {
        const auto kind = [&](int node) {
            return machine->machine.nodes[static_cast<std::size_t>(node)].kind;
        };
        internal += link.kind == LinkKind::internal && kind(link.a) == NodeKind::pcie_switch &&
                            kind(link.b) == NodeKind::pcie_switch
                        ? 1
                        : 0;
    }
    EXPECT_EQ(internal, 1);  // written at both ends, one link
}

TEST(NcclXml, Only_the_first_host_of_a_joined_file_is_read) {
    const auto machine = import_fixture("nccl/two_hosts.xml");
    ASSERT_TRUE(machine.has_value());
    EXPECT_EQ(machine->machine.gpus().size(), 1U);
    EXPECT_EQ(machine->warnings.size(), 1U);
}

TEST(NcclXml, Broken_and_bare_files_are_refused_with_their_place) {
    const auto truncated = import_fixture("nccl/truncated.xml");
    ASSERT_FALSE(truncated.has_value());
    EXPECT_EQ(truncated.error().context, "nccl/truncated.xml:7:92");
    for (const char* name : {"nccl/truncated.xml", "nccl/busids_only.xml", "nccl/no_gpu.xml",
                             "nccl/mixed_gpus.xml", "nccl/graph_dump.xml"}) {
        const auto machine = import_fixture(name);
        ASSERT_FALSE(machine.has_value()) << name;
        expect_complete(machine.error());
    }
}

TEST(NcclXml, Both_notations_of_a_CPU_family_are_one_family) {
    // base 15 + (extended << 4): 15 + 8*16 = 143 -> 15 + 8 = 23; 15 + 11*16 = 191 -> 26
    EXPECT_EQ(normalized_family("AuthenticAMD", 143), 23);
    EXPECT_EQ(normalized_family("AuthenticAMD", 175), 25);
    EXPECT_EQ(normalized_family("AuthenticAMD", 191), 26);
    EXPECT_EQ(normalized_family("AuthenticAMD", 26), 26);
    EXPECT_EQ(normalized_family("GenuineIntel", 6), 6);
}

TEST(NcclXml, Link_speeds_name_generations) {
    EXPECT_EQ(generation_from_speed("16 GT/s"), 4);
    EXPECT_EQ(generation_from_speed("32.0 GT/s PCIe"), 5);
    EXPECT_EQ(generation_from_speed("64 GT/s"), 6);
    EXPECT_EQ(generation_from_speed("2.5 GT/s PCIe"), 1);
    EXPECT_EQ(generation_from_speed(""), 0);
    EXPECT_EQ(generation_from_speed("Unknown"), 0);
    EXPECT_EQ(generation_from_speed("nan"), 0);
}

TEST(NcclXml, Depth_and_size_have_limits) {
    std::string deep = "<system><cpu numaid=\"0\">";
    for (int i = 0; i < 5000; ++i) {
        deep += "<pci busid=\"0000:00:00.0\" class=\"0x060400\">";
    }
    for (int i = 0; i < 5000; ++i) {
        deep += "</pci>";
    }
    const auto too_deep = read_nccl_xml(deep + "</cpu></system>", "deep");
    ASSERT_FALSE(too_deep.has_value());
    EXPECT_EQ(too_deep.error().code, ErrorCode::too_large);
    std::string many = "<system><cpu numaid=\"0\">";
    for (int i = 0; i < 3000; ++i) {
        many += "<pci busid=\"" + std::to_string(i) + "\"><gpu dev=\"0\"/></pci>";
    }
    const auto too_many = read_nccl_xml(many + "</cpu></system>", "many");
    ASSERT_FALSE(too_many.has_value());
    EXPECT_EQ(too_many.error().code, ErrorCode::too_large);
}

}  // namespace
}  // namespace draftboard::model
