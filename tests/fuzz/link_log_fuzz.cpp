// SPDX-License-Identifier: Apache-2.0
// Any bytes as a log of links or collectives: what is read can be shown and has sound numbers, what is refused has a place and
// advice; never a crash. Each reader also gets the bytes without being recognised first.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "calibration/logs/log_report.h"
#include "calibration/logs/read_log.h"

namespace {

using draftboard::calibration::LinkLog;

void require(bool holds) {
    if (!holds) std::abort();
}

bool sound(double value) { return std::isfinite(value) && value >= 0; }

void check(const draftboard::model::Expected<LinkLog>& log) {
    if (!log) {
        require(!log.error().message.empty() && !log.error().context.empty() && !log.error().hint.empty());
        return;
    }
    require(!log->rows.empty() || !log->matrices.empty() || !log->tuning.empty() || !log->choices.empty());
    for (const auto& row : log->rows) {
        require(row.bytes >= 0 && row.count >= 0 && row.ranks >= 0);
        require(row.out_of_place.measured || row.in_place.measured);
        require(sound(row.out_of_place.time_us) && sound(row.in_place.bus_gb_s));
    }
    for (const auto& matrix : log->matrices) {
        require(!matrix.unit.empty());
        for (const auto& value : matrix.values) require(std::isfinite(value.value) && value.from >= -1 && value.to >= -1);
    }
    for (const auto& entry : log->tuning) require(sound(entry.latency_us) && sound(entry.bandwidth_gb_s));
    require(!draftboard::calibration::to_text(*log, "fuzz").empty());
    (void)draftboard::calibration::to_json(*log, "fuzz").dump();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    namespace calibration = draftboard::calibration;
    const std::string text(reinterpret_cast<const char*>(data), size);
    check(calibration::read_log(text, "fuzz"));
    check(calibration::read_nccl_tests_log(text, "fuzz"));
    check(calibration::read_nvbandwidth_log(text, "fuzz"));
    check(calibration::read_p2p_bandwidth_log(text, "fuzz"));
    check(calibration::read_nccl_tuning_log(text, "fuzz"));
    return 0;
}
