// SPDX-License-Identifier: Apache-2.0
#include "model/machine_json.h"

#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "model/data_library.h"
#include "model/machine_builder.h"
#include "model/machine_report.h"

namespace draftboard::model {
namespace {

const std::string kData = DRAFTBOARD_SOURCE_DIR "/data";

const char* const kSmall = R"({
  "format": "draftboard.machine", "version": 1, "name": "small",
  "sources": ["a measurement"],
  "gpu": {"name": "G", "compute_capability": "12.0", "memory_bytes": 1e9},
  "host": {"vendor": "AuthenticAMD", "family": 191},
  "nodes": [
    {"id": "numa0", "kind": "numa_node", "numa": 0, "socket": 0},
    {"id": "memory0", "kind": "host_memory"},
    {"id": "numa1", "kind": "numa_node", "numa": 1, "socket": 1},
    {"id": "port0", "kind": "root_port", "host_bridge": 3},
    {"id": "gpu0", "kind": "gpu"},
    {"id": "gpu1", "kind": "gpu"}
  ],
  "links": [
    {"a": "memory0", "b": "numa0", "kind": "memory"},
    {"a": "numa0", "b": "numa1", "kind": "inter_socket"},
    {"a": "port0", "b": "numa0", "kind": "internal", "gb_s": 100, "latency_ns": 50, "source": "mine"},
    {"a": "gpu0", "b": "port0", "kind": "pcie", "generation": 5, "width": 8},
    {"a": "gpu1", "b": "numa1", "kind": "pcie", "gb_s": {"forward": {"write": 4, "read": 3}, "backward": 2},
     "latency_ns": 10, "flow_gb_s": 1.5, "source": 0}
  ]
})";

Json small() { return Json::parse(kSmall); }

std::string error_of(const Json& json) {
    const auto machine = machine_from_json(json, "m.json");
    return machine ? "" : machine.error().to_text();
}

TEST(MachineJson, Figures_stand_as_given_and_defaults_fill_the_rest) {
    const auto machine = machine_from_json(small(), "m.json");
    ASSERT_TRUE(machine) << machine.error().to_text();
    EXPECT_EQ(machine->host.family, 26);  // 191 packed
    // Gen5 x8: half of 55.5; GPU to port 280 ns.
    EXPECT_DOUBLE_EQ(machine->links[3].forward.write_gb_s, 27.75);
    EXPECT_DOUBLE_EQ(machine->links[3].latency_ns, 280);
    EXPECT_NE(machine->links[3].source.find("default"), std::string::npos);
    // Turin, Gen5: one flow 51 of 95 GB/s.
    EXPECT_DOUBLE_EQ(machine->links[1].flow_gb_s, 51);
    EXPECT_DOUBLE_EQ(machine->links[1].forward.read_gb_s, 95);
    EXPECT_EQ(machine->links[2].source, "mine");
    const MachineLink& last = machine->links[4];
    EXPECT_DOUBLE_EQ(last.forward.write_gb_s, 4);
    EXPECT_DOUBLE_EQ(last.forward.read_gb_s, 3);
    EXPECT_DOUBLE_EQ(last.backward.write_gb_s, 2);
    EXPECT_DOUBLE_EQ(last.backward.read_gb_s, 2);
    EXPECT_DOUBLE_EQ(last.flow_gb_s, 1.5);
    EXPECT_EQ(last.source, "a measurement");
    EXPECT_EQ(machine->nodes[3].host_bridge, 3);
}

TEST(MachineJson, Errors_name_file_and_pointer) {
    Json json = small();
    json["links"][3]["a"] = "gpu9";
    EXPECT_NE(error_of(json).find("m.json: /links/3/a: no node \"gpu9\""), std::string::npos)
        << error_of(json);
    json = small();
    json["nodes"][4]["kind"] = "gpux";
    EXPECT_NE(error_of(json).find("/nodes/4/kind"), std::string::npos);
    json = small();
    json["links"][4]["gb_s"] = -1;
    EXPECT_NE(error_of(json).find("/links/4/gb_s"), std::string::npos);
    json = small();
    json["links"][4]["gb_s"] = Json{{"forward", 1}};
    EXPECT_NE(error_of(json).find("/links/4/gb_s/backward"), std::string::npos);
    json = small();
    json["links"][3].erase("generation");
    EXPECT_NE(error_of(json).find("/links/3/gb_s: needed"), std::string::npos) << error_of(json);
    json = small();
    json["links"][4]["source"] = 1;
    EXPECT_NE(error_of(json).find("/links/4/source"), std::string::npos);
    json = small();
    json["peer"] = Json{{"level", "FAR"}, {"iommu", "maybe"}};
    EXPECT_NE(error_of(json).find("/peer/level"), std::string::npos);
    EXPECT_NE(error_of(json).find("/peer/iommu"), std::string::npos);
    json = small();
    json["version"] = 2;
    EXPECT_NE(error_of(json).find("/version"), std::string::npos);
    json = small();
    json["format"] = "draftboard.scenario";
    EXPECT_NE(error_of(json).find("/format"), std::string::npos);
}

TEST(MachineJson, Any_part_of_any_type_is_an_error_and_not_a_crash) {
    for (const char* wrong :
         {"null", "[]", "{}", "17", "\"x\"", "true", "[[]]", "[1,\"a\",null]"}) {
        const Json value = Json::parse(wrong);
        EXPECT_FALSE(machine_from_json(value, "m"));
        for (const char* part : {"gpu", "host", "peer", "nodes", "links", "name", "sources",
                                 "write_collapse", "notes"}) {
            Json json = small();
            json[part] = value;
            const auto machine = machine_from_json(json, "m");  // some are fine: "host": {}
            if (machine) {
                EXPECT_TRUE(machine->validate().empty());
            }
        }
        for (const char* field :
             {"a", "b", "kind", "gb_s", "latency_ns", "width", "generation", "source"}) {
            Json json = small();
            json["links"][3][field] = value;
            const auto machine = machine_from_json(json, "m");
            if (machine) {
                EXPECT_TRUE(machine->validate().empty());
            }
        }
    }
}

TEST(MachineJson, Huge_counts_end_in_an_error_at_once) {
    Json json = small();
    json["nodes"] = Json::array();
    for (int i = 0; i <= kMaxNodes; ++i) json["nodes"].push_back(1);
    EXPECT_NE(error_of(json).find("/nodes: 4097 nodes"), std::string::npos) << error_of(json);
    json = small();
    for (int i = 0; i <= kMaxLinks; ++i) json["links"].push_back(1);
    EXPECT_NE(error_of(json).find("/links"), std::string::npos);
    json = small();
    json["nodes"][0]["numa"] = 1e9;
    EXPECT_NE(error_of(json).find("/nodes/0/numa"), std::string::npos);
    json = small();
    json["links"][3]["width"] = 1e18;
    EXPECT_NE(error_of(json).find("/links/3/width"), std::string::npos);
}

TEST(MachineJson, Unknown_keys_stay_when_a_file_is_rewritten) {
    Json json = small();
    json["x-owner"] = "rack 3";
    json["gpu"]["x-vbios"] = 7;
    json["nodes"][4]["x-slot"] = "A1";
    json["links"][3]["x-cable"] = Json{{"length", 2}};
    json["description"] = "old";
    auto machine = machine_from_json(json, "m.json");
    ASSERT_TRUE(machine);
    machine->description.clear();
    machine->links[3].latency_ns = 300;
    const Json written = machine_to_json(*machine, json);
    EXPECT_EQ(written["x-owner"], "rack 3");
    EXPECT_EQ(written["gpu"]["x-vbios"], 7);
    EXPECT_EQ(written["nodes"][4]["x-slot"], "A1");
    EXPECT_EQ(written["links"][3]["x-cable"]["length"], 2);
    EXPECT_EQ(written["links"][3]["latency_ns"], 300.0);
    EXPECT_FALSE(written.contains("description"));  // a known field that was emptied stays so
    EXPECT_TRUE(machine_from_json(written, "again"));
}

TEST(MachineJson, Every_shipped_machine_reads_and_says_where_its_figures_come_from) {
    const auto names = shipped_names("machines", kData);
    EXPECT_GE(names.size(), 10u);
    for (const std::string& name : names) {
        const auto machine = find_machine(name, kData);
        ASSERT_TRUE(machine) << machine.error().to_text();
        EXPECT_EQ(machine->name, name);
        EXPECT_FALSE(machine->description.empty()) << name;
        EXPECT_FALSE(machine->gpu.source.empty()) << name;
        EXPECT_FALSE(machine->peer.source.empty()) << name;
        EXPECT_GT(machine->gpu.memory_bytes, is_cpu(machine->gpu) ? 1e9 : 20e9) << name;
        EXPECT_GT(machine->gpu.memory_gb_s, 0) << name;
        for (const MachineLink& link : machine->links) EXPECT_FALSE(link.source.empty()) << name;
        const Json written = machine_to_json(*machine);
        const auto again = machine_from_json(written, name);
        ASSERT_TRUE(again);
        EXPECT_EQ(machine_to_json(*again).dump(), written.dump());
        EXPECT_FALSE(machine_report(*machine).contains("problems")) << name;
    }
}

/// The label of each pair, row by row, as topology of nvidia-smi.
std::string labels(const std::string& name) {
    const auto machine = find_machine(name, kData);
    if (!machine) return machine.error().to_text();
    std::string text;
    const Json report = machine_report(*machine);
    for (const Json& row : report["topology"]) {
        for (const Json& cell : row) text += cell.get<std::string>() + " ";
        text += "\n";
    }
    return text;
}

TEST(ShippedMachines, Direct_attachment_is_NODE_within_a_socket_and_SYS_across) {
    // As nvidia-smi printed it on the published host.
    EXPECT_EQ(labels("8x-rtx-pro-6000-direct"),
              "X NODE NODE NODE SYS SYS SYS SYS \n"
              "NODE X NODE NODE SYS SYS SYS SYS \n"
              "NODE NODE X NODE SYS SYS SYS SYS \n"
              "NODE NODE NODE X SYS SYS SYS SYS \n"
              "SYS SYS SYS SYS X NODE NODE NODE \n"
              "SYS SYS SYS SYS NODE X NODE NODE \n"
              "SYS SYS SYS SYS NODE NODE X NODE \n"
              "SYS SYS SYS SYS NODE NODE NODE X \n");
}

TEST(ShippedMachines, The_switched_box_is_PIX_NODE_and_SYS_as_published) {
    EXPECT_EQ(labels("8x-rtx-pro-6000-switches"),
              "X PIX NODE NODE SYS SYS SYS SYS \n"
              "PIX X NODE NODE SYS SYS SYS SYS \n"
              "NODE NODE X PIX SYS SYS SYS SYS \n"
              "NODE NODE PIX X SYS SYS SYS SYS \n"
              "SYS SYS SYS SYS X PIX NODE NODE \n"
              "SYS SYS SYS SYS PIX X NODE NODE \n"
              "SYS SYS SYS SYS NODE NODE X PIX \n"
              "SYS SYS SYS SYS NODE NODE PIX X \n");
}

TEST(ShippedMachines, Single_flows_are_within_five_percent_of_the_published_copies) {
    const auto direct = find_machine("8x-rtx-pro-6000-direct", kData);
    const auto switches = find_machine("8x-rtx-pro-6000-switches", kData);
    ASSERT_TRUE(direct && switches);
    const auto near = [](const Machine& machine, int a, int b, TransferKind kind,
                         double published) {
        EXPECT_NEAR(Router(machine).gpu_to_gpu(a, b, kind)->bottleneck_gb_s, published,
                    0.05 * published);
    };
    // p2pBandwidthLatencyTest on a two-socket Turin: 55.6 inside, 51.0 across.
    near(*direct, 0, 1, TransferKind::write, 55.6);
    near(*direct, 0, 4, TransferKind::write, 51.0);
    // p2pmark on the ESC8000A: same virtual switch 53.8, same chip 53.8, across 36.8 written
    // and 40.1 read.
    near(*switches, 1, 0, TransferKind::write, 53.8);
    near(*switches, 0, 2, TransferKind::write, 53.8);
    near(*switches, 0, 4, TransferKind::write, 36.8);
    near(*switches, 0, 4, TransferKind::read, 40.1);
}

/// The fields of a CSV line; commas inside double quotes do not separate.
std::vector<std::string> csv_fields(const std::string& line) {
    std::vector<std::string> fields(1);
    bool quoted = false;
    for (const char c : line) {
        if (c == '"')
            quoted = !quoted;
        else if (c == ',' && !quoted)
            fields.emplace_back();
        else
            fields.back() += c;
    }
    return fields;
}

TEST(ShippedMachines, Every_published_pair_of_the_switched_box_is_within_eight_percent) {
    const std::string path = DRAFTBOARD_SHARED_DIR "/published/p2p.csv";
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "no " << path;
    const auto machine = find_machine("8x-rtx-pro-6000-switches", kData);
    ASSERT_TRUE(machine);
    const Router router(*machine);
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    // id,platform,gpu_model,pair_class,src,dst,flows,direction,op,size_bytes,bandwidth_gbps,...,tool
    int pairs = 0;
    while (std::getline(file, line)) {
        const auto fields = csv_fields(line);
        if (fields.size() < 14 || fields[13] != "p2pmark" || fields[7] != "uni") continue;
        if (!fields[1].starts_with("ASUS ESC8000A") || fields[4].size() != 1) continue;
        if (fields[5].size() != 1 || fields[10].empty()) continue;
        const double published = std::stod(fields[10]);
        const auto route =
            router.gpu_to_gpu(fields[4][0] - '0', fields[5][0] - '0', TransferKind::write);
        ASSERT_TRUE(route) << line;
        EXPECT_NEAR(route->bottleneck_gb_s, published, 0.08 * published) << line;
        ++pairs;
    }
    EXPECT_GT(pairs, 20);
}

TEST(ShippedMachines, Four_flows_across_sockets_share_what_was_measured) {
    for (const auto& [name, each] :
         {std::pair{"8x-rtx-pro-6000-direct", 23.75}, std::pair{"8x-l40s", 9.70}}) {
        const auto machine = find_machine(name, kData);
        ASSERT_TRUE(machine);
        for (const MachineLink& link : machine->links) {
            if (link.kind != LinkKind::inter_socket) continue;
            EXPECT_NEAR(link.forward.write_gb_s / 4, each, 0.01) << name;
            EXPECT_NEAR(link.backward.write_gb_s / 4, each, 0.01) << name;
        }
    }
}

TEST(ShippedMachines, Geforce_has_no_peer_access_and_every_numa_node_one_gpu) {
    const auto machine = find_machine("8x-rtx-4090", kData);
    ASSERT_TRUE(machine);
    const Router router(*machine);
    for (int i = 0; i < 8; ++i) {
        EXPECT_EQ(router.numa_of(i), i);
        for (int j = 0; j < 8; ++j) {
            if (i == j) continue;
            EXPECT_EQ(router.path_type(i, j), PathType::sys);
            EXPECT_FALSE(router.peer_reachable(i, j));
        }
    }
}

TEST(ShippedMachines, H200_boxes_are_NV18_or_go_through_the_host) {
    const auto nvlink = find_machine("8x-h200-nvlink", kData);
    const auto staged = find_machine("8x-h200-no-p2p", kData);
    ASSERT_TRUE(nvlink && staged);
    EXPECT_EQ(Router(*nvlink).nvlinks(0, 7), 18);
    EXPECT_EQ(find_machine("2x-h200-nvlink", kData)->gpus().size(), 2u);
    EXPECT_EQ(find_machine("1x-h200", kData)->gpus().size(), 1u);
    const auto way = Router(*staged).host_staged(0, 1);
    ASSERT_TRUE(way);
    EXPECT_DOUBLE_EQ(way->first.bottleneck_gb_s, 55);
    EXPECT_DOUBLE_EQ(way->second.bottleneck_gb_s, 55);
    EXPECT_FALSE(Router(*staged).gpu_to_gpu(0, 1, TransferKind::write));
}

TEST(FindMachine, An_unknown_name_lists_near_ones) {
    const auto machine = find_machine("8x-rtx-pro-6000-dirct", kData);
    ASSERT_FALSE(machine);
    EXPECT_EQ(machine.error().code, ErrorCode::not_found);
    EXPECT_NE(machine.error().to_text().find("8x-rtx-pro-6000-direct"), std::string::npos);
}

RC_GTEST_PROP(MachineJson, Writing_and_reading_gives_the_same_machine, ()) {
    MachineBuilder builder(
        *rc::gen::nonEmpty(rc::gen::container<std::string>(rc::gen::inRange('a', 'z'))));
    const int sockets = *rc::gen::inRange(1, 3);
    for (int s = 0; s < sockets; ++s) {
        const int numa = builder.add_numa(s, s);
        const int gpus = *rc::gen::inRange(1, 4);
        for (int g = 0; g < gpus; ++g)
            builder.add_gpu(builder.add_root_port(numa), *rc::gen::inRange(1, 7), 16);
    }
    builder.connect_all_numa(*rc::gen::inRange(3, 6));
    Machine& machine = builder.machine();
    const auto figure = [] { return 1e-3 * *rc::gen::inRange(1, 1'000'000'000); };
    for (MachineLink& link : machine.links) {
        link.forward = {figure(), figure()};
        link.backward =
            *rc::gen::arbitrary<bool>() ? link.forward : LinkCapacity{figure(), 1.0 / 3};
        link.latency_ns = figure();
        link.flow_gb_s = *rc::gen::arbitrary<bool>() ? figure() : 0;
    }
    machine.sources = {machine.links[0].source};
    machine.peer.enabled = *rc::gen::arbitrary<bool>();
    machine.peer.level =
        *rc::gen::element(PathType::nvlink, PathType::pix, PathType::node, PathType::sys);
    machine.peer.iommu = *rc::gen::element(IommuMode::off, IommuMode::translated);
    const Json written = machine_to_json(machine);
    // Through text as a file would go.
    const auto again = machine_from_json(Json::parse(written.dump(2)), "again");
    RC_ASSERT(bool(again));
    RC_ASSERT(machine_to_json(*again).dump() == written.dump());
    RC_ASSERT(again->links.size() == machine.links.size());
    for (std::size_t i = 0; i < machine.links.size(); ++i) {
        RC_ASSERT(again->links[i].forward.write_gb_s == machine.links[i].forward.write_gb_s);
        RC_ASSERT(again->links[i].backward.read_gb_s == machine.links[i].backward.read_gb_s);
        RC_ASSERT(again->links[i].latency_ns == machine.links[i].latency_ns);
        RC_ASSERT(again->links[i].source == machine.links[i].source);
    }
}

}  // namespace
}  // namespace draftboard::model
