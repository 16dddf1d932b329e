// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/launch.h"

#include <array>
#include <utility>

namespace draftboard::backend::cuda {

namespace {

constexpr std::array<std::pair<LaunchMode, std::string_view>, 3> kModes{
    {{LaunchMode::eager, "eager"}, {LaunchMode::piecewise, "piecewise"}, {LaunchMode::full, "full"}}};

}  // namespace

std::string_view to_name(LaunchMode mode) {
    for (const auto& [known, name] : kModes) {
        if (known == mode) return name;
    }
    return "unknown";
}

std::optional<LaunchMode> launch_mode_from_name(std::string_view name) {
    for (const auto& [mode, known] : kModes) {
        if (known == name) return mode;
    }
    return std::nullopt;
}

}  // namespace draftboard::backend::cuda
