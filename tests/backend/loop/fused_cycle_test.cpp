// SPDX-License-Identifier: Apache-2.0
// The decode loop with a device that runs whole cycles: the same tokens and the same acceptance as when the loop drives each
// pass.
#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "backend/decode_loop.h"
#include "tests/backend/loop/toy_cycle.h"
#include "tests/backend/loop/toy_setup.h"

namespace draftboard::backend {
namespace {

struct Ran {
    std::vector<Result> results;
    std::vector<std::int64_t> histogram;
    int begun = 0;
    int cycles = 0;
    bool empty = false;
};

DrafterReads reads_of(ToyMethod method) {
    return method == ToyMethod::eagle3_chain ? DrafterReads::features : DrafterReads::hidden;
}

std::vector<Request> some_requests() {
    std::vector<Request> requests;
    for (int i = 0; i < 7; ++i) {
        Request request;
        for (int t = 0; t <= i % 3; ++t) request.prompt.push_back((3 * i + t) % 12);
        request.max_tokens = 9 + 5 * i;
        if (i % 2 == 1) request.end_tokens = {7};
        requests.push_back(std::move(request));
    }
    return requests;
}

Ran run(ToyMethod method, const ToySetup& setup, bool fused, const std::vector<Request>& requests) {
    ToyPair pair = make_pair_of(method, setup);
    ToyCycle cycle(*pair.target, pair.drafter_model.get(), reads_of(method), setup.steps);
    LoopOptions options;
    if (fused) options.fused = &cycle;
    DecodeLoop loop(*pair.target, pair.drafter.get(), options);
    for (const Request& request : requests) EXPECT_TRUE(loop.submit(request).has_value());
    const auto done = loop.run();
    EXPECT_TRUE(done.has_value()) << (done ? "" : done.error().to_text());
    Ran out;
    for (std::size_t i = 0; i < requests.size(); ++i) out.results.push_back(loop.result(static_cast<int>(i)));
    out.histogram = loop.acceptance().histogram();
    out.begun = cycle.begun();
    out.cycles = cycle.cycles();
    out.empty = pair.target->empty() && (pair.drafter_model == nullptr || pair.drafter_model->empty());
    EXPECT_FALSE(cycle.running());
    return out;
}

TEST(FusedCycle, Changes_neither_tokens_nor_acceptance_whatever_the_batch) {
    for (const ToyMethod method : {ToyMethod::none, ToyMethod::eagle3_chain, ToyMethod::mtp_chain}) {
        for (const int capacity : {1, 2, 4, 8}) {
            for (const int steps : {1, 2, 4}) {
                ToySetup setup;
                setup.capacity = capacity;
                setup.steps = steps;
                const Ran by_pass = run(method, setup, false, some_requests());
                const Ran whole = run(method, setup, true, some_requests());
                const std::string place =
                    to_text(method) + ", capacity " + std::to_string(capacity) + ", steps " + std::to_string(steps);
                for (std::size_t i = 0; i < by_pass.results.size(); ++i) {
                    EXPECT_EQ(whole.results[i].tokens, by_pass.results[i].tokens) << place << ", request " << i;
                    EXPECT_EQ(whole.results[i].finish, by_pass.results[i].finish) << place;
                    EXPECT_EQ(whole.results[i].near_ties, by_pass.results[i].near_ties) << place;
                }
                EXPECT_EQ(whole.histogram, by_pass.histogram) << place;
                EXPECT_GT(whole.begun, 0) << place;
                EXPECT_GT(whole.cycles, whole.begun) << place;
                EXPECT_TRUE(whole.empty) << place;
            }
        }
    }
}

TEST(FusedCycle, Comes_back_to_the_host_before_room_runs_out) {
    for (const ToyMethod method : {ToyMethod::none, ToyMethod::eagle3_chain}) {
        ToySetup setup;
        setup.max_length = 40;
        setup.drafter_max_length = 33;
        Request request;
        request.prompt = {1, 2, 3};
        request.max_tokens = 1000;
        const Ran by_pass = run(method, setup, false, {request});
        const Ran whole = run(method, setup, true, {request});
        EXPECT_EQ(whole.results[0].tokens, by_pass.results[0].tokens);
        EXPECT_EQ(whole.results[0].finish, Finish::max_length);
        EXPECT_GT(whole.cycles, 1);
    }
}

TEST(FusedCycle, Leaves_sampled_texts_to_the_loop) {
    ToySetup setup;
    auto requests = some_requests();
    for (Request& request : requests) request.sampling.temperature = 1;
    const Ran whole = run(ToyMethod::eagle3_chain, setup, true, requests);
    EXPECT_EQ(whole.begun, 0);
    const Ran by_pass = run(ToyMethod::eagle3_chain, setup, false, requests);
    for (std::size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(whole.results[i].tokens, by_pass.results[i].tokens);
}

TEST(FusedCycle, Is_taken_down_when_the_run_is_cancelled) {
    ToyPair pair = make_pair_of(ToyMethod::eagle3_chain, {});
    ToyCycle cycle(*pair.target, pair.drafter_model.get(), DrafterReads::features, 3);
    std::atomic<bool> cancel{false};
    LoopOptions options;
    options.fused = &cycle;
    options.cancel = &cancel;
    int calls = 0;
    options.on_tokens = [&](int, std::span<const int>) {
        if (++calls == 5) cancel = true;
    };
    DecodeLoop loop(*pair.target, pair.drafter.get(), options);
    Request request;
    request.prompt = {1, 2};
    request.max_tokens = 1000;
    ASSERT_TRUE(loop.submit(request).has_value());
    ASSERT_TRUE(loop.run().has_value());
    EXPECT_EQ(loop.result(0).finish, Finish::cancelled);
    EXPECT_FALSE(cycle.running());
    EXPECT_LT(loop.result(0).tokens.size(), 1000U);
}

TEST(FusedCycle, Ends_the_run_with_its_error_when_the_device_fails) {
    for (const int cycle_that_fails : {1, 2, 5}) {
        ToyPair pair = make_pair_of(ToyMethod::eagle3_chain, {});
        ToyCycle cycle(*pair.target, pair.drafter_model.get(), DrafterReads::features, ToySetup().steps);
        cycle.fail_in(cycle_that_fails);
        LoopOptions options;
        options.fused = &cycle;
        DecodeLoop loop(*pair.target, pair.drafter.get(), options);
        std::vector<Request> requests = some_requests();
        for (Request& request : requests) {
            request.max_tokens = 100;
            request.end_tokens.clear();
            ASSERT_TRUE(loop.submit(std::move(request)).has_value());
        }
        const auto done = loop.run();
        ASSERT_FALSE(done.has_value());
        EXPECT_EQ(done.error().message, "the device fell off the bus");
        for (int i = 0; i < 7; ++i) EXPECT_EQ(loop.result(i).finish, Finish::cancelled) << i;
        EXPECT_FALSE(cycle.running());
        EXPECT_TRUE(pair.target->empty());
        EXPECT_TRUE(pair.drafter_model->empty());
    }
}

}  // namespace
}  // namespace draftboard::backend
