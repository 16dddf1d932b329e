// SPDX-License-Identifier: Apache-2.0
#pragma once
// Predictions away from the window's thread. One thread, one slot: a newer question replaces one that waits, so however fast a
// slider moves, at most one prediction runs and one waits. Each question has a number; the receiver compares it with the
// last one asked and knows whether what arrives is stale. After an answer, and only if nothing newer waits, the details
// that are slower to come by (explanation, timeline) follow. No Qt here; receivers are called on the worker's thread.

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "gui/core/answer.h"
#include "gui/core/timeline.h"

namespace draftboard::gui {

/// What follows an answer.
struct Details {
    sim::Explanation explanation;
    Timeline timeline;
    std::map<std::string, std::string> terms;  ///< of an operation's key: "experts", ..., "collectives" for all of those
};

class PredictionWorker {
 public:
    struct Receiver {
        std::function<void(std::uint64_t number, model::Expected<AnswerPointer> answer)> answered;
        std::function<void(std::uint64_t number, std::shared_ptr<const Details> details)> detailed;
    };

    PredictionWorker(std::string data_directory, Receiver receiver);
    /// Waits for a running prediction; one that waits is dropped.
    ~PredictionWorker();

    /// Returns the question's number, counted from 1.
    std::uint64_t ask(Variant variant);

 private:
    void run(const std::stop_token& stop);
    [[nodiscard]] bool is_latest(std::uint64_t number);

    Receiver receiver_;
    Answerer answerer_;
    std::mutex mutex_;
    std::condition_variable_any arrived_;
    std::optional<Variant> waiting_;
    std::uint64_t asked_ = 0;
    std::jthread thread_;  // last: the others exist while it runs
};

}  // namespace draftboard::gui
