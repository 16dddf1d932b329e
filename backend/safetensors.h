// SPDX-License-Identifier: Apache-2.0
#pragma once
// One safetensors file, mapped into memory: 8 bytes little-endian header length, a JSON header, then tensor data
// (github.com/huggingface/safetensors, "Format"). Everything in the header is checked before it is used; a file that
// lies is an error naming the tensor. checkpoint.h puts several files together.

#include <cstdint>
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/error.h"

namespace draftboard::backend {

enum class TensorType { f64, f32, f16, bf16, f8_e4m3, f8_e5m2, i64, i32, i16, i8, u8, boolean };
[[nodiscard]] std::string_view to_name(TensorType type);   ///< as in the header: "F32", "BF16", "F8_E4M3", ...
[[nodiscard]] std::size_t bytes_of(TensorType type);

/// A tensor of a mapped file; valid while the file lives.
struct TensorView {
    std::string name;
    TensorType type = TensorType::f32;
    std::vector<std::int64_t> shape;
    std::span<const std::byte> bytes;
    [[nodiscard]] std::int64_t elements() const;
};

/// Largest header accepted, as in the reference implementation (100 MB).
inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;

class SafetensorsFile {
   public:
    /// Maps and checks: length fields, JSON, unknown dtype, shape x dtype = bytes, offsets in bounds, in order, without holes or
    /// overlap, alignment of each tensor to its element, duplicate names.
    [[nodiscard]] static model::Expected<SafetensorsFile> open(const std::string& path);
    /// The same from bytes that outlive the object (tests, fuzzing).
    [[nodiscard]] static model::Expected<SafetensorsFile> parse(std::span<const std::byte> bytes, const std::string& name);

    SafetensorsFile(SafetensorsFile&&) noexcept;
    SafetensorsFile& operator=(SafetensorsFile&&) noexcept;
    ~SafetensorsFile();

    [[nodiscard]] const std::map<std::string, TensorView, std::less<>>& tensors() const;
    [[nodiscard]] const std::map<std::string, std::string>& metadata() const;

   private:
    struct Impl;
    explicit SafetensorsFile(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

/// A tensor to be written.
struct TensorToWrite {
    std::string name;
    TensorType type = TensorType::f32;
    std::vector<std::int64_t> shape;
    std::span<const std::byte> bytes;
};
[[nodiscard]] model::Expected<void> write_safetensors(const std::string& path, std::span<const TensorToWrite> tensors,
                                                      const std::map<std::string, std::string>& metadata = {});

}  // namespace draftboard::backend
