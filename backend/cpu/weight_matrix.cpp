// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/weight_matrix.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>

namespace draftboard::backend::cpu {

namespace {

constexpr std::size_t kAlignment = 64;

/// A float of sign, exponent and fraction fields of a small format with an infinity-free or an IEEE top exponent.
float from_fields(std::uint32_t sign, int exponent, std::uint32_t fraction, int fraction_bits, int bias) {
    // subnormal: fraction 2^(1 - bias - fraction_bits);  normal: (2^fraction_bits + fraction) 2^(exponent - bias - ...)
    const float magnitude = exponent == 0
                                ? std::ldexp(static_cast<float>(fraction), 1 - bias - fraction_bits)
                                : std::ldexp(static_cast<float>(fraction + (1u << fraction_bits)),
                                             exponent - bias - fraction_bits);
    return sign != 0 ? -magnitude : magnitude;
}

template <class T>
T read_at(const std::byte* bytes, std::int64_t index) {
    T value;
    std::memcpy(&value, bytes + static_cast<std::size_t>(index) * sizeof(T), sizeof(T));
    return value;
}

}  // namespace

AlignedBytes::AlignedBytes(std::size_t size) : size_(size) {
    if (size == 0) return;
    auto* pointer = static_cast<std::byte*>(::operator new[](size, std::align_val_t{kAlignment}));
    std::memset(pointer, 0, size);
    data_.reset(pointer);
}

void AlignedBytes::Free::operator()(std::byte* pointer) const {
    ::operator delete[](pointer, std::align_val_t{kAlignment});
}

bool can_store(model::NumberFormat format) {
    switch (format) {
        case model::NumberFormat::bf16:
        case model::NumberFormat::fp32:
        case model::NumberFormat::fp8_e4m3:
        case model::NumberFormat::int4: return true;
        default: return false;
    }
}

float WeightMatrix::scale(std::int64_t r, std::int64_t c) const {
    if (format.block_rows <= 0 || format.block_columns <= 0) return scales.empty() ? 1.0F : scales[0];
    const std::int64_t down = (r + row_offset) / format.block_rows;
    const std::int64_t across = (c + column_offset) / format.block_columns;
    return scales[static_cast<std::size_t>(down * scale_columns + across)];
}

void WeightMatrix::dequantize_row(std::int64_t r, float* output) const {
    const std::byte* bytes = row(r);
    switch (format.format) {
        case model::NumberFormat::fp32:
            if (columns > 0) std::memcpy(output, bytes, static_cast<std::size_t>(columns) * sizeof(float));
            break;
        case model::NumberFormat::bf16:
            for (std::int64_t c = 0; c < columns; ++c) output[c] = bf16_to_float(read_at<std::uint16_t>(bytes, c));
            break;
        case model::NumberFormat::fp8_e4m3:
            for (std::int64_t c = 0; c < columns; ++c) {
                output[c] = fp8_e4m3_to_float(read_at<std::uint8_t>(bytes, c)) * scale(r, c);
            }
            break;
        case model::NumberFormat::int4:
            for (std::int64_t c = 0; c < columns; ++c) {
                const std::uint32_t word = read_at<std::uint32_t>(bytes, c / 8);
                const int code = static_cast<int>((word >> (4 * (c % 8))) & 15u);
                output[c] = static_cast<float>(code - 8) * scale(r, c);
            }
            break;
        default: assert(can_store(format.format)); std::fill_n(output, columns, std::nanf(""));
    }
}

WeightMatrix make_matrix(std::int64_t rows, std::int64_t columns, const model::WeightFormat& format) {
    assert(rows >= 0 && columns >= 0 && can_store(format.format));
    WeightMatrix matrix;
    matrix.rows = rows;
    matrix.columns = columns;
    matrix.format = format;
    const auto bits = static_cast<std::size_t>(columns) * static_cast<std::size_t>(bits_per_element(format.format));
    matrix.row_bytes = (bits / 8 + (bits % 8 != 0 ? 1 : 0) + kAlignment - 1) / kAlignment * kAlignment;
    matrix.data = AlignedBytes(static_cast<std::size_t>(rows) * matrix.row_bytes);
    return matrix;
}

WeightMatrix matrix_from_floats(std::span<const float> values, std::int64_t rows, std::int64_t columns,
                                model::NumberFormat format) {
    assert(static_cast<std::int64_t>(values.size()) >= rows * columns);
    assert(format == model::NumberFormat::bf16 || format == model::NumberFormat::fp32);
    WeightMatrix matrix = make_matrix(rows, columns, model::WeightFormat::plain(format));
    for (std::int64_t r = 0; r < rows; ++r) {
        std::byte* target = matrix.data.data() + static_cast<std::size_t>(r) * matrix.row_bytes;
        const float* source = values.data() + r * columns;
        if (format == model::NumberFormat::fp32) {
            if (columns > 0) std::memcpy(target, source, static_cast<std::size_t>(columns) * sizeof(float));
            continue;
        }
        for (std::int64_t c = 0; c < columns; ++c) {
            const std::uint16_t bits = float_to_bf16(source[c]);
            std::memcpy(target + static_cast<std::size_t>(c) * sizeof bits, &bits, sizeof bits);
        }
    }
    return matrix;
}

float bf16_to_float(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

std::uint16_t float_to_bf16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);  // stays a NaN, made quiet
    // Half of the last place kept, less one when that place is even: ties go to even.
    return static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

float fp8_e4m3_to_float(std::uint8_t bits) {
    // 1 sign, 4 exponent (bias 7), 3 fraction; no infinities, all ones is NaN.
    if ((bits & 0x7Fu) == 0x7Fu) return std::numeric_limits<float>::quiet_NaN();
    return from_fields(bits >> 7, (bits >> 3) & 15, bits & 7u, 3, 7);
}

float fp16_to_float(std::uint16_t bits) {
    const std::uint32_t sign = bits >> 15;
    const int exponent = (bits >> 10) & 31;
    const std::uint32_t fraction = bits & 0x3FFu;
    if (exponent == 31) {
        if (fraction != 0) return std::numeric_limits<float>::quiet_NaN();
        return sign != 0 ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::infinity();
    }
    return from_fields(sign, exponent, fraction, 10, 15);
}

}  // namespace draftboard::backend::cpu
