// SPDX-License-Identifier: Apache-2.0
#include "model/import/import_machine.h"

#include <filesystem>

#include <gtest/gtest.h>
// after gtest
#include <rapidcheck/gtest.h>

#include "tests/model/import/fixture.h"

namespace draftboard::model {
namespace {

TEST(ImportMachine, The_content_tells_the_format) {
    EXPECT_EQ(detect_machine_format(fixture_text("topo/dual_socket.txt")), MachineFormat::topo_matrix);
    EXPECT_EQ(detect_machine_format(fixture_text("nccl/skeleton.xml")), MachineFormat::nccl_xml);
    EXPECT_EQ(detect_machine_format(fixture_text("lstopo/six_gpus.xml")), MachineFormat::lstopo_xml);
    EXPECT_EQ(detect_machine_format("<svg/>"), MachineFormat::unknown);
    EXPECT_EQ(detect_machine_format(""), MachineFormat::unknown);
}

TEST(ImportMachine, The_name_is_the_files_without_folder_and_ending) {
    const auto machine = import_machine(fixture_text("nccl/skeleton.xml"), "some/where/box-7.xml");
    ASSERT_TRUE(machine.has_value());
    EXPECT_EQ(machine->machine.name, "box-7");
    EXPECT_EQ(machine->format, "NCCL topology XML");
}

TEST(ImportMachine, Every_fixture_is_sound_or_refused_in_full_sentences) {
    int seen = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(fixture_path(""))) {
        if (!entry.is_regular_file()) {
            continue;
        }
        ++seen;
        const auto machine = import_machine(read_file(entry.path()).value_or(std::string()), entry.path());
        if (machine.has_value()) {
            EXPECT_TRUE(machine->machine.validate().empty()) << entry.path();
        } else {
            SCOPED_TRACE(entry.path());
            expect_complete(machine.error());
        }
    }
    EXPECT_GT(seen, 40);
}

TEST(ImportMachine, Outputs_of_other_tools_are_named) {
    struct Case {
        const char* text;
        const char* says;
    };
    for (const Case& item :
         {Case{"# nThread 1 nGpus 8 minBytes 8\n", "nccl-tests"}, Case{"nvbandwidth Version: v0.5\n", "nvbandwidth"},
          Case{"P2P Connectivity Matrix\n D\\D 0 1\n", "p2pBandwidthLatencyTest"},
          Case{"-[0000:00]-+-00.0\n", "lspci"}, Case{"{\"format\": 1}", "JSON"},
          Case{"<svg></svg>", "<svg>"}, Case{"", "empty"}, Case{"hello", "hello"},
          Case{"Machine (1TB)\n  HostBridge\n", "lstopo"}}) {
        const auto machine = import_machine(item.text, "input");
        ASSERT_FALSE(machine.has_value()) << item.text;
        EXPECT_NE(machine.error().message.find(item.says), std::string::npos) << machine.error().message;
        EXPECT_EQ(machine.error().context, "input:1");
        expect_complete(machine.error());
    }
}

TEST(ImportMachine, Messages_carry_no_bytes_that_are_not_printable) {
    const auto machine = import_machine("\xff\xfe\x01 nothing", "input");
    ASSERT_FALSE(machine.has_value());
    for (const char c : machine.error().message) {
        EXPECT_TRUE(c >= 0x20 && c < 0x7f);
    }
}

RC_GTEST_PROP(ImportMachine, Damaged_inputs_end_in_a_sound_machine_or_an_error, ()) {
    const std::vector<std::string> names = {"topo/all_labels.txt", "topo/nvswitch.txt",
                                            "nccl/switch_and_direct.xml", "lstopo/six_gpus.xml",
                                            "lstopo/nvlink_pair.xml"};
    std::string text = fixture_text(*rc::gen::elementOf(names));
    const int edits = *rc::gen::inRange(1, 6);
    for (int i = 0; i < edits && !text.empty(); ++i) {
        const auto at = *rc::gen::inRange<std::size_t>(0, text.size());
        const auto length = *rc::gen::inRange<std::size_t>(0, 40);
        text.replace(at, length, *rc::gen::element<std::string>("", "9", "GPU1", "\t", "\"", "<", "-1", "SYS"));
    }
    const auto machine = import_machine(text, "damaged");
    if (machine.has_value()) {
        RC_ASSERT(machine->machine.validate().empty());
    } else {
        RC_ASSERT(!machine.error().message.empty());
        RC_ASSERT(!machine.error().hint.empty());
    }
}

}  // namespace
}  // namespace draftboard::model
