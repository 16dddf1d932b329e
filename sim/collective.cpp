// SPDX-License-Identifier: Apache-2.0
#include "sim/collective.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "sim/collective_network.h"
#include "sim/collective_steps.h"
#include "sim/custom_collective.h"
#include "sim/nccl_tuner.h"

namespace draftboard::sim {

using model::ErrorCode;
using model::Expected;
using model::fail;
using model::OperationKind;

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

constexpr double kUncalibratedError = 0.3;
constexpr double kExtrapolatedError = 0.15;  // least, beyond what a fit saw
constexpr double kLeastError = 0.02;         // repeatability of the measurements
constexpr std::size_t kMaxRemembered = 65'536;
constexpr std::size_t kMaxSamples = 200'000;

struct Ring {
    NcclGraph graph;
    std::vector<TransferPath> paths;  // hop r: graph.ring[r] -> graph.ring[r+1]
};

using Terms = CollectiveTerms;

}  // namespace

struct CollectiveModel::Impl {
    using Key = std::tuple<OperationKind, std::int64_t, bool, std::vector<int>>;

    model::Machine machine;
    CollectiveSettings settings;
    CollectiveConstants constants;
    model::Router router;
    CollectiveNetwork network;
    std::map<std::vector<int>, Ring> rings;
    std::map<Key, CollectiveTime> remembered;
    std::map<std::pair<std::vector<int>, Protocol>, double> exchange_s_per_byte;

    Impl(const model::Machine& the_machine, CollectiveSettings the_settings,
         const CollectiveConstants& the_constants)
        : machine(the_machine),
          settings(the_settings),
          constants(the_constants),
          router(machine),
          network(machine, router) {}

    [[nodiscard]] const TransportConstants& of(Transport transport) const {
        switch (transport) {
            case Transport::peer: return constants.peer;
            case Transport::staged: return constants.staged;
            case Transport::nvlink: return constants.nvlink;
        }
        return constants.peer;
    }

    /// Tree is asked of all-reduces alone, as NCCL_ALGO="allreduce:tree" does; nothing else has one in a node.
    [[nodiscard]] CollectiveSettings settings_for(OperationKind operation) const {
        CollectiveSettings result = settings;
        if (operation != OperationKind::all_reduce && result.algorithm == Algorithm::tree) {
            result.algorithm = Algorithm::automatic;
        }
        return result;
    }

    [[nodiscard]] NcclBelief belief() const {
        return {constants.inter_cpu_gb_s, static_cast<int>(constants.peer_ranks)};
    }

    [[nodiscard]] Expected<bool> check(const CollectiveRequest& request) const {
        const std::string context = machine.name.empty() ? "collective" : machine.name;
        switch (request.operation) {
            case OperationKind::all_reduce:
            case OperationKind::all_gather:
            case OperationKind::reduce_scatter:
            case OperationKind::all_to_all:
            case OperationKind::send_receive: break;
            default:
                return fail(ErrorCode::invalid_input, "the operation is no collective", context,
                            "price it with the kernel model");
        }
        const int known = static_cast<int>(machine.gpus().size());
        if (request.gpus.empty()) {
            return fail(ErrorCode::invalid_input, "a collective needs at least one GPU", context,
                        "");
        }
        std::set<int> seen;
        for (const int gpu : request.gpus) {
            if (gpu < 0 || gpu >= known) {
                return fail(ErrorCode::invalid_input,
                            fmt::format("GPU {} does not exist: the machine has {}", gpu, known),
                            context, "use fewer ranks or another machine");
            }
            if (!seen.insert(gpu).second) {
                return fail(ErrorCode::invalid_input, fmt::format("GPU {} takes part twice", gpu),
                            context, "name each GPU once");
            }
        }
        if (request.bytes < 0 || request.bytes > kMaxCollectiveBytes) {
            return fail(ErrorCode::too_large, fmt::format("a message of {} bytes", request.bytes),
                        context, "give 0 to 2^50 bytes");
        }
        return true;
    }

    [[nodiscard]] Expected<const Ring*> ring_of(const std::vector<int>& gpus) {
        const auto known = rings.find(gpus);
        if (known != rings.end()) return &known->second;
        auto graph = nccl_graph(machine, router, gpus, settings, belief());
        if (!graph) return tl::unexpected(graph.error());
        Ring ring;
        ring.graph = std::move(*graph);
        const std::size_t n = ring.graph.ring.size();
        for (std::size_t i = 0; i < n; ++i) {
            auto path = network.between(ring.graph.ring[i], ring.graph.ring[(i + 1) % n],
                                        ring.graph.peer[i]);
            if (!path) return tl::unexpected(path.error());
            ring.paths.push_back(std::move(*path));
        }
        if (rings.size() > kMaxRemembered) rings.clear();
        return &rings.emplace(gpus, std::move(ring)).first->second;
    }

    [[nodiscard]] double efficiency(const TransferPath& path, Protocol protocol) const {
        const TransportConstants& c = of(path.transport);
        return protocol == Protocol::simple ? c.simple_efficiency : c.ll_efficiency;
    }

    // Ring
    // ------------------------------------------------------------------------------------------------
    //

    struct RingPlan {
        RingSchedule schedule;
        std::vector<double> rates;
        double loops = 1;
        double drain_us = 0;
        double trips = 1;
        double slowest_gb_s = 0;
        double hop_us = 0;  // mean
    };

    [[nodiscard]] RingPlan plan_ring(const Ring& ring, OperationKind operation, double bytes,
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
        schedule.slices = simple ? std::clamp(static_cast<int>(std::ceil(piece / kLeastSliceBytes)),
                                              1, kSimpleSlices)
                                 : 1;
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
        plan.rates = shared_rates(network, paths);
        double slowest = std::numeric_limits<double>::infinity();
        double slowest_trip = 0;
        for (std::size_t r = 0; r < paths.size(); ++r) {
            const TransportConstants& c = of(paths[r].transport);
            RingHop hop;
            hop.uses = paths[r].uses;
            hop.rate_cap = paths[r].rate_cap;
            hop.latency_us = paths[r].latency_us +
                             (simple ? c.simple_hop_us : (ll ? c.ll_hop_us : c.ll128_hop_us));
            if (simple) schedule.slice_us = std::max(schedule.slice_us, c.simple_slice_us);
            if (!simple && plan.trips > 1) {
                const double first = trip * channels * expansion / plan.rates[r] * 1e6;
                const double period = std::max(ll ? c.ll_trip_us : c.ll128_trip_us, first);
                slowest_trip = std::max(slowest_trip, period);
                hop.least_us = first + (plan.trips - 1) * period;
            }
            slowest = std::min(slowest, plan.rates[r]);
            plan.hop_us += hop.latency_us / n;
            schedule.hops.push_back(std::move(hop));
        }
        plan.slowest_gb_s = slowest * 1e-9;
        plan.drain_us = simple ? constants.simple_drain * schedule.bytes / slowest * 1e6
                               : constants.ll_drain * (plan.trips - 1) * slowest_trip;
        return plan;
    }

    [[nodiscard]] Terms price_ring(const Ring& ring, OperationKind operation, double bytes,
                                   const CollectiveChoice& choice, int threads) const {
        const RingPlan plan = plan_ring(ring, operation, bytes, choice, threads);
        const double loop_us = pipeline_us(plan.schedule, plan.rates);
        RingSchedule empty = plan.schedule;
        empty.bytes = 0;
        for (RingHop& hop : empty.hops) hop.least_us = 0;
        Terms terms;
        terms.latency_us = constants.kernel_us + pipeline_us(empty, plan.rates);
        const double total = constants.kernel_us + plan.loops * (loop_us + plan.drain_us);
        terms.transport_us = std::max(0.0, total - terms.latency_us);
        terms.formula = fmt::format(
            "ring {}: kernel {:.2f} us + {:.0f} loop(s) x ({} steps of {:.0f} B on the wire at "
            "{:.2f} GB/s over "
            "{} channel(s), hops {:.2f} us, {} trip(s): {:.2f} us + last receive {:.2f} us) = "
            "{:.2f} us",
            to_name(choice.protocol), constants.kernel_us, plan.loops, plan.schedule.steps,
            plan.schedule.bytes, plan.slowest_gb_s, choice.channels, plan.hop_us, plan.trips,
            loop_us, plan.drain_us, total);
        return terms;
    }

    // Tree: inside one node a chain, reduced up while broadcast down
    // -----------------------------------------

    [[nodiscard]] Terms price_tree(const Ring& ring, double bytes, const CollectiveChoice& choice,
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
        const std::vector<double> rates = shared_rates(network, paths);
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
        terms.latency_us = constants.kernel_us + hops_us;
        terms.transport_us = (fill_steps + std::max(0.0, pieces - 1)) * piece_us;
        terms.formula = fmt::format(
            "tree {} (a chain of {}): kernel {:.2f} us + {:.0f} hops {:.2f} us + ({:.0f} + {:.1f} "
            "pieces) x {:.2f} us "
            "at {:.2f} GB/s = {:.2f} us",
            to_name(choice.protocol), n, constants.kernel_us, fill_steps, hops_us, fill_steps,
            std::max(0.0, pieces - 1), piece_us, slowest * 1e-9,
            terms.latency_us + terms.transport_us);
        return terms;
    }

    [[nodiscard]] Terms price_nvls(const Ring& ring, OperationKind operation, double bytes) const {
        const double n = static_cast<double>(ring.paths.size());
        double capacity = std::numeric_limits<double>::infinity();
        for (const TransferPath& path : ring.paths) capacity = std::min(capacity, path.rate_cap);
        // Each GPU's links carry its S bytes in and out once; gathers and scatters leave its own
        // part out.
        const double moved = operation == OperationKind::all_reduce ? bytes : bytes * (n - 1) / n;
        const double rate = constants.nvls_efficiency * capacity;
        Terms terms;
        terms.latency_us = constants.nvls_us;
        terms.transport_us = moved / rate * 1e6;
        terms.formula =
            fmt::format("NVLS: {:.2f} us + {:.0f} B at {:.1f} GB/s = {:.2f} us", terms.latency_us,
                        moved, rate * 1e-9, terms.latency_us + terms.transport_us);
        return terms;
    }

    // All pairs
    // --------------------------------------------------------------------------------------------

    [[nodiscard]] Expected<std::vector<TransferPath>> all_pairs(const std::vector<int>& gpus,
                                                                const NcclGraph* graph) const {
        if (static_cast<int>(gpus.size()) > kMaxExchangeRanks) {
            return fail(ErrorCode::too_large,
                        fmt::format("{} ranks that all send to each other", gpus.size()),
                        machine.name, fmt::format("use at most {}", kMaxExchangeRanks));
        }
        std::vector<TransferPath> paths;
        for (const int from : gpus) {
            for (const int to : gpus) {
                if (from == to) continue;
                // NCCL decides per pair as it does for the ring; the custom kernels need peers.
                const bool peer =
                    graph == nullptr || nccl_peer(from, to, static_cast<int>(gpus.size()));
                auto path = network.between(from, to, peer);
                if (!path) return tl::unexpected(path.error());
                paths.push_back(std::move(*path));
            }
        }
        return paths;
    }

    [[nodiscard]] bool nccl_peer(int from, int to, int ranks) const {
        return nccl_reaches(machine, router, settings, from, to, ranks, belief());
    }

    [[nodiscard]] Expected<Terms> price_exchange(const CollectiveRequest& request, const Ring& ring,
                                                 const CollectiveChoice& choice) {
        const double n = static_cast<double>(request.gpus.size());
        auto pairs = all_pairs(request.gpus, &ring.graph);
        if (!pairs) return tl::unexpected(pairs.error());
        const double per_peer = static_cast<double>(request.bytes) / n;
        const bool simple = choice.protocol == Protocol::simple;
        double hop_us = 0;
        double trip_us = 0;
        std::vector<TransferPath> paths;
        for (const TransferPath& raw : *pairs) {
            const TransportConstants& c = of(raw.transport);
            hop_us = std::max(hop_us, raw.latency_us + (simple ? c.simple_hop_us : c.ll_hop_us));
            trip_us = std::max(trip_us, c.ll_trip_us);
            const double share = simple ? constants.exchange_efficiency : 1.0;
            paths.push_back(with_efficiency(raw, share * efficiency(raw, choice.protocol)));
        }
        Terms terms;
        terms.latency_us = constants.exchange_us + (n - 2) * constants.exchange_peer_us + hop_us;
        // All pairs move the same bytes from the same instant: time is proportional to them.
        const std::pair<std::vector<int>, Protocol> key{request.gpus, choice.protocol};
        auto unit = exchange_s_per_byte.find(key);
        if (unit == exchange_s_per_byte.end()) {
            constexpr double kProbeBytes = 1e9;
            if (exchange_s_per_byte.size() >= kMaxRemembered) exchange_s_per_byte.clear();
            const double seconds = transfer_seconds(network, paths, kProbeBytes);
            unit = exchange_s_per_byte.emplace(key, seconds / kProbeBytes).first;
        }
        const double wire_us = unit->second * per_peer * (simple ? 1 : kLlWire) * 1e6;
        double blocks_us = 0;
        if (simple) {
            blocks_us =
                per_peer * (n - 1) / (choice.channels * constants.exchange_channel_gb_s * 1e3);
        } else {
            const double trips = per_peer * (n - 1) / (512 * kLlBytesPerThread);
            blocks_us = trips * trip_us * constants.exchange_trip_share;
        }
        terms.transport_us = std::max(wire_us, blocks_us);
        terms.formula = fmt::format(
            "all_to_all {}: {:.2f} us + {:.0f} further peers x {:.2f} us + hop {:.2f} us + "
            "max(links {:.2f} us, blocks "
            "{:.2f} us) for {:.0f} B a peer = {:.2f} us",
            to_name(choice.protocol), constants.exchange_us, n - 2, constants.exchange_peer_us,
            hop_us, wire_us, blocks_us, per_peer, terms.latency_us + terms.transport_us);
        return terms;
    }

    // What carries the number
    // --------------------------------------------------------------------------------

    void state_coverage(const CollectiveRequest& request, CollectiveTime& time) const {
        if (constants.entries.empty()) {
            time.coverage = Coverage::datasheet;
            time.relative_uncertainty = kUncalibratedError;
            return;
        }
        const std::string_view implementation = to_name(time.choice.implementation);
        const int ranks = static_cast<int>(request.gpus.size());
        const CollectiveFitEntry* entry = constants.entry(request.operation, implementation, ranks);
        const std::int64_t bytes = nccl_bytes(request.operation, request.bytes, ranks);
        const bool forced = settings.algorithm != Algorithm::automatic ||
                            settings.protocol != Protocol::automatic || settings.channels > 0 ||
                            settings.graph_file || !settings.peer_to_peer ||
                            settings.peer_level != model::PathType::pxb;
        if (entry == nullptr) {
            double worst = 0;
            for (const CollectiveFitEntry& other : constants.entries) {
                if (other.implementation == implementation) worst = std::max(worst, other.error);
            }
            // Nothing of this implementation was measured: only the links' part of it is known.
            time.coverage = worst > 0 ? Coverage::extrapolated : Coverage::datasheet;
            time.relative_uncertainty =
                worst > 0 ? std::max(kExtrapolatedError, 1.5 * worst) : kUncalibratedError;
            return;
        }
        const bool inside = bytes >= entry->bytes_low && bytes <= entry->bytes_high;
        // Below the range the time is its latency, which the smallest measured size has shown.
        const bool floor = bytes < entry->bytes_low;
        time.coverage = (inside || floor) && !forced ? Coverage::measured : Coverage::extrapolated;
        time.relative_uncertainty = std::max(kLeastError, entry->error);
        if (time.coverage == Coverage::extrapolated) {
            time.relative_uncertainty = std::max(kExtrapolatedError, time.relative_uncertainty);
        }
    }

    [[nodiscard]] Expected<CollectiveTime> price(const CollectiveRequest& request) {
        CollectiveTime time;
        const int ranks = static_cast<int>(request.gpus.size());
        if (ranks == 1 || request.bytes == 0) {
            time.coverage = Coverage::measured;
            time.relative_uncertainty = 0;
            time.formula =
                ranks == 1 ? "one GPU: nothing to exchange" : "no bytes: nothing to exchange";
            return time;
        }
        Expected<Terms> terms = Terms{};
        const CustomCollectives custom(router, network, constants, settings);
        std::string why_not = "nccl";
        if (settings.implementation != Implementation::nccl) {
            why_not = request.operation == OperationKind::all_reduce
                          ? custom.why_not(request.gpus, request.bytes)
                          : "only all_reduce has it";
        }
        if (why_not.empty()) {
            time.choice.implementation = settings.implementation;
            time.choice.through_host = settings.implementation == Implementation::host_staged;
            time.choice.protocol = Protocol::simple;
            terms = custom.price(request.gpus, static_cast<double>(request.bytes));
        } else {
            if (settings.implementation != Implementation::nccl) {
                time.remarks.push_back(fmt::format("NCCL instead of {}: {}",
                                                   to_name(settings.implementation), why_not));
            }
            const auto ring = ring_of(request.gpus);
            if (!ring) return tl::unexpected(ring.error());
            terms = price_nccl(request, **ring, time);
        }
        if (!terms) return tl::unexpected(terms.error());
        // A time beyond 10^12 us does not fit the clock; links this slow are nobody's.
        constexpr double kLongestUs = 1e12;
        if (!(terms->latency_us + terms->transport_us < kLongestUs)) {
            return fail(ErrorCode::unsupported, "the collective would take longer than 10 days",
                        machine.name, "check the capacities of the machine's links");
        }
        time.latency = from_us(terms->latency_us);
        time.transport = from_us(terms->transport_us);
        time.total = time.latency + time.transport;
        time.formula = std::move(terms->formula);
        state_coverage(request, time);
        return time;
    }

    [[nodiscard]] Expected<Terms> price_nccl(const CollectiveRequest& request, const Ring& ring,
                                             CollectiveTime& time) {
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
            return price_exchange(request, ring, chosen);
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
};

CollectiveModel::CollectiveModel(const model::Machine& machine, CollectiveSettings settings)
    : CollectiveModel(machine, settings, CollectiveConstants{}) {}

CollectiveModel::CollectiveModel(const model::Machine& machine, CollectiveSettings settings,
                                 const CollectiveConstants& constants)
    : impl_(std::make_unique<Impl>(machine, settings, constants)) {}

CollectiveModel::~CollectiveModel() = default;
CollectiveModel::CollectiveModel(CollectiveModel&&) noexcept = default;
CollectiveModel& CollectiveModel::operator=(CollectiveModel&&) noexcept = default;

Expected<CollectiveTime> CollectiveModel::time(const CollectiveRequest& request) {
    const Impl::Key key{request.operation, request.bytes, request.graph_launch, request.gpus};
    const auto known = impl_->remembered.find(key);
    if (known != impl_->remembered.end()) return known->second;
    const auto sound = impl_->check(request);
    if (!sound) return tl::unexpected(sound.error());
    auto time = impl_->price(request);
    if (!time) return time;
    if (impl_->remembered.size() >= kMaxRemembered) impl_->remembered.clear();
    impl_->remembered.emplace(key, *time);
    return time;
}

Expected<std::vector<LinkSample>> CollectiveModel::link_samples(const CollectiveRequest& request) {
    const auto priced = time(request);
    if (!priced) return tl::unexpected(priced.error());
    std::vector<LinkSample> samples;
    const int ranks = static_cast<int>(request.gpus.size());
    if (ranks == 1 || request.bytes == 0) return samples;
    if (ranks > kMaxSampledRanks) {
        return fail(ErrorCode::too_large, fmt::format("link samples of {} ranks", ranks),
                    impl_->machine.name, fmt::format("use at most {}", kMaxSampledRanks));
    }
    // Bytes move after the kernel has started: samples begin there.
    const Time start =
        from_us(priced->choice.implementation == Implementation::nccl ? impl_->constants.kernel_us
                                                                      : impl_->constants.custom_us);
    std::vector<double> before(impl_->network.capacities().size(), 0.0);
    const auto record = [&](Time at, const std::vector<double>& load) {
        for (std::size_t r = 0; r < load.size(); ++r) {
            if (load[r] == before[r] || samples.size() >= kMaxSamples) continue;
            samples.push_back({start + at, static_cast<int>(r / 2), r % 2 == 0, load[r]});
        }
        before = load;
    };
    const CollectiveChoice& choice = priced->choice;
    const bool pairs = choice.implementation != Implementation::nccl ||
                       request.operation == OperationKind::all_to_all;
    const double bytes = static_cast<double>(nccl_bytes(request.operation, request.bytes, ranks));
    if (pairs) {
        const auto ring = impl_->ring_of(request.gpus);
        if (!ring) return tl::unexpected(ring.error());
        const bool custom = choice.implementation != Implementation::nccl;
        const bool host = choice.implementation == Implementation::host_staged;
        auto paths = impl_->all_pairs(request.gpus, custom && !host ? nullptr : &(*ring)->graph);
        if (!paths) return tl::unexpected(paths.error());
        for (TransferPath& path : *paths) {
            path =
                with_efficiency(std::move(path), custom ? impl_->constants.custom_efficiency
                                                        : impl_->efficiency(path, choice.protocol));
        }
        const bool whole = choice.implementation == Implementation::one_shot || host;
        (void)transfer_seconds(impl_->network, *paths, whole ? bytes : bytes / ranks, record);
        return samples;
    }
    const auto ring = impl_->ring_of(request.gpus);
    if (!ring) return tl::unexpected(ring.error());
    const auto again = nccl_choose((*ring)->graph, impl_->settings_for(request.operation), request.operation,
                                   nccl_bytes(request.operation, request.bytes, ranks));
    if (!again) return tl::unexpected(again.error());
    const auto plan =
        impl_->plan_ring(**ring, request.operation, bytes, choice, again->split.threads);
    (void)simulate_ring_us(plan.schedule, impl_->network.capacities(), record);
    return samples;
}

}  // namespace draftboard::sim
