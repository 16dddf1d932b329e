// SPDX-License-Identifier: Apache-2.0
#pragma once
// Memory that host code owns: on the device, or pinned on the host. Sizes are fixed at creation, because captured graphs keep the
// addresses. Allocation throws std::runtime_error (check.h); engine.h turns that into an Error.

#include <cstddef>
#include <cstdint>
#include <utility>

#include <cuda_runtime_api.h>

#include "backend/cuda/check.h"

namespace draftboard::backend::cuda {

template <class Number>
class DeviceBuffer {
   public:
    DeviceBuffer() = default;
    explicit DeviceBuffer(std::int64_t count) : count_(count) {
        if (count > 0) check(cudaMalloc(reinterpret_cast<void**>(&data_), static_cast<std::size_t>(count) * sizeof(Number)), "device memory");
    }
    DeviceBuffer(DeviceBuffer&& other) noexcept { swap(other); }
    DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
        swap(other);
        return *this;
    }
    ~DeviceBuffer() { cudaFree(data_); }
    [[nodiscard]] Number* data() const { return data_; }
    [[nodiscard]] std::int64_t size() const { return count_; }

   private:
    void swap(DeviceBuffer& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(count_, other.count_);
    }
    Number* data_ = nullptr;
    std::int64_t count_ = 0;
};

/// Host memory that every device copies from and to without a detour.
template <class Number>
class PinnedBuffer {
   public:
    PinnedBuffer() = default;
    explicit PinnedBuffer(std::int64_t count) : count_(count) {
        if (count <= 0) return;
        check(cudaHostAlloc(reinterpret_cast<void**>(&data_), static_cast<std::size_t>(count) * sizeof(Number), cudaHostAllocPortable),
              "pinned memory");
    }
    PinnedBuffer(PinnedBuffer&& other) noexcept { swap(other); }
    PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
        swap(other);
        return *this;
    }
    ~PinnedBuffer() { cudaFreeHost(data_); }
    [[nodiscard]] Number* data() const { return data_; }
    [[nodiscard]] std::int64_t size() const { return count_; }

   private:
    void swap(PinnedBuffer& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(count_, other.count_);
    }
    Number* data_ = nullptr;
    std::int64_t count_ = 0;
};

}  // namespace draftboard::backend::cuda
