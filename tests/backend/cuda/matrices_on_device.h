// SPDX-License-Identifier: Apache-2.0
#pragma once
// Matrices of the CPU's tests in device memory, for the tests of the GPU's matrices and experts.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "../cpu/sample_matrices.h"
#include "backend/cuda/check.h"
#include "backend/cuda/device_matrix.h"

namespace draftboard::backend::cuda {

/// Device memory; every byte 0xFF (NaN, -1) until written.
template <class T>
class Device {
 public:
    explicit Device(std::size_t count) : count_(count) {
        check(cudaMalloc(&data_, std::max<std::size_t>(1, count) * sizeof(T)), "cudaMalloc");
        poison();
    }
    explicit Device(const std::vector<T>& values) : Device(values.size()) {
        check(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
    }
    ~Device() { cudaFree(data_); }
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;
    void poison() { check(cudaMemset(data_, 0xFF, std::max<std::size_t>(1, count_) * sizeof(T)), "cudaMemset"); }
    [[nodiscard]] T* get() const { return static_cast<T*>(data_); }
    [[nodiscard]] std::vector<T> read() const {
        check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        std::vector<T> values(count_);
        check(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
        return values;
    }

 private:
    void* data_ = nullptr;
    std::size_t count_;
};

inline Stored stored(model::NumberFormat format) {
    switch (format) {
        case model::NumberFormat::fp32: return Stored::fp32;
        case model::NumberFormat::fp8_e4m3: return Stored::fp8_e4m3;
        case model::NumberFormat::int4: return Stored::int4;
        default: return Stored::bf16;
    }
}

/// Matrices of one shape, one after the other in device memory.
struct OnDevice {
    explicit OnDevice(const std::vector<const cpu::WeightMatrix*>& matrices) {
        const cpu::WeightMatrix& first = *matrices[0];
        std::vector<std::byte> bytes;
        std::vector<float> all_scales;
        for (const cpu::WeightMatrix* matrix : matrices) {
            bytes.insert(bytes.end(), matrix->data.data(), matrix->data.data() + matrix->data.size());
            all_scales.insert(all_scales.end(), matrix->scales.begin(), matrix->scales.end());
        }
        data = std::make_unique<Device<std::byte>>(bytes);
        scales = std::make_unique<Device<float>>(all_scales);
        view.first.data = data->get();
        view.first.rows = first.rows;
        view.first.columns = first.columns;
        view.first.row_bytes = static_cast<std::int64_t>(first.row_bytes);
        view.first.format = stored(first.format.format);
        view.first.scales = first.scales.empty() ? nullptr : scales->get();
        view.first.scale_columns = static_cast<int>(first.scale_columns);
        view.first.block_rows = static_cast<int>(first.format.block_rows);
        view.first.block_columns = static_cast<int>(first.format.block_columns);
        view.first.row_offset = static_cast<int>(first.row_offset);
        view.first.column_offset = static_cast<int>(first.column_offset);
        view.stride_bytes = static_cast<std::int64_t>(first.data.size());
        view.scale_stride = static_cast<std::int64_t>(first.scales.size());
        view.experts = static_cast<int>(matrices.size());
    }
    explicit OnDevice(const cpu::WeightMatrix& matrix) : OnDevice(std::vector<const cpu::WeightMatrix*>{&matrix}) {}
    std::unique_ptr<Device<std::byte>> data;
    std::unique_ptr<Device<float>> scales;
    ExpertMatrices view;
};

/// Skips where there is no GPU.
class CudaTest : public testing::Test {
 protected:
    void SetUp() override {
        int devices = 0;
        if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no GPU";
    }
};

}  // namespace draftboard::backend::cuda
