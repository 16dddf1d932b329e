// SPDX-License-Identifier: Apache-2.0
// Any bytes as a SQLite export of Nsight Systems: what is read has sound numbers and can be shown, what is refused has a place
// and advice; never a crash, never work without end.

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "calibration/logs/nsight_export.h"

namespace {

void require(bool holds) {
    if (!holds) std::abort();
}

void check(const draftboard::calibration::TimeSummary& us) {
    require(us.count >= 0 && std::isfinite(us.total) && us.p10 >= 0 && us.median >= us.p10 && us.p90 >= us.median);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    const auto log = draftboard::calibration::read_nsight_export(bytes, "fuzz");
    if (!log) {
        require(!log.error().message.empty() && !log.error().context.empty() && !log.error().hint.empty());
        return 0;
    }
    require(!log->kernels.empty() || log->graphs.count > 0);
    for (const auto& kernel : log->kernels) check(kernel.us);
    for (const auto& summary : {log->graphs, log->graph_gaps, log->queued_gaps, log->host_gaps, log->kernel_launches,
                                log->launch_intervals, log->launch_latency})
        check(summary);
    for (const auto& device : log->devices) require(device.collective_us <= device.busy_us && device.busy_us <= device.span_us);
    require(!to_text(*log, "fuzz").empty() && !to_json(*log, "fuzz").dump().empty());
    return 0;
}
