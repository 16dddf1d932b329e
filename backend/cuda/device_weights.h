// SPDX-License-Identifier: Apache-2.0
#pragma once
// The weights of one rank in device memory, sorted as cpu/model_weights.h sorts them, which brings them here: cut to the rank's
// share and in their stored formats. Matrices that arrive without data (shape_source.h) are filled with random numbers on the
// device.
//
// Parts of a projection that share a plain format or int4 are put one below the other, so that they are one matrix and one
// launch.

#include <cstdint>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "backend/cpu/model_weights.h"
#include "backend/cuda/device_buffer.h"
#include "backend/cuda/device_matrix.h"
#include "backend/cuda/experts.h"

namespace draftboard::backend::cuda {

struct DeviceProjection {
    std::vector<DeviceMatrix> parts;
    const float* bias = nullptr;  ///< over all parts' rows, or nullptr
    std::int64_t rows = 0;        ///< of all parts
};

struct DeviceMla {
    DeviceProjection qkv_a;  ///< q_a, kv_a; without q_lora q, kv_a, never put together: the plan has them as two operations
    std::vector<std::int64_t> part_rows;
    const float* q_a_norm = nullptr;
    const float* kv_a_norm = nullptr;
    DeviceProjection q_b;
    DeviceMatrix kv_b;
    DeviceMatrix o;
};

struct DeviceGqa {
    DeviceProjection qkv;
    const float* q_norm = nullptr;
    const float* k_norm = nullptr;
    DeviceMatrix o;
    const float* o_bias = nullptr;
};

struct DeviceDeltaNet {
    DeviceProjection in_proj;
    const float* conv = nullptr;
    const float* a_log = nullptr;
    const float* dt_bias = nullptr;
    const float* norm = nullptr;
    DeviceMatrix out;
};

struct DeviceDense {
    DeviceProjection gate_up;
    DeviceMatrix down;
};

struct DeviceMoe {
    DeviceMatrix router;
    const float* correction_bias = nullptr;
    ExpertLayer experts;
    std::optional<DeviceDense> shared;
    const float* shared_gate = nullptr;
};

struct DeviceLayer {
    const float* mixer_norm = nullptr;
    const float* feed_forward_norm = nullptr;
    std::variant<DeviceMla, DeviceGqa, DeviceDeltaNet> mixer;
    std::variant<DeviceDense, DeviceMoe> feed_forward;
};

struct DeviceFusion {
    DeviceMatrix projection;
    const float* embedding_norm = nullptr;
    const float* hidden_norm = nullptr;
};

class DeviceWeights {
   public:
    /// Takes `weights` to the current device, layer by layer, and drops the host's copy of all but what a drafter may borrow.
    /// Tables that are the lender's own are not stored again. `seed`: of random fillings.
    DeviceWeights(cpu::ModelWeights weights, const DeviceWeights* lender, std::uint64_t seed);

    DeviceMatrix embedding;
    std::vector<DeviceLayer> layers;
    const float* final_norm = nullptr;
    DeviceMatrix lm_head;
    std::optional<DeviceFusion> fusion;

    /// What remains on the host: embedding and LM head, and a head's map of tokens.
    [[nodiscard]] const cpu::ModelWeights& host() const { return host_; }

   private:
    class Uploader;
    cpu::ModelWeights host_;
    std::vector<DeviceBuffer<std::byte>> memory_;
};

}  // namespace draftboard::backend::cuda
