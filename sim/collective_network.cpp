// SPDX-License-Identifier: Apache-2.0
#include "sim/collective_network.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "model/fabric_tree.h"

namespace draftboard::sim {

using model::Expected;
using model::Route;
using model::TransferKind;

namespace {

constexpr double kBytesPerGb = 1e9;

}  // namespace

CollectiveNetwork::CollectiveNetwork(const model::Machine& machine, const model::Router& router)
    : machine_(machine), router_(router) {
    capacities_.reserve(machine.links.size() * 2);
    for (const model::MachineLink& link : machine.links) {
        capacities_.push_back(link.forward.write_gb_s * kBytesPerGb);
        capacities_.push_back(link.backward.write_gb_s * kBytesPerGb);
    }
    if (machine.write_collapse.empty()) return;
    const model::FabricTree tree = model::build_fabric_tree(machine);
    const std::vector<int> gpus = machine.gpus();
    for (const model::WriteCollapseRule& rule : machine.write_collapse) {
        for (const int at : rule.switches) {
            Group group;
            group.uplink = tree.parent_link[static_cast<std::size_t>(at)];
            for (std::size_t ordinal = 0; ordinal < gpus.size(); ++ordinal) {
                int node = gpus[ordinal];
                for (int climbed = 0; node >= 0 && node != at && climbed <= model::kMaxNodes;
                     ++climbed) {
                    node = tree.parent[static_cast<std::size_t>(node)];
                }
                if (node == at) group.members.push_back(static_cast<int>(ordinal));
            }
            groups_.push_back({rule.min_sources, rule.aggregate_gb_s * kBytesPerGb});
            group_members_.push_back(std::move(group));
        }
    }
}

void CollectiveNetwork::add(const Route& route, TransferKind kind, TransferPath& path) const {
    const double efficiency = std::max(route.efficiency, 1e-3);
    for (const model::Hop& hop : route.hops) {
        const model::MachineLink& link = machine_.links[static_cast<std::size_t>(hop.link)];
        const model::LinkCapacity& capacity = hop.forward ? link.forward : link.backward;
        double weight = 1 / efficiency;
        if (kind == TransferKind::read && capacity.read_gb_s > 0) {
            weight *= capacity.write_gb_s / capacity.read_gb_s;
        }
        path.uses.push_back({2 * hop.link + (hop.forward ? 0 : 1), weight});
        for (const int end : {link.a, link.b}) {
            path.through_cpu = path.through_cpu || machine_.nodes[static_cast<std::size_t>(end)].kind ==
                                                       model::NodeKind::numa_node;
        }
    }
    path.rate_cap = std::min(path.rate_cap, route.bottleneck_gb_s * kBytesPerGb);
    path.latency_us += route.latency_ns * 1e-3;
    path.kernel_factor = std::max(path.kernel_factor, route.kernel_access_factor);
}

Expected<TransferPath> CollectiveNetwork::between(int from, int to, bool peer) const {
    TransferPath path;
    path.source = from;
    path.rate_cap = std::numeric_limits<double>::infinity();
    if (!peer) {
        path.transport = Transport::staged;
        const auto staged = router_.host_staged(from, to);
        if (!staged) return tl::unexpected(staged.error());
        add(staged->first, TransferKind::write, path);
        add(staged->second, TransferKind::read, path);
    } else {
        path.transport = router_.nvlinks(from, to) > 0 ? Transport::nvlink : Transport::peer;
        const auto route = router_.gpu_to_gpu(from, to, TransferKind::write);
        if (!route) return tl::unexpected(route.error());
        add(*route, TransferKind::write, path);
    }
    if (path.transport == Transport::nvlink) return path;
    for (std::size_t g = 0; g < group_members_.size(); ++g) {
        const Group& group = group_members_[g];
        const auto has = [&group](int gpu) {
            return std::find(group.members.begin(), group.members.end(), gpu) != group.members.end();
        };
        // A way inside a switch chip, from one virtual switch to the next, does not climb the uplink.
        const auto climbs = [&group](const ResourceUse& use) { return use.resource / 2 == group.uplink; };
        if (has(from) && !has(to) && std::any_of(path.uses.begin(), path.uses.end(), climbs)) {
            path.group = static_cast<int>(g);
        }
    }
    return path;
}

Expected<TransferPath> CollectiveNetwork::pulled(int giver, int taker) const {
    TransferPath path;
    path.source = giver;
    path.transport = router_.nvlinks(giver, taker) > 0 ? Transport::nvlink : Transport::peer;
    path.rate_cap = std::numeric_limits<double>::infinity();
    const auto route = router_.gpu_to_gpu(giver, taker, TransferKind::read);
    if (!route) return tl::unexpected(route.error());
    add(*route, TransferKind::read, path);
    path.latency_us *= 2;
    return path;
}

Expected<TransferPath> CollectiveNetwork::to_host(int gpu, int numa) const {
    TransferPath path;
    path.source = gpu;
    path.transport = Transport::staged;
    path.rate_cap = std::numeric_limits<double>::infinity();
    const auto route = router_.gpu_to_host(gpu, numa, TransferKind::write);
    if (!route) return tl::unexpected(route.error());
    add(*route, TransferKind::write, path);
    return path;
}

Expected<TransferPath> CollectiveNetwork::from_host(int gpu, int numa) const {
    TransferPath path;
    path.source = gpu;
    path.transport = Transport::staged;
    path.rate_cap = std::numeric_limits<double>::infinity();
    const auto route = router_.host_to_gpu(gpu, numa, TransferKind::read);
    if (!route) return tl::unexpected(route.error());
    add(*route, TransferKind::read, path);
    return path;
}

Expected<std::vector<TransferPath>> CollectiveNetwork::all_pairs(
    const std::vector<int>& gpus, const std::function<bool(int from, int to)>& peer) const {
    if (static_cast<int>(gpus.size()) > kMaxExchangeRanks) {
        return model::fail(model::ErrorCode::too_large,
                           fmt::format("{} ranks that all send to each other", gpus.size()),
                           machine_.name, fmt::format("use at most {}", kMaxExchangeRanks));
    }
    std::vector<TransferPath> paths;
    paths.reserve(gpus.size() * gpus.size());
    for (const int from : gpus) {
        for (const int to : gpus) {
            if (from == to) continue;
            auto path = between(from, to, peer(from, to));
            if (!path) return tl::unexpected(path.error());
            paths.push_back(std::move(*path));
        }
    }
    return paths;
}

TransferPath with_efficiency(TransferPath path, double efficiency) {
    for (ResourceUse& use : path.uses) use.weight /= efficiency;
    path.rate_cap *= efficiency;
    return path;
}

namespace {

FlowSpec flow_of(const TransferPath& path, double bytes) {
    FlowSpec flow;
    flow.uses = path.uses;
    flow.bytes = bytes;
    flow.rate_cap = path.rate_cap;
    flow.source = path.source;
    flow.group = path.group;
    return flow;
}

}  // namespace

std::vector<double> shared_rates(const CollectiveNetwork& network,
                                 const std::vector<TransferPath>& paths) {
    std::vector<double> capacities = network.capacities();
    std::vector<std::vector<ResourceUse>> uses;
    std::vector<double> caps;
    for (const TransferPath& path : paths) {
        uses.push_back(path.uses);
        caps.push_back(path.rate_cap);
    }
    for (std::size_t g = 0; g < network.groups().size(); ++g) {
        std::vector<int> sources;
        for (const TransferPath& path : paths) {
            if (path.group == static_cast<int>(g)) sources.push_back(path.source);
        }
        std::sort(sources.begin(), sources.end());
        sources.erase(std::unique(sources.begin(), sources.end()), sources.end());
        if (static_cast<int>(sources.size()) < std::max(1, network.groups()[g].min_sources))
            continue;
        for (std::size_t f = 0; f < paths.size(); ++f) {
            if (paths[f].group == static_cast<int>(g)) {
                uses[f].push_back({static_cast<int>(capacities.size()), 1.0});
            }
        }
        capacities.push_back(network.groups()[g].rate);
    }
    return max_min_rates(capacities, uses, caps);
}

double transfer_seconds(const CollectiveNetwork& network, const std::vector<TransferPath>& paths,
                        double bytes_each,
                        const std::function<void(Time, const std::vector<double>&)>& on_rates) {
    Engine engine;
    LinkNetwork links(engine, network.capacities(), network.groups());
    links.on_rates = on_rates;
    Time last = 0;
    for (const TransferPath& path : paths) {
        FlowSpec flow = flow_of(path, bytes_each);
        flow.on_done = [&engine, &last] { last = engine.now(); };
        links.start(std::move(flow));
    }
    engine.run();
    return static_cast<double>(last) * 1e-12;
}

}  // namespace draftboard::sim
