// SPDX-License-Identifier: Apache-2.0
#pragma once
// Gives each part of each layer its weight format: builds the Hugging Face names of the part's
// modules and asks the checkpoint's QuantizationScheme. A part whose modules are stored in
// different formats gets the one that most of its weights have, and a note says so. Expert 0 stands
// for all experts of a layer.

#include "model/architecture.h"
#include "model/import/hf_families.h"
#include "model/import/quantization_config.h"

namespace draftboard::model {

/// Fills all formats of `architecture` (layers, MTP, embedding, LM head, cache) and adds notes.
/// Precondition: architecture.validate() is empty.
void resolve_formats(Architecture& architecture, const ModuleNaming& naming,
                     const QuantizationScheme& scheme);

}  // namespace draftboard::model
