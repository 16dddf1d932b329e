// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ctrl-C for commands that take a while: the first asks them to stop and say what they have, the second ends the program.

#include <atomic>
#include <csignal>

namespace draftboard::cli {

inline constexpr int kInterrupted = 130;  ///< exit status of a command that was asked to stop: 128 + SIGINT

/// Listens while it lives; one at a time.
class Interrupt {
 public:
    Interrupt() {
        asked_ = false;
        before_ = std::signal(SIGINT, [](int) {
            asked_ = true;
            std::signal(SIGINT, SIG_DFL);
        });
    }
    ~Interrupt() { std::signal(SIGINT, before_); }
    Interrupt(const Interrupt&) = delete;
    Interrupt& operator=(const Interrupt&) = delete;

    [[nodiscard]] const std::atomic<bool>& flag() const { return asked_; }

 private:
    // A signal handler reaches nothing but statics; this one is written by it alone.
    inline static std::atomic<bool> asked_{false};
    static_assert(std::atomic<bool>::is_always_lock_free);
    void (*before_)(int) = SIG_DFL;
};

}  // namespace draftboard::cli
