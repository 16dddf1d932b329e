// SPDX-License-Identifier: Apache-2.0
#include "model/machine_report.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

namespace draftboard::model {

namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr double kMiB = 1024.0 * 1024.0;

Json pair_json(const Router& router, int source, int destination) {
    Json json{{"source", source},
              {"destination", destination},
              {"path", to_name(router.path_type(source, destination))}};
    if (const int links = router.nvlinks(source, destination); links > 0) json["nvlinks"] = links;
    json["peer"] = router.peer_reachable(source, destination);
    const auto write = router.gpu_to_gpu(source, destination, TransferKind::write);
    const auto read = router.gpu_to_gpu(source, destination, TransferKind::read);
    if (write && read) {
        json["write_gb_s"] = write->bottleneck_gb_s;
        json["read_gb_s"] = read->bottleneck_gb_s;
        json["latency_ns"] = write->latency_ns;
        json["kernel_access_factor"] = write->kernel_access_factor;
        json["remarks"] = write->remarks;
        return json;
    }
    const auto staged = router.host_staged(source, destination);
    if (staged) {
        json["staged_gb_s"] =
            std::min(staged->first.bottleneck_gb_s, staged->second.bottleneck_gb_s);
        json["latency_ns"] = staged->first.latency_ns + staged->second.latency_ns;
        json["remarks"] = staged->first.remarks;
    }
    return json;
}

std::string label(const Router& router, int a, int b) {
    if (const int links = router.nvlinks(a, b); links > 0) return fmt::format("NV{}", links);
    return std::string(to_name(router.path_type(a, b)));
}

/// One number a pair: rows are sources, columns destinations, "-" on the diagonal, "*" marks staged
/// ones.
std::string matrix(const std::string& title, const Json& pairs, int count, const char* direct,
                   const char* staged, double factor, int decimals) {
    std::vector<std::string> cells(static_cast<std::size_t>(count) * count, "-");
    bool any_staged = false;
    for (const Json& pair : pairs) {
        const bool peer = pair.contains("write_gb_s");
        const char* key = peer ? direct : staged;
        if (!pair.contains(key)) continue;
        any_staged = any_staged || !peer;
        const std::size_t cell = static_cast<std::size_t>(pair["source"].get<int>()) * count +
                                 pair["destination"].get<int>();
        cells[cell] =
            fmt::format("{:.{}f}{}", pair[key].get<double>() * factor, decimals, peer ? "" : "*");
    }
    std::string text =
        fmt::format("\n{}{}\n      ", title, any_staged ? "  (* through host memory)" : "");
    for (int j = 0; j < count; ++j) text += fmt::format("{:>9}", fmt::format("GPU{}", j));
    text += "\n";
    for (int i = 0; i < count; ++i) {
        text += fmt::format("{:<6}", fmt::format("GPU{}", i));
        for (int j = 0; j < count; ++j) {
            text += fmt::format("{:>9}", cells[static_cast<std::size_t>(i) * count + j]);
        }
        text += "\n";
    }
    return text;
}

std::string list_text(const std::string& title, const std::vector<std::string>& items) {
    if (items.empty()) return {};
    std::string text = fmt::format("\n{}\n", title);
    for (std::size_t i = 0; i < items.size(); ++i) text += fmt::format("  [{}] {}\n", i, items[i]);
    return text;
}

}  // namespace

Json machine_report(const Machine& machine) {
    Json json{{"name", machine.name}, {"description", machine.description}};
    if (const auto problems = machine.validate(); !problems.empty()) {
        json["problems"] = Json::array();
        for (const Problem& problem : problems) {
            json["problems"].push_back(
                Json{{"place", problem.place}, {"message", problem.message}});
        }
        return json;
    }
    const Router router(machine);
    const std::vector<int> gpus = machine.gpus();
    const int count = router.gpu_count();
    const GpuSpec& gpu = machine.gpu;
    json["gpu"] = Json{{"count", count},
                       {"name", gpu.name},
                       {"compute_capability", gpu.compute_capability},
                       {"memory_bytes", gpu.memory_bytes},
                       {"memory_gb_s", gpu.memory_gb_s},
                       {"l2_bytes", gpu.l2_bytes},
                       {"multiprocessors", gpu.multiprocessors},
                       {"bf16_tflops", gpu.bf16_tflops},
                       {"fp8_tflops", gpu.fp8_tflops},
                       {"fp4_tflops", gpu.fp4_tflops},
                       {"source", gpu.source}};
    json["host"] = Json{{"cpu", machine.host.cpu}, {"source", machine.host.source}};
    const PeerAccess& peer = machine.peer;
    json["peer"] = Json{{"enabled", peer.enabled},      {"level", to_name(peer.level)},
                        {"force_p2p", peer.force_p2p},  {"acs_redirect", peer.acs_redirect},
                        {"iommu", to_name(peer.iommu)}, {"source", peer.source}};
    json["gpus"] = Json::array();
    for (int i = 0; i < count; ++i) {
        Json item{{"ordinal", i}, {"id", machine.nodes[gpus[i]].id}, {"numa", router.numa_of(i)}};
        if (!machine.nodes[gpus[i]].bus_id.empty()) item["bus_id"] = machine.nodes[gpus[i]].bus_id;
        const auto to_host = router.gpu_to_host(i, -1, TransferKind::write);
        const auto from_host = router.host_to_gpu(i, -1, TransferKind::read);
        if (to_host) item["to_host_gb_s"] = to_host->bottleneck_gb_s;
        if (from_host) item["from_host_gb_s"] = from_host->bottleneck_gb_s;
        json["gpus"].push_back(std::move(item));
    }
    if (count <= kMaxReportedGpus) {
        json["topology"] = Json::array();
        json["pairs"] = Json::array();
        for (int i = 0; i < count; ++i) {
            Json row = Json::array();
            for (int j = 0; j < count; ++j) {
                row.push_back(label(router, i, j));
                if (i != j) json["pairs"].push_back(pair_json(router, i, j));
            }
            json["topology"].push_back(std::move(row));
        }
    } else {
        json["left_out"] =
            fmt::format("topology and pairs: {} GPUs, listed up to {}", count, kMaxReportedGpus);
    }
    json["write_collapse"] = Json::array();
    for (const WriteCollapseRule& rule : machine.write_collapse) {
        Json switches = Json::array();
        for (const int node : rule.switches) switches.push_back(machine.nodes[node].id);
        json["write_collapse"].push_back(Json{{"switches", std::move(switches)},
                                              {"min_sources", rule.min_sources},
                                              {"aggregate_gb_s", rule.aggregate_gb_s},
                                              {"source", rule.source}});
    }
    json["calibration"] = machine.calibration;
    json["notes"] = machine.notes;
    json["sources"] = machine.sources;
    return json;
}

std::string machine_text(const Machine& machine) {
    const Json report = machine_report(machine);
    std::string text = fmt::format("{}\n{}{}", machine.name, machine.description,
                                   machine.description.empty() ? "" : "\n");
    if (report.contains("problems")) {
        text += "\nThis machine is not sound:\n";
        for (const Json& problem : report["problems"]) {
            text += fmt::format("  {}: {}\n", problem["place"].get<std::string>(),
                                problem["message"].get<std::string>());
        }
        return text;
    }
    const GpuSpec& gpu = machine.gpu;
    const int count = report["gpu"]["count"].get<int>();
    text += fmt::format(
        "\n{} x {} (SM {}): {:.1f} GiB, {:.0f} GB/s, L2 {:.0f} MiB, {} SMs, dense TFLOP/s bf16 "
        "{:g} "
        "fp8 {:g} fp4 {:g}\n",
        count, gpu.name, gpu.compute_capability, gpu.memory_bytes / kGiB, gpu.memory_gb_s,
        gpu.l2_bytes / kMiB, gpu.multiprocessors, gpu.bf16_tflops, gpu.fp8_tflops, gpu.fp4_tflops);
    text += fmt::format("Host: {}\n", machine.host.cpu.empty() ? "unknown" : machine.host.cpu);
    const PeerAccess& peer = machine.peer;
    text += peer.enabled
                ? fmt::format("Peer access: up to {}{}{}, IOMMU {}\n", to_name(peer.level),
                              peer.force_p2p ? "" : ", no ForceP2P keys",
                              peer.acs_redirect ? ", ACS redirect on" : "", to_name(peer.iommu))
                : fmt::format("Peer access: off, IOMMU {}\n", to_name(peer.iommu));
    text += "\nHost copies, GB/s (to host / from host)\n";
    for (const Json& item : report["gpus"]) {
        if (item["ordinal"].get<int>() >= kMaxReportedGpus) break;
        text += fmt::format("  GPU{:<3} NUMA {:<3} {:.1f} / {:.1f}\n", item["ordinal"].get<int>(),
                            item["numa"].get<int>(), item.value("to_host_gb_s", 0.0),
                            item.value("from_host_gb_s", 0.0));
    }
    if (report.contains("left_out")) {
        text += fmt::format("\nLeft out: {}\n", report["left_out"].get<std::string>());
    } else {
        text += "\n";
        text += topology_table(machine);
    }
    if (count > 1 && !report.contains("left_out")) {
        const Json& pairs = report["pairs"];
        const bool reads_differ = std::any_of(pairs.begin(), pairs.end(), [](const Json& pair) {
            return pair.contains("read_gb_s") && pair["read_gb_s"] != pair["write_gb_s"];
        });
        text += matrix(reads_differ ? "One transfer alone, written by the row's GPU, GB/s"
                                    : "One transfer alone from the row's GPU to the column's, GB/s",
                       pairs, count, "write_gb_s", "staged_gb_s", 1, 1);
        if (reads_differ) {
            text += matrix("The same, read by the column's GPU, GB/s", pairs, count, "read_gb_s",
                           "staged_gb_s", 1, 1);
        }
        text += matrix("One way, us", pairs, count, "latency_ns", "latency_ns", 1e-3, 2);
        std::set<std::string> remarks;
        for (const Json& pair : pairs) {
            if (!pair.contains("remarks")) continue;
            for (const Json& remark : pair["remarks"]) remarks.insert(remark.get<std::string>());
        }
        text += list_text("Rules that applied", {remarks.begin(), remarks.end()});
    }
    for (const WriteCollapseRule& rule : machine.write_collapse) {
        text += fmt::format(
            "\nWrite collapse: {} or more GPUs behind one of {} switches writing across root ports "
            "get {:g} GB/s together\n",
            rule.min_sources, rule.switches.size(), rule.aggregate_gb_s);
    }
    text += list_text("Notes", machine.notes);
    text += list_text("Sources", machine.sources);
    return text;
}

}  // namespace draftboard::model
