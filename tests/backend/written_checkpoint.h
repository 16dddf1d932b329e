// SPDX-License-Identifier: Apache-2.0
#pragma once
// Files for tests of the readers: a folder that goes away with its object, tensors with bytes of their own, and raw
// safetensors files whose header may lie.

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "backend/safetensors.h"

namespace draftboard::backend::testing {

class TemporaryFolder {
   public:
    TemporaryFolder();
    ~TemporaryFolder();
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }
    void write(std::string_view name, std::string_view content) const;

   private:
    std::string path_;
};

/// Tensors with storage; add(), then write().
class TensorSet {
   public:
    void add(const std::string& name, TensorType type, std::vector<std::int64_t> shape, std::vector<std::byte> bytes);
    void add_f32(const std::string& name, std::vector<std::int64_t> shape, const std::vector<float>& values);
    /// Rounded to bf16.
    void add_bf16(const std::string& name, std::vector<std::int64_t> shape, const std::vector<float>& values);
    /// bf16 whose values are 1, 2, 3, ... times `step`, modulo 97: distinct within a small tensor.
    void add_counting(const std::string& name, std::vector<std::int64_t> shape, float step = 1.0f / 64);
    void write(const std::string& path) const;

   private:
    std::deque<std::vector<std::byte>> storage_;
    std::vector<TensorToWrite> tensors_;
};

/// Length, header, data; `length` replaces the true one unless it is negative.
[[nodiscard]] std::vector<std::byte> raw_safetensors(std::string_view header, std::size_t data_bytes, std::int64_t length = -1);

template <class T>
[[nodiscard]] std::vector<std::byte> bytes_of_values(const std::vector<T>& values) {
    const auto* begin = reinterpret_cast<const std::byte*>(values.data());
    return {begin, begin + values.size() * sizeof(T)};
}

}  // namespace draftboard::backend::testing
