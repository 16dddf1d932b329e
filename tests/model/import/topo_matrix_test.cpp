// SPDX-License-Identifier: Apache-2.0
#include "model/import/topo_matrix.h"

#include <array>

#include <gtest/gtest.h>
// after gtest
#include <rapidcheck/gtest.h>

#include "model/import/topo_tree.h"
#include "tests/model/import/fixture.h"

namespace draftboard::model {
namespace {

Expected<TopoMatrix> read_fixture(const std::string& name) {
    return read_topo_matrix(fixture_text("topo/" + name), name);
}

Expected<TopoMatrix> read(const std::string& text) { return read_topo_matrix(text, "table"); }

TEST(TopoMatrix, A_clean_table_gives_its_labels_and_NUMA_numbers) {
    const auto matrix = read_fixture("dual_socket.txt");
    ASSERT_TRUE(matrix.has_value());
    EXPECT_EQ(matrix->gpus, (std::vector<std::string>{"GPU0", "GPU1", "GPU2", "GPU3"}));
    EXPECT_EQ(matrix->numa, (std::vector<int>{0, 0, 1, 1}));
    EXPECT_EQ(matrix->cpus[3], "32-63");
    EXPECT_EQ(matrix->at(0, 1).type, PathType::node);
    EXPECT_EQ(matrix->at(1, 2).type, PathType::sys);
    EXPECT_TRUE(matrix->warnings.empty());
}

TEST(TopoMatrix, Every_label_makes_its_own_structure) {
    const auto machine = import_fixture("topo/all_labels.txt");
    ASSERT_TRUE(machine.has_value());
    // GPU0 and 1 on one lower switch, 2 on the other below the upper one, 3 on the same host bridge,
    // 4 on another, 5 on the other NUMA node.
    EXPECT_EQ(labels_of(machine->machine, 0), "PIX PXB PHB NODE SYS");
    EXPECT_EQ(count_nodes(machine->machine, NodeKind::pcie_switch), 3);
    EXPECT_EQ(count_nodes(machine->machine, NodeKind::numa_node), 2);
}

TEST(TopoMatrix, Colours_and_prose_around_the_table_do_not_matter) {
    const auto plain = read_fixture("dual_socket.txt");
    const auto coloured = read_fixture("colours_and_prose.txt");
    ASSERT_TRUE(plain.has_value() && coloured.has_value());
    EXPECT_EQ(coloured->cells, plain->cells);
    EXPECT_EQ(coloured->line, 4);
    EXPECT_TRUE(coloured->warnings.empty());
}

TEST(TopoMatrix, Glued_headers_lost_tabs_and_markdown_are_read) {
    const auto glued = read_fixture("glued_header.txt");
    ASSERT_TRUE(glued.has_value());
    EXPECT_EQ(glued->gpus.size(), 4U);
    EXPECT_EQ(glued->nics, std::vector<std::string>{"mlx5_0"});
    EXPECT_EQ(glued->at(0, 2).type, PathType::sys);  // SOC
    EXPECT_EQ(glued->numa[0], -1);
    const auto bare = read_fixture("no_leading_tab.txt");
    ASSERT_TRUE(bare.has_value());
    EXPECT_EQ(bare->at(0, 1).type, PathType::pix);
    EXPECT_EQ(bare->numa[1], 0);
    const auto markdown = read_fixture("markdown.txt");
    ASSERT_TRUE(markdown.has_value());
    EXPECT_EQ(markdown->at(1, 0).type, PathType::node);
}

TEST(TopoMatrix, Columns_padded_with_blanks_keep_their_affinities) {
    const auto matrix = read_fixture("indented_spaces.txt");
    ASSERT_TRUE(matrix.has_value());
    EXPECT_EQ(matrix->cpus[0], "0-0,8-8,16-16");
    EXPECT_EQ(matrix->numa, (std::vector<int>{0, 0}));
    EXPECT_EQ(matrix->nics, std::vector<std::string>{"NIC0"});
}

TEST(TopoMatrix, Lines_broken_by_the_terminal_are_joined) {
    const auto matrix = read_fixture("wrapped.txt");
    ASSERT_TRUE(matrix.has_value());
    EXPECT_EQ(matrix->at(0, 2).type, PathType::node);  // "NOD" + "E"
    EXPECT_EQ(matrix->at(2, 3).type, PathType::pix);
    EXPECT_EQ(matrix->numa, (std::vector<int>{0, 0, 0, 0}));
    EXPECT_TRUE(matrix->warnings.empty());
}

TEST(TopoMatrix, A_header_broken_between_its_labels_is_one_header) {
    const auto matrix = read("\tGPU0\tGPU1\nGPU2\tCPU Affinity\nGPU0\tX\tPIX\tSYS\t0-7\n"
                             "GPU1\tPIX\tX\tSYS\t0-7\nGPU2\tSYS\tSYS\tX\t8-15\n");
    ASSERT_TRUE(matrix.has_value());
    EXPECT_EQ(matrix->gpus.size(), 3U);
    EXPECT_EQ(matrix->cpus[2], "8-15");
}

TEST(TopoMatrix, What_a_cut_row_lost_comes_from_the_other_side) {
    const auto whole = read_fixture("no_header.txt");
    ASSERT_TRUE(whole.has_value());
    for (const char* name : {"missing_last_row.txt", "cut_mid_label.txt"}) {
        const auto cut = read_fixture(name);
        ASSERT_TRUE(cut.has_value()) << name;
        EXPECT_EQ(cut->cells, whole->cells) << name;
        ASSERT_EQ(cut->warnings.size(), 1U) << name;
        EXPECT_NE(cut->warnings[0].find("one side only"), std::string::npos);
    }
    // "NV1" at the end of a cut row may be the beginning of NV12.
    const auto nvlink = read_fixture("nvlink_cut.txt");
    ASSERT_TRUE(nvlink.has_value());
    EXPECT_EQ(nvlink->at(0, 2).nvlinks, 12);
}

TEST(TopoMatrix, A_pair_that_neither_side_states_is_named) {
    const auto matrix = read_fixture("unknown_pair.txt");
    ASSERT_FALSE(matrix.has_value());
    EXPECT_NE(matrix.error().message.find("GPU2 and GPU3"), std::string::npos);
    EXPECT_EQ(matrix.error().context, "unknown_pair.txt:1");
    expect_complete(matrix.error());
}

TEST(TopoMatrix, Of_two_contradicting_labels_the_farther_counts) {
    const auto matrix = read_fixture("asymmetric.txt");
    ASSERT_TRUE(matrix.has_value());
    EXPECT_EQ(matrix->at(0, 1).type, PathType::node);
    EXPECT_EQ(matrix->at(1, 0).type, PathType::node);
    EXPECT_EQ(matrix->warnings.size(), 1U);
    const auto counts = read("\tGPU0\tGPU1\nGPU0\tX\tNV12\nGPU1\tNV8\tX\n");
    ASSERT_TRUE(counts.has_value());
    EXPECT_EQ(counts->at(0, 1).nvlinks, 8);  // fewer links are farther
}

TEST(TopoMatrix, The_first_of_several_tables_is_read_and_the_next_is_named) {
    const auto matrix = read_fixture("two_hosts.txt");
    ASSERT_TRUE(matrix.has_value());
    EXPECT_EQ(matrix->gpus.size(), 4U);
    ASSERT_EQ(matrix->warnings.size(), 1U);
    EXPECT_NE(matrix->warnings[0].find("line 9 begins another table"), std::string::npos);
    const auto tagged = read_fixture("tagged_by_host.txt");
    ASSERT_TRUE(tagged.has_value());
    EXPECT_EQ(tagged->cells, matrix->cells);
    const auto peer_first = read_fixture("p2p_then_topology.txt");
    ASSERT_TRUE(peer_first.has_value());
    EXPECT_EQ(peer_first->at(0, 1).type, PathType::pix);
}

TEST(TopoMatrix, Mixed_tables_that_nothing_tells_apart_are_refused) {
    const auto matrix = read_fixture("two_hosts_mixed.txt");
    ASSERT_FALSE(matrix.has_value());
    EXPECT_EQ(matrix.error().context, "two_hosts_mixed.txt:4");
    expect_complete(matrix.error());
}

TEST(TopoMatrix, The_same_table_printed_twice_is_one_table) {
    const std::string text = fixture_text("topo/dual_socket.txt");
    const std::string rows = text.substr(text.find("GPU0\t X"), text.find("\nLegend") - text.find("GPU0\t X"));
    const auto matrix = read(text + rows);
    ASSERT_TRUE(matrix.has_value());
    EXPECT_TRUE(matrix->warnings.empty());
}

TEST(TopoMatrix, Other_outputs_of_nvidia_smi_are_refused_by_name) {
    struct Case {
        const char* file;
        const char* says;
        int line;
    };
    for (const Case& item : {Case{"p2p.txt", "peer-to-peer", 1},
                             Case{"failed.txt", "Failed to run topology matrix", 2},
                             Case{"header_only.txt", "no rows", 1},
                             Case{"odd_label.txt", "'INTE' between GPU0 and GPU1", 2},
                             Case{"shifted.txt", "shifted", 3}}) {
        const auto matrix = read_fixture(item.file);
        ASSERT_FALSE(matrix.has_value()) << item.file;
        EXPECT_NE(matrix.error().message.find(item.says), std::string::npos)
            << matrix.error().message;
        EXPECT_EQ(matrix.error().context, std::string(item.file) + ":" + std::to_string(item.line));
        expect_complete(matrix.error());
    }
}

TEST(TopoMatrix, Absurd_sizes_end_in_an_error_and_soon) {
    std::string wide = "\t";
    for (int i = 0; i < 3000; ++i) {
        wide += "GPU" + std::to_string(i) + "\t";
    }
    const auto too_wide = read(wide + "\nGPU0\tX\tPIX\n");
    ASSERT_FALSE(too_wide.has_value());
    EXPECT_EQ(too_wide.error().code, ErrorCode::too_large);
    std::string many = "\tGPU0\tGPU1\n";
    for (int i = 0; i < 50000; ++i) {
        many += "GPU" + std::to_string(i) + "\tX\tPIX\n";
    }
    EXPECT_FALSE(read(many).has_value());
    EXPECT_FALSE(read("\tGPU0\tGPU0\nGPU0\tX\tPIX\n").has_value());
    EXPECT_FALSE(read("").has_value());
    EXPECT_FALSE(read(std::string(1000, '\0')).has_value());
    EXPECT_FALSE(read("GPU0\tX\tNV99999999999999999999\nGPU1\tPIX\tX\n").has_value());
}

TEST(TopoTree, NVLinks_beyond_a_GPUs_ports_mean_an_NVSwitch) {
    // 8 GPUs, NV18: 7 * 18 = 126 links a GPU if wired pair by pair, 18 exist.
    const auto fabric = import_fixture("topo/nvswitch.txt");
    ASSERT_TRUE(fabric.has_value());
    EXPECT_EQ(count_nodes(fabric->machine, NodeKind::nvswitch), 1);
    EXPECT_EQ(Router(fabric->machine).nvlinks(0, 7), 18);
    const auto pairs = import_fixture("topo/nvlink_pairs.txt");
    ASSERT_TRUE(pairs.has_value());
    EXPECT_EQ(count_nodes(pairs->machine, NodeKind::nvswitch), 0);
    EXPECT_EQ(Router(pairs->machine).nvlinks(0, 1), 4);
    EXPECT_EQ(Router(pairs->machine).nvlinks(1, 2), 0);
}

TEST(TopoTree, SYS_inside_one_NUMA_number_makes_sub_NUMA_nodes_and_says_so) {
    const auto machine = import_fixture("topo/nps4_same_numa.txt");
    ASSERT_TRUE(machine.has_value());
    EXPECT_EQ(count_nodes(machine->machine, NodeKind::numa_node), 3);
    EXPECT_EQ(labels_of(machine->machine, 0), "SYS SYS");
    EXPECT_NE(machine->machine.notes[1].find("sub-NUMA"), std::string::npos);
}

TEST(TopoTree, Labels_that_do_not_nest_are_warned_about) {
    const auto machine = import_fixture("topo/not_nested.txt");
    ASSERT_TRUE(machine.has_value());
    ASSERT_EQ(machine->warnings.size(), 1U);
    EXPECT_NE(machine->warnings[0].find("GPU0 and GPU2 are SYS"), std::string::npos);
}

TEST(TopoTree, Link_generation_is_the_stated_assumption) {
    const auto gen4 = import_fixture("topo/dual_socket.txt", ImportOptions{4, 8});
    ASSERT_TRUE(gen4.has_value());
    for (const int gpu : gen4->machine.gpus()) {
        EXPECT_EQ(link_at(gen4->machine, gpu).generation, 4);
        EXPECT_EQ(link_at(gen4->machine, gpu).width, 8);
    }
    EXPECT_NE(gen4->machine.notes.back().find("Gen4"), std::string::npos);
    EXPECT_FALSE(import_fixture("topo/dual_socket.txt", ImportOptions{7, 16}).has_value());
    EXPECT_FALSE(import_fixture("topo/dual_socket.txt", ImportOptions{5, 3}).has_value());
}

// A random box: each GPU's NUMA node, host bridge, upper and lower switch; some pairs over NVLink.
struct RandomBox {
    std::vector<std::array<int, 4>> places;
    std::vector<std::vector<int>> nvlinks;
};

RandomBox random_box() {
    RandomBox box;
    const int count = *rc::gen::inRange(1, 13);
    for (int i = 0; i < count; ++i) {
        box.places.push_back({*rc::gen::inRange(0, 3), *rc::gen::inRange(0, 2), *rc::gen::inRange(0, 2),
                              *rc::gen::inRange(0, 2)});
    }
    const bool any = *rc::gen::arbitrary<bool>();
    box.nvlinks.assign(static_cast<std::size_t>(count), std::vector<int>(static_cast<std::size_t>(count), 0));
    for (std::size_t a = 0; any && a < box.places.size(); ++a) {
        for (std::size_t b = a + 1; b < box.places.size(); ++b) {
            box.nvlinks[a][b] = box.nvlinks[b][a] = *rc::gen::element(0, 0, 0, 2, 4);
        }
    }
    return box;
}

TopoMatrix matrix_of(const RandomBox& box) {
    constexpr std::array<PathType, 5> kByDepth = {PathType::sys, PathType::node, PathType::phb,
                                                  PathType::pxb, PathType::pix};
    TopoMatrix matrix;
    for (std::size_t a = 0; a < box.places.size(); ++a) {
        matrix.gpus.push_back("GPU" + std::to_string(a));
        matrix.numa.push_back(box.places[a][0]);
        matrix.cpus.emplace_back("0-7");
        for (std::size_t b = 0; b < box.places.size(); ++b) {
            std::size_t depth = 0;
            while (depth < 4 && box.places[a][depth] == box.places[b][depth]) {
                ++depth;
            }
            const int links = box.nvlinks[a][b];
            matrix.cells.push_back(a == b      ? TopoCell{PathType::self, 0}
                                   : links > 0 ? TopoCell{PathType::nvlink, links}
                                               : TopoCell{kByDepth[depth], 0});
        }
    }
    return matrix;
}

RC_GTEST_PROP(TopoMatrix, A_box_read_back_from_its_machine_has_the_same_labels, ()) {
    const TopoMatrix matrix = matrix_of(random_box());
    const auto parsed = read_topo_matrix(to_text(matrix), "random");
    RC_ASSERT(parsed.has_value());
    RC_ASSERT(parsed->cells == matrix.cells);
    RC_ASSERT(parsed->numa == matrix.numa);
    const auto machine = import_machine(to_text(matrix), "random");
    RC_ASSERT(machine.has_value());
    RC_ASSERT(machine->warnings.empty());
    const auto again = read_topo_matrix(topology_table(machine->machine), "again");
    RC_ASSERT(again.has_value());
    RC_ASSERT(again->cells == matrix.cells);
    // What NVLink does not cover is what the router says.
    const Router router(machine->machine);
    for (std::size_t a = 0; a < matrix.gpus.size(); ++a) {
        for (std::size_t b = 0; b < matrix.gpus.size(); ++b) {
            if (matrix.at(a, b).type != PathType::nvlink) {
                RC_ASSERT(router.path_type(static_cast<int>(a), static_cast<int>(b)) ==
                          matrix.at(a, b).type);
            }
        }
    }
}

RC_GTEST_PROP(TopoMatrix, A_table_cut_anywhere_is_read_alike_or_refused, ()) {
    RandomBox box = random_box();
    const TopoMatrix matrix = matrix_of(box);
    const std::string text = to_text(matrix);
    const auto cut = *rc::gen::inRange<std::size_t>(0, text.size() + 1);
    const auto parsed = read_topo_matrix(text.substr(0, cut), "cut");
    if (!parsed.has_value()) {
        RC_ASSERT(!parsed.error().hint.empty());
        return;
    }
    // A header cut short may lose GPUs; those that are there have their labels.
    for (std::size_t a = 0; a < parsed->gpus.size(); ++a) {
        for (std::size_t b = 0; b < parsed->gpus.size(); ++b) {
            RC_ASSERT(parsed->at(a, b) == matrix.at(a, b));
        }
    }
}

}  // namespace
}  // namespace draftboard::model
