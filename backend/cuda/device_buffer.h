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

/// Numbers in memory of the kind that Memory takes and gives back.
template <class Number, class Memory>
class FixedBuffer {
   public:
    FixedBuffer() = default;
    explicit FixedBuffer(std::int64_t count) : count_(count) {
        if (count > 0) data_ = static_cast<Number*>(Memory::take(static_cast<std::size_t>(count) * sizeof(Number)));
    }
    FixedBuffer(FixedBuffer&& other) noexcept { swap(other); }
    FixedBuffer& operator=(FixedBuffer&& other) noexcept {
        swap(other);
        return *this;
    }
    ~FixedBuffer() { Memory::give_back(data_); }
    [[nodiscard]] Number* data() const { return data_; }
    [[nodiscard]] std::int64_t size() const { return count_; }

   private:
    void swap(FixedBuffer& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(count_, other.count_);
    }
    Number* data_ = nullptr;
    std::int64_t count_ = 0;
};

struct DeviceMemory {
    static void* take(std::size_t bytes) {
        void* data = nullptr;
        check(cudaMalloc(&data, bytes), "device memory");
        return data;
    }
    static void give_back(void* data) { cudaFree(data); }
};

/// Host memory that every device copies from and to without a detour.
struct PinnedMemory {
    static void* take(std::size_t bytes) {
        void* data = nullptr;
        check(cudaHostAlloc(&data, bytes, cudaHostAllocPortable), "pinned memory");
        return data;
    }
    static void give_back(void* data) { cudaFreeHost(data); }
};

template <class Number>
using DeviceBuffer = FixedBuffer<Number, DeviceMemory>;
template <class Number>
using PinnedBuffer = FixedBuffer<Number, PinnedMemory>;

}  // namespace draftboard::backend::cuda
