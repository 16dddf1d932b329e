// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/random_source.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "backend/cpu/stored_matrix.h"
#include "model/hash.h"
#include "model/random.h"
#include "model/sharding.h"

namespace draftboard::backend::cpu {

using model::Expected;
using model::NumberFormat;
using model::Random;

namespace {

constexpr float kLargestFp8 = 448;

/// Mean 0, variance 1: four fields of 16 bits of one draw; their sum has mean 4 x 65535/2 and variance (2^32 - 1)/3.
float nearly_normal(Random& random) {
    const std::uint64_t bits = random.next();
    const auto sum = static_cast<std::int32_t>((bits & 0xffffu) + ((bits >> 16) & 0xffffu) + ((bits >> 32) & 0xffffu) + (bits >> 48));
    constexpr double kDeviation = 37837.22;  // sqrt((2^32 - 1) / 3)
    return static_cast<float>((sum - 131070) / kDeviation);
}

float bf16_rounded(double value) { return bf16_to_float(float_to_bf16(static_cast<float>(value))); }

/// Scale of block (row, column) of a module, spread about `middle`.
float block_scale(const Random& stream, std::int64_t row, std::int64_t column, double middle, bool as_bf16) {
    Random block = stream.fork(model::fnv1a("scale")).fork(static_cast<std::uint64_t>(row) + 1).fork(static_cast<std::uint64_t>(column) + 1);
    const double scale = middle * (0.75 + 0.5 * block.uniform());
    return as_bf16 ? bf16_rounded(scale) : static_cast<float>(scale);
}

void store(WeightMatrix& out, std::int64_t r, std::int64_t c, float value) {
    std::byte* row = out.data.data() + static_cast<std::size_t>(r) * out.row_bytes;
    const auto at = static_cast<std::size_t>(c);
    switch (out.format.format) {
        case NumberFormat::fp32: std::memcpy(row + 4 * at, &value, 4); break;
        case NumberFormat::bf16: {
            const std::uint16_t bits = float_to_bf16(value);
            std::memcpy(row + 2 * at, &bits, 2);
            break;
        }
        case NumberFormat::fp8_e4m3: row[at] = std::byte{float_to_fp8_e4m3(value)}; break;
        case NumberFormat::int4: {
            const auto code = static_cast<unsigned>(std::clamp(std::nearbyint(value), -8.0f, 7.0f) + 8.0f);
            row[at / 2] |= std::byte(code << (4 * (at % 2)));  // low half first: element c in bits 4 (c % 8) of its word
            break;
        }
        default: break;
    }
}

/// A share of that shape with neither data nor scales.
WeightMatrix empty_share(std::int64_t rows, std::int64_t first_row, const Range& columns, const model::WeightFormat& format) {
    WeightMatrix out = make_matrix(0, columns.count, format);
    out.rows = rows;
    if (format.block_rows > 0 && format.block_columns > 0) {
        out.row_offset = first_row % format.block_rows;
        out.column_offset = columns.begin % format.block_columns;
        out.scale_columns = model::divide_up(out.column_offset + columns.count, format.block_columns);
    }
    return out;
}

}  // namespace

std::uint8_t float_to_fp8_e4m3(float value) {
    if (std::isnan(value)) return 0x7f;
    const std::uint8_t sign = std::signbit(value) ? 0x80 : 0;
    const float magnitude = std::fabs(value);
    if (magnitude >= kLargestFp8) return static_cast<std::uint8_t>(sign | 0x7e);
    constexpr float kSmallestNormal = 0.015625f;  // 2^-6
    if (magnitude < kSmallestNormal) {            // subnormal: multiples of 2^-9; 8 of them are the smallest normal
        return static_cast<std::uint8_t>(sign | static_cast<unsigned>(std::nearbyint(magnitude * 512.0f)));
    }
    constexpr unsigned kDropped = 20;  // 23 fraction bits of a float, 3 kept
    const auto bits = std::bit_cast<std::uint32_t>(magnitude);
    const std::uint32_t rounded = (bits + 0x7ffffu + ((bits >> kDropped) & 1u)) >> kDropped;
    const std::uint32_t code = rounded - ((127u - 7u) << 3);
    return static_cast<std::uint8_t>(sign | std::min(code, 0x7eu));
}

Expected<WeightMatrix> RandomSource::matrix(const MatrixRequest& request) {
    model::WeightFormat format = request.format;
    if (format.format == NumberFormat::fp16) format = model::WeightFormat::plain(NumberFormat::fp32);
    std::vector<Range> ranges = request.row_ranges;
    if (ranges.empty()) ranges.push_back({0, request.rows});
    const Range columns = request.column_range.value_or(Range{0, request.columns});
    std::int64_t rows = 0;
    for (const Range& range : ranges) rows += range.count;
    const bool scaled = format.format == NumberFormat::fp8_e4m3 || format.format == NumberFormat::int4;
    const double deviation = 1.0 / std::sqrt(static_cast<double>(std::max<std::int64_t>(1, request.columns)));
    const bool int4 = format.format == NumberFormat::int4;
    const double middle = int4 ? 3 * deviation / 7 : 6 * deviation / kLargestFp8;
    const Random stream = Random(seed_).fork(model::fnv1a(request.module));
    if (numbers_ == RandomNumbers::left_out) return empty_share(rows, ranges.front().begin, columns, format);
    StoredMatrix whole;  // its scales; the numbers follow below, row by row of the share
    whole.rows = request.rows;
    whole.columns = request.columns;
    whole.format = format;
    if (scaled && format.block_rows > 0 && format.block_columns > 0) {
        whole.scale_columns = model::divide_up(request.columns, format.block_columns);
        const std::int64_t down = model::divide_up(request.rows, format.block_rows);
        whole.scales.reserve(static_cast<std::size_t>(down * whole.scale_columns));
        for (std::int64_t i = 0; i < down; ++i) {
            for (std::int64_t j = 0; j < whole.scale_columns; ++j) whole.scales.push_back(block_scale(stream, i, j, middle, int4));
        }
    } else if (scaled) {
        whole.scales = {block_scale(stream, 0, 0, middle, int4)};
    }
    WeightMatrix out = make_matrix(rows, columns.count, format);
    cut_scales(whole, ranges, columns, out);
    std::int64_t target = 0;
    for (const Range& range : ranges) {
        for (std::int64_t r = range.begin; r < range.begin + range.count; ++r, ++target) {
            Random numbers = stream.fork(static_cast<std::uint64_t>(r) + 1);
            for (std::int64_t c = 0; c < columns.begin; ++c) numbers.next();
            for (std::int64_t c = 0; c < columns.count; ++c) {
                const auto value = static_cast<float>(deviation) * nearly_normal(numbers);
                store(out, target, c, scaled ? value / out.scale(target, c) : value);
            }
        }
    }
    return out;
}

Expected<std::vector<float>> RandomSource::vector(const VectorRequest& request) {
    std::int64_t inner = 1;
    for (std::size_t i = 1; i < request.shape.size(); ++i) inner *= request.shape[i];
    std::vector<Range> ranges = request.ranges;
    if (ranges.empty()) ranges.push_back({0, request.shape.at(0)});
    const Random stream = Random(seed_).fork(model::fnv1a(request.tensor));
    std::vector<float> out;
    for (const Range& range : ranges) {
        for (std::int64_t i = range.begin; i < range.begin + range.count; ++i) {
            Random numbers = stream.fork(static_cast<std::uint64_t>(i) + 1);
            for (std::int64_t j = 0; j < inner; ++j) {
                const double normal = nearly_normal(numbers);
                switch (request.kind) {
                    case VectorKind::norm: out.push_back(1); break;
                    case VectorKind::bias: out.push_back(static_cast<float>(0.02 * normal)); break;
                    case VectorKind::correction_bias: out.push_back(static_cast<float>(0.01 * normal)); break;
                    case VectorKind::decay: out.push_back(static_cast<float>(std::log(1 + 15 * numbers.uniform()))); break;
                    case VectorKind::time_bias: out.push_back(static_cast<float>(normal - 3)); break;
                    case VectorKind::convolution:
                    case VectorKind::gate:
                        out.push_back(static_cast<float>(normal / std::sqrt(static_cast<double>(std::max<std::int64_t>(1, inner)))));
                        break;
                }
            }
        }
    }
    return out;
}

}  // namespace draftboard::backend::cpu
