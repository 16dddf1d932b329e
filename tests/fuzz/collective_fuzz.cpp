// SPDX-License-Identifier: Apache-2.0
// Tables of measured collectives and collective calibrations: any bytes give rows, constants or an
// error; constants that were accepted are written as they were read and price a collective in
// finite time.

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "calibration/collective_measurements.h"
#include "model/machine_builder.h"
#include "sim/collective.h"

using namespace draftboard;

namespace {

void require(bool condition) {
    if (!condition) std::abort();
}

model::Machine box() {
    model::MachineBuilder builder("box");
    builder.machine().gpu.compute_capability = "12.0";
    const int numa = builder.add_numa(0, 0);
    for (int g = 0; g < 4; ++g) builder.add_gpu(builder.add_root_port(numa), 5, 16);
    return builder.machine();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    if (const auto rows = calibration::parse_collective_csv(text, "fuzz.csv")) {
        for (const auto& row : *rows) require(row.latency_us > 0 && row.gpus > 0 && row.bytes >= 0);
    }
    const auto json = model::parse_json(text, "fuzz.json");
    if (!json) return 0;
    const auto constants = sim::parse_collective_constants(*json, "fuzz.json");
    if (!constants) return 0;
    const auto again = sim::parse_collective_constants(sim::to_json(*constants), "again.json");
    require(again.has_value());
    for (const sim::NamedConstant& constant : sim::named_constants()) {
        require(constant.get(*again) == constant.get(*constants));
    }
    static const model::Machine machine = box();
    for (const auto implementation :
         {model::Implementation::nccl, model::Implementation::one_shot}) {
        model::CollectiveSettings settings;
        settings.implementation = implementation;
        sim::CollectiveModel model(machine, settings, *constants);
        sim::CollectiveRequest request;
        request.gpus = {0, 1, 2, 3};
        request.bytes = 1 << 20;
        const auto time = model.time(request);
        if (time) require(time->total >= 0 && time->total == time->latency + time->transport);
    }
    return 0;
}
