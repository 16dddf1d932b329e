// SPDX-License-Identifier: Apache-2.0
#pragma once
// Arrays in device memory and passes of rows, for the tests and benchmarks of the CUDA kernels.
// Nothing here is fast.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include "backend/cpu/weight_matrix.h"
#include "backend/cuda/check.h"
#include "backend/cuda/pass_view.h"

namespace draftboard::backend::cuda {

/// Whether there is a GPU; tests skip themselves without one.
inline bool gpu_present() {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

template <class T>
class DeviceArray {
   public:
    DeviceArray() = default;
    explicit DeviceArray(const std::vector<T>& values) : size_(values.size()) {
        check(cudaMalloc(&data_, std::max<std::size_t>(size_ * sizeof(T), 16)), "cudaMalloc");
        check(cudaMemcpy(data_, values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice),
              "cudaMemcpy");
    }
    DeviceArray(std::size_t size, T value) : DeviceArray(std::vector<T>(size, value)) {}
    DeviceArray(DeviceArray&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
    DeviceArray& operator=(DeviceArray&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        return *this;
    }
    ~DeviceArray() { cudaFree(data_); }

    [[nodiscard]] T* get() const { return static_cast<T*>(data_); }
    [[nodiscard]] std::size_t size() const { return size_; }
    /// Waits for the device.
    [[nodiscard]] std::vector<T> host() const {
        std::vector<T> values(size_);
        check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        check(cudaMemcpy(values.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost),
              "cudaMemcpy");
        return values;
    }

   private:
    void* data_ = nullptr;
    std::size_t size_ = 0;
};

inline constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

inline float bf16_to_float(std::uint16_t bits) {
    const std::uint32_t wide = std::uint32_t{bits} << 16;
    float value = 0;
    std::copy_n(reinterpret_cast<const char*>(&wide), 4, reinterpret_cast<char*>(&value));
    return value;
}
inline float rounded_to_bf16(float value) { return bf16_to_float(cpu::float_to_bf16(value)); }
inline std::vector<std::uint16_t> as_bf16(const std::vector<float>& values) {
    std::vector<std::uint16_t> bits(values.size());
    std::ranges::transform(values, bits.begin(), [](float v) { return cpu::float_to_bf16(v); });
    return bits;
}

/// One sequence of a pass: rows first_row .. first_row + tokens - 1 of its uncommitted ones.
struct PassSequence {
    int slot = 0;
    int committed = 0;
    int first_row = 0;
    std::vector<std::int32_t> parents;  ///< of all uncommitted rows
};

/// The rows of a pass in device memory.
class DevicePass {
   public:
    DevicePass(const std::vector<PassSequence>& sequences, int tokens, bool keeps_uncommitted) {
        std::vector<std::int32_t> ids, positions, slots, committed, first, parents;
        std::vector<std::uint32_t> masks;
        for (const PassSequence& sequence : sequences) {
            slots.push_back(sequence.slot);
            committed.push_back(sequence.committed);
            first.push_back(sequence.first_row);
            std::vector<std::int32_t> padded = sequence.parents;
            padded.resize(kMaxUncommitted, -1);
            parents.insert(parents.end(), padded.begin(), padded.end());
            for (int t = 0; t < tokens; ++t) {
                std::vector<std::uint32_t> mask(kMaskWords);
                int seen = 0;
                for (std::int32_t u = sequence.first_row + t; u >= 0;
                     u = sequence.parents[static_cast<std::size_t>(u)], ++seen) {
                    mask[static_cast<std::size_t>(u / 32)] |= 1u << (u % 32);
                }
                masks.insert(masks.end(), mask.begin(), mask.end());
                positions.push_back(sequence.committed + seen - 1);
                ids.push_back(0);
            }
        }
        ids_ = DeviceArray(ids);
        positions_ = DeviceArray(positions);
        slots_ = DeviceArray(slots);
        committed_ = DeviceArray(committed);
        first_ = DeviceArray(first);
        parents_ = DeviceArray(parents);
        masks_ = DeviceArray(masks);
        view_ = {static_cast<int>(sequences.size()),
                 tokens,
                 ids_.get(),
                 positions_.get(),
                 slots_.get(),
                 committed_.get(),
                 first_.get(),
                 parents_.get(),
                 masks_.get(),
                 nullptr,
                 0,
                 keeps_uncommitted};
    }
    [[nodiscard]] const PassView& view() const { return view_; }

   private:
    DeviceArray<std::int32_t> ids_, positions_, slots_, committed_, first_, parents_;
    DeviceArray<std::uint32_t> masks_;
    PassView view_;
};

inline std::vector<std::int32_t> chain(int rows) {
    std::vector<std::int32_t> parents;
    for (int u = 0; u < rows; ++u) parents.push_back(u - 1);
    return parents;
}

}  // namespace draftboard::backend::cuda
