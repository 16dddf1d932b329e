// SPDX-License-Identifier: Apache-2.0
// What runs on threads: the worker that predicts, and sweeps. The thread sanitizer runs these.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>

#include "gui/core/prediction_worker.h"
#include "gui/core/sweep.h"
#include "tests/gui/founding.h"

namespace draftboard::gui {
namespace {

TEST(Sweep, GivesTheSameWhateverTheNumberOfThreads) {
    const AnswerPointer answer = answered(founding());
    const auto knobs = knob_table(kData);
    const std::vector<SweepAxis> axes{sweep_axis(*find_knob(knobs, "speculation.steps"), 6, *answer),
                                      sweep_axis(*find_knob(knobs, "workload.concurrency"), 5, *answer)};
    const auto one = run_sweep(*answer, axes, kData, 1, {});
    const auto three = run_sweep(*answer, axes, kData, 3, {});
    ASSERT_TRUE(one && three);
    EXPECT_EQ(sweep_csv(*one), sweep_csv(*three));
    EXPECT_TRUE(one->complete);
    const Variant same =
        founding({{"speculation.steps", one->at(2, 1).values[0]}, {"workload.concurrency", one->at(2, 1).values[1]}});
    EXPECT_EQ(one->at(2, 1).tokens_per_second.value, answered(same)->prediction.tokens_per_second.value);
}

TEST(Sweep, StopsWhenAskedTo) {
    const AnswerPointer answer = answered(founding());
    const auto knobs = knob_table(kData);
    std::stop_source stop;
    stop.request_stop();
    const auto sweep =
        run_sweep(*answer, {sweep_axis(*find_knob(knobs, "workload.context_tokens"), 50, *answer)}, kData, 2, stop.get_token());
    ASSERT_TRUE(sweep);
    EXPECT_FALSE(sweep->complete);
}

// f(x) = x at x = 1..12: the level 4.5 is crossed at 4.5, a level that is a value is met there once.
TEST(Worker, OnlyTheNewestQuestionIsSureOfAnAnswer) {
    std::promise<std::uint64_t> last;
    std::atomic<std::uint64_t> wanted{0};
    std::atomic<int> answers{0};
    std::atomic<bool> done{false};
    {
        PredictionWorker::Receiver receiver;
        receiver.answered = [&](std::uint64_t number, const model::Expected<AnswerPointer>& answer) {
            ++answers;
            EXPECT_TRUE(answer);
            if (number == wanted && !done.exchange(true))
                last.set_value(static_cast<std::uint64_t>((*answer)->scenario.speculation.steps));
        };
        receiver.detailed = [](std::uint64_t, const std::shared_ptr<const Details>&) {};
        PredictionWorker worker(kData, std::move(receiver));
        wanted = 40;
        for (int i = 0; i < 40; ++i) worker.ask(founding({{"speculation.steps", 1 + i % 8}}));
        EXPECT_EQ(last.get_future().get(), 8u);  // the 40th asks for depth 8
    }
    EXPECT_LT(answers, 40);
}

TEST(Worker, EndsAtOnceThoughQuestionsWait) {
    PredictionWorker::Receiver receiver;
    receiver.answered = [](std::uint64_t, const model::Expected<AnswerPointer>&) {};
    receiver.detailed = [](std::uint64_t, const std::shared_ptr<const Details>&) {};
    PredictionWorker worker(kData, std::move(receiver));
    for (int i = 0; i < 5; ++i) worker.ask(founding());
}

}  // namespace
}  // namespace draftboard::gui
