// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which processor cores are near a GPU, and tying the calling thread to them: a thread on the other socket pays a hop for every
// launch and every copy.

#include <sched.h>

#include <optional>
#include <string>

namespace draftboard::backend::cuda {

/// "0-3,8" as the kernel writes lists of cores. Nothing for text that is no such list, or an empty one.
[[nodiscard]] std::optional<cpu_set_t> parse_core_list(const std::string& text);

/// Ties the calling thread to the cores near a GPU, as far as it may use them. False where they are not known: nothing is
/// changed.
bool bind_near_device(int device);

}  // namespace draftboard::backend::cuda
