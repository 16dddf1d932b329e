// SPDX-License-Identifier: Apache-2.0
#pragma once
// One small seeded generator (SplitMix64: Steele, Lea, Flood 2014), passed in wherever chance enters, so that the same seed gives
// the same bytes on any platform. The standard library's distributions are not portable; these are.

#include <cmath>
#include <cstdint>
#include <numbers>

namespace draftboard::model {

class Random {
   public:
    explicit Random(std::uint64_t seed) : state_(seed) {}

    std::uint64_t next() {
        std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
        return z ^ (z >> 31);
    }
    /// In (0, 1).
    double uniform() { return (static_cast<double>(next() >> 11) + 0.5) * 0x1.0p-53; }
    /// Below `bound`; the bias of multiply-shift is below 2^-32 x bound.
    std::uint32_t below(std::uint32_t bound) {
        return static_cast<std::uint32_t>(((next() >> 32) * bound) >> 32);
    }
    /// Standard normal by Box-Muller; one value a call.
    double normal() {
        const double radius = std::sqrt(-2.0 * std::log(uniform()));
        return radius * std::cos(2.0 * std::numbers::pi * uniform());
    }
    /// A stream of its own for a named purpose, independent of how much of this one was used.
    [[nodiscard]] Random fork(std::uint64_t name) const {
        Random child(state_ ^ (name * 0xd1342543de82ef95ULL));
        child.next();
        return child;
    }

   private:
    std::uint64_t state_;
};

}  // namespace draftboard::model
