// SPDX-License-Identifier: Apache-2.0
#pragma once
// Limits of what the model takes in: far beyond any real input, near enough that no count overflows 63 bits
// and no reader runs for long. Each reader checks against these and names the place.

#include <cstdint>

namespace draftboard::model {

inline constexpr int kMaxLayers = 1000;
inline constexpr int kMaxExperts = 65535;  ///< a routing trace stores an expert in 16 bits
inline constexpr int kMaxMtpModules = 16;
inline constexpr std::int64_t kMaxFeatures = std::int64_t{1} << 24;  ///< one dimension of a matrix
inline constexpr std::int64_t kMaxVocabulary = std::int64_t{1} << 27;
inline constexpr std::int64_t kMaxContext = std::int64_t{1} << 32;   ///< tokens
inline constexpr std::int64_t kMaxParameters = 1'000'000'000'000'000;  ///< 1e15

}  // namespace draftboard::model
