// SPDX-License-Identifier: Apache-2.0
#include "calibration/collective_measurements.h"

#include <array>
#include <charconv>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "model/json_reader.h"

namespace draftboard::calibration {

using model::ErrorCode;
using model::Expected;
using model::fail;
using model::OperationKind;

namespace {

constexpr std::array<std::string_view, 6> kColumns = {"system", "impl",  "op",
                                                      "gpus",   "bytes", "latency_us"};
constexpr std::size_t kMaxFields = 64;

std::vector<std::string_view> split(std::string_view line) {
    std::vector<std::string_view> fields;
    while (fields.size() < kMaxFields) {
        const std::size_t comma = line.find(',');
        std::string_view field = line.substr(0, comma);
        while (!field.empty() && field.front() == ' ') field.remove_prefix(1);
        while (!field.empty() && (field.back() == ' ' || field.back() == '\r'))
            field.remove_suffix(1);
        fields.push_back(field);
        if (comma == std::string_view::npos) break;
        line.remove_prefix(comma + 1);
    }
    return fields;
}

template <class T>
bool parse_number(std::string_view text, T& value) {
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    return result.ec == std::errc{} && result.ptr == text.data() + text.size();
}

std::optional<OperationKind> operation_from(std::string_view name) {
    if (name == "alltoall") return OperationKind::all_to_all;
    return sim::collective_from_name(name);
}

}  // namespace

Expected<std::vector<CollectiveMeasurement>> parse_collective_csv(std::string_view text,
                                                                  const std::string& name) {
    std::vector<CollectiveMeasurement> rows;
    std::array<std::size_t, kColumns.size()> at{};
    bool have_header = false;
    std::size_t number = 0;
    while (!text.empty()) {
        const std::size_t end = text.find('\n');
        std::string_view line = text.substr(0, end);
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
        ++number;
        if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
        if (line.empty() || line.front() == '#') continue;
        const std::string place = fmt::format("{}:{}", name, number);
        const std::vector<std::string_view> fields = split(line);
        if (!have_header) {
            for (std::size_t c = 0; c < kColumns.size(); ++c) {
                at[c] = fields.size();
                for (std::size_t f = 0; f < fields.size(); ++f) {
                    if (fields[f] == kColumns[c]) at[c] = f;
                }
                if (at[c] == fields.size()) {
                    return fail(
                        ErrorCode::invalid_input, fmt::format("no column \"{}\"", kColumns[c]),
                        place, "the first line names system, impl, op, gpus, bytes and latency_us");
                }
            }
            have_header = true;
            continue;
        }
        if (rows.size() >= kMaxMeasurements) {
            return fail(ErrorCode::too_large, "more than a million rows", place, "split the file");
        }
        for (const std::size_t column : at) {
            if (column >= fields.size()) {
                return fail(ErrorCode::invalid_input,
                            fmt::format("{} fields, too few", fields.size()), place,
                            "give every column of the first line");
            }
        }
        CollectiveMeasurement row;
        row.system = std::string(fields[at[0]]);
        row.label = std::string(fields[at[1]]);
        const auto operation = operation_from(fields[at[2]]);
        if (!operation) {
            return fail(ErrorCode::unsupported,
                        fmt::format("no such collective: {}", fields[at[2]]), place,
                        "use all_reduce, all_gather, reduce_scatter or alltoall");
        }
        row.operation = *operation;
        if (!parse_number(fields[at[3]], row.gpus) || row.gpus < 1 || row.gpus > model::kMaxGpus) {
            return fail(ErrorCode::invalid_input, "gpus is no count of GPUs", place,
                        "give 1 to 1024");
        }
        if (!parse_number(fields[at[4]], row.bytes) || row.bytes < 0 ||
            row.bytes > sim::kMaxCollectiveBytes) {
            return fail(ErrorCode::invalid_input, "bytes is no message size", place,
                        "give 0 to 2^50");
        }
        if (!parse_number(fields[at[5]], row.latency_us) || !std::isfinite(row.latency_us) ||
            row.latency_us <= 0 || row.latency_us > 1e12) {
            return fail(ErrorCode::invalid_input, "latency_us is no time", place,
                        "give microseconds above 0");
        }
        rows.push_back(std::move(row));
    }
    if (!have_header) {
        return fail(ErrorCode::invalid_input, "no table", name,
                    "the first line names system, impl, op, gpus, bytes and latency_us");
    }
    return rows;
}

Expected<std::vector<CollectiveMeasurement>> read_collective_csv(const std::string& path) {
    const auto text = model::read_file(path);
    if (!text) return tl::unexpected(text.error());
    return parse_collective_csv(*text, path);
}

std::optional<model::Implementation> implementation_of(const CollectiveMeasurement& measurement,
                                                       bool nvlink) {
    if (measurement.label.rfind("nccl", 0) == 0) return model::Implementation::nccl;
    const bool graph = measurement.label.find("_graph") != std::string::npos;
    const bool vllm = measurement.label.find("vLLM_custom") != std::string::npos;
    const bool sglang = measurement.label.find("SGLang_Custom") != std::string::npos;
    // vLLM: up to 8 MiB, csrc/custom_all_reduce.cuh switches stages.
    constexpr std::int64_t kCustomLimit = 8 << 20;
    if (!graph || !(vllm || sglang)) return std::nullopt;
    if (!nvlink && measurement.gpus > 2) return model::Implementation::nccl;
    if (!vllm) return std::nullopt;  // SGLang's own limits are not known
    if (measurement.bytes >= kCustomLimit) return model::Implementation::nccl;
    const std::int64_t one_shot_below = measurement.gpus <= 4 ? 512 * 1024 : 256 * 1024;
    return measurement.gpus == 2 || measurement.bytes < one_shot_below
               ? model::Implementation::one_shot
               : model::Implementation::two_shot;
}

sim::CollectiveRequest request_of(const CollectiveMeasurement& measurement) {
    sim::CollectiveRequest request;
    request.operation = measurement.operation;
    request.gpus.resize(static_cast<std::size_t>(measurement.gpus));
    std::iota(request.gpus.begin(), request.gpus.end(), 0);
    request.bytes = measurement.operation == OperationKind::all_gather
                        ? measurement.bytes / measurement.gpus
                        : measurement.bytes;
    return request;
}

}  // namespace draftboard::calibration
