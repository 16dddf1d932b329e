// SPDX-License-Identifier: Apache-2.0
#pragma once
// The discrete-event core: a queue of callbacks over integer picoseconds. Events at equal times run in
// insertion order, so the same input gives the same run, byte for byte. One thread; many engines may
// run side by side, they share nothing.

#include <cstdint>
#include <functional>
#include <vector>

#include "sim/time.h"

namespace draftboard::sim {

class Engine {
   public:
    using Callback = std::function<void()>;

    /// Runs `callback` at time `at`. Precondition: at >= now().
    void schedule(Time at, Callback callback);
    void schedule_after(Time delay, Callback callback) { schedule(now_ + delay, std::move(callback)); }

    /// The core loop: take the earliest event, advance the clock to it, run it, until none is left.
    /// Returns the time of the last event. Events that an event schedules are part of the run.
    Time run();

    [[nodiscard]] Time now() const { return now_; }
    [[nodiscard]] std::uint64_t events_run() const { return events_run_; }

   private:
    struct Event {
        Time at;
        std::uint64_t order;  // insertion order breaks ties
        Callback callback;
    };
    struct Later {
        bool operator()(const Event& a, const Event& b) const {
            return a.at != b.at ? a.at > b.at : a.order > b.order;
        }
    };
    std::vector<Event> heap_;
    Time now_ = 0;
    std::uint64_t next_order_ = 0;
    std::uint64_t events_run_ = 0;
};

}  // namespace draftboard::sim
