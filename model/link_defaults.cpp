// SPDX-License-Identifier: Apache-2.0
#include "model/link_defaults.h"

#include <array>
#include <string_view>

#include <fmt/format.h>

namespace draftboard::model {

namespace {

// Copies by the copy engine over x16, each direction, GB/s.
// Gen5 55.5: 55.1-57.3 on H200, H100, RTX 5090 and RTX PRO 6000 hosts; 55.6-56.6 between GPUs of
//   one Turin socket (local-inference-lab/rtx6kpro@e2c2b95, hardware/pcie-bandwidth.md).
// Gen4 26.3: 24-27.1 on eight RTX 4090; 26.26 over one hop between L40S (flashinfer#4870).
// Gen3 13.1: Gen4's share of the line rate (26.3 / 31.51) of 15.75.
// Gen2 6.4, Gen1 3.2: line rates of 8 and 4 after 8b/10b, less headers.
// Gen6 111: Gen5's share of the line rate (55.5 / 63.02) of 126; not measured.
constexpr std::array<double, kMaxPcieGeneration + 1> kPcieX16GbS = {0,    3.2,  6.4,  13.1,
                                                                    26.3, 55.5, 111.0};

// One-way flag latencies between GPU kernels: 633-727 ns behind one Gen5 switch, 1062-1072 ns
// through the CPU between two switches (rtx6kpro@e2c2b95, WRX90 hosts with PM50100 switches).
// Directly attached GPUs: remote read 0.76-0.84 us where one switch gives 0.72 (p2pmark), so 700 ns
// here. The split over links is ours.
constexpr double kGpuToSwitchNs = 340;
constexpr double kGpuToPortNs = 280;
constexpr double kSwitchToSwitchNs = 120;
constexpr double kSwitchToPortNs = 120;
constexpr double kPortToNumaNs = 70;
// Between sockets: a remote read takes 1.27-1.36 us across two switches and two Turin sockets, 0.55
// us more than behind one switch, so all that its way has more costs 275 ns each direction
// (rtx6kpro@e2c2b95, hardware/asus-esc8000a-e13p-broadcom-switches.md). About 100 ns of that is
// left for the link between the sockets; low confidence.
constexpr double kSocketNs = 100;
// Gen4: 0.8 us behind one switch where Gen5 has 0.68. Gen3 and older: assumed to continue.
constexpr std::array<double, kMaxPcieGeneration + 1> kLatencyFactor = {0,   1.4, 1.4, 1.4,
                                                                       1.2, 1.0, 1.0};

constexpr double kInternalGbS = 256;  // above every x16 link so that the link itself limits
// One direction. EPYC 9005's datasheet: 12 x DDR5-6000 = 576 GB/s, reads and writes together.
constexpr double kMemoryGbS = 300;
constexpr double kMemoryNs = 100;  // DRAM access

constexpr std::string_view kPcieSource =
    "default by generation and width: copies 26.3 (Gen4), 55.5 (Gen5) GB/s over x16, one-way flags "
    "0.68 us behind a switch, 1.06 us through the CPU (rtx6kpro@e2c2b95, flashinfer#4870)";

double pcie_latency_ns(NodeKind a, NodeKind b) {
    const auto between = [&](NodeKind x, NodeKind y) {
        return (a == x && b == y) || (a == y && b == x);
    };
    const bool any_switch = a == NodeKind::pcie_switch || b == NodeKind::pcie_switch;
    const bool any_numa = a == NodeKind::numa_node || b == NodeKind::numa_node;
    if (between(NodeKind::pcie_switch, NodeKind::pcie_switch)) return kSwitchToSwitchNs;
    if (between(NodeKind::pcie_switch, NodeKind::root_port)) return kSwitchToPortNs;
    if (between(NodeKind::root_port, NodeKind::numa_node)) return kPortToNumaNs;
    if (any_numa)
        return kPortToNumaNs +
               (any_switch ? kSwitchToPortNs : kGpuToPortNs);  // the port is not shown
    return any_switch ? kGpuToSwitchNs : kGpuToPortNs;
}

}  // namespace

std::optional<LinkFigures> pcie_figures(int generation, int width, NodeKind a, NodeKind b) {
    if (generation < 1 || generation > kMaxPcieGeneration || width < 0 || width > 32)
        return std::nullopt;
    const double capacity = kPcieX16GbS[generation] * (width == 0 ? 16 : width) / 16.0;
    return LinkFigures{{capacity, capacity},
                       pcie_latency_ns(a, b) * kLatencyFactor[generation],
                       0,
                       std::string(kPcieSource)};
}

LinkFigures internal_figures() {
    return {{kInternalGbS, kInternalGbS},
            kPortToNumaNs,
            0,
            "assumed wider than the links that meet in it"};
}

LinkFigures memory_figures() {
    return {{kMemoryGbS, kMemoryGbS},
            kMemoryNs,
            0,
            "assumed: about half the DRAM peak of a 12-channel DDR5 socket each direction"};
}

std::optional<LinkFigures> nvlink_figures(int count, const std::string& compute_capability) {
    // GB/s per link and direction that NCCL 2.30.7 counts on (src/graph/topo.h); 300 ns: half of
    // its 0.6 us per LL hop over NVLink (src/graph/tuning.cc), since a hop crosses two links to a
    // switch.
    struct Known {
        std::string_view capability;
        double gb_s;
    };
    constexpr std::array<Known, 6> kKnown = {
        {{"6.0", 18}, {"7.0", 20}, {"8.0", 20}, {"8.6", 12}, {"9.0", 20.6}, {"10.0", 40.1}}};
    if (count < 1 || count > 1024) return std::nullopt;
    for (const Known& known : kKnown) {
        if (known.capability != compute_capability) continue;
        const double capacity = count * known.gb_s;
        return LinkFigures{
            {capacity, capacity},
            300,
            0,
            fmt::format("{} NVLinks of {} GB/s (NCCL 2.30.7 topo.h), 0.6 us a hop (tuning.cc)",
                        count, known.gb_s)};
    }
    return std::nullopt;
}

LinkFigures inter_socket_figures(const HostSpec& host, int pcie_generation) {
    const bool amd = host.vendor == "AuthenticAMD";
    // Gen4 boxes: 20.6-22.5 GB/s one flow (8 RTX 4090, 6 A6000), 9.70 GB/s for each of four flows a
    // direction (8 L40S, flashinfer#4870).
    if (pcie_generation <= 4) {
        return {{38.8, 38.8},
                kSocketNs * 1.2,
                21.5,
                "one flow 20.6-22.5 GB/s (8 RTX 4090), four flows 9.70 GB/s each (8 L40S, "
                "flashinfer#4870); latency see link_defaults.cpp"};
    }
    // Turin: 51.0 GB/s one flow (rtx6kpro@e2c2b95, hardware/pcie-bandwidth.md); 23.75 GB/s for each
    // of four flows a direction (8 SM120 behind switch pairs, flashinfer#4870). There two GPUs
    // share an uplink, so the fabric between the sockets may carry more.
    if (amd && normalised_cpu_family(host.family) == 26) {
        return {{95, 95},
                kSocketNs,
                51,
                "one flow 51.0 GB/s (Turin, rtx6kpro@e2c2b95), four flows 23.75 GB/s each "
                "(flashinfer#4870); latency see link_defaults.cpp"};
    }
    // Genoa: 39 GB/s one flow, 64 GB/s both directions together (EPYC 9374F, same page). The total
    // is the same share of Turin's as one flow's: 95 * 39 / 51.
    if (amd) {
        return {{72.6, 72.6},
                kSocketNs,
                39,
                "one flow 39 GB/s (EPYC 9374F, rtx6kpro@e2c2b95); total scaled from Turin's, not "
                "measured"};
    }
    return {{82, 82},
            kSocketNs,
            44,
            "no Gen5 measurement of this CPU known: one flow 0.8 of a same-socket one, total "
            "scaled from Turin's"};
}

LinkFigures same_socket_figures() {
    return {{kInternalGbS, kInternalGbS},
            10,
            0,
            "assumed not to limit: same-socket copies reach the link rate, about 10 ns between "
            "quadrants (rtx6kpro@e2c2b95)"};
}

}  // namespace draftboard::model
