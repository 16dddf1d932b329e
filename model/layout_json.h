// SPDX-License-Identifier: Apache-2.0
#pragma once
// A layout as the scenario's "layout" object: {"tensor":8,"expert":1,"all_to_all":false,"pipeline":1,
// "attention_data":1,"decode_context":1,"replicas":1}; every key is optional. Whether the layout fits a
// model is Layout::validate()'s question, not asked here.

#include "model/json_reader.h"
#include "model/layout.h"

namespace draftboard::model {

[[nodiscard]] Layout layout_from_json(const JsonReader& reader);
[[nodiscard]] Json layout_to_json(const Layout& layout);

}  // namespace draftboard::model
