// SPDX-License-Identifier: Apache-2.0
#include "model/number_format.h"

#include <array>
#include <utility>

namespace draftboard::model {

namespace {

constexpr std::array<std::pair<NumberFormat, std::string_view>, 8> kNames{{
    {NumberFormat::fp32, "fp32"},
    {NumberFormat::bf16, "bf16"},
    {NumberFormat::fp16, "fp16"},
    {NumberFormat::fp8_e4m3, "fp8_e4m3"},
    {NumberFormat::int8, "int8"},
    {NumberFormat::int4, "int4"},
    {NumberFormat::nvfp4, "nvfp4"},
    {NumberFormat::mxfp4, "mxfp4"},
}};

}  // namespace

int bits_per_element(NumberFormat format) {
    switch (format) {
        case NumberFormat::fp32: return 32;
        case NumberFormat::bf16:
        case NumberFormat::fp16: return 16;
        case NumberFormat::fp8_e4m3:
        case NumberFormat::int8: return 8;
        case NumberFormat::int4:
        case NumberFormat::nvfp4:
        case NumberFormat::mxfp4: return 4;
    }
    return 16;
}

std::string_view to_name(NumberFormat format) {
    for (const auto& [value, name] : kNames) {
        if (value == format) return name;
    }
    return "?";
}

std::optional<NumberFormat> number_format_from_name(std::string_view name) {
    if (name == "fp8") return NumberFormat::fp8_e4m3;
    if (name == "bfloat16") return NumberFormat::bf16;
    if (name == "float16") return NumberFormat::fp16;
    if (name == "float32") return NumberFormat::fp32;
    for (const auto& [value, known] : kNames) {
        if (known == name) return value;
    }
    return std::nullopt;
}

double WeightFormat::bytes(std::int64_t rows, std::int64_t columns) const {
    const double elements = static_cast<double>(rows) * static_cast<double>(columns);
    double total = elements * bits_per_element(format) / 8.0;
    if (block_rows > 0 && block_columns > 0) {
        const auto blocks_down = (rows + block_rows - 1) / block_rows;
        const auto blocks_across = (columns + block_columns - 1) / block_columns;
        total += static_cast<double>(blocks_down) * static_cast<double>(blocks_across) *
                 (scale_bits + zero_bits) / 8.0;
    }
    return total;
}

std::string WeightFormat::name() const {
    std::string base{to_name(format)};
    if (format == NumberFormat::fp8_e4m3) base = "fp8";
    if (block_rows == 1 && block_columns > 0) return base + "_g" + std::to_string(block_columns);
    if (block_rows > 1) return base + "_b" + std::to_string(block_columns);
    return base;
}

}  // namespace draftboard::model
