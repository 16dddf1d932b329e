// SPDX-License-Identifier: Apache-2.0
#include "sim/engine.h"

#include <algorithm>
#include <utility>

namespace draftboard::sim {

void Engine::schedule(Time at, Callback callback) {
    heap_.push_back({std::max(at, now_), next_order_++, std::move(callback)});
    std::push_heap(heap_.begin(), heap_.end(), Later{});
}

Time Engine::run() {
    // Take the earliest event, advance the clock to it, run it; it may schedule more. Equal times run
    // in the order in which they were scheduled. The queue is empty when nothing can happen any more.
    while (!heap_.empty()) {
        std::pop_heap(heap_.begin(), heap_.end(), Later{});
        Event event = std::move(heap_.back());
        heap_.pop_back();
        now_ = event.at;
        ++events_run_;
        event.callback();
    }
    return now_;
}

}  // namespace draftboard::sim
