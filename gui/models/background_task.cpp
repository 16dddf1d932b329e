// SPDX-License-Identifier: Apache-2.0
#include "gui/models/background_task.h"

#include <QMetaObject>
#include <utility>

namespace draftboard::gui {

BackgroundTask::BackgroundTask(QObject* parent) : QObject(parent) {}

BackgroundTask::~BackgroundTask() {
    for (std::jthread& thread : threads_) thread.request_stop();
    threads_.clear();  // joins; what the threads still post is discarded with this object
}

void BackgroundTask::start(Work work) {
    for (std::jthread& thread : threads_) thread.request_stop();
    const std::uint64_t number = ++number_;
    running_ = true;
    threads_.emplace_back([this, number, work = std::move(work)](const std::stop_token& stop) {
        const Progress progress = [this, number](double share, const QString& what) {
            QMetaObject::invokeMethod(
                this,
                [this, number, share, what] {
                    if (number == number_ && running_) emit progressed(share, what);
                },
                Qt::QueuedConnection);
        };
        auto result = work(stop, progress);
        QMetaObject::invokeMethod(
            this, [this, number, result = std::move(result)] { deliver(number, result); }, Qt::QueuedConnection);
    });
}

void BackgroundTask::cancel() {
    if (!running_) return;
    ++number_;
    running_ = false;
    for (std::jthread& thread : threads_) thread.request_stop();
    emit finished(false);
}

void BackgroundTask::deliver(std::uint64_t number, const std::function<void()>& result) {
    if (number != number_ || !running_) return;
    running_ = false;
    threads_.clear();  // all have ended but the last, which has just posted this
    if (result) result();
    emit finished(true);
}

}  // namespace draftboard::gui
