// SPDX-License-Identifier: Apache-2.0
// draftboard-host-costs: what launching costs on this machine, measured (launch_costs.h). Prints one JSON object; its
// fields are the HostConstants of sim/host_constants.h with their medians. Needs a GPU; builds wherever nvcc is.

#include <cstdio>
#include <exception>

#include <cuda_runtime.h>

#include "backend/cuda/check.h"
#include "backend/cuda/launch_costs.h"

int main() {
    namespace cuda = draftboard::backend::cuda;
    try {
        cudaDeviceProp device{};
        cuda::check(cudaGetDeviceProperties(&device, 0), "device");
        const cuda::LaunchCosts costs = cuda::measure_launch_costs();
        int driver = 0;
        int runtime = 0;
        cuda::check(cudaDriverGetVersion(&driver), "driver");
        cuda::check(cudaRuntimeGetVersion(&runtime), "runtime");
        std::printf("{\"format\": \"draftboard.host_costs\", \"version\": 1, \"gpu\": \"%s\", \"driver\": %d, \"runtime\": %d,\n"
                    " \"eager_launch_us\": %.3f, \"graph_launch_us\": %.3f, \"kernel_gap_us\": %.3f, \"stream_gap_us\": %.3f,\n"
                    " \"launch_latency_us\": %.3f, \"sync_us\": %.3f, \"round_trip_us\": %.3f, \"read_back_us\": %.3f}\n",
                    device.name, driver, runtime, costs.eager_launch_us, costs.graph_launch_us, costs.kernel_gap_us,
                    costs.stream_gap_us, costs.launch_latency_us, costs.sync_us, costs.round_trip_us, costs.read_back_us);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "error: %s\n  check that a GPU is free and the driver is loaded\n", error.what());
        return 3;
    }
    return 0;
}
