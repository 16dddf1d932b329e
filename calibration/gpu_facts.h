// SPDX-License-Identifier: Apache-2.0
#pragma once
// What driver and boards of this box are, by NVIDIA's management library, which is opened when it is asked (libnvidia-ml.so.1; no
// header of it is needed): where a measurement was made, and whether a box is still the one that a calibration was made on.
// What the GPUs can do is measured (EngineFactory::device_costs), how they hang together is `machine probe`'s.

#include <functional>
#include <string>
#include <vector>

#include "model/json_reader.h"

namespace draftboard::calibration {

struct GpuBoard {
    std::string name;
    std::string uuid;
    int pcie_generation = 0;      ///< of the link now; a link at rest may be slower than under load
    int pcie_width = 0;
    int most_pcie_generation = 0; ///< that board and slot can do
    int most_pcie_width = 0;
    double sm_mhz = 0;            ///< now
    double memory_mhz = 0;
    double most_sm_mhz = 0;
    double power_limit_w = 0;
    int nvlinks = 0;              ///< active
    bool operator==(const GpuBoard&) const = default;
};

struct GpuFacts {
    std::string driver;
    std::vector<GpuBoard> boards;
    std::vector<std::vector<int>> levels;  ///< between boards: NVML's common ancestor (0 same board ... 50 system)
    bool operator==(const GpuFacts&) const = default;
};

/// Functions of the library by name; null: it has none of that name. Tests give their own.
using FindFunction = std::function<void*(const char* name)>;

/// Errors: the library is not there, or refuses to start.
[[nodiscard]] model::Expected<GpuFacts> probe_gpus();
[[nodiscard]] model::Expected<GpuFacts> probe_gpus(const FindFunction& find);

[[nodiscard]] model::Json to_json(const GpuFacts& facts);
/// Problems go to the reader.
[[nodiscard]] GpuFacts gpu_facts_from_json(const model::JsonReader& reader);

/// What differs in a way that changes times: driver, boards, width and possible generation of links, power limit. Sentences.
[[nodiscard]] std::vector<std::string> differences(const GpuFacts& then, const GpuFacts& now);

}  // namespace draftboard::calibration
