// SPDX-License-Identifier: Apache-2.0
#include "gui/core/prediction_worker.h"

#include <utility>

namespace draftboard::gui {

namespace {

std::map<std::string, std::string> terms_by_key(const Answer& answer, const Timeline& timeline) {
    std::map<std::string, std::string> out;
    for (std::size_t pass = 0; pass < answer.passes.size(); ++pass) {
        const sim::PricedPass& priced = answer.passes[pass].priced;
        for (std::size_t i = 0; i < priced.operations.size(); ++i) {
            out[timeline.keys[pass][i]] =
                priced.operations[i].collective ? "collectives" : std::string(to_name(priced.info[i].term));
        }
    }
    return out;
}

}  // namespace

PredictionWorker::PredictionWorker(std::string data_directory, Receiver receiver)
    : receiver_(std::move(receiver)),
      answerer_(std::move(data_directory)),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

PredictionWorker::~PredictionWorker() = default;

std::uint64_t PredictionWorker::ask(Variant variant) {
    std::uint64_t number = 0;
    {
        const std::lock_guard lock(mutex_);
        waiting_ = std::move(variant);
        number = ++asked_;
    }
    arrived_.notify_one();
    return number;
}

bool PredictionWorker::is_latest(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    return number == asked_;
}

// Take the newest question, answer it, and unless it is stale by then, tell its details.
void PredictionWorker::run(const std::stop_token& stop) {
    while (true) {
        Variant variant;
        std::uint64_t number = 0;
        {
            std::unique_lock lock(mutex_);
            if (!arrived_.wait(lock, stop, [this] { return waiting_.has_value(); })) return;
            if (stop.stop_requested()) return;
            variant = std::move(*waiting_);
            waiting_.reset();
            number = asked_;
        }
        auto answer = answerer_.answer(variant);
        const bool answered = answer.has_value();
        AnswerPointer pointer = answered ? *answer : nullptr;
        receiver_.answered(number, std::move(answer));
        if (!answered || stop.stop_requested() || !is_latest(number)) continue;
        auto details = std::make_shared<Details>();
        details->timeline = build_timeline(*pointer);
        details->terms = terms_by_key(*pointer, details->timeline);
        if (!is_latest(number)) continue;
        if (auto explanation = answerer_.explain()) details->explanation = std::move(*explanation);
        if (!stop.stop_requested() && is_latest(number)) receiver_.detailed(number, std::move(details));
    }
}

}  // namespace draftboard::gui
