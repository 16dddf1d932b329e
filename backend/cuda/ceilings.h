// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a GPU's memory can do at most, measured on it: the rates that a kernel's bytes are held against.
//
//   copy   device to device, 1 GiB buffers, bytes read plus bytes written
//   read   every 16-byte word of 2 GiB summed once

namespace draftboard::backend::cuda {

struct MemoryRates {
    double copy_gb_per_s = 0;
    double read_gb_per_s = 0;
};

/// On the current device; the median of `repetitions` each, after a warm-up. Takes 2 GiB for its time. Throws where CUDA refuses.
[[nodiscard]] MemoryRates measure_memory(int repetitions = 9);

}  // namespace draftboard::backend::cuda
