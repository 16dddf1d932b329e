// SPDX-License-Identifier: Apache-2.0
#pragma once
// Whether the system took a core away from this process while something was measured: involuntary context switches of all its
// threads. What was disturbed says something of the neighbours and not of the engine, so it is measured again or left out. A rank
// that was still waiting for a core when the measurement began is not seen by this; medians have to bear that.

#include <sys/resource.h>

namespace draftboard::calibration {

class Disturbance {
   public:
    Disturbance() : before_(switches()) {}
    [[nodiscard]] bool happened() const { return switches() != before_; }

   private:
    [[nodiscard]] static long switches() {
        rusage usage{};
        return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_nivcsw : 0;
    }
    long before_;
};

}  // namespace draftboard::calibration
