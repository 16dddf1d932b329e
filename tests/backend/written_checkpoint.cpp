// SPDX-License-Identifier: Apache-2.0
#include "tests/backend/written_checkpoint.h"

#include <cstring>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "backend/cpu/weight_matrix.h"

namespace draftboard::backend::testing {

namespace fs = std::filesystem;

TemporaryFolder::TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "draftboard-test-XXXXXX").string();
    const char* made = ::mkdtemp(pattern.data());
    EXPECT_NE(made, nullptr);
    path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
    std::error_code ec;
    fs::remove_all(path_, ec);
}

void TemporaryFolder::write(std::string_view name, std::string_view content) const {
    std::ofstream stream(file(name), std::ios::binary);
    stream << content;
}

void TensorSet::add(const std::string& name, TensorType type, std::vector<std::int64_t> shape, std::vector<std::byte> bytes) {
    storage_.push_back(std::move(bytes));
    tensors_.push_back({name, type, std::move(shape), storage_.back()});
}

void TensorSet::add_f32(const std::string& name, std::vector<std::int64_t> shape, const std::vector<float>& values) {
    add(name, TensorType::f32, std::move(shape), bytes_of_values(values));
}

void TensorSet::add_bf16(const std::string& name, std::vector<std::int64_t> shape, const std::vector<float>& values) {
    std::vector<std::uint16_t> bits;
    for (const float value : values) bits.push_back(cpu::float_to_bf16(value));
    add(name, TensorType::bf16, std::move(shape), bytes_of_values(bits));
}

void TensorSet::add_counting(const std::string& name, std::vector<std::int64_t> shape, float step) {
    std::int64_t count = 1;
    for (const auto extent : shape) count *= extent;
    std::vector<float> values;
    for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(1 + i % 97) * step);
    add_bf16(name, std::move(shape), values);
}

void TensorSet::write(const std::string& path) const {
    const auto done = write_safetensors(path, tensors_);
    EXPECT_TRUE(done) << done.error().to_text();
}

std::vector<std::byte> raw_safetensors(std::string_view header, std::size_t data_bytes, std::int64_t length) {
    const std::uint64_t stated = length < 0 ? header.size() : static_cast<std::uint64_t>(length);
    std::vector<std::byte> out(8 + header.size() + data_bytes);
    std::memcpy(out.data(), &stated, 8);
    std::memcpy(out.data() + 8, header.data(), header.size());
    return out;
}

}  // namespace draftboard::backend::testing
