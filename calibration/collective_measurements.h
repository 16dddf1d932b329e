// SPDX-License-Identifier: Apache-2.0
#pragma once
// Measured collectives as a table: columns system, impl, op, gpus, bytes, latency_us in any order,
// one row a measurement. Bytes are counted as nccl-tests counts them: the whole result for
// all_gather, else the payload of one rank. The fit over them is collective_fit.h; reading
// nccl-tests' own output is not here.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/collective_settings.h"
#include "model/error.h"
#include "model/plan.h"
#include "sim/collective.h"

namespace draftboard::calibration {

struct CollectiveMeasurement {
    std::string system;
    std::string label;  ///< as in the table: "nccl-2.29.2", "vllm-0.24.0:vLLM_custom_graph"
    model::OperationKind operation = model::OperationKind::all_reduce;
    int gpus = 0;
    std::int64_t bytes = 0;  ///< nccl-tests' count
    double latency_us = 0;
};

inline constexpr std::size_t kMaxMeasurements = 1'000'000;

/// Rows whose operation is not a collective that is modelled are an error, as are broken numbers;
/// blank lines and lines that start with # are skipped. Errors carry `name` and the line.
[[nodiscard]] model::Expected<std::vector<CollectiveMeasurement>> parse_collective_csv(
    std::string_view text, const std::string& name);
[[nodiscard]] model::Expected<std::vector<CollectiveMeasurement>> read_collective_csv(
    const std::string& path);

/// What a label means: "nccl..." is NCCL; vLLM's custom all-reduce replayed in a graph is one_shot up to
/// 512 KiB over two to four GPUs and 256 KiB over more, then two_shot (vLLM 0.24), up to 8 MiB. vLLM's and
/// SGLang's need NVLink or two GPUs; elsewhere, and vLLM's from 8 MiB on, the engine itself calls NCCL, and the
/// row is one of NCCL's. Eager and other labels: nullopt, their time is the launch's.
[[nodiscard]] std::optional<model::Implementation> implementation_of(
    const CollectiveMeasurement& measurement, bool nvlink);

/// The request over the first GPUs of a machine that the measurement timed (contribution per rank
/// for all_gather).
[[nodiscard]] sim::CollectiveRequest request_of(const CollectiveMeasurement& measurement);

}  // namespace draftboard::calibration
