// SPDX-License-Identifier: Apache-2.0
// Serving logs: any bytes give a log or an error, whole or in pieces alike; its samples are sound and can be summarised.

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "calibration/logs/serving_summary.h"

using namespace draftboard;

namespace {

void require(bool condition) {
    if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const auto log = calibration::parse_serving_log(text, "fuzz.log");
    calibration::ServingLogReader pieces("fuzz.log");
    const std::size_t step = size == 0 ? 1 : 1 + data[0] % 64u;
    bool sound = true;
    for (std::size_t at = 0; at < size && sound; at += step) sound = pieces.add(text.substr(at, step)).has_value();
    const bool same = sound && pieces.finish().has_value();
    // A compressed log is told by its first bytes, which a piece of one byte does not hold.
    if (step > 3) require(same == log.has_value());
    if (!log) {
        require(!log.error().message.empty());
        return 0;
    }
    for (const auto& sample : log->samples) {
        require(sample.running > 0 && sample.tokens_per_second > 0 && std::isfinite(sample.tokens_per_second));
        require(sample.acceptance_length == 0 || sample.acceptance_length >= 1);
        require(sample.per_position.size() <= calibration::kMaxLoggedPositions);
        require(std::isfinite(sample.cycles) && sample.cycles >= 0);
    }
    const auto summary = calibration::summarize_serving_log(*log);
    for (const auto& batch : summary.batches) {
        require(batch.tokens_per_second.low <= batch.tokens_per_second.value);
        require(batch.tokens_per_second.value <= batch.tokens_per_second.high);
        require(batch.acceptance_length == 0 || std::isfinite(batch.acceptance_interval.high));
        require(std::isfinite(batch.relative_error));
    }
    return 0;
}
