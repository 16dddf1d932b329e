// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tokens per second over cycles, with an interval. Renewal-reward: the rate is mean tokens over mean time of a cycle, not
// the mean of rates; its standard deviation follows from the residuals of that ratio.
//
//   R = sum x / sum t,   sd(R) = sqrt( sum (x - R t)^2 / (n (n-1)) ) / mean t,   interval R -+ 1.645 sd, at least 0
//   sum (x - R t)^2 = sum x^2 - 2 R sum x t + R^2 sum t^2
// Worked example: cycles of (2 tokens, 1 s) and (2 tokens, 3 s): R = 1, residuals 1 and -1, sd = sqrt(2/2)/2 = 0.5.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "model/acceptance.h"

namespace draftboard::backend {

class Throughput {
   public:
    void count(double tokens, double seconds) {
        ++cycles_;
        tokens_ += tokens;
        seconds_ += seconds;
        tokens_squared_ += tokens * tokens;
        product_ += tokens * seconds;
        seconds_squared_ += seconds * seconds;
    }
    [[nodiscard]] std::int64_t cycles() const { return cycles_; }
    [[nodiscard]] double tokens() const { return tokens_; }
    [[nodiscard]] double seconds() const { return seconds_; }
    /// Nothing counted: zero. One cycle: no interval beside 0 .. its rate doubled.
    [[nodiscard]] model::Interval tokens_per_second() const {
        if (cycles_ == 0 || !(seconds_ > 0)) return {};
        const double rate = tokens_ / seconds_;
        if (cycles_ == 1) return {rate, 0, 2 * rate};
        const auto n = static_cast<double>(cycles_);
        const double residuals = tokens_squared_ - 2 * rate * product_ + rate * rate * seconds_squared_;
        const double deviation = std::sqrt(std::max(residuals, 0.0) / (n * (n - 1))) / (seconds_ / n);
        return {rate, std::max(0.0, rate - kNormal * deviation), rate + kNormal * deviation};
    }

   private:
    static constexpr double kNormal = 1.645;  ///< 90 %
    std::int64_t cycles_ = 0;
    double tokens_ = 0;
    double seconds_ = 0;
    double tokens_squared_ = 0;
    double product_ = 0;
    double seconds_squared_ = 0;
};

}  // namespace draftboard::backend
