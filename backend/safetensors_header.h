// SPDX-License-Identifier: Apache-2.0
#pragma once
// The JSON header of a safetensors file:
//   {"__metadata__": {"key": "text"}, "NAME": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [begin, end]}, ...}
// Read as events, so that duplicate names are seen and the cost is linear. What the offsets mean for a file of a given size
// is checked in safetensors.cpp.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "backend/safetensors.h"

namespace draftboard::backend {

/// More dimensions than any model's tensors have.
inline constexpr std::size_t kMaxTensorRank = 8;

struct TensorEntry {
    std::string name;
    TensorType type = TensorType::f32;
    std::vector<std::int64_t> shape;
    std::uint64_t begin = 0;  ///< bytes behind the header
    std::uint64_t end = 0;
    std::uint64_t size = 0;   ///< product of shape x bytes of an element; checked not to overflow
};

struct SafetensorsHeader {
    std::vector<TensorEntry> tensors;
    std::map<std::string, std::string> metadata;
};

/// Each entry is complete, of a known dtype, of a size that fits 63 bits, and has begin <= end with end - begin = size.
/// Names are unique.
[[nodiscard]] model::Expected<SafetensorsHeader> read_safetensors_header(std::string_view json, const std::string& name);

}  // namespace draftboard::backend
