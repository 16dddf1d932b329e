// SPDX-License-Identifier: Apache-2.0
#pragma once
// Datasheet figures of the GPUs that calibrations are shipped for. A machine file carries its own GpuSpec;
// this is for reading measurements, which name a GPU and say nothing else about it.

#include <string>
#include <string_view>
#include <vector>

#include "model/error.h"
#include "model/machine.h"

namespace draftboard::calibration {

/// By shipped name ("rtx-pro-6000", "l40s", "h200") or by the name that measurements use
/// ("rtx_pro_6000_server", "h200_sxm"). Not found: the error lists the known names.
[[nodiscard]] model::Expected<model::GpuSpec> gpu_datasheet(std::string_view name);

/// The names under which measurements speak of this GPU; the shipped name is the first.
[[nodiscard]] std::vector<std::string> gpu_aliases(std::string_view name);

}  // namespace draftboard::calibration
