// SPDX-License-Identifier: Apache-2.0
// The fair-share network beside SimGrid's, on the same random tree and flows, in the same run: a star of
// stars as a PCIe box has it, all flows started together. Built where SimGrid is installed.
//
// SimGrid's kernel does more (actors, routing tables, energy, traces), so the ratio says what is saved by a
// network that can only do this, and not which of the two is better written.

#include <benchmark/benchmark.h>

#include <random>
#include <string>
#include <vector>

#include <simgrid/s4u.hpp>

#include "sim/engine.h"
#include "sim/link_network.h"

namespace {

using namespace draftboard;
namespace s4u = simgrid::s4u;

struct FlowCase {
    int from = 0;
    int to = 0;
    double bytes = 0;
};

constexpr int kHosts = 16;
constexpr double kCapacity = 50e9;

/// Host h hangs below switch h / 4; links: host up 2h, host down 2h + 1, switch up and down behind them.
std::vector<int> route(const FlowCase& flow) {
    std::vector<int> links{2 * flow.from};
    if (flow.from / 4 != flow.to / 4) {
        links.push_back(2 * kHosts + 2 * (flow.from / 4));
        links.push_back(2 * kHosts + 2 * (flow.to / 4) + 1);
    }
    links.push_back(2 * flow.to + 1);
    return links;
}

std::vector<FlowCase> flows(int count) {
    std::mt19937_64 random(1);
    std::vector<FlowCase> result;
    for (int i = 0; i < count; ++i) {
        FlowCase flow;
        flow.from = static_cast<int>(random() % kHosts);
        flow.to = static_cast<int>((static_cast<std::uint64_t>(flow.from) + 1 + random() % (kHosts - 1)) % kHosts);
        flow.bytes = 1e6 * static_cast<double>(1 + random() % 64);
        result.push_back(flow);
    }
    return result;
}

void ours(benchmark::State& state) {
    const auto cases = flows(static_cast<int>(state.range(0)));
    for (auto _ : state) {
        sim::Engine engine;
        sim::LinkNetwork network(engine, std::vector<double>(2 * kHosts + 8, kCapacity));
        for (const FlowCase& flow : cases) {
            sim::FlowSpec spec;
            for (const int link : route(flow)) spec.uses.push_back({link, 1.0});
            spec.bytes = flow.bytes;
            spec.latency = sim::from_us(0.7);
            network.start(std::move(spec));
        }
        benchmark::DoNotOptimize(engine.run());
    }
}

/// One engine lives for the whole program; each iteration starts the flows at the present time.
struct Platform {
    s4u::Engine* engine;
    std::vector<s4u::Host*> hosts;

    explicit Platform(int* argc, char** argv) : engine(new s4u::Engine(argc, argv)) {
        s4u::Engine::set_config("network/model:CM02");
        s4u::Engine::set_config("network/TCP-gamma:0");
        s4u::Engine::set_config("network/bandwidth-factor:1.0");
        s4u::Engine::set_config("network/latency-factor:1.0");
        s4u::Engine::set_config("network/weight-S:0");
        auto* zone = s4u::create_full_zone("box");
        std::vector<s4u::Link*> links;
        for (int i = 0; i < 2 * kHosts + 8; ++i) {
            links.push_back(zone->create_link("l" + std::to_string(i), kCapacity)->set_latency(0.7e-6 / 4)->seal());
        }
        for (int h = 0; h < kHosts; ++h) hosts.push_back(zone->create_host("h" + std::to_string(h), 1e9)->seal());
        for (int from = 0; from < kHosts; ++from) {
            for (int to = 0; to < kHosts; ++to) {
                if (from == to) continue;
                std::vector<s4u::LinkInRoute> on_route;
                for (const int link : route({from, to, 0})) on_route.emplace_back(links[static_cast<std::size_t>(link)]);
                zone->add_route(hosts[static_cast<std::size_t>(from)]->get_netpoint(),
                                hosts[static_cast<std::size_t>(to)]->get_netpoint(), nullptr, nullptr, on_route, false);
            }
        }
        zone->seal();
    }
};

Platform* platform = nullptr;

void simgrid_cm02(benchmark::State& state) {
    const auto cases = flows(static_cast<int>(state.range(0)));
    for (auto _ : state) {
        for (const FlowCase& flow : cases) {  // only an actor may send
            s4u::Host* from = platform->hosts[static_cast<std::size_t>(flow.from)];
            s4u::Host* to = platform->hosts[static_cast<std::size_t>(flow.to)];
            s4u::Actor::create("sender", from, [from, to, &flow] {
                s4u::Comm::sendto(from, to, static_cast<std::uint64_t>(flow.bytes));
            });
        }
        platform->engine->run();
    }
}

BENCHMARK(ours)->Arg(8)->Arg(56)->Arg(240)->Unit(benchmark::kMicrosecond);
BENCHMARK(simgrid_cm02)->Arg(8)->Arg(56)->Arg(240)->Unit(benchmark::kMicrosecond);

}  // namespace

int main(int argc, char** argv) {
    Platform the_platform(&argc, argv);
    platform = &the_platform;
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
