// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/stored_matrix.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "backend/json_events.h"
#include "model/sharding.h"

namespace draftboard::backend::cpu {

using model::ErrorCode;
using model::Expected;
using model::fail;

namespace {

template <class T>
T load(const std::byte* bytes) {
    T value;
    std::memcpy(&value, bytes, sizeof(T));
    return value;
}

/// Columns [begin, begin + count) of one stored row to the start of a share's row.
void copy_row(const StoredMatrix& matrix, const std::byte* source, const Range& columns, std::byte* target) {
    const auto begin = static_cast<std::size_t>(columns.begin);
    const auto count = static_cast<std::size_t>(columns.count);
    if (count == 0) return;
    if (matrix.type == TensorType::i32) {
        std::memcpy(target, source + begin / 2, (count + 1) / 2);
    } else if (matrix.type == TensorType::f16) {
        for (std::size_t c = 0; c < count; ++c) {
            const float value = fp16_to_float(load<std::uint16_t>(source + 2 * (begin + c)));
            std::memcpy(target + c * sizeof value, &value, sizeof value);
        }
    } else {
        const std::size_t element = bytes_of(matrix.type);
        std::memcpy(target, source + begin * element, count * element);
    }
}

/// Whether the ranges, put together, still lie on the block grid.
bool keeps_grid(const std::vector<Range>& ranges, std::int64_t block) {
    if (ranges.size() == 1) return true;
    for (std::size_t i = 0; i < ranges.size(); ++i) {
        const bool last = i + 1 == ranges.size();
        if (ranges[i].begin % block != 0 || (!last && ranges[i].count % block != 0)) return false;
    }
    return true;
}

}  // namespace

void cut_scales(const StoredMatrix& matrix, const std::vector<Range>& ranges, const Range& columns, WeightMatrix& out) {
    const std::int64_t block_rows = matrix.format.block_rows;
    const std::int64_t block_columns = matrix.format.block_columns;
    if (block_rows <= 0 || block_columns <= 0) {
        out.scales = matrix.scales;
        return;
    }
    const std::int64_t first = columns.begin / block_columns;
    out.scale_columns = model::divide_up(columns.begin + columns.count, block_columns) - first;
    out.column_offset = columns.begin % block_columns;
    const auto append = [&](std::int64_t scale_row) {
        const auto* begin = matrix.scales.data() + scale_row * matrix.scale_columns + first;
        out.scales.insert(out.scales.end(), begin, begin + out.scale_columns);
    };
    if (!keeps_grid(ranges, block_rows)) {
        out.format.block_rows = 1;
        for (const Range& range : ranges) {
            for (std::int64_t r = range.begin; r < range.begin + range.count; ++r) append(r / block_rows);
        }
        return;
    }
    out.row_offset = ranges.front().begin % block_rows;
    for (const Range& range : ranges) {
        const std::int64_t end = model::divide_up(range.begin + range.count, block_rows);
        for (std::int64_t row = range.begin / block_rows; row < end; ++row) append(row);
    }
}

Expected<WeightMatrix> cut(const StoredMatrix& matrix, const std::vector<Range>& row_ranges,
                           const std::optional<Range>& column_range) {
    std::vector<Range> ranges = row_ranges;
    if (ranges.empty()) ranges.push_back({0, matrix.rows});
    const Range columns = column_range.value_or(Range{0, matrix.columns});
    const auto inside = [](const Range& range, std::int64_t size) {
        return range.begin >= 0 && range.count >= 0 && range.begin <= size && range.count <= size - range.begin;
    };
    std::int64_t rows = 0;
    bool sound = inside(columns, matrix.columns);
    for (const Range& range : ranges) {
        sound = sound && inside(range, matrix.rows);
        rows += range.count;
    }
    if (!sound) {
        return fail(ErrorCode::invalid_input,
                    fmt::format("a share reaches beyond tensor \"{}\" of {} x {}", printable(matrix.name), matrix.rows,
                                matrix.columns));
    }
    if (matrix.type == TensorType::i32 && columns.begin % 8 != 0) {
        return fail(ErrorCode::unsupported,
                    fmt::format("a share of tensor \"{}\" starts at column {}, inside a word of 8 int4 codes",
                                printable(matrix.name), columns.begin),
                    {}, "use fewer ranks");
    }
    WeightMatrix out = make_matrix(rows, columns.count, matrix.format);
    std::byte* target = out.data.data();
    for (const Range& range : ranges) {
        const std::byte* source = matrix.bytes.data() + static_cast<std::size_t>(range.begin) * matrix.row_bytes;
        for (std::int64_t r = 0; r < range.count; ++r) {
            copy_row(matrix, source, columns, target);
            source += matrix.row_bytes;
            target += out.row_bytes;
        }
    }
    cut_scales(matrix, ranges, columns, out);
    return out;
}

std::optional<std::vector<float>> to_floats(const TensorView& view) {
    const auto count = static_cast<std::size_t>(view.elements());
    std::vector<float> out(count);
    const std::byte* bytes = view.bytes.data();
    switch (view.type) {
        case TensorType::f32:
            if (count > 0) std::memcpy(out.data(), bytes, count * sizeof(float));
            return out;
        case TensorType::bf16:
            for (std::size_t i = 0; i < count; ++i) out[i] = bf16_to_float(load<std::uint16_t>(bytes + 2 * i));
            return out;
        case TensorType::f16:
            for (std::size_t i = 0; i < count; ++i) out[i] = fp16_to_float(load<std::uint16_t>(bytes + 2 * i));
            return out;
        default: return std::nullopt;
    }
}

}  // namespace draftboard::backend::cpu
