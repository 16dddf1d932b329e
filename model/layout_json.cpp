// SPDX-License-Identifier: Apache-2.0
#include "model/layout_json.h"

namespace draftboard::model {

Layout layout_from_json(const JsonReader& reader) {
    Layout layout;
    if (!reader.expect_object()) return layout;
    const auto degree = [&](const char* key) {
        return static_cast<int>(reader.integer_or(key, 1, 1, kMaxParallelDegree));
    };
    layout.tensor = degree("tensor");
    layout.expert = degree("expert");
    layout.all_to_all = reader.boolean_or("all_to_all", false);
    layout.pipeline = degree("pipeline");
    layout.attention_data = degree("attention_data");
    layout.decode_context = degree("decode_context");
    layout.replicas = degree("replicas");
    layout.parallel_blocks = reader.boolean_or("parallel_blocks", false);
    return layout;
}

Json layout_to_json(const Layout& layout) {
    Json json = Json::object();
    json["tensor"] = layout.tensor;
    json["expert"] = layout.expert;
    json["all_to_all"] = layout.all_to_all;
    json["pipeline"] = layout.pipeline;
    json["attention_data"] = layout.attention_data;
    json["decode_context"] = layout.decode_context;
    json["replicas"] = layout.replicas;
    json["parallel_blocks"] = layout.parallel_blocks;
    return json;
}

}  // namespace draftboard::model
