// SPDX-License-Identifier: Apache-2.0
#include "calibration/gpu_datasheet.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace draftboard::calibration {

namespace {

struct KnownGpu {
    std::vector<std::string> names;
    model::GpuSpec spec;
};

std::vector<KnownGpu> known_gpus() {
    std::vector<KnownGpu> gpus;
    model::GpuSpec rtx;
    rtx.name = "NVIDIA RTX PRO 6000 Blackwell Server Edition";
    rtx.compute_capability = "12.0";
    rtx.memory_bytes = 97887.0 * 1024 * 1024;
    rtx.memory_gb_s = 1792;
    rtx.l2_bytes = 128.0 * 1024 * 1024;
    rtx.multiprocessors = 188;
    rtx.bf16_tflops = 468;
    rtx.fp8_tflops = 936;
    rtx.fp4_tflops = 1871;
    rtx.source =
        "aiconfigurator systems/rtx_pro_6000_server.yaml (bandwidth, rates at 2430 MHz, memory); GB202 "
        "architecture paper (L2, multiprocessors)";
    gpus.push_back({{"rtx-pro-6000", "rtx_pro_6000_server", "rtx_pro_6000"}, rtx});

    model::GpuSpec h200;
    h200.name = "NVIDIA H200";
    h200.compute_capability = "9.0";
    h200.memory_bytes = 143771.0 * 1024 * 1024;
    h200.memory_gb_s = 4800;
    h200.l2_bytes = 60.0 * 1024 * 1024;
    h200.multiprocessors = 132;
    h200.bf16_tflops = 989;
    h200.fp8_tflops = 1979;
    h200.source =
        "NVIDIA H200 datasheet (bandwidth; dense rates are half the sparse ones); memory, multiprocessors and L2 as the "
        "device reports them";
    gpus.push_back({{"h200", "h200_sxm"}, h200});

    model::GpuSpec l40s;
    l40s.name = "NVIDIA L40S";
    l40s.compute_capability = "8.9";
    l40s.memory_bytes = 46068.0 * 1024 * 1024;
    l40s.memory_gb_s = 864;
    l40s.l2_bytes = 96.0 * 1024 * 1024;
    l40s.multiprocessors = 142;
    l40s.bf16_tflops = 362;
    l40s.fp8_tflops = 733;
    l40s.source = "NVIDIA L40S datasheet (dense rates); Ada architecture paper (L2)";
    gpus.push_back({{"l40s"}, l40s});
    return gpus;
}

}  // namespace

model::Expected<model::GpuSpec> gpu_datasheet(std::string_view name) {
    std::vector<std::string> shipped;
    for (const auto& gpu : known_gpus()) {
        if (std::find(gpu.names.begin(), gpu.names.end(), name) != gpu.names.end()) return gpu.spec;
        shipped.push_back(gpu.names.front());
    }
    return model::fail(model::ErrorCode::not_found,
                       fmt::format("there is no datasheet of a GPU called \"{}\"", name.substr(0, 60)), {},
                       fmt::format("known are {}", fmt::join(shipped, ", ")));
}

std::vector<std::string> gpu_aliases(std::string_view name) {
    for (const auto& gpu : known_gpus()) {
        if (std::find(gpu.names.begin(), gpu.names.end(), name) != gpu.names.end()) return gpu.names;
    }
    return {std::string(name)};
}

}  // namespace draftboard::calibration
