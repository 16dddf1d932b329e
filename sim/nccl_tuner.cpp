// SPDX-License-Identifier: Apache-2.0
#include "sim/nccl_tuner.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>

#include <fmt/format.h>

namespace draftboard::sim {

using model::Algorithm;
using model::CollectiveSettings;
using model::ErrorCode;
using model::Expected;
using model::fail;
using model::LinkKind;
using model::Machine;
using model::OperationKind;
using model::PathType;
using model::Protocol;
using model::Router;

namespace {

// All of NCCL 2.30.7 unless said otherwise.

// src/graph/topo.h: link bandwidths between CPUs. Intel by model of family 6.
constexpr double kAmdGbS = 16;
constexpr double kIntelBroadwellGbS = 6;
constexpr double kIntelSkylakeGbS = 10;   // model >= 0x55
constexpr double kIntelSapphireGbS = 22;  // model >= 0x8F
constexpr double kIntelEmeraldGbS = 40;   // model >= 0xCF
constexpr double kArmGbS = 6;
constexpr double kIntelPeerOverhead = 6.0 / 5.0;  // PCI links on a path through an Intel CPU
// PCIe x16: width * speed / 80, speed in 100 Mb/s a lane: 3 GB/s for Gen1 doubling up to 96 for
// Gen6.
constexpr double kPcieGen1X16GbS = 3;

// src/graph/paths.cc: so many GPUs of an AMD host talk directly over any distance.
constexpr int kAmdPeerRanks = 2;

// src/graph/search.cc: speeds tried inside a node.
constexpr std::array<double, 13> kSpeeds = {40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3};
constexpr std::array<double, 11> kSpeedsSm90 = {60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3};
constexpr std::array<double, 12> kSpeedsSm100 = {90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18};
constexpr double kFailedSpeedGbS = 0.1;
constexpr double kSearchKeepsGoing = 0.49;  // next speed / found speed
constexpr int kMaxSearchChannels = 32;
constexpr int kMaxChannels = 64;

// src/graph/tuning.cc, LL / LL128 / Simple.
using PerProtocol = std::array<double, 3>;
constexpr PerProtocol kTreeBaseUs = {6.8, 14.0, 8.4};
constexpr PerProtocol kRingBaseUs = {6.6, 14.0, 8.4};
constexpr PerProtocol kTreeHopNvlinkUs = {0.6, 1.25, 4.0};
constexpr PerProtocol kRingHopNvlinkUs = {0.6, 1.9, 3.4};
constexpr PerProtocol kTreeHopPcieUs = {1.0, 1.9, 4.0};
constexpr PerProtocol kRingHopPcieUs = {1.0, 2.5, 5.7};
constexpr double kNvlsUs = 25;
// One node; by generation: Volta, Ampere (Ada), Hopper, Blackwell.
constexpr std::array<double, 4> kLlMaxGbS = {39.0, 87.7, 141.0, 282.0};
constexpr std::array<double, 4> kRingLl128ChannelGbS = {20.0, 20.0, 36.7, 40.0};
constexpr std::array<double, 4> kTreeLl128ChannelGbS = {20.0, 20.0, 36.7, 55.6};
constexpr std::array<double, 4> kTreeChannelGbS = {26.5, 24.0, 38.7, 70.0};
constexpr std::array<double, 4> kNvlsEfficiency = {0, 0, 0.85, 0.74};
// Tree all_reduce bandwidth by log2(bytes / 64).
constexpr std::array<std::array<double, 24>, 3> kTreeCorrection = {{
    {1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5,
     0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0},
    {1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6,
     0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1.0, 1.0, 1.0},
    {0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5,
     0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9, 0.9},
}};

// src/enqueue.cc, src/include/{comm,device,graph}.h
constexpr int kLlThreads = 512;
constexpr int kLl128Threads = 640;
constexpr int kSimpleThreads = 512;
constexpr int kSimpleThreadsSlow = 256;  // where the graph carries no more than PCI_BW
constexpr double kSlowGraphGbS = 12;
constexpr std::int64_t kLlBytesPerThread = 8;  // ring LL: times the ranks
constexpr std::int64_t kLl128BytesPerThread = 8;
constexpr std::int64_t kSimpleBytesPerThread = 64;
constexpr std::int64_t kPeerLlBytes = 16 * 1024;  // sends up to this size use LL

/// NCCL knows no NODE: two host bridges of one NUMA domain are PHB.
PathType nccl_type(PathType type) { return type == PathType::node ? PathType::phb : type; }

int generation_index(int compute_capability) {
    if (compute_capability >= 100) return 3;
    if (compute_capability >= 90) return 2;
    return compute_capability >= 80 ? 1 : 0;
}

int parse_capability(const std::string& text) {
    // "9.0" -> 90, "12.0" -> 120; anything else 0.
    const std::size_t dot = text.find('.');
    const auto digits = [](const std::string& part) {
        return !part.empty() && part.size() <= 2 &&
               part.find_first_not_of("0123456789") == std::string::npos;
    };
    if (dot == std::string::npos) return 0;
    const std::string major = text.substr(0, dot);
    const std::string minor = text.substr(dot + 1);
    if (!digits(major) || !digits(minor)) return 0;
    return std::atoi(major.c_str()) * 10 + std::atoi(minor.c_str());
}

double pcie_gb_s(const model::MachineLink& link) {
    const int generation = std::clamp(link.generation, 1, 6);
    const int width = link.width > 0 ? std::min(link.width, 32) : 16;
    return kPcieGen1X16GbS * static_cast<double>(1 << (generation - 1)) * width / 16.0;
}

/// The GPU's links up to its NUMA node as NCCL counts them: its own port, and the narrowest of all.
struct GpuLinks {
    double own = 0;
    double to_cpu = 0;
};
Expected<GpuLinks> gpu_links(const Machine& machine, const Router& router, int gpu) {
    const auto route = router.gpu_to_host(gpu, -1, model::TransferKind::write);
    if (!route) return tl::unexpected(route.error());
    GpuLinks links;
    for (const model::Hop& hop : route->hops) {
        const model::MachineLink& link = machine.links[static_cast<std::size_t>(hop.link)];
        if (link.kind != LinkKind::pcie) continue;
        const double speed = pcie_gb_s(link);
        if (links.own == 0) links.own = speed;
        links.to_cpu = links.to_cpu == 0 ? speed : std::min(links.to_cpu, speed);
    }
    if (links.own == 0) links.own = links.to_cpu = kPcieGen1X16GbS * 4;  // unknown: Gen3 x16
    return links;
}

/// Sum of a GPU's NVLinks towards the others of the group.
double nvlink_gb_s(const Machine& machine, int node) {
    double sum = 0;
    for (const model::MachineLink& link : machine.links) {
        if (link.kind != LinkKind::nvlink) continue;
        if (link.a == node) sum += link.forward.write_gb_s;
        if (link.b == node) sum += link.backward.write_gb_s;
    }
    return sum;
}

/// Nearest neighbour from the first GPU on; equal distances by position. NCCL's search starts the
/// same way.
std::vector<int> ring_order(const Router& router, const std::vector<int>& gpus) {
    std::vector<int> ring = {gpus.front()};
    std::vector<int> left(gpus.begin() + 1, gpus.end());
    while (!left.empty()) {
        const auto distance = [&](int gpu) {
            return router.nvlinks(ring.back(), gpu) > 0 ? PathType::nvlink
                                                        : router.path_type(ring.back(), gpu);
        };
        auto next = left.begin();
        for (auto it = left.begin(); it != left.end(); ++it) {
            if (distance(*it) < distance(*next)) next = it;
        }
        ring.push_back(*next);
        left.erase(next);
    }
    return ring;
}

struct Speed {
    int channels = 0;
    double gb_s = 0;
};

template <std::size_t N>
Speed search_speed(const std::array<double, N>& ladder, double path, double total, int capability) {
    // Pass 1: down the ladder, keep what carries more in all, stop when the links are full or the
    // next speed is less than half the one found. Rings of one set of links differ in nothing but
    // their number.
    Speed best;
    for (const double speed : ladder) {
        if (best.channels > 0 && speed / best.gb_s <= kSearchKeepsGoing) break;
        if (best.channels * best.gb_s >= total) break;
        const int fits = static_cast<int>(std::min(path / speed + 1e-9, 1.0 * kMaxSearchChannels));
        if (fits * speed > best.channels * best.gb_s * (1 + 1e-9)) best = {fits, speed};
    }
    if (best.channels == 0) return best;
    // Fast channels are doubled and their speed halved...
    if (best.gb_s >= 25 && !(capability > 80 && best.gb_s < 50 && best.channels > 4) &&
        best.channels * 2 <= kMaxSearchChannels) {
        best = {best.channels * 2, best.gb_s / 2};
    }
    // ...and pass 2 raises the speed where the ladder has a step that still fits.
    for (auto speed = ladder.rbegin(); speed != ladder.rend(); ++speed) {
        if (*speed > best.gb_s && best.channels * *speed <= path * (1 + 1e-9)) best.gb_s = *speed;
    }
    return best;
}

int steps_of(OperationKind operation, int ranks) {
    return operation == OperationKind::all_reduce ? 2 * (ranks - 1) : ranks - 1;
}

std::size_t index_of(Protocol protocol) {
    return protocol == Protocol::ll ? 0 : (protocol == Protocol::ll128 ? 1 : 2);
}

}  // namespace

bool NcclGraph::through_host() const {
    return std::find(peer.begin(), peer.end(), false) != peer.end();
}

double nccl_inter_cpu_gb_s(const model::HostSpec& host) {
    if (host.vendor == "AuthenticAMD") return kAmdGbS;
    if (host.vendor == "GenuineIntel") {
        if (host.model >= 0xCF) return kIntelEmeraldGbS;
        if (host.model >= 0x8F) return kIntelSapphireGbS;
        return host.model >= 0x55 ? kIntelSkylakeGbS : kIntelBroadwellGbS;
    }
    if (host.vendor == "ARM") return kArmGbS;
    return kIntelSkylakeGbS;  // NCCL's constant for what it does not know is its QPI figure
}

bool nccl_reaches(const Machine& machine, const Router& router, const CollectiveSettings& settings,
                  int from, int to, int ranks, const NcclBelief& belief) {
    if (!settings.peer_to_peer || !router.peer_reachable(from, to)) return false;
    if (router.nvlinks(from, to) > 0) return true;
    PathType level = nccl_type(settings.peer_level);
    const int far_ranks = belief.peer_ranks > 0                   ? belief.peer_ranks
                          : machine.host.vendor == "AuthenticAMD" ? kAmdPeerRanks
                                                                  : 0;
    if (level == PathType::pxb && ranks <= far_ranks) level = PathType::sys;
    return nccl_type(router.path_type(from, to)) <= level;
}

Expected<NcclGraph> nccl_graph(const Machine& machine, const Router& router,
                               const std::vector<int>& gpus, const CollectiveSettings& settings,
                               const NcclBelief& belief) {
    NcclGraph graph;
    graph.compute_capability = parse_capability(machine.gpu.compute_capability);
    graph.ring = ring_order(router, gpus);
    const std::size_t n = graph.ring.size();
    const std::vector<int> nodes = machine.gpus();
    const bool intel = machine.host.vendor == "GenuineIntel";
    const double socket_link =
        belief.inter_cpu_gb_s > 0 ? belief.inter_cpu_gb_s : nccl_inter_cpu_gb_s(machine.host);
    double path = std::numeric_limits<double>::infinity();
    double total = 0;
    graph.nvlink = true;
    for (std::size_t i = 0; i < n; ++i) {
        const int from = graph.ring[i];
        const int to = graph.ring[(i + 1) % n];
        const PathType type = nccl_type(router.path_type(from, to));
        const bool peer =
            nccl_reaches(machine, router, settings, from, to, static_cast<int>(n), belief);
        const bool nvlink = peer && router.nvlinks(from, to) > 0;
        graph.peer.push_back(peer);
        graph.nvlink = graph.nvlink && nvlink;
        const auto links = gpu_links(machine, router, from);
        if (!links) return tl::unexpected(links.error());
        const auto other = gpu_links(machine, router, to);
        if (!other) return tl::unexpected(other.error());
        if (nvlink) {
            const double sum = nvlink_gb_s(machine, nodes[static_cast<std::size_t>(from)]);
            path = std::min(path, sum);
            total = std::max(total, sum);
            continue;
        }
        total = std::max(total, links->own);
        // A refused peer path is searched through the CPU.
        const bool over_cpu = type >= PathType::phb || !peer;
        double bandwidth =
            over_cpu ? std::min(links->to_cpu, other->to_cpu) : std::min(links->own, other->own);
        if (over_cpu && intel) bandwidth /= kIntelPeerOverhead;
        if (type == PathType::sys) {
            bandwidth = std::min(bandwidth, socket_link);
            graph.inter_cpu_gb_s = socket_link;
        }
        path = std::min(path, bandwidth);
    }
    const int cc = graph.compute_capability;
    const Speed speed = cc >= 100  ? search_speed(kSpeedsSm100, path, total, cc)
                        : cc >= 90 ? search_speed(kSpeedsSm90, path, total, cc)
                                   : search_speed(kSpeeds, path, total, cc);
    if (speed.channels > 0) {
        graph.search_channels = speed.channels;
        graph.speed_gb_s = speed.gb_s;
    } else if (settings.graph_file) {
        // A graph file says what the links carry; the field's files spread it over two channels.
        graph.search_channels = 2;
        graph.speed_gb_s = total / 2;
        graph.remarks.push_back(
            "NCCL_GRAPH_FILE replaces the failed search: the GPUs' own link speed assumed");
    } else {
        graph.search_channels = 1;
        graph.speed_gb_s = kFailedSpeedGbS;
        graph.search_failed = true;
        graph.remarks.push_back(
            fmt::format("NCCL's graph search fails: {:.0f} GB/s between sockets is below the "
                        "lowest speed it tries for this "
                        "GPU; it then believes in 0.1 GB/s and takes Simple far too early "
                        "(NCCL_GRAPH_FILE helps)",
                        path));
    }
    graph.channels = std::min(kMaxChannels, 2 * graph.search_channels);
    if (graph.nvlink && cc >= 90 && n > 2) {
        for (const model::MachineNode& node : machine.nodes) {
            graph.nvswitch = graph.nvswitch || node.kind == model::NodeKind::nvswitch;
        }
    }
    return graph;
}

std::vector<NcclOption> nccl_options(const NcclGraph& graph, const CollectiveSettings& settings,
                                     OperationKind operation, std::int64_t bytes) {
    std::vector<NcclOption> options;
    const int n = static_cast<int>(graph.ring.size());
    const double steps = std::max(1, steps_of(operation, n));
    const double bus = graph.bus_gb_s();
    const auto generation = static_cast<std::size_t>(generation_index(graph.compute_capability));
    const double channels = graph.search_channels;
    for (const Algorithm algorithm : {Algorithm::ring, Algorithm::tree}) {
        const bool ring = algorithm == Algorithm::ring;
        for (const Protocol protocol : {Protocol::ll, Protocol::ll128, Protocol::simple}) {
            NcclOption option;
            option.algorithm = algorithm;
            option.protocol = protocol;
            const std::size_t p = index_of(protocol);
            const PerProtocol& base = ring ? kRingBaseUs : kTreeBaseUs;
            const PerProtocol& hop = graph.nvlink ? (ring ? kRingHopNvlinkUs : kTreeHopNvlinkUs)
                                                  : (ring ? kRingHopPcieUs : kTreeHopPcieUs);
            option.latency_us = base[p] + steps * hop[p];
            double bandwidth = bus;
            if (ring && protocol == Protocol::ll)
                bandwidth = std::min(kLlMaxGbS[generation], bus * 0.5);
            if (ring && protocol == Protocol::ll128) {
                bandwidth = std::min(bus * 0.92, channels * kRingLl128ChannelGbS[generation]);
            }
            if (!ring) {
                bandwidth = std::min(bus * 0.92, channels * kTreeChannelGbS[generation]);
                if (protocol == Protocol::ll)
                    bandwidth = std::min(bandwidth / 3.8, kLlMaxGbS[generation]);
                if (protocol == Protocol::ll128) {
                    bandwidth = std::min(bandwidth * 7.0 / 9.0,
                                         channels * kTreeLl128ChannelGbS[generation]);
                }
                bandwidth *= 0.85;  // one tree a channel: a chain
                const std::int64_t lines = bytes >> 6;
                if (lines > 0) {
                    const auto log2 =
                        static_cast<std::size_t>(std::log2(static_cast<double>(lines)));
                    if (log2 < 23) bandwidth *= kTreeCorrection[p][log2];
                }
            }
            bandwidth *= ring ? n / steps : 0.5;
            // LL128 needs stores that are not split: by default only where all hops are NVLink.
            const bool ll128_off = protocol == Protocol::ll128 && !graph.nvlink &&
                                   settings.protocol != Protocol::ll128 && !settings.ll128;
            const bool other_algorithm =
                settings.algorithm != Algorithm::automatic && settings.algorithm != algorithm;
            const bool other_protocol =
                settings.protocol != Protocol::automatic && settings.protocol != protocol;
            const bool no_tree = !ring && operation != OperationKind::all_reduce;
            const bool off = ll128_off || other_algorithm || other_protocol || no_tree;
            option.bandwidth_gb_s = off ? 0 : bandwidth;
            options.push_back(option);
        }
    }
    const bool free_choice =
        settings.algorithm == Algorithm::automatic &&
        (settings.protocol == Protocol::automatic || settings.protocol == Protocol::simple);
    if (graph.nvswitch && free_choice && kNvlsEfficiency[generation] > 0) {
        // One head a GPU, each at the fastest speed that together fit the GPU's NVLinks.
        double speed = 0;
        const auto fit = [&](double candidate) {
            if (candidate * n <= bus * 1.05 && candidate > speed) speed = candidate;
        };
        if (graph.compute_capability >= 100) {
            for (const double candidate : kSpeedsSm100) fit(candidate);
        } else {
            for (const double candidate : kSpeedsSm90) fit(candidate);
        }
        NcclOption option;
        option.algorithm = Algorithm::tree;
        option.protocol = Protocol::simple;
        option.nvls = true;
        option.latency_us = kNvlsUs;
        double bandwidth = speed * kNvlsEfficiency[generation] * (n - 1) / n * n;
        bandwidth *= operation == OperationKind::all_reduce ? 2.0 * n / steps : (n - 1.0) / n;
        option.bandwidth_gb_s = bandwidth;
        options.push_back(option);
    }
    for (NcclOption& option : options) {
        option.predicted_us =
            option.bandwidth_gb_s > 0
                ? option.latency_us + static_cast<double>(bytes) / (1000 * option.bandwidth_gb_s)
                : std::numeric_limits<double>::infinity();
    }
    return options;
}

NcclSplit nccl_split(const NcclGraph& graph, Algorithm algorithm, Protocol protocol,
                     std::int64_t bytes, int fixed_channels) {
    NcclSplit split;
    split.channels = fixed_channels > 0 ? std::min(fixed_channels, kMaxChannels) : graph.channels;
    std::int64_t per_thread = kSimpleBytesPerThread;
    split.threads = graph.bus_gb_s() <= kSlowGraphGbS ? kSimpleThreadsSlow : kSimpleThreads;
    if (algorithm == Algorithm::tree) split.threads = kSimpleThreads;
    if (protocol == Protocol::ll) {
        per_thread = kLlBytesPerThread;
        if (algorithm == Algorithm::ring)
            per_thread *= static_cast<std::int64_t>(graph.ring.size());
        split.threads = kLlThreads;
    }
    if (protocol == Protocol::ll128) {
        per_thread = kLl128BytesPerThread;
        split.threads = kLl128Threads;
    }
    while (split.channels > 1 && bytes < split.channels * split.threads * per_thread)
        --split.channels;
    while (split.threads % 128 == 0 && bytes < split.channels * split.threads * per_thread) {
        split.threads /= 2;
    }
    return split;
}

std::int64_t nccl_bytes(OperationKind operation, std::int64_t bytes_per_rank, int ranks) {
    return operation == OperationKind::all_gather ? bytes_per_rank * ranks : bytes_per_rank;
}

Expected<NcclChoice> nccl_choose(const NcclGraph& graph, const CollectiveSettings& settings,
                                 OperationKind operation, std::int64_t bytes) {
    NcclChoice choice;
    const int n = static_cast<int>(graph.ring.size());
    if (operation == OperationKind::all_to_all || operation == OperationKind::send_receive) {
        const std::int64_t per_peer =
            operation == OperationKind::all_to_all ? bytes / std::max(1, n) : bytes;
        choice.option.protocol = per_peer <= kPeerLlBytes ? Protocol::ll : Protocol::simple;
        if (settings.protocol != Protocol::automatic) choice.option.protocol = settings.protocol;
        choice.split.channels =
            settings.channels > 0 ? std::min(settings.channels, kMaxChannels) : graph.channels;
        return choice;
    }
    const std::vector<NcclOption> options = nccl_options(graph, settings, operation, bytes);
    const NcclOption* best = nullptr;
    for (const NcclOption& option : options) {
        if (option.bandwidth_gb_s <= 0) continue;
        if (best == nullptr || option.predicted_us < best->predicted_us) best = &option;
    }
    if (best == nullptr) {
        return fail(
            ErrorCode::unsupported,
            fmt::format("NCCL does not run this operation with algorithm {} and protocol {}",
                        to_name(settings.algorithm), to_name(settings.protocol)),
            "collective settings", "set algorithm to automatic or ring");
    }
    choice.option = *best;
    choice.split = nccl_split(graph, best->algorithm, best->protocol, bytes, settings.channels);
    return choice;
}

}  // namespace draftboard::sim
