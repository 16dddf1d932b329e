// SPDX-License-Identifier: Apache-2.0
// Machine files: any bytes give a machine or an error; a machine that was read is sound, is written
// as it reads, and its GPUs have a way to each other or a reason why not.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "model/machine_json.h"
#include "model/machine_report.h"

using namespace draftboard::model;

namespace {

void require(bool condition) {
    if (!condition) std::abort();
}

void check_way(const Expected<Route>& route) {
    if (!route) {
        require(!route.error().message.empty());
        return;
    }
    require(std::isfinite(route->bottleneck_gb_s) && route->bottleneck_gb_s > 0);
    require(std::isfinite(route->latency_ns) && route->latency_ns > 0);
    require(!route->hops.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const auto json = parse_json(text, "input");
    if (!json) return 0;
    const auto machine = machine_from_json(*json, "input");
    if (!machine) {
        require(!machine.error().message.empty() && !machine.error().context.empty());
        return 0;
    }
    require(machine->validate().empty());
    const Json written = machine_to_json(*machine, *json);
    const auto again = machine_from_json(written, "again");
    require(bool(again));
    require(machine_to_json(*again).dump() == machine_to_json(*machine).dump());
    const Router router(*machine);
    const int gpus = std::min(router.gpu_count(), 4);
    for (int i = 0; i < gpus; ++i) {
        require(bool(router.gpu_to_host(i, -1, TransferKind::write)));
        require(bool(router.host_to_gpu(i, -1, TransferKind::read)));
        for (int j = 0; j < gpus; ++j) {
            if (i == j) continue;
            require(router.path_type(i, j) == router.path_type(j, i));
            const auto route = router.gpu_to_gpu(i, j, TransferKind::write);
            require(bool(route) == router.peer_reachable(i, j));
            check_way(route);
            require(bool(router.host_staged(i, j)));
        }
    }
    if (router.gpu_count() <= 8) require(!machine_text(*machine).empty());
    return 0;
}
