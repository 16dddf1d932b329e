// SPDX-License-Identifier: Apache-2.0
#pragma once
// Model families of Hugging Face: from a family's fields to layers (shapes only), and the names its
// modules have. How files are found and common fields read is hf_config.h; how weights are stored
// comes after, in module_formats.h, from the names given here. One function a family;
// hf_families.cpp has the table.

#include <array>
#include <string>
#include <string_view>

#include "model/architecture.h"
#include "model/import/quantization_config.h"
#include "model/json_reader.h"

namespace draftboard::model {

/// Module names below "model.layers.N.", as the family's checkpoints have them.
struct ModuleNaming {
    std::string_view attention = "self_attn";
    std::string_view delta_net = "linear_attn";
    std::string_view mlp = "mlp";
    /// Below `mlp`; expert 0 stands for all. Fused checkpoints repeat gate_up.
    std::array<std::string_view, 3> expert{"experts.0.gate_proj", "experts.0.up_proj",
                                           "experts.0.down_proj"};
    std::string_view shared = "shared_experts";
    std::string_view router = "gate";
    ModuleClass router_class = ModuleClass::router_parameter;
    /// Prefix of the MTP layers; empty: they are numbered on behind the decoder's.
    std::string_view mtp_layers;
};

/// What every family function gets: the fields (of text_config where nested) and what it fills.
struct FamilyReading {
    const JsonReader& text;
    Architecture& architecture;  ///< hidden and vocabulary are set; gets layers, mtp, notes
    ModuleNaming& naming;
};

using FamilyFunction = void (*)(const FamilyReading&);

/// Null for a model_type that is none of the supported ones.
[[nodiscard]] FamilyFunction find_family(std::string_view model_type);
[[nodiscard]] std::string supported_model_types();  ///< comma-separated, for error hints

}  // namespace draftboard::model
