// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reads a Hugging Face config.json into an Architecture: finds the text model in multimodal
// wrappers, has its family read the shapes (hf_families.h), resolves weight formats
// (quantization_config.h, module_formats.h) and validates. Weights themselves are not opened.
// Shipped configs by name: architecture_library.h.
//
// Keys of our own that data/architectures uses: "_name" (display name) and "_source" (where the
// figures come from).

#include <optional>
#include <string>

#include "model/architecture.h"
#include "model/json_reader.h"

namespace draftboard::model {

/// `path`: a config.json file, or a directory that holds one. An hf_quant_config.json beside it is
/// read as well (for "X_config.json": "X_hf_quant_config.json").
[[nodiscard]] Expected<Architecture> read_hf_config(const std::string& path);

/// The same from parsed documents; `source` names the file in errors and in the result. Errors:
/// an unknown model_type (lists the supported ones), missing or malformed fields by JSON pointer,
/// contradictions, an unknown quantization method.
[[nodiscard]] Expected<Architecture> architecture_from_config(
    const Json& config, const std::optional<Json>& hf_quant_config, const std::string& source);

}  // namespace draftboard::model
