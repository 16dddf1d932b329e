// SPDX-License-Identifier: Apache-2.0
#include "sim/nccl_collective.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace draftboard::sim {

using model::Expected;
using model::OperationKind;
using Terms = CollectiveTerms;

namespace {

// NCCL 2.30.7, src/include/{device,collectives}.h: one of 8 steps of a connection's buffer is 32
// KiB of LL data and 562.5 KiB of LL128 data; Simple moves chunks of 4 steps of 512 KiB in slices
// of 2.
constexpr double kLlChunkBytes = 32 * 1024;
constexpr double kLl128ChunkBytes = 576'000;
constexpr double kSimpleChunkBytes = 2 * 1024 * 1024;
constexpr int kSimpleSlices = 2;
constexpr double kLeastSliceBytes = 32 * 1024;  // a slice is cut no smaller than 1/32 of its 1 MiB
constexpr double kLlBytesPerThread = 8;         // and 8 of flags
constexpr double kLl128BytesPerThread = 60;     // of 64
constexpr double kLlWire = 2.0;
constexpr double kLl128Wire = 128.0 / 120.0;

constexpr std::size_t kMaxRemembered = 65'536;

}  // namespace

const TransportConstants& NcclCollectives::of(Transport transport) const {
    switch (transport) {
        case Transport::peer: return constants_.peer;
        case Transport::staged: return constants_.staged;
        case Transport::nvlink: return constants_.nvlink;
    }
    return constants_.peer;
}

NcclBelief NcclCollectives::belief() const {
    return {constants_.inter_cpu_gb_s, static_cast<int>(constants_.peer_ranks)};
}

/// Tree is asked of all-reduces alone, as NCCL_ALGO="allreduce:tree" does; nothing else has one in a node.
CollectiveSettings NcclCollectives::settings_for(OperationKind operation) const {
    CollectiveSettings result = settings_;
    if (operation != OperationKind::all_reduce && result.algorithm == Algorithm::tree) {
        result.algorithm = Algorithm::automatic;
    }
    return result;
}

Expected<const NcclCollectives::Ring*> NcclCollectives::ring_of(const std::vector<int>& gpus) {
    const auto known = rings_.find(gpus);
    if (known != rings_.end()) return &known->second;
    auto graph = nccl_graph(machine_, router_, gpus, settings_, belief());
    if (!graph) return tl::unexpected(graph.error());
    Ring ring;
    ring.graph = std::move(*graph);
    const std::size_t n = ring.graph.ring.size();
    for (std::size_t i = 0; i < n; ++i) {
        auto path = network_.between(ring.graph.ring[i], ring.graph.ring[(i + 1) % n],
                                    ring.graph.peer[i]);
        if (!path) return tl::unexpected(path.error());
        ring.paths.push_back(std::move(*path));
    }
    if (rings_.size() > kMaxRemembered) rings_.clear();
    return &rings_.emplace(gpus, std::move(ring)).first->second;
}

double NcclCollectives::efficiency(const TransferPath& path, Protocol protocol) const {
    const TransportConstants& c = of(path.transport);
    return protocol == Protocol::simple ? c.simple_efficiency : c.ll_efficiency;
}

Expected<std::vector<TransferPath>> NcclCollectives::all_pairs(const std::vector<int>& gpus) const {
    const int ranks = static_cast<int>(gpus.size());
    // NCCL decides per pair as it does for the ring.
    return network_.all_pairs(gpus, [&](int from, int to) {
        return nccl_reaches(machine_, router_, settings_, from, to, ranks, belief());
    });
}

NcclCollectives::RingPlan NcclCollectives::plan_ring(const Ring& ring, OperationKind operation, double bytes,
                                 const CollectiveChoice& choice, int threads) const {
    RingPlan plan;
    const double n = static_cast<double>(ring.paths.size());
    const double channels = choice.channels;
    const bool simple = choice.protocol == Protocol::simple;
    const bool ll = choice.protocol == Protocol::ll;
    const double chunk = simple ? kSimpleChunkBytes : (ll ? kLlChunkBytes : kLl128ChunkBytes);
    const double expansion = simple ? 1.0 : (ll ? kLlWire : kLl128Wire);
    const double trip = threads * (ll ? kLlBytesPerThread : kLl128BytesPerThread);
    const double share = bytes / (n * channels);
    plan.loops = std::max(1.0, std::ceil(share / chunk));
    const double piece = share / plan.loops;
    plan.trips = simple ? 1.0 : std::max(1.0, std::ceil(piece / trip - 1e-9));

    RingSchedule& schedule = plan.schedule;
    schedule.steps =
        static_cast<int>(operation == OperationKind::all_reduce ? 2 * (n - 1) : n - 1);
    if (operation == OperationKind::send_receive) schedule.steps = 1;
    // A trip waits for no more than the trip of the step before with the same lines, so trips follow each other as
    // slices do: seen on hops over switches (8 and 16 GPUs, rtx6kpro@e2c2b95, b12x#139). Hops through a CPU or its
    // memory show their latency at every step: times grow by the same trip from the first on (L40S and RTX PRO 6000
    // without peer access, two Turin sockets with it).
    schedule.slices = simple ? std::clamp(static_cast<int>(std::ceil(piece / kLeastSliceBytes)),
                                          1, kSimpleSlices)
                             : static_cast<int>(plan.trips);
    schedule.bytes = piece * channels * expansion;

    std::vector<TransferPath> paths;
    for (const TransferPath& raw : ring.paths) {
        TransferPath path = with_efficiency(raw, efficiency(raw, choice.protocol));
        if (simple) {
            path.rate_cap =
                std::min(path.rate_cap, channels * of(raw.transport).channel_gb_s * 1e9);
        }
        paths.push_back(std::move(path));
    }
    plan.rates = shared_rates(network_, paths);
    double slowest = std::numeric_limits<double>::infinity();
    double ends_us = 0;
    for (std::size_t r = 0; r < paths.size(); ++r) {
        const TransportConstants& c = of(paths[r].transport);
        RingHop hop;
        hop.uses = paths[r].uses;
        hop.rate_cap = paths[r].rate_cap;
        hop.latency_us = paths[r].latency_us +
                         (simple ? c.simple_hop_us : (ll ? c.ll_hop_us : c.ll128_hop_us));
        if (simple) schedule.slice_us = std::max(schedule.slice_us, c.simple_slice_us);
        if (!simple && plan.trips > 1) {
            const double trip_us = ll ? c.ll_trip_us : c.ll128_trip_us;
            hop.streams = !paths[r].through_cpu;
            const double wire_us = schedule.bytes / plan.trips / plan.rates[r] * 1e6;
            const double period = std::max(trip_us, wire_us);
            hop.least_us = hop.streams ? plan.trips * trip_us : wire_us + (plan.trips - 1) * period;
            // The first step's bytes take the wire as long as any other's.
            if (ll) ends_us = std::max(ends_us, (plan.trips - 1) * (c.ll_ends_us - period));
        }
        slowest = std::min(slowest, plan.rates[r]);
        plan.hop_us += hop.latency_us / n;
        schedule.hops.push_back(std::move(hop));
    }
    plan.slowest_gb_s = slowest * 1e-9;
    plan.drain_us = simple ? constants_.simple_drain * schedule.bytes / slowest * 1e6
                           : ends_us;
    return plan;
}

Terms NcclCollectives::price_ring(const Ring& ring, OperationKind operation, double bytes,
                               const CollectiveChoice& choice, int threads) const {
    const RingPlan plan = plan_ring(ring, operation, bytes, choice, threads);
    const double loop_us = pipeline_us(plan.schedule, plan.rates);
    RingSchedule empty = plan.schedule;
    empty.bytes = 0;
    for (RingHop& hop : empty.hops) hop.least_us = 0;
    Terms terms;
    terms.latency_us = constants_.kernel_us + pipeline_us(empty, plan.rates);
    const double total = constants_.kernel_us + plan.loops * (loop_us + plan.drain_us);
    terms.transport_us = std::max(0.0, total - terms.latency_us);
    terms.formula = fmt::format(
        "ring {}: kernel {:.2f} us + {:.0f} loop(s) x ({} steps of {:.0f} B on the wire at "
        "{:.2f} GB/s over "
        "{} channel(s), hops {:.2f} us, {} trip(s): {:.2f} us + ends {:.2f} us) = "
        "{:.2f} us",
        to_name(choice.protocol), constants_.kernel_us, plan.loops, plan.schedule.steps,
        plan.schedule.bytes, plan.slowest_gb_s, choice.channels, plan.hop_us, plan.trips,
        loop_us, plan.drain_us, total);
    return terms;
}

// Inside one node a chain, reduced up while broadcast down.
Terms NcclCollectives::price_tree(const Ring& ring, double bytes, const CollectiveChoice& choice,
                               int threads) const {
    const std::size_t n = ring.paths.size();
    const bool simple = choice.protocol == Protocol::simple;
    const bool ll = choice.protocol == Protocol::ll;
    const double expansion = simple ? 1.0 : (ll ? kLlWire : kLl128Wire);
    const double channels = choice.channels;
    // The chain leaves out the ring's closing hop and uses the others both ways; routes are
    // taken as symmetric in latency.
    std::vector<TransferPath> paths;
    double hops_us = 0;
    for (std::size_t r = 0; r + 1 < n; ++r) {
        const TransferPath& raw = ring.paths[r];
        const TransportConstants& c = of(raw.transport);
        for (int direction = 0; direction < 2; ++direction) {
            TransferPath path = with_efficiency(raw, efficiency(raw, choice.protocol));
            if (direction == 1) {
                for (ResourceUse& use : path.uses) use.resource ^= 1;
            }
            if (simple)
                path.rate_cap = std::min(path.rate_cap, channels * c.channel_gb_s * 0.5e9);
            paths.push_back(std::move(path));
        }
        hops_us += 2 * (raw.latency_us + (simple ? c.simple_hop_us + c.simple_slice_us
                                                 : (ll ? c.ll_hop_us : c.ll128_hop_us)));
    }
    const std::vector<double> rates = shared_rates(network_, paths);
    const double slowest = *std::min_element(rates.begin(), rates.end());
    const double chunk =
        simple ? kSimpleChunkBytes / 4 : (ll ? kLlChunkBytes : kLl128ChunkBytes);
    // Pieces that follow each other down the chain; at least eight so that it fills, if large
    // enough.
    const double piece =
        std::min({bytes / channels, chunk, std::max(bytes / channels / 8, 16384.0)});
    double piece_us = piece * channels * expansion / slowest * 1e6;
    if (!simple) {
        double trip_us = 0;
        for (const TransferPath& path : paths) {
            const TransportConstants& c = of(path.transport);
            trip_us = std::max(trip_us, ll ? c.ll_trip_us : c.ll128_trip_us);
        }
        const double trips =
            std::ceil(piece / (threads * (ll ? kLlBytesPerThread : kLl128BytesPerThread)));
        piece_us += std::max(0.0, trips - 1) * trip_us;
    }
    const double pieces = bytes > 0 ? bytes / channels / piece : 0;
    const double fill_steps = 2.0 * static_cast<double>(n - 1);
    Terms terms;
    terms.latency_us = constants_.kernel_us + hops_us;
    terms.transport_us = (fill_steps + std::max(0.0, pieces - 1)) * piece_us;
    terms.formula = fmt::format(
        "tree {} (a chain of {}): kernel {:.2f} us + {:.0f} hops {:.2f} us + ({:.0f} + {:.1f} "
        "pieces) x {:.2f} us "
        "at {:.2f} GB/s = {:.2f} us",
        to_name(choice.protocol), n, constants_.kernel_us, fill_steps, hops_us, fill_steps,
        std::max(0.0, pieces - 1), piece_us, slowest * 1e-9,
        terms.latency_us + terms.transport_us);
    return terms;
}

Terms NcclCollectives::price_nvls(const Ring& ring, OperationKind operation, double bytes) const {
    const double n = static_cast<double>(ring.paths.size());
    double capacity = std::numeric_limits<double>::infinity();
    for (const TransferPath& path : ring.paths) capacity = std::min(capacity, path.rate_cap);
    // Each GPU's links carry its S bytes in and out once; gathers and scatters leave its own
    // part out.
    const double moved = operation == OperationKind::all_reduce ? bytes : bytes * (n - 1) / n;
    const double rate = constants_.nvls_efficiency * capacity;
    Terms terms;
    terms.latency_us = constants_.nvls_us;
    terms.transport_us = moved / rate * 1e6;
    terms.formula =
        fmt::format("NVLS: {:.2f} us + {:.0f} B at {:.1f} GB/s = {:.2f} us", terms.latency_us,
                    moved, rate * 1e-9, terms.latency_us + terms.transport_us);
    return terms;
}

Expected<Terms> NcclCollectives::price_exchange(const CollectiveRequest& request,
                                             const CollectiveChoice& choice) {
    const double n = static_cast<double>(request.gpus.size());
    auto pairs = all_pairs(request.gpus);
    if (!pairs) return tl::unexpected(pairs.error());
    const double per_peer = static_cast<double>(request.bytes) / n;
    const bool simple = choice.protocol == Protocol::simple;
    double hop_us = 0;
    double trip_us = 0;
    std::vector<TransferPath> paths;
    for (const TransferPath& raw : *pairs) {
        const TransportConstants& c = of(raw.transport);
        hop_us = std::max(hop_us, raw.latency_us + (simple ? c.simple_hop_us : c.ll_hop_us));
        trip_us = std::max(trip_us, 0.5 * c.ll_ends_us);  // senders and receivers are blocks of their own
        const double share = simple ? constants_.exchange_efficiency : 1.0;
        paths.push_back(with_efficiency(raw, share * efficiency(raw, choice.protocol)));
    }
    Terms terms;
    terms.latency_us = constants_.exchange_us + (n - 2) * constants_.exchange_peer_us + hop_us;
    // All pairs move the same bytes from the same instant: time is proportional to them.
    const std::pair<std::vector<int>, Protocol> key{request.gpus, choice.protocol};
    auto unit = exchange_s_per_byte_.find(key);
    if (unit == exchange_s_per_byte_.end()) {
        constexpr double kProbeBytes = 1e9;
        if (exchange_s_per_byte_.size() >= kMaxRemembered) exchange_s_per_byte_.clear();
        const double seconds = transfer_seconds(network_, paths, kProbeBytes);
        unit = exchange_s_per_byte_.emplace(key, seconds / kProbeBytes).first;
    }
    const double wire_us = unit->second * per_peer * (simple ? 1 : kLlWire) * 1e6;
    double blocks_us = 0;
    if (simple) {
        blocks_us =
            per_peer * (n - 1) / (choice.channels * constants_.exchange_channel_gb_s * 1e3);
    } else {
        const double trips = per_peer * (n - 1) / (512 * kLlBytesPerThread);
        blocks_us = trips * trip_us;
    }
    terms.transport_us = std::max(wire_us, blocks_us);
    terms.formula = fmt::format(
        "all_to_all {}: {:.2f} us + {:.0f} further peers x {:.2f} us + hop {:.2f} us + "
        "max(links {:.2f} us, blocks "
        "{:.2f} us) for {:.0f} B a peer = {:.2f} us",
        to_name(choice.protocol), constants_.exchange_us, n - 2, constants_.exchange_peer_us,
        hop_us, wire_us, blocks_us, per_peer, terms.latency_us + terms.transport_us);
    return terms;
}

Expected<Terms> NcclCollectives::price(const CollectiveRequest& request,
                                         CollectiveTime& time) {
    const auto known_ring = ring_of(request.gpus);
    if (!known_ring) return tl::unexpected(known_ring.error());
    const Ring& ring = **known_ring;
    const int ranks = static_cast<int>(request.gpus.size());
    const std::int64_t bytes = nccl_bytes(request.operation, request.bytes, ranks);
    const auto choice = nccl_choose(ring.graph, settings_for(request.operation), request.operation, bytes);
    if (!choice) return tl::unexpected(choice.error());
    CollectiveChoice& chosen = time.choice;
    chosen.algorithm = choice->option.algorithm;
    chosen.protocol = choice->option.protocol;
    chosen.nvls = choice->option.nvls;
    chosen.channels = choice->split.channels;
    chosen.through_host = ring.graph.through_host();
    chosen.search_failed = ring.graph.search_failed;
    chosen.predicted_us = choice->option.predicted_us;
    time.remarks.insert(time.remarks.end(), ring.graph.remarks.begin(),
                        ring.graph.remarks.end());
    if (chosen.through_host) {
        time.remarks.push_back(
            "hops without peer access are staged in host memory (SHM transport)");
    }
    if (chosen.protocol == Protocol::ll128 && !ring.graph.nvlink) {
        time.remarks.push_back(
            "LL128 over PCIe relies on 128-byte stores arriving whole; NCCL leaves it off for "
            "that reason");
    }
    if (request.operation == OperationKind::all_to_all)
        return price_exchange(request, chosen);
    const double payload = static_cast<double>(bytes);
    if (chosen.nvls) return price_nvls(ring, request.operation, payload);
    if (chosen.algorithm == Algorithm::tree) {
        return price_tree(ring, payload, chosen, choice->split.threads);
    }
    // A send is one step of a "ring" whose ranks each move the whole payload.
    const double whole =
        request.operation == OperationKind::send_receive ? payload * ranks : payload;
    return price_ring(ring, request.operation, whole, chosen, choice->split.threads);
}

Expected<void> NcclCollectives::sample(const CollectiveRequest& request, const CollectiveChoice& choice,
                                       const RatesCallback& on_rates) {
    const int ranks = static_cast<int>(request.gpus.size());
    const std::int64_t bytes = nccl_bytes(request.operation, request.bytes, ranks);
    if (request.operation == OperationKind::all_to_all) {
        auto paths = all_pairs(request.gpus);
        if (!paths) return tl::unexpected(paths.error());
        for (TransferPath& path : *paths) {
            const double share = efficiency(path, choice.protocol);
            path = with_efficiency(std::move(path), share);
        }
        (void)transfer_seconds(network_, *paths, static_cast<double>(bytes) / ranks, on_rates);
        return {};
    }
    const auto ring = ring_of(request.gpus);
    if (!ring) return tl::unexpected(ring.error());
    const auto again =
        nccl_choose((*ring)->graph, settings_for(request.operation), request.operation, bytes);
    if (!again) return tl::unexpected(again.error());
    const auto plan = plan_ring(**ring, request.operation, static_cast<double>(bytes), choice,
                                again->split.threads);
    (void)simulate_ring_us(plan.schedule, network_.capacities(), on_rates);
    return {};
}

}  // namespace draftboard::sim
