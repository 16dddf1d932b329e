// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/device_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "backend/cuda/check.h"
#include "backend/cuda/fill.h"

namespace draftboard::backend::cuda {

using cpu::WeightMatrix;
using model::NumberFormat;

namespace {

Stored stored_as(NumberFormat format) {
    switch (format) {
        case NumberFormat::fp32: return Stored::fp32;
        case NumberFormat::fp8_e4m3: return Stored::fp8_e4m3;
        case NumberFormat::int4: return Stored::int4;
        default: return Stored::bf16;  // check_engine() let nothing else through
    }
}

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::int64_t scale_rows(const WeightMatrix& matrix) {
    if (matrix.format.block_rows <= 0) return 0;
    return divide_up(matrix.row_offset + matrix.rows, matrix.format.block_rows);
}

/// Numbers of scales: of a block grid, one of the whole, or none.
std::int64_t scale_count(const WeightMatrix& matrix) {
    const bool scaled = matrix.format.format == NumberFormat::fp8_e4m3 || matrix.format.format == NumberFormat::int4;
    if (!scaled) return 0;
    return matrix.format.block_rows > 0 ? scale_rows(matrix) * matrix.scale_columns : 1;
}

bool made(const WeightMatrix& matrix) { return matrix.rows == 0 || matrix.data.size() != 0; }

/// Parts that read one below the other as one matrix.
bool can_stack(const std::vector<WeightMatrix>& parts) {
    const WeightMatrix& first = parts.front();
    for (const WeightMatrix& part : parts) {
        const bool last = &part == &parts.back();
        const std::int64_t block = std::max<std::int64_t>(1, part.format.block_rows);
        if (part.format.format != first.format.format || part.format.block_rows != first.format.block_rows ||
            part.format.block_columns != first.format.block_columns || part.row_bytes != first.row_bytes ||
            part.scale_columns != first.scale_columns || part.column_offset != first.column_offset || part.row_offset != 0 ||
            (!last && part.rows % block != 0) || (part.format.block_rows <= 0 && scale_count(part) > 0)) {
            return false;
        }
    }
    return true;
}

}  // namespace

/// Copies tensors into memory of their own. The copies are synchronous: host memory may go as soon as a call returns.
class DeviceWeights::Uploader {
   public:
    Uploader(DeviceWeights& weights, std::uint64_t seed) : weights_(&weights), seed_(seed) {}

    const float* vector(const std::vector<float>& values) {
        if (values.empty()) return nullptr;
        auto* data = reinterpret_cast<float*>(take(static_cast<std::int64_t>(values.size() * sizeof(float))));
        check(cudaMemcpy(data, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice), "copy of weights");
        return data;
    }

    DeviceMatrix matrix(const WeightMatrix& matrix) {
        DeviceMatrix out = describe(matrix);
        if (matrix.rows == 0) return out;
        std::byte* data = take(matrix.rows * out.row_bytes);
        auto* scales = reinterpret_cast<float*>(take(scale_count(matrix) * 4));
        out.data = data;
        put(matrix, data, scales);
        out.scales = scale_count(matrix) > 0 ? scales : nullptr;
        return out;
    }

    DeviceProjection projection(const cpu::Projection& projection, bool together = true) {
        DeviceProjection out;
        out.rows = projection.rows();
        out.bias = vector(projection.bias);
        if (projection.parts.empty()) return out;
        if (!together || projection.parts.size() == 1 || !can_stack(projection.parts)) {
            for (const WeightMatrix& part : projection.parts) out.parts.push_back(matrix(part));
            return out;
        }
        DeviceMatrix whole = describe(projection.parts.front());
        whole.rows = out.rows;
        std::int64_t scales = 0;
        for (const WeightMatrix& part : projection.parts) scales += scale_count(part);
        std::byte* data = take(whole.rows * whole.row_bytes);
        auto* scale = reinterpret_cast<float*>(take(scales * 4));
        whole.data = data;
        whole.scales = scales > 0 ? scale : nullptr;
        for (const WeightMatrix& part : projection.parts) {
            put(part, data, scale);
            data += part.rows * whole.row_bytes;
            scale += scale_count(part);
        }
        out.parts.push_back(whole);
        return out;
    }

    /// The same matrix of every expert. Precondition: all of the same shape and format, as one architecture makes them.
    template <class Of>
    ExpertMatrices experts(const std::vector<cpu::DenseWeights>& experts, Of of) {
        ExpertMatrices out;
        out.experts = static_cast<int>(experts.size());
        if (experts.empty()) return out;
        out.first = describe(of(experts.front()));
        out.stride_bytes = out.first.rows * out.first.row_bytes;
        out.scale_stride = scale_count(of(experts.front()));
        std::byte* data = take(out.stride_bytes * out.experts);
        auto* scales = reinterpret_cast<float*>(take(out.scale_stride * 4 * out.experts));
        out.first.data = data;
        out.first.scales = out.scale_stride > 0 ? scales : nullptr;
        for (const cpu::DenseWeights& expert : experts) {
            put(of(expert), data, scales);
            data += out.stride_bytes;
            scales += out.scale_stride;
        }
        return out;
    }

    DeviceDense dense(const cpu::DenseWeights& weights) { return {projection(weights.gate_up), matrix(weights.down)}; }

    DeviceLayer layer(const cpu::LayerWeights& weights) {
        DeviceLayer out;
        out.mixer_norm = vector(weights.mixer_norm);
        out.feed_forward_norm = vector(weights.feed_forward_norm);
        std::visit([&](const auto& mixer) { out.mixer = take_mixer(mixer); }, weights.mixer);
        if (const auto* only = std::get_if<cpu::DenseWeights>(&weights.feed_forward)) {
            out.feed_forward = dense(*only);
        } else {
            out.feed_forward = moe(std::get<cpu::MoeWeights>(weights.feed_forward));
        }
        return out;
    }

   private:
    DeviceMatrix describe(const WeightMatrix& matrix) const {
        DeviceMatrix out;
        out.rows = matrix.rows;
        out.columns = matrix.columns;
        out.row_bytes = static_cast<std::int64_t>(matrix.row_bytes);
        out.format = stored_as(matrix.format.format);
        out.scale_columns = static_cast<int>(matrix.scale_columns);
        out.block_rows = static_cast<int>(matrix.format.block_rows);
        out.block_columns = static_cast<int>(matrix.format.block_columns);
        out.row_offset = static_cast<int>(matrix.row_offset);
        out.column_offset = static_cast<int>(matrix.column_offset);
        return out;
    }

    std::byte* take(std::int64_t bytes) {
        if (bytes == 0) return nullptr;
        weights_->memory_.emplace_back(bytes);
        return weights_->memory_.back().data();
    }

    void put(const WeightMatrix& matrix, std::byte* data, float* scales) {
        if (!made(matrix)) {
            fill(matrix, data, scales);
            return;
        }
        check(cudaMemcpy(data, matrix.data.data(), matrix.data.size(), cudaMemcpyHostToDevice), "copy of weights");
        if (const auto count = static_cast<std::size_t>(scale_count(matrix)); count > 0) {
            check(cudaMemcpy(scales, matrix.scales.data(), count * 4, cudaMemcpyHostToDevice), "copy of scales");
        }
    }

    void fill(const WeightMatrix& matrix, std::byte* data, float* scales) {
        // Deviations and scales of cpu/random_source.h.
        const float s = 1.0f / std::sqrt(static_cast<float>(std::max<std::int64_t>(1, matrix.columns)));
        DeviceMatrix view = describe(matrix);
        view.data = data;
        float deviation = s;
        if (view.format == Stored::int4) deviation = 7.0f / 3;
        if (view.format == Stored::fp8_e4m3) deviation = 448.0f / 6;
        fill_matrix(view, ++seed_, deviation, nullptr);
        if (const std::int64_t count = scale_count(matrix); count > 0)
            fill_scales(scales, count, ++seed_, s / deviation, nullptr);
    }

    DeviceMla take_mixer(const cpu::MlaWeights& weights) {
        DeviceMla out;
        const bool low_rank = !weights.q_b.parts.empty();
        out.qkv_a = projection(weights.qkv_a, low_rank);
        for (const WeightMatrix& part : weights.qkv_a.parts) out.part_rows.push_back(part.rows);
        out.q_a_norm = vector(weights.q_a_norm);
        out.kv_a_norm = vector(weights.kv_a_norm);
        out.q_b = projection(weights.q_b);
        out.kv_b = matrix(weights.kv_b);
        out.o = matrix(weights.o);
        return out;
    }
    DeviceGqa take_mixer(const cpu::GqaWeights& weights) {
        return {projection(weights.qkv), vector(weights.q_norm), vector(weights.k_norm), matrix(weights.o),
                vector(weights.o_bias)};
    }
    DeviceDeltaNet take_mixer(const cpu::DeltaNetWeights& weights) {
        return {projection(weights.in_proj), vector(weights.conv), vector(weights.a_log),
                vector(weights.dt_bias),     vector(weights.norm), matrix(weights.out)};
    }
    DeviceMoe moe(const cpu::MoeWeights& weights) {
        DeviceMoe out;
        out.router = matrix(weights.router);
        out.correction_bias = vector(weights.correction_bias);
        out.experts.first_expert = weights.first_expert;
        out.experts.gate =
            experts(weights.experts, [](const cpu::DenseWeights& e) -> const WeightMatrix& { return e.gate_up.parts[0]; });
        out.experts.up =
            experts(weights.experts, [](const cpu::DenseWeights& e) -> const WeightMatrix& { return e.gate_up.parts[1]; });
        out.experts.down = experts(weights.experts, [](const cpu::DenseWeights& e) -> const WeightMatrix& { return e.down; });
        if (weights.shared) out.shared = dense(*weights.shared);
        out.shared_gate = vector(weights.shared_gate);
        return out;
    }

    DeviceWeights* weights_;
    std::uint64_t seed_;
};

DeviceWeights::DeviceWeights(cpu::ModelWeights weights, const DeviceWeights* lender, std::uint64_t seed) {
    Uploader upload(*this, seed << 32);
    const bool borrows_embedding = lender != nullptr && weights.embedding == lender->host_.embedding;
    const bool borrows_head = lender != nullptr && weights.lm_head == lender->host_.lm_head;
    embedding = borrows_embedding ? lender->embedding : upload.matrix(*weights.embedding);
    const bool tied = weights.lm_head == weights.embedding;
    lm_head = borrows_head ? lender->lm_head : tied ? embedding : upload.matrix(*weights.lm_head);
    final_norm = upload.vector(weights.final_norm);
    if (weights.fusion) {
        fusion = DeviceFusion{upload.matrix(weights.fusion->projection), upload.vector(weights.fusion->embedding_norm),
                              upload.vector(weights.fusion->hidden_norm)};
    }
    for (cpu::LayerWeights& layer : weights.layers) {
        layers.push_back(upload.layer(layer));
        layer = {};  // its host memory goes as soon as it is not needed
    }
    weights.layers.clear();
    host_ = std::move(weights);
    check(cudaDeviceSynchronize(), "weights");
}

}  // namespace draftboard::backend::cuda
