// SPDX-License-Identifier: Apache-2.0
#include "sim/collective_steps.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

namespace draftboard::sim {

double pipeline_us(const RingSchedule& schedule, const std::vector<double>& rates) {
    const std::size_t ranks = schedule.hops.size();
    const auto slices = static_cast<std::size_t>(std::max(1, schedule.slices));
    const double per_slice = schedule.bytes / static_cast<double>(slices);
    std::vector<double> duration(ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
        const double wire_us = per_slice > 0 && rates[r] > 0 ? per_slice / rates[r] * 1e6 : 0;
        duration[r] = std::max(wire_us, schedule.hops[r].least_us / static_cast<double>(slices)) +
                      schedule.slice_us;
    }
    // end[r * slices + j]: when slice j of the step before left rank r; free[r]: when rank r may
    // send again.
    std::vector<double> end(ranks * slices, 0.0);
    std::vector<double> next(ranks * slices, 0.0);
    std::vector<double> free(ranks, 0.0);
    for (int step = 0; step < schedule.steps; ++step) {
        for (std::size_t r = 0; r < ranks; ++r) {
            const std::size_t before = r == 0 ? ranks - 1 : r - 1;
            const RingHop& hop = schedule.hops[before];
            for (std::size_t j = 0; j < slices; ++j) {
                const std::size_t needed = hop.streams ? j : slices - 1;
                const double arrived = step == 0 ? 0 : end[before * slices + needed] + hop.latency_us;
                free[r] = std::max(free[r], arrived) + duration[r];
                next[r * slices + j] = free[r];
            }
        }
        std::swap(end, next);
    }
    double last = 0;
    for (std::size_t r = 0; r < ranks && schedule.steps > 0; ++r) {
        last = std::max(last, end[r * slices + slices - 1] + schedule.hops[r].latency_us);
    }
    return last;
}

namespace {

/// One run of the schedule over the network. Slices of a rank are numbered on through its steps.
struct RingRun {
    const RingSchedule& schedule;
    Engine engine;
    LinkNetwork network;
    std::vector<int> sent;     // slices that have left rank r
    std::vector<int> arrived;  // slices that have come in at rank r
    std::vector<char> sending;
    Time last = 0;

    RingRun(const RingSchedule& the_schedule, const std::vector<double>& capacities)
        : schedule(the_schedule),
          network(engine, capacities),
          sent(schedule.hops.size(), 0),
          arrived(schedule.hops.size(), 0),
          sending(schedule.hops.size(), 0) {}

    [[nodiscard]] int slices() const { return std::max(1, schedule.slices); }

    void try_send(std::size_t r) {
        const int slice = sent[r];
        if (sending[r] || slice >= schedule.steps * slices()) return;
        // Slice i of step s needs slice i of step s-1 from the rank before.
        if (slice >= slices() && arrived[r] <= slice - slices()) return;
        sending[r] = 1;
        const RingHop& hop = schedule.hops[r];
        FlowSpec flow;
        flow.uses = hop.uses;
        flow.rate_cap = hop.rate_cap;
        flow.bytes = schedule.bytes / slices();
        const Time least = engine.now() + from_us(hop.least_us / slices());
        flow.on_done = [this, r, least] {
            const Time end = std::max(engine.now(), least) + from_us(schedule.slice_us);
            engine.schedule(end, [this, r] { left(r); });
        };
        network.start(std::move(flow));
    }

    void left(std::size_t r) {
        sending[r] = 0;
        ++sent[r];
        const std::size_t to = (r + 1) % schedule.hops.size();
        const bool streams = schedule.hops[r].streams;
        const bool step_left = sent[r] % slices() == 0;
        engine.schedule_after(from_us(schedule.hops[r].latency_us), [this, to, streams, step_left] {
            if (streams || step_left) arrived[to] += streams ? 1 : slices();
            last = engine.now();
            try_send(to);
        });
        try_send(r);
    }
};

}  // namespace

double simulate_ring_us(const RingSchedule& schedule, const std::vector<double>& capacities,
                        const std::function<void(Time, const std::vector<double>&)>& on_rates) {
    RingRun run(schedule, capacities);
    run.network.on_rates = on_rates;
    for (std::size_t r = 0; r < schedule.hops.size(); ++r) run.try_send(r);
    run.engine.run();
    return to_us(run.last);
}

}  // namespace draftboard::sim
