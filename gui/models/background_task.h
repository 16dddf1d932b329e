// SPDX-License-Identifier: Apache-2.0
#pragma once
// One piece of long work at a time, off the window's thread, with progress and a stop token. Its result is delivered on the
// window's thread; work that was cancelled or replaced delivers nothing. Predictions have their own thread
// (prediction_worker.h); this is for sweeps, comparisons, calibrations and validations.

#include <QObject>
#include <QString>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <thread>
#include <vector>

namespace draftboard::gui {

class BackgroundTask : public QObject {
    Q_OBJECT
 public:
    using Progress = std::function<void(double share, const QString& what)>;
    /// Runs on the task's thread; returns what is to be done on the window's thread afterwards.
    using Work = std::function<std::function<void()>(const std::stop_token& stop, const Progress& progress)>;

    explicit BackgroundTask(QObject* parent = nullptr);
    /// Asks the work to stop and waits for it.
    ~BackgroundTask() override;

    /// Work that still runs is asked to stop, and its result is dropped.
    void start(Work work);
    /// The work ends at its next look at the stop token; finished(false) follows at once.
    void cancel();
    [[nodiscard]] bool running() const { return running_; }

 signals:
    void progressed(double share, const QString& what);
    void finished(bool complete);

 private:
    void deliver(std::uint64_t number, const std::function<void()>& result);

    std::uint64_t number_ = 0;
    bool running_ = false;
    std::vector<std::jthread> threads_;  ///< the last one works, those before it are stopping
};

}  // namespace draftboard::gui
