// SPDX-License-Identifier: Apache-2.0
#include "model/routing_json.h"

namespace draftboard::model {

Routing routing_from_json(const JsonReader& reader) {
    Routing routing;
    const auto read_kind = [&](const std::string& name, std::string_view key) {
        if (const auto kind = routing_kind_from_name(name)) {
            routing.kind = *kind;
        } else {
            reader.problem(key, "\"" + name + "\" is none of uniform, power_law, trace");
        }
    };
    if (reader.value().is_string()) {
        read_kind(reader.value().get<std::string>(), {});
        return routing;
    }
    if (!reader.expect_object()) return routing;
    read_kind(reader.string_or("kind", "uniform"), "kind");
    routing.alpha = reader.number_or("alpha", routing.alpha, 0, 16);
    routing.draft_overlap = reader.number_or("draft_overlap", 0, 0, 1);
    routing.trace_file = reader.string_or("trace_file", {});
    if (routing.kind == RoutingKind::trace && routing.trace_file.empty()) {
        reader.problem("trace_file", "required with kind trace");
    }
    return routing;
}

Json routing_to_json(const Routing& routing) {
    Json json = Json::object();
    json["kind"] = to_name(routing.kind);
    if (routing.kind == RoutingKind::power_law) json["alpha"] = routing.alpha;
    json["draft_overlap"] = routing.draft_overlap;
    if (!routing.trace_file.empty()) json["trace_file"] = routing.trace_file;
    return json;
}

}  // namespace draftboard::model
