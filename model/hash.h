// SPDX-License-Identifier: Apache-2.0
#pragma once
// FNV-1a over bytes: names documents and random streams, the same on every platform. Not for security.

#include <cstdint>
#include <string_view>

namespace draftboard::model {

inline constexpr std::uint64_t kFnvBasis = 0xcbf29ce484222325ULL;
inline constexpr std::uint64_t kFnvPrime = 0x100000001b3ULL;

[[nodiscard]] constexpr std::uint64_t fnv1a(std::string_view text) {
    std::uint64_t hash = kFnvBasis;
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * kFnvPrime;
    return hash;
}

}  // namespace draftboard::model
