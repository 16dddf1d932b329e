// SPDX-License-Identifier: Apache-2.0
#include "model/import/lstopo_xml.h"

#include <cstdlib>

#include <gtest/gtest.h>

#include "model/import/hwloc_probe.h"
#include "tests/model/import/fixture.h"

namespace draftboard::model {
namespace {

TEST(LstopoXml, Bridges_in_turns_are_ports_and_switches) {
    const auto machine = import_fixture("lstopo/six_gpus.xml");
    ASSERT_TRUE(machine.has_value());
    // 0, 1 behind one switch; 2 on another root port of the same host bridge; 3 on the next bridge;
    // 4 and 5 on the other package behind two lower switches of one upper.
    EXPECT_EQ(labels_of(machine->machine, 0), "PIX PHB NODE SYS SYS");
    EXPECT_EQ(labels_of(machine->machine, 4), "SYS SYS SYS SYS PXB");
    EXPECT_EQ(machine->machine.gpu.name, "RTX PRO 6000");
    EXPECT_EQ(machine->machine.host.family, 26);
    EXPECT_EQ(link_at(machine->machine, machine->machine.gpus()[0]).generation, 5);
}

TEST(LstopoXml, Version_1_files_are_read_with_or_without_NUMA_nodes) {
    const auto with = import_fixture("lstopo/version1.xml");
    ASSERT_TRUE(with.has_value());
    EXPECT_EQ(labels_of(with->machine, 0), "PHB");
    // cuda0 is at bus 01, cuda1 at bus 02
    EXPECT_EQ(with->machine.nodes[static_cast<std::size_t>(with->machine.gpus()[0])].bus_id,
              "0000:01:00.0");
    EXPECT_EQ(link_at(with->machine, with->machine.gpus()[0]).generation, 3);
    EXPECT_TRUE(import_fixture("lstopo/uma_version1.xml").has_value());
}

TEST(LstopoXml, NVLink_bandwidth_gives_the_number_of_links) {
    const auto machine = import_fixture("lstopo/nvlink_pair.xml");
    ASSERT_TRUE(machine.has_value());
    EXPECT_EQ(Router(machine->machine).nvlinks(0, 1), 2);  // 100000 MB/s of 50000 each
}

TEST(LstopoXml, Idle_links_are_unknown_links) {
    const auto machine = import_fixture("lstopo/idle_links.xml");
    ASSERT_TRUE(machine.has_value());
    EXPECT_EQ(machine->warnings.size(), 1U);
    EXPECT_EQ(link_at(machine->machine, machine->machine.gpus()[0]).generation, 5);
}

TEST(LstopoXml, A_display_beside_compute_GPUs_is_left_out) {
    const auto machine = import_fixture("lstopo/display_beside.xml");
    ASSERT_TRUE(machine.has_value());
    EXPECT_EQ(machine->machine.gpus().size(), 1U);
}

TEST(LstopoXml, Files_without_GPUs_or_with_two_kinds_are_refused) {
    for (const char* name : {"lstopo/no_gpu.xml", "lstopo/no_io.xml", "lstopo/two_kinds.xml"}) {
        const auto machine = import_fixture(name);
        ASSERT_FALSE(machine.has_value()) << name;
        expect_complete(machine.error());
    }
    EXPECT_NE(import_fixture("lstopo/no_gpu.xml").error().message.find("of 2 PCI devices"),
              std::string::npos);
}

TEST(LstopoXml, Speeds_are_generation_and_width) {
    EXPECT_EQ(link_from_speed(63.015385), (PcieLink{5, 16}));
    EXPECT_EQ(link_from_speed(31.507692), (PcieLink{4, 16}));
    EXPECT_EQ(link_from_speed(15.753846), (PcieLink{3, 16}));
    EXPECT_EQ(link_from_speed(4.0), (PcieLink{1, 16}));
    // 8 GT/s * 4 lanes / 8 bits * 128/130 = 3.938
    EXPECT_EQ(link_from_speed(3.938462), (PcieLink{3, 4}));
    EXPECT_EQ(link_from_speed(0), (PcieLink{0, 0}));
    EXPECT_EQ(link_from_speed(std::strtod("nan", nullptr)), (PcieLink{0, 0}));
}

TEST(LstopoXml, Deep_files_end_in_an_error) {
    std::string deep = "<topology>";
    for (int i = 0; i < 20000; ++i) {
        deep += "<object type=\"Group\">";
    }
    for (int i = 0; i < 20000; ++i) {
        deep += "</object>";
    }
    const auto tree = read_lstopo_xml(deep + "</topology>", "deep");
    ASSERT_FALSE(tree.has_value());
    EXPECT_EQ(tree.error().code, ErrorCode::too_large);
}

TEST(HwlocProbe, This_host_is_a_sound_machine_or_has_no_GPU) {
    const auto machine = probe_machine();
    if (machine.has_value()) {
        EXPECT_TRUE(machine->machine.validate().empty());
        EXPECT_EQ(machine->machine.name, "this-host");
    } else {
        EXPECT_EQ(machine.error().code, ErrorCode::unavailable);
        expect_complete(machine.error());
    }
}

TEST(HwlocProbe, What_hwloc_reports_is_what_the_file_reader_reads) {
    // hwloc takes the file for this host.
    ASSERT_EQ(setenv("HWLOC_XMLFILE", fixture_path("lstopo/version2_host.xml").c_str(), 1), 0);
    const auto probed = probe_machine();
    unsetenv("HWLOC_XMLFILE");
    const auto read = import_fixture("lstopo/version2_host.xml");
    ASSERT_TRUE(read.has_value());
    ASSERT_TRUE(probed.has_value()) << probed.error().to_text();
    EXPECT_EQ(labels_of(read->machine, 0), "PIX PHB");
    EXPECT_EQ(topology_table(probed->machine), topology_table(read->machine));
    EXPECT_EQ(probed->machine.host.model, 143);
    EXPECT_EQ(link_at(probed->machine, probed->machine.gpus()[0]).generation, 4);
}

}  // namespace
}  // namespace draftboard::model
