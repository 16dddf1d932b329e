// SPDX-License-Identifier: Apache-2.0
#pragma once
// Routing as the scenario's "routing" object: {"kind":"uniform|power_law|trace","alpha":1.2,
// "draft_overlap":0.38,"trace_file":"kimi.routing.json"}. A string alone names the kind. The trace file is
// only named here; whoever knows the scenario's folder reads it with read_routing_trace().

#include "model/json_reader.h"
#include "model/routing.h"

namespace draftboard::model {

[[nodiscard]] Routing routing_from_json(const JsonReader& reader);
[[nodiscard]] Json routing_to_json(const Routing& routing);

}  // namespace draftboard::model
