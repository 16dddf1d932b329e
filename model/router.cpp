// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/dijkstra_shortest_paths.hpp>
#include <boost/graph/filtered_graph.hpp>
#include <limits>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "model/fabric_tree.h"
#include "model/machine.h"

namespace draftboard::model {

namespace {

// IOMMU translating every DMA: 15 % less for a single flow (rtx6kpro@e2c2b95).
constexpr double kTranslatedEfficiency = 0.85;
// Without the driver's ForceP2P keys a kernel's peer loads across a host bridge go through system
// memory: about 15 times slower, while copies keep their speed (rtx6kpro@e2c2b95).
constexpr double kStagedKernelFactor = 15;

/// What Dijkstra minimises: latency, then hops.
struct Cost {
    double latency_ns = 0;
    int hops = 0;
    bool operator<(const Cost& other) const {
        return latency_ns != other.latency_ns ? latency_ns < other.latency_ns : hops < other.hops;
    }
};
constexpr Cost kUnreachable{std::numeric_limits<double>::infinity(),
                            std::numeric_limits<int>::max() / 2};

struct Edge {
    int link = 0;
    bool forward = true;
    Cost cost;
};

using Graph =
    boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, boost::no_property, Edge>;
using EdgeId = boost::graph_traits<Graph>::edge_descriptor;

/// Which links a search may use.
enum class Fabric {
    nvlink,        ///< NVLink alone
    pcie,          ///< everything but NVLink
    visible_pcie,  ///< as pcie, without paths inside switch chips (ACS sends all traffic upwards)
};

bool is_chip_path(const Machine& machine, const MachineLink& link) {
    return link.kind == LinkKind::internal && !is_fabric_link(machine, link);
}

/// Lets data out of the search's source and through nodes that forward, never through a GPU, a NIC
/// or a memory.
struct Passable {
    const Graph* graph = nullptr;
    const Machine* machine = nullptr;
    int source = 0;
    Fabric fabric = Fabric::pcie;

    bool operator()(const EdgeId& id) const {
        const MachineLink& link = machine->links[(*graph)[id].link];
        if ((link.kind == LinkKind::nvlink) != (fabric == Fabric::nvlink)) return false;
        if (fabric == Fabric::visible_pcie && is_chip_path(*machine, link)) return false;
        const int from = static_cast<int>(boost::source(id, *graph));
        if (from == source) return true;
        switch (machine->nodes[from].kind) {
            case NodeKind::pcie_switch:
            case NodeKind::root_port:
            case NodeKind::numa_node:
            case NodeKind::nvswitch: return true;
            case NodeKind::gpu:
            case NodeKind::nic:
            case NodeKind::host_memory: return false;
        }
        return false;
    }
};

}  // namespace

struct Router::Impl {
    Machine machine;
    std::vector<Problem> problems;
    Graph graph;
    FabricTree tree;
    std::vector<int> gpus;
    /// NVLinks per GPU node and what they lead to: another GPU, or a group of joined NVSwitches
    /// (named by its lowest node). The pair's key is (GPU node, other node).
    std::map<std::pair<int, int>, int> nvlink_widths;
    std::vector<std::vector<int>> nvswitch_groups;  ///< per node: groups that a GPU is linked to

    explicit Impl(const Machine& given) : machine(given), problems(given.validate()) {
        if (!problems.empty()) return;  // Boost.Graph sees sound graphs only
        for (std::size_t i = 0; i < machine.nodes.size(); ++i) boost::add_vertex(graph);
        for (std::size_t i = 0; i < machine.links.size(); ++i) {
            const MachineLink& link = machine.links[i];
            const int index = static_cast<int>(i);
            const Cost cost{link.latency_ns, 1};
            boost::add_edge(link.a, link.b, Edge{index, true, cost}, graph);
            boost::add_edge(link.b, link.a, Edge{index, false, cost}, graph);
        }
        tree = build_fabric_tree(machine);
        gpus = machine.gpus();
        collect_nvlinks();
    }

    void collect_nvlinks() {
        std::vector<int> group(machine.nodes.size());
        for (std::size_t i = 0; i < group.size(); ++i) group[i] = static_cast<int>(i);
        const auto find = [&](int x) {
            while (group[x] != x) x = group[x] = group[group[x]];
            return x;
        };
        const auto is_gpu = [&](int node) { return machine.nodes[node].kind == NodeKind::gpu; };
        for (const MachineLink& link : machine.links) {
            if (link.kind != LinkKind::nvlink || is_gpu(link.a) || is_gpu(link.b)) continue;
            const int a = find(link.a);
            const int b = find(link.b);
            group[std::max(a, b)] = std::min(a, b);
        }
        nvswitch_groups.resize(machine.nodes.size());
        const auto note = [&](int gpu, int other, int width) {
            if (!is_gpu(gpu)) return;
            const int to = is_gpu(other) ? other : find(other);
            int& total = nvlink_widths[{gpu, to}];
            if (total == 0 && !is_gpu(other)) nvswitch_groups[gpu].push_back(to);
            total += std::max(1, width);
        };
        for (const MachineLink& link : machine.links) {
            if (link.kind != LinkKind::nvlink) continue;
            note(link.a, link.b, link.width);
            note(link.b, link.a, link.width);
        }
    }

    [[nodiscard]] int width_between(int node_a, int node_b) const {
        if (const auto direct = nvlink_widths.find({node_a, node_b});
            direct != nvlink_widths.end()) {
            return direct->second;
        }
        int best = 0;
        for (const int group : nvswitch_groups[node_a]) {
            const auto other = nvlink_widths.find({node_b, group});
            if (other == nvlink_widths.end()) continue;
            best = std::max(best, std::min(nvlink_widths.at({node_a, group}), other->second));
        }
        return best;
    }

    [[nodiscard]] bool known(int gpu) const {
        return problems.empty() && gpu >= 0 && gpu < static_cast<int>(gpus.size());
    }

    /// Ordinals that may be asked for, or why not.
    [[nodiscard]] std::optional<Error> refuse(int gpu) const {
        if (!problems.empty()) return to_error(problems, machine.name);
        if (known(gpu)) return std::nullopt;
        return Error{ErrorCode::not_found,
                     fmt::format("there is no GPU {}, the machine has {}", gpu, gpus.size()),
                     machine.name, "GPUs are counted from 0"};
    }

    /// Shortest ways from one node: per node the edge that leads to it, and its cost.
    struct Ways {
        std::vector<int> predecessor;
        std::vector<Cost> cost;
    };
    [[nodiscard]] Ways ways_from(int source, Fabric fabric) const {
        const std::size_t count = machine.nodes.size();
        const boost::filtered_graph<Graph, Passable> passable(
            graph, Passable{&graph, &machine, source, fabric});
        std::vector<Graph::vertex_descriptor> predecessor(count);
        std::vector<Cost> cost(count);
        const auto combine = [](const Cost& a, const Cost& b) {
            return Cost{a.latency_ns + b.latency_ns, a.hops + b.hops};
        };
        boost::dijkstra_shortest_paths(
            passable, static_cast<std::size_t>(source),
            boost::predecessor_map(boost::make_iterator_property_map(
                                       predecessor.begin(), get(boost::vertex_index, graph)))
                .distance_map(boost::make_iterator_property_map(cost.begin(),
                                                                get(boost::vertex_index, graph)))
                .weight_map(get(&Edge::cost, graph))
                .distance_compare([](const Cost& a, const Cost& b) { return a < b; })
                .distance_combine(combine)
                .distance_inf(kUnreachable)
                .distance_zero(Cost{}));
        Ways ways;
        ways.cost = std::move(cost);
        ways.predecessor.assign(predecessor.begin(), predecessor.end());
        return ways;
    }

    /// Hops from source to target, appended. False if there is no way.
    bool append_way(int source, int target, Fabric fabric, std::vector<Hop>& hops) const {
        const Ways ways = ways_from(source, fabric);
        if (!(ways.cost[target] < kUnreachable)) return false;
        const Passable passable{&graph, &machine, source, fabric};
        const auto first = static_cast<std::ptrdiff_t>(hops.size());
        for (int node = target; node != source; node = ways.predecessor[node]) {
            // Between two nodes at most one link of each kind; the cheapest that may be passed.
            const Edge* best = nullptr;
            const auto [begin, end] = boost::out_edges(ways.predecessor[node], graph);
            for (auto it = begin; it != end; ++it) {
                if (static_cast<int>(boost::target(*it, graph)) != node || !passable(*it)) continue;
                if (best == nullptr || graph[*it].cost < best->cost) best = &graph[*it];
            }
            if (best == nullptr) return false;
            hops.push_back({best->link, best->forward});
        }
        std::reverse(hops.begin() + first, hops.end());
        return true;
    }

    [[nodiscard]] PathType path_type(int gpu_a, int gpu_b) const {
        if (!known(gpu_a) || !known(gpu_b)) return PathType::disconnected;
        if (gpu_a == gpu_b) return PathType::self;
        if (width_between(gpus[gpu_a], gpus[gpu_b]) > 0) return PathType::nvlink;
        return fabric_path_type(machine, tree, gpus[gpu_a], gpus[gpu_b]);
    }

    /// Fills in what the hops and the rules make of them.
    void price(Route& route, TransferKind kind) const {
        bool crosses_root = false;
        for (const Hop& hop : route.hops) {
            const MachineLink& link = machine.links[hop.link];
            for (const int end : {link.a, link.b}) {
                const NodeKind node = machine.nodes[end].kind;
                crosses_root =
                    crosses_root || node == NodeKind::root_port || node == NodeKind::numa_node;
            }
        }
        if (crosses_root && machine.peer.iommu == IommuMode::translated) {
            route.efficiency = kTranslatedEfficiency;
            route.remarks.push_back(
                fmt::format("IOMMU translates every access: x{}", kTranslatedEfficiency));
        }
        route.latency_ns = 0;
        route.bottleneck_gb_s = std::numeric_limits<double>::infinity();
        for (const Hop& hop : route.hops) {
            const MachineLink& link = machine.links[hop.link];
            const LinkCapacity& capacity = hop.forward ? link.forward : link.backward;
            double allowed = kind == TransferKind::write ? capacity.write_gb_s : capacity.read_gb_s;
            if (link.flow_gb_s > 0) allowed = std::min(allowed, link.flow_gb_s);
            route.bottleneck_gb_s = std::min(route.bottleneck_gb_s, allowed);
            route.latency_ns += link.latency_ns;
        }
        route.bottleneck_gb_s *= route.efficiency;
    }

    [[nodiscard]] tl::unexpected<Error> no_way(const std::string& from,
                                               const std::string& to) const {
        return fail(ErrorCode::invalid_input,
                    fmt::format("no path from \"{}\" to \"{}\"", from, to), machine.name,
                    "add the missing link to the machine file");
    }

    /// GPU and memory of NUMA node `numa`; to_host: from the GPU to the memory.
    [[nodiscard]] Expected<Route> host_route(int gpu, int numa, TransferKind kind,
                                             bool to_host) const {
        if (auto refused = refuse(gpu)) return tl::unexpected(*refused);
        const int root = tree.root[gpus[gpu]];
        int home = root;
        if (numa >= 0) {
            home = -1;
            for (std::size_t i = 0; i < machine.nodes.size(); ++i) {
                if (machine.nodes[i].kind == NodeKind::numa_node && machine.nodes[i].numa == numa) {
                    home = static_cast<int>(i);
                }
            }
            if (home < 0) {
                return fail(ErrorCode::not_found, fmt::format("there is no NUMA node {}", numa),
                            machine.name, "-1 stands for the GPU's own");
            }
        }
        const Ways ways = ways_from(home, Fabric::pcie);
        int memory = -1;
        for (std::size_t i = 0; i < machine.nodes.size(); ++i) {
            if (machine.nodes[i].kind != NodeKind::host_memory || !(ways.cost[i] < kUnreachable)) {
                continue;
            }
            if (memory < 0 || ways.cost[i] < ways.cost[memory]) memory = static_cast<int>(i);
        }
        if (memory < 0) return no_way(machine.nodes[gpus[gpu]].id, "host memory");
        const int from = to_host ? gpus[gpu] : memory;
        const int to = to_host ? memory : gpus[gpu];
        Route route;
        // Climbing to the host and coming down from it never takes a path inside a switch chip.
        if (!append_way(from, to, Fabric::visible_pcie, route.hops)) {
            return no_way(machine.nodes[from].id, machine.nodes[to].id);
        }
        route.type = home == root ? PathType::phb : PathType::sys;
        price(route, kind);
        return route;
    }
};

Router::Router(const Machine& machine) : impl_(std::make_unique<Impl>(machine)) {}
Router::~Router() = default;
Router::Router(Router&&) noexcept = default;
Router& Router::operator=(Router&&) noexcept = default;

int Router::gpu_count() const { return static_cast<int>(impl_->gpus.size()); }

int Router::numa_of(int gpu) const {
    if (!impl_->known(gpu)) return -1;
    return impl_->machine.nodes[impl_->tree.root[impl_->gpus[gpu]]].numa;
}

PathType Router::path_type(int gpu_a, int gpu_b) const { return impl_->path_type(gpu_a, gpu_b); }

int Router::nvlinks(int gpu_a, int gpu_b) const {
    if (!impl_->known(gpu_a) || !impl_->known(gpu_b) || gpu_a == gpu_b) return 0;
    return impl_->width_between(impl_->gpus[gpu_a], impl_->gpus[gpu_b]);
}

bool Router::peer_reachable(int gpu_a, int gpu_b) const {
    const PathType type = path_type(gpu_a, gpu_b);
    if (type == PathType::disconnected) return false;
    if (type == PathType::self) return true;
    return impl_->machine.peer.enabled && type <= impl_->machine.peer.level;
}

Expected<Route> Router::gpu_to_gpu(int source, int destination, TransferKind kind) const {
    for (const int gpu : {source, destination}) {
        if (auto refused = impl_->refuse(gpu)) return tl::unexpected(*refused);
    }
    const Machine& machine = impl_->machine;
    if (source == destination) {
        return fail(ErrorCode::invalid_input,
                    fmt::format("GPU {} to itself crosses no link", source), machine.name,
                    "name two different GPUs");
    }
    Route route;
    route.type = path_type(source, destination);
    if (!peer_reachable(source, destination)) {
        return fail(
            ErrorCode::unsupported,
            machine.peer.enabled
                ? fmt::format("GPU {} and GPU {} are {} apart and peer access ends at {}", source,
                              destination, to_name(route.type), to_name(machine.peer.level))
                : fmt::format("GPU {} and GPU {} can't reach each other: peer access is "
                              "off",
                              source, destination),
            machine.name, "stage the transfer in host memory, or change /peer");
    }
    const int from = impl_->gpus[source];
    const int to = impl_->gpus[destination];
    if (route.type == PathType::nvlink) {
        if (!impl_->append_way(from, to, Fabric::nvlink, route.hops)) {
            return impl_->no_way(machine.nodes[from].id, machine.nodes[to].id);
        }
        impl_->price(route, kind);
        return route;
    }
    const Fabric fabric = machine.peer.acs_redirect ? Fabric::visible_pcie : Fabric::pcie;
    int turn = -1;  // node at which ACS makes the way turn
    const int meeting = impl_->tree.lowest_common_ancestor(from, to);
    if (machine.peer.acs_redirect && meeting >= 0 &&
        machine.nodes[meeting].kind == NodeKind::pcie_switch) {
        turn = impl_->tree.root_port(machine, from);
        if (turn < 0) turn = impl_->tree.root[from];
        // Measured behind one switch: 52.4 GB/s one way as without, 51 both ways together where
        // 103 are possible (rtx6kpro@e2c2b95; EPYC 4564P with a PM50100).
        route.remarks.push_back(fmt::format(
            "ACS redirect: turns at \"{}\"; its link carries every flow up and down, so "
            "both directions together get half",
            machine.nodes[turn].id));
    }
    const bool found = turn < 0 ? impl_->append_way(from, to, fabric, route.hops)
                                : impl_->append_way(from, turn, fabric, route.hops) &&
                                      impl_->append_way(turn, to, fabric, route.hops);
    if (!found) return impl_->no_way(machine.nodes[from].id, machine.nodes[to].id);
    impl_->price(route, kind);
    if (!machine.peer.force_p2p && route.type >= PathType::phb) {
        route.kernel_access_factor = kStagedKernelFactor;
        route.remarks.push_back(fmt::format(
            "no ForceP2P keys: kernel loads and stores go through system memory, {} times slower; "
            "copies are not affected",
            kStagedKernelFactor));
    }
    return route;
}

Expected<Route> Router::gpu_to_host(int gpu, int numa, TransferKind kind) const {
    return impl_->host_route(gpu, numa, kind, true);
}

Expected<Route> Router::host_to_gpu(int gpu, int numa, TransferKind kind) const {
    return impl_->host_route(gpu, numa, kind, false);
}

Expected<StagedRoute> Router::host_staged(int source, int destination) const {
    if (auto refused = impl_->refuse(destination)) return tl::unexpected(*refused);
    const int numa = numa_of(destination);
    auto first = gpu_to_host(source, numa, TransferKind::write);
    if (!first) return tl::unexpected(first.error());
    auto second = host_to_gpu(destination, numa, TransferKind::read);
    if (!second) return tl::unexpected(second.error());
    return StagedRoute{std::move(*first), std::move(*second)};
}

std::string topology_table(const Machine& machine) {
    const Router router(machine);
    const int count = router.gpu_count();
    std::string text;
    for (int i = 0; i < count; ++i) text += fmt::format("\tGPU{}", i);
    text += "\tNUMA Affinity\n";
    for (int i = 0; i < count; ++i) {
        text += fmt::format("GPU{}", i);
        for (int j = 0; j < count; ++j) {
            const PathType type = router.path_type(i, j);
            if (type == PathType::self)
                text += "\t X ";
            else if (type == PathType::nvlink)
                text += fmt::format("\tNV{}", router.nvlinks(i, j));
            else
                text += fmt::format("\t{}", to_name(type));
        }
        text += fmt::format("\t{}\n", router.numa_of(i));
    }
    return text;
}

}  // namespace draftboard::model
