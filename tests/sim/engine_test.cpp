// SPDX-License-Identifier: Apache-2.0
#include "sim/engine.h"

#include <string>

#include <gtest/gtest.h>

namespace draftboard::sim {
namespace {

TEST(Engine, Events_at_equal_times_run_in_insertion_order) {
    Engine engine;
    std::string order;
    engine.schedule(5, [&] { order += 'b'; });
    engine.schedule(5, [&] { order += 'c'; });
    engine.schedule(1, [&] { order += 'a'; });
    EXPECT_EQ(engine.run(), 5);
    EXPECT_EQ(order, "abc");
}

TEST(Engine, An_event_may_schedule_more_at_its_own_time) {
    Engine engine;
    std::string order;
    engine.schedule(2, [&] {
        order += 'a';
        engine.schedule(2, [&] { order += 'c'; });
        engine.schedule_after(3, [&] { order += 'd'; });
    });
    engine.schedule(2, [&] { order += 'b'; });
    EXPECT_EQ(engine.run(), 5);
    EXPECT_EQ(order, "abcd");
    EXPECT_EQ(engine.events_run(), 4u);
}

}  // namespace
}  // namespace draftboard::sim
