// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/checkpoint_source.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "backend/json_events.h"
#include "model/sharding.h"

namespace draftboard::backend::cpu {

using model::Error;
using model::ErrorCode;
using model::Expected;
using model::fail;
using model::NumberFormat;
using model::WeightFormat;

namespace {

using Shape = std::vector<std::int64_t>;

constexpr const char* kWrongConfig = "the weights do not belong to this config.json";

tl::unexpected<Error> wrong_shape(const TensorView& view, const Shape& expected, const std::string& path) {
    return fail(ErrorCode::invalid_input,
                fmt::format("tensor \"{}\" has the shape [{}], but the architecture says [{}]", printable(view.name),
                            fmt::join(view.shape, ", "), fmt::join(expected, ", ")),
                path, kWrongConfig);
}

tl::unexpected<Error> wrong_type(const TensorView& view, const WeightFormat& expected, const std::string& path) {
    return fail(ErrorCode::invalid_input,
                fmt::format("tensor \"{}\" is {}, but config.json makes it {}", printable(view.name), to_name(view.type),
                            expected.name()),
                path, "the weights do not belong to this config.json, or this part is stored otherwise than its likes, "
                      "which the engine does not run");
}

std::optional<NumberFormat> plain_format(TensorType type) {
    switch (type) {
        case TensorType::bf16: return NumberFormat::bf16;
        case TensorType::f32: return NumberFormat::fp32;
        case TensorType::f16: return NumberFormat::fp16;
        default: return std::nullopt;
    }
}

/// Matrices hold fp16 as fp32.
WeightFormat held(NumberFormat format) {
    return WeightFormat::plain(format == NumberFormat::fp16 ? NumberFormat::fp32 : format);
}

StoredMatrix plain_matrix(const TensorView& view, const MatrixRequest& request, NumberFormat format) {
    StoredMatrix out;
    out.name = view.name;
    out.rows = request.rows;
    out.columns = request.columns;
    out.type = view.type;
    out.format = held(format);
    out.bytes = view.bytes;
    out.row_bytes = static_cast<std::size_t>(request.columns) * bytes_of(view.type);
    return out;
}

Expected<std::vector<float>> read_scales(const TensorView& view, const std::string& path) {
    auto scales = to_floats(view);
    if (!scales) {
        return fail(ErrorCode::unsupported,
                    fmt::format("scales \"{}\" are {}; F32, BF16 or F16 are read", printable(view.name), to_name(view.type)), path);
    }
    if (!std::all_of(scales->begin(), scales->end(), [](float s) { return std::isfinite(s); })) {
        return fail(ErrorCode::invalid_input, fmt::format("scales \"{}\" hold a number that is not finite", printable(view.name)),
                    path, "the file is damaged; fetch it again");
    }
    return std::move(*scales);
}

}  // namespace

CheckpointSource::CheckpointSource(const Checkpoint& checkpoint, Mode mode) : checkpoint_(&checkpoint), mode_(mode) {
    if (checkpoint.find("model.language_model.embed_tokens.weight") != nullptr) {
        model_prefix_ = "model.language_model.";
    } else if (checkpoint.find("language_model.model.embed_tokens.weight") != nullptr) {
        model_prefix_ = "language_model.model.";
        head_prefix_ = "language_model.";
    }
}

std::string CheckpointSource::stored_name(const std::string& canonical) const {
    constexpr std::string_view kModel = "model.";
    if (canonical.compare(0, kModel.size(), kModel) == 0) return model_prefix_ + canonical.substr(kModel.size());
    if (canonical.compare(0, 7, "lm_head") == 0) return head_prefix_ + canonical;
    return canonical;
}

const TensorView* CheckpointSource::find(const std::string& name) {
    const TensorView* found = checkpoint_->find(stored_name(name));
    if (found != nullptr) used_.insert(found->name);
    return found;
}

Expected<const TensorView*> CheckpointSource::require(const std::string& canonical) {
    if (const TensorView* found = find(canonical)) return found;
    return checkpoint_->require(stored_name(canonical));
}

Expected<void> CheckpointSource::add_fp8_scales(const MatrixRequest& request, StoredMatrix& matrix) {
    const TensorView* view = nullptr;
    for (const char* end : {".weight_scale_inv", ".weight_scale"}) {
        if (view == nullptr) view = find(request.module + end);
    }
    if (view == nullptr) {
        const auto missing = require(request.module +
                                     (request.format.block_rows > 0 ? ".weight_scale_inv" : ".weight_scale"));
        return tl::unexpected(missing.error());
    }
    auto scales = read_scales(*view, checkpoint_->path());
    if (!scales) return tl::unexpected(std::move(scales.error()));
    matrix.scales = std::move(*scales);
    matrix.format = request.format;
    if (request.format.block_rows > 0 && request.format.block_columns > 0) {
        const Shape grid{model::divide_up(request.rows, request.format.block_rows),
                         model::divide_up(request.columns, request.format.block_columns)};
        if (view->shape != grid) return wrong_shape(*view, grid, checkpoint_->path());
        matrix.scale_columns = grid[1];
        return {};
    }
    if (view->elements() == 1) return {};
    if (view->shape != Shape{request.rows} && view->shape != Shape{request.rows, 1}) {
        return wrong_shape(*view, {request.rows, 1}, checkpoint_->path());
    }
    matrix.format.block_rows = 1;  // one scale a row is a block as wide as the matrix
    matrix.format.block_columns = std::max<std::int64_t>(1, request.columns);
    matrix.format.scale_bits = static_cast<int>(8 * bytes_of(view->type));
    matrix.scale_columns = 1;
    return {};
}

Expected<StoredMatrix> CheckpointSource::locate_int4(const MatrixRequest& request, const TensorView& packed) {
    const std::string& path = checkpoint_->path();
    constexpr std::int64_t kCodesAWord = 8;
    if (packed.type != TensorType::i32) return wrong_type(packed, request.format, path);
    const Shape words{request.rows, model::divide_up(request.columns, kCodesAWord)};
    if (packed.shape != words) return wrong_shape(packed, words, path);
    if (const TensorView* shape = find(request.module + ".weight_shape")) {
        const bool wide = shape->type == TensorType::i64;
        if ((!wide && shape->type != TensorType::i32) || shape->shape != Shape{2}) return wrong_shape(*shape, {2}, path);
        Shape stated;
        for (std::size_t i = 0; i < 2; ++i) {
            std::int64_t extent = 0;
            std::int32_t narrow = 0;
            std::memcpy(wide ? static_cast<void*>(&extent) : &narrow, shape->bytes.data() + i * (wide ? 8u : 4u), wide ? 8 : 4);
            stated.push_back(wide ? extent : narrow);
        }
        if (stated != Shape{request.rows, request.columns}) {
            return fail(ErrorCode::invalid_input,
                        fmt::format("tensor \"{}\" says [{}], but the architecture says [{}, {}]", printable(shape->name),
                                    fmt::join(stated, ", "), request.rows, request.columns),
                        path, kWrongConfig);
        }
    }
    const auto scale = require(request.module + ".weight_scale");
    if (!scale) return tl::unexpected(scale.error());
    const Shape grid{request.rows, model::divide_up(request.columns, request.format.block_columns)};
    if ((*scale)->shape != grid) return wrong_shape(**scale, grid, path);
    auto scales = read_scales(**scale, path);
    if (!scales) return tl::unexpected(std::move(scales.error()));
    StoredMatrix out;
    out.name = packed.name;
    out.rows = request.rows;
    out.columns = request.columns;
    out.type = packed.type;
    out.format = request.format;
    out.bytes = packed.bytes;
    out.row_bytes = static_cast<std::size_t>(words[1]) * 4;
    out.scales = std::move(*scales);
    out.scale_columns = grid[1];
    return out;
}

Expected<StoredMatrix> CheckpointSource::locate_fused(const MatrixRequest& request, const TensorView& fused) {
    const ExpertPart& part = *request.expert;
    const bool down = part.role == ExpertPart::Role::down;
    const std::int64_t rows = down ? request.rows : 2 * request.rows;
    const Shape expected{part.experts, rows, request.columns};
    if (fused.shape != expected) return wrong_shape(fused, expected, checkpoint_->path());
    const auto format = plain_format(fused.type);
    if (!format || *format != request.format.format) return wrong_type(fused, request.format, checkpoint_->path());
    StoredMatrix out = plain_matrix(fused, request, *format);
    const std::int64_t first = part.index * rows + (part.role == ExpertPart::Role::up ? request.rows : 0);
    out.bytes = fused.bytes.subspan(static_cast<std::size_t>(first) * out.row_bytes,
                                    static_cast<std::size_t>(request.rows) * out.row_bytes);
    return out;
}

Expected<StoredMatrix> CheckpointSource::locate(const MatrixRequest& request) {
    const std::string& path = checkpoint_->path();
    const bool int4 = request.format.format == NumberFormat::int4;
    const TensorView* packed = find(request.module + ".weight_packed");
    if (int4 && packed != nullptr) return locate_int4(request, *packed);
    const TensorView* view = find(request.module + ".weight");
    if (view == nullptr && request.expert) {
        const bool down = request.expert->role == ExpertPart::Role::down;
        const TensorView* fused = find(request.expert->prefix + (down ? ".down_proj" : ".gate_up_proj"));
        if (fused != nullptr) return locate_fused(request, *fused);
    }
    if (view == nullptr && packed != nullptr) return wrong_type(*packed, request.format, path);
    if (view == nullptr) {
        const auto missing = require(request.module + (int4 && !request.plain_too ? ".weight_packed" : ".weight"));
        return tl::unexpected(missing.error());
    }
    const auto plain = plain_format(view->type);
    const bool fp8 = request.format.format == NumberFormat::fp8_e4m3 && view->type == TensorType::f8_e4m3;
    const bool accepted = fp8 || (plain && (request.plain_too || *plain == request.format.format));
    if (!accepted) return wrong_type(*view, request.format, path);
    const Shape expected{request.rows, request.columns};
    if (view->shape != expected) return wrong_shape(*view, expected, path);
    StoredMatrix out = plain_matrix(*view, request, fp8 ? NumberFormat::fp8_e4m3 : *plain);
    if (fp8) {
        if (auto done = add_fp8_scales(request, out); !done) return tl::unexpected(std::move(done.error()));
    }
    return out;
}

Expected<WeightMatrix> CheckpointSource::matrix(const MatrixRequest& request) {
    auto stored = locate(request);
    if (!stored) return tl::unexpected(std::move(stored.error()));
    if (mode_ == Mode::check) {
        WeightMatrix empty;
        empty.format = stored->format;
        return empty;
    }
    auto share = cut(*stored, request.row_ranges, request.column_range);
    if (!share) share.error().context = checkpoint_->path();
    return share;
}

Expected<std::vector<float>> CheckpointSource::vector(const VectorRequest& request) {
    const auto view = require(request.tensor);
    if (!view) return tl::unexpected(view.error());
    if ((*view)->shape != request.shape) return wrong_shape(**view, request.shape, checkpoint_->path());
    auto values = to_floats(**view);
    if (!values) {
        return fail(ErrorCode::invalid_input,
                    fmt::format("tensor \"{}\" is {}; F32, BF16 or F16 is expected", printable((*view)->name),
                                to_name((*view)->type)),
                    checkpoint_->path(), kWrongConfig);
    }
    if (request.ranges.empty()) return std::move(*values);
    std::int64_t inner = 1;
    for (std::size_t i = 1; i < request.shape.size(); ++i) inner *= request.shape[i];
    std::vector<float> out;
    for (const Range& range : request.ranges) {
        if (range.begin < 0 || range.count < 0 || range.begin > request.shape[0] - range.count) {
            return fail(ErrorCode::invalid_input,
                        fmt::format("a share reaches beyond tensor \"{}\"", printable((*view)->name)), checkpoint_->path());
        }
        out.insert(out.end(), values->begin() + range.begin * inner, values->begin() + (range.begin + range.count) * inner);
    }
    return out;
}

}  // namespace draftboard::backend::cpu
