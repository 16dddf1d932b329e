// SPDX-License-Identifier: Apache-2.0
#include "sim/custom_collective.h"

#include <algorithm>

#include <fmt/format.h>

namespace draftboard::sim {

using model::Expected;
using model::Implementation;

std::string CustomCollectives::why_not(const std::vector<int>& gpus, std::int64_t bytes) const {
    if (settings_.custom_limit_bytes > 0 && bytes > settings_.custom_limit_bytes) {
        return fmt::format("{} bytes exceed its limit of {}", bytes, settings_.custom_limit_bytes);
    }
    if (static_cast<int>(gpus.size()) > kMaxExchangeRanks) {
        return fmt::format("{} ranks exceed its limit of {}", gpus.size(), kMaxExchangeRanks);
    }
    if (settings_.implementation == Implementation::host_staged) return {};
    for (const int from : gpus) {
        for (const int to : gpus) {
            if (from != to && !router_.peer_reachable(from, to)) {
                return fmt::format("GPU {} can't reach GPU {} directly", from, to);
            }
        }
    }
    if (settings_.implementation == Implementation::hierarchical) {
        const Islands islands = islands_of(gpus);
        if (islands.size() < 2) return "all GPUs are of one NUMA node";
        for (const auto& island : islands) {
            if (island.size() != islands.front().size()) return "NUMA nodes hold unequal numbers of GPUs";
        }
    }
    return {};
}

Expected<CollectiveTerms> CustomCollectives::price(const std::vector<int>& gpus,
                                                   double bytes) const {
    switch (settings_.implementation) {
        case Implementation::host_staged: return price_host_staged(gpus, bytes);
        case Implementation::hierarchical: return price_hierarchical(gpus, bytes);
        default: return price_shots(gpus, bytes);
    }
}

Expected<void> CustomCollectives::sample(
    const std::vector<int>& gpus, double bytes,
    const std::function<void(Time, const std::vector<double>&)>& on_rates) const {
    const bool host = settings_.implementation == Implementation::host_staged;
    auto paths = network_.all_pairs(gpus, [host](int, int) { return !host; });
    if (!paths) return tl::unexpected(paths.error());
    for (TransferPath& path : *paths) {
        path = with_efficiency(std::move(path), constants_.custom_efficiency);
    }
    const bool whole = host || settings_.implementation == Implementation::one_shot;
    const double each = whole ? bytes : bytes / static_cast<double>(gpus.size());
    (void)transfer_seconds(network_, *paths, each, on_rates);
    return {};
}

CustomCollectives::Islands CustomCollectives::islands_of(const std::vector<int>& gpus) const {
    Islands islands;
    for (const int gpu : gpus) {
        const auto home = std::find_if(islands.begin(), islands.end(), [&](const auto& island) {
            return router_.numa_of(island.front()) == router_.numa_of(gpu);
        });
        if (home == islands.end()) {
            islands.push_back({gpu});
        } else {
            home->push_back(gpu);
        }
    }
    return islands;
}

Expected<CustomCollectives::Phase> CustomCollectives::move(
    const std::vector<std::pair<int, int>>& pairs, double bytes) const {
    Phase phase;
    std::vector<TransferPath> paths;
    paths.reserve(pairs.size());
    for (const auto& [giver, taker] : pairs) {
        auto path = settings_.pull ? network_.pulled(giver, taker)
                                   : network_.between(giver, taker, true);
        if (!path) return tl::unexpected(path.error());
        phase.hop_us = std::max(phase.hop_us, path->latency_us);
        const double share = constants_.custom_efficiency / std::max(1.0, path->kernel_factor);
        paths.push_back(with_efficiency(std::move(*path), share));
    }
    if (!paths.empty()) phase.move_us = transfer_seconds(network_, paths, bytes) * 1e6;
    return phase;
}

Expected<CollectiveTerms> CustomCollectives::price_shots(const std::vector<int>& gpus,
                                                         double bytes) const {
    const double n = static_cast<double>(gpus.size());
    std::vector<std::pair<int, int>> pairs;
    for (const int from : gpus) {
        for (const int to : gpus) {
            if (from != to) pairs.emplace_back(from, to);
        }
    }
    const bool two = settings_.implementation == Implementation::two_shot;
    const double each = two ? bytes / n : bytes;
    const double phases = two ? 2 : 1;
    const auto phase = move(pairs, each);
    if (!phase) return tl::unexpected(phase.error());
    const double barrier_us = (phases - 1) * constants_.custom_phase_us;
    const double peers_us = (n - 2) * constants_.custom_peer_us;
    CollectiveTerms terms;
    terms.latency_us = constants_.custom_us + peers_us + phases * phase->hop_us + barrier_us;
    terms.transport_us = phases * phase->move_us;
    terms.formula = fmt::format(
        "{}{}: kernel and flags {:.2f} us + further peers {:.2f} us + barriers {:.2f} us + "
        "{:.0f} x (hop {:.2f} us + {:.0f} B to each of {:.0f} peers {:.2f} us) = {:.2f} us",
        to_name(settings_.implementation), settings_.pull ? " (pull)" : "", constants_.custom_us,
        peers_us, barrier_us, phases, phase->hop_us, each, n - 1, phase->move_us,
        terms.latency_us + terms.transport_us);
    return terms;
}

Expected<CollectiveTerms> CustomCollectives::price_hierarchical(const std::vector<int>& gpus,
                                                                double bytes) const {
    const Islands islands = islands_of(gpus);
    const std::size_t g = islands.front().size();
    std::vector<std::pair<int, int>> within;
    std::vector<std::pair<int, int>> across;
    for (const auto& island : islands) {
        for (const int from : island) {
            for (const int to : island) {
                if (from != to) within.emplace_back(from, to);
            }
        }
        for (const auto& other : islands) {
            if (&island == &other) continue;
            for (std::size_t i = 0; i < g; ++i) across.emplace_back(island[i], other[i]);
        }
    }
    const double each = bytes / static_cast<double>(g);
    const auto inner = move(within, each);
    if (!inner) return tl::unexpected(inner.error());
    const auto outer = move(across, each);
    if (!outer) return tl::unexpected(outer.error());
    const double inner_phases = within.empty() ? 0 : 2;
    const double peers_us = std::max(0.0, static_cast<double>(g + islands.size()) - 3) *
                            constants_.custom_peer_us;
    const double barrier_us = inner_phases * constants_.custom_phase_us;
    CollectiveTerms terms;
    terms.latency_us = constants_.custom_us + peers_us + barrier_us +
                       inner_phases * inner->hop_us + outer->hop_us;
    terms.transport_us = inner_phases * inner->move_us + outer->move_us;
    terms.formula = fmt::format(
        "hierarchical{}, {} islands of {}: kernel and flags {:.2f} us + further peers {:.2f} us + "
        "barriers {:.2f} us + {:.0f} x (hop {:.2f} us + {:.0f} B within {:.2f} us) + hop {:.2f} us + "
        "{:.0f} B across {:.2f} us = {:.2f} us",
        settings_.pull ? " (pull)" : "", islands.size(), g, constants_.custom_us, peers_us,
        barrier_us, inner_phases, inner->hop_us, each, inner->move_us, outer->hop_us, each,
        outer->move_us, terms.latency_us + terms.transport_us);
    return terms;
}

Expected<CollectiveTerms> CustomCollectives::price_host_staged(const std::vector<int>& gpus,
                                                               double bytes) const {
    const double n = static_cast<double>(gpus.size());
    std::vector<TransferPath> writes;
    std::vector<TransferPath> reads;
    double there_us = 0;
    double back_us = 0;
    for (const int gpu : gpus) {
        auto write = network_.to_host(gpu, -1);
        if (!write) return tl::unexpected(write.error());
        there_us = std::max(there_us, write->latency_us);
        writes.push_back(with_efficiency(std::move(*write), constants_.custom_efficiency));
        for (const int other : gpus) {
            if (other == gpu) continue;
            auto read = network_.from_host(gpu, router_.numa_of(other));
            if (!read) return tl::unexpected(read.error());
            back_us = std::max(back_us, read->latency_us);
            reads.push_back(with_efficiency(std::move(*read), constants_.custom_efficiency));
        }
    }
    const double write_us = transfer_seconds(network_, writes, bytes) * 1e6;
    const double read_us = transfer_seconds(network_, reads, bytes) * 1e6;
    CollectiveTerms terms;
    // A read is a round trip, and the flag is read before the data.
    terms.latency_us = constants_.custom_us + constants_.host_flag_us + there_us + 2 * back_us;
    terms.transport_us = write_us + read_us;
    terms.formula = fmt::format(
        "host_staged: kernel {:.2f} us + flags {:.2f} us + there {:.2f} us + back 2 x {:.2f} us + "
        "write {:.2f} us + read {:.0f} x S {:.2f} us = {:.2f} us",
        constants_.custom_us, constants_.host_flag_us, there_us, back_us, write_us, n - 1, read_us,
        terms.latency_us + terms.transport_us);
    return terms;
}

}  // namespace draftboard::sim
