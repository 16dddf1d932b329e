// SPDX-License-Identifier: Apache-2.0
#pragma once
// One line of progress on stderr, written over and over, on a terminal only; elsewhere nothing.

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include <fmt/format.h>

namespace draftboard::cli {

class ProgressBar {
   public:
    explicit ProgressBar(bool quiet) : shown_(!quiet && isatty(STDERR_FILENO) == 1) {}
    ~ProgressBar() { clear(); }
    ProgressBar(const ProgressBar&) = delete;
    ProgressBar& operator=(const ProgressBar&) = delete;

    void show(double share, const std::string& step) {
        if (!shown_) return;
        constexpr int kWidth = 30;
        const int full = std::clamp(static_cast<int>(share * kWidth), 0, kWidth);
        fmt::print(stderr, "\r\033[K[{}{}] {:3.0f} %  {}", std::string(static_cast<std::size_t>(full), '#'),
                   std::string(static_cast<std::size_t>(kWidth - full), '.'), 100 * share, step);
        std::fflush(stderr);
        drawn_ = true;
    }
    void clear() {
        if (drawn_) fmt::print(stderr, "\r\033[K");
        drawn_ = false;
    }

   private:
    bool shown_;
    bool drawn_ = false;
};

}  // namespace draftboard::cli
