// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/device_affinity.h"

#include <algorithm>
#include <charconv>
#include <fstream>

#include <cuda_runtime_api.h>

namespace draftboard::backend::cuda {

std::optional<cpu_set_t> parse_core_list(const std::string& text) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    const char* at = text.data();
    const char* const end = at + text.size();
    const auto number = [&](int& value) {
        const auto [next, error] = std::from_chars(at, end, value);
        if (error != std::errc{} || value < 0 || value >= CPU_SETSIZE) return false;
        at = next;
        return true;
    };
    while (at != end && *at != '\n') {
        int first = 0;
        if (!number(first)) return std::nullopt;
        int last = first;
        if (at != end && *at == '-') {
            ++at;
            if (!number(last) || last < first) return std::nullopt;
        }
        for (int core = first; core <= last; ++core) CPU_SET(core, &cores);
        if (at != end && *at == ',') {
            ++at;
        } else if (at != end && *at != '\n') {
            return std::nullopt;
        }
    }
    if (CPU_COUNT(&cores) == 0) return std::nullopt;
    return cores;
}

bool bind_near_device(int device) {
    char address[32] = {};
    if (cudaDeviceGetPCIBusId(address, sizeof address, device) != cudaSuccess) return false;
    std::string path = address;
    std::ranges::transform(path, path.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    std::ifstream file("/sys/bus/pci/devices/" + path + "/local_cpulist");
    std::string text;
    if (!std::getline(file, text)) return false;
    const auto near = parse_core_list(text);
    cpu_set_t allowed;
    if (!near || sched_getaffinity(0, sizeof allowed, &allowed) != 0) return false;
    cpu_set_t both;
    CPU_AND(&both, &*near, &allowed);
    return CPU_COUNT(&both) > 0 && sched_setaffinity(0, sizeof both, &both) == 0;
}

}  // namespace draftboard::backend::cuda
