// SPDX-License-Identifier: Apache-2.0
#include "sim/link_network.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

namespace draftboard::sim {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// Two levels of the filling count as equal within this relative distance (rounding of sums only).
constexpr double kSameLevel = 1e-12;
/// A flow whose rest is below this part of its size is done: rounding of rate times time.
constexpr double kDoneShare = 1e-12;
/// No event lies farther ahead than this (about 53 days): slower flows are looked at again then.
constexpr double kHorizonPs = 4.6e18;

/// A shared resource of the filling: what is left, and the summed weights of flows still growing.
struct Constraint {
    double remaining = 0;
    double weight = 0;
};

}  // namespace

std::vector<double> max_min_rates(const std::vector<double>& capacities,
                                  const std::vector<std::vector<ResourceUse>>& uses,
                                  const std::vector<double>& rate_caps) {
    const std::size_t flows = uses.size();
    std::vector<double> rates(flows, 0.0);
    std::vector<Constraint> constraints(capacities.size());
    for (std::size_t r = 0; r < capacities.size(); ++r) {
        constraints[r].remaining = std::max(0.0, capacities[r]);
    }
    const auto cap_of = [&](std::size_t f) {
        return f < rate_caps.size() ? rate_caps[f] : kInfinity;
    };

    std::vector<std::size_t> growing;
    for (std::size_t f = 0; f < flows; ++f) {
        for (const ResourceUse& use : uses[f]) {
            constraints[static_cast<std::size_t>(use.resource)].weight += use.weight;
        }
        growing.push_back(f);
    }

    // Progressive filling: all growing flows have the same rate `level`. Each round raises it to
    // where the next resource is full or the next cap is met, and freezes the flows concerned. A
    // round freezes at least one flow, so there are at most as many rounds as flows.
    double level = 0;
    while (!growing.empty()) {
        double step = kInfinity;
        for (const Constraint& constraint : constraints) {
            if (constraint.weight > 0)
                step = std::min(step, constraint.remaining / constraint.weight);
        }
        for (const std::size_t f : growing) step = std::min(step, cap_of(f) - level);
        if (!(step < kInfinity)) {  // nothing bounds the rest
            for (const std::size_t f : growing) rates[f] = kInfinity;
            break;
        }
        step = std::max(step, 0.0);
        const double next = level + step;
        std::vector<bool> full(constraints.size(), false);
        for (std::size_t r = 0; r < constraints.size(); ++r) {
            Constraint& constraint = constraints[r];
            if (constraint.weight <= 0) continue;
            full[r] = constraint.remaining / constraint.weight <= step + kSameLevel * next;
            constraint.remaining = std::max(0.0, constraint.remaining - step * constraint.weight);
        }
        std::vector<std::size_t> still_growing;
        for (const std::size_t f : growing) {
            bool frozen = cap_of(f) <= next * (1 + kSameLevel);
            for (const ResourceUse& use : uses[f]) {
                frozen = frozen || full[static_cast<std::size_t>(use.resource)];
            }
            if (!frozen) {
                still_growing.push_back(f);
                continue;
            }
            rates[f] = std::min(next, cap_of(f));
        }
        // Weights are summed anew over what is left: subtracting would leave rounding behind.
        for (Constraint& constraint : constraints) constraint.weight = 0;
        for (const std::size_t f : still_growing) {
            for (const ResourceUse& use : uses[f]) {
                constraints[static_cast<std::size_t>(use.resource)].weight += use.weight;
            }
        }
        if (still_growing.size() == growing.size()) {  // rounding only: give the rest what it has
            for (const std::size_t f : still_growing) rates[f] = next;
            break;
        }
        growing = std::move(still_growing);
        level = next;
    }
    return rates;
}

struct LinkNetwork::Impl {
    struct Flow {
        FlowSpec spec;
        double rest = 0;
        double rate = 0;
    };

    Engine& engine;
    std::vector<double> capacities;
    std::vector<GroupCap> groups;
    std::vector<Flow> active;  // in order of start: callbacks of equal times run in that order
    std::vector<double> moved;
    Time updated = 0;              // time up to which `rest` and `moved` are accounted
    std::uint64_t generation = 0;  // a scheduled look at completions is stale if this has moved on
    bool settle_pending = false;

    Impl(Engine& the_engine, std::vector<double> the_capacities, std::vector<GroupCap> the_groups)
        : engine(the_engine),
          capacities(std::move(the_capacities)),
          groups(std::move(the_groups)),
          moved(capacities.size(), 0.0) {}

    void account() {
        const double seconds = static_cast<double>(engine.now() - updated) * 1e-12;
        updated = engine.now();
        if (seconds <= 0) return;
        for (Flow& flow : active) {
            const double bytes = std::min(flow.rest, flow.rate * seconds);
            flow.rest -= bytes;
            for (const ResourceUse& use : flow.spec.uses) {
                moved[static_cast<std::size_t>(use.resource)] += bytes;
            }
        }
    }

    /// Rates of the active flows. A group cap in force is one more resource that its flows share.
    void share() {
        std::vector<double> all = capacities;
        std::vector<int> group_resource(groups.size(), -1);
        for (std::size_t g = 0; g < groups.size(); ++g) {
            std::set<int> sources;
            for (const Flow& flow : active) {
                if (flow.spec.group == static_cast<int>(g)) sources.insert(flow.spec.source);
            }
            if (static_cast<int>(sources.size()) < std::max(1, groups[g].min_sources)) continue;
            group_resource[g] = static_cast<int>(all.size());
            all.push_back(groups[g].rate);
        }
        std::vector<std::vector<ResourceUse>> uses;
        std::vector<double> caps;
        uses.reserve(active.size());
        for (const Flow& flow : active) {
            uses.push_back(flow.spec.uses);
            const int g = flow.spec.group;
            if (g >= 0 && g < static_cast<int>(groups.size()) &&
                group_resource[static_cast<std::size_t>(g)] >= 0) {
                uses.back().push_back({group_resource[static_cast<std::size_t>(g)], 1.0});
            }
            caps.push_back(flow.spec.rate_cap);
        }
        const std::vector<double> rates = max_min_rates(all, uses, caps);
        for (std::size_t f = 0; f < active.size(); ++f) active[f].rate = rates[f];
    }

    /// Called once per instant at which flows came or went, after all of them: shares anew and
    /// books the next completion.
    void settle(const std::function<void(Time, const std::vector<double>&)>& on_rates) {
        settle_pending = false;
        account();
        share();
        if (on_rates) {
            std::vector<double> load(capacities.size(), 0.0);
            for (const Flow& flow : active) {
                for (const ResourceUse& use : flow.spec.uses) {
                    load[static_cast<std::size_t>(use.resource)] += flow.rate;
                }
            }
            on_rates(engine.now(), load);
        }
    }
};

LinkNetwork::LinkNetwork(Engine& engine, std::vector<double> capacities,
                         std::vector<GroupCap> groups)
    : impl_(new Impl(engine, std::move(capacities), std::move(groups))) {}

LinkNetwork::~LinkNetwork() { delete impl_; }

const std::vector<double>& LinkNetwork::bytes_moved() const { return impl_->moved; }

void LinkNetwork::start(FlowSpec spec) {
    Impl& impl = *impl_;
    const Time latency = std::max<Time>(0, spec.latency);
    // A flow without bytes, or one that nothing bounds, is its latency alone.
    const bool unbounded = spec.uses.empty() && !(spec.rate_cap < kInfinity);
    if (!(spec.bytes > 0) || unbounded) {
        if (spec.on_done) impl.engine.schedule_after(latency, std::move(spec.on_done));
        return;
    }
    impl.engine.schedule_after(latency, [this, flow = std::move(spec)]() mutable {
        impl_->account();
        const double bytes = flow.bytes;
        impl_->active.push_back({std::move(flow), bytes, 0.0});
        changed();
    });
}

void LinkNetwork::changed() {
    // All arrivals and departures of one instant are settled together: the settling event is the
    // last one in the queue at this time among those already booked.
    if (impl_->settle_pending) return;
    impl_->settle_pending = true;
    ++impl_->generation;
    impl_->engine.schedule_after(0, [this] {
        impl_->settle(on_rates);
        book_next_completion();
    });
}

void LinkNetwork::book_next_completion() {
    Impl& impl = *impl_;
    double soonest = kInfinity;
    for (const Impl::Flow& flow : impl.active) {
        if (flow.rate > 0) soonest = std::min(soonest, flow.rest / flow.rate * 1e12);
    }
    if (!(soonest < kInfinity))
        return;  // nothing moves: capacity zero; the run ends with these flows open
    const Time wait = static_cast<Time>(std::ceil(std::min(soonest, kHorizonPs)));
    impl.engine.schedule_after(wait, [this, generation = impl.generation] {
        if (generation == impl_->generation) complete();
    });
}

void LinkNetwork::complete() {
    Impl& impl = *impl_;
    impl.account();
    std::vector<Engine::Callback> done;
    std::vector<Impl::Flow> left;
    left.reserve(impl.active.size());
    for (Impl::Flow& flow : impl.active) {
        // One picosecond at the present rate is the resolution of time.
        const bool finished =
            flow.rest <= std::max(kDoneShare * flow.spec.bytes, flow.rate * 1e-12);
        if (!finished) {
            left.push_back(std::move(flow));
            continue;
        }
        for (const ResourceUse& use : flow.spec.uses) {
            impl.moved[static_cast<std::size_t>(use.resource)] += flow.rest;
        }
        if (flow.spec.on_done) done.push_back(std::move(flow.spec.on_done));
    }
    impl.active = std::move(left);
    changed();
    for (Engine::Callback& callback : done) callback();
}

}  // namespace draftboard::sim
