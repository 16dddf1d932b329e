// SPDX-License-Identifier: Apache-2.0
#include "model/speculation_json.h"

#include <algorithm>

#include "model/acceptance_json.h"
#include "model/eagle3_head.h"
#include "model/layout.h"

namespace draftboard::model {

namespace {

Eagle3Head head_of_style(const JsonReader& reader, std::string_view key, const std::string& style,
                         const Architecture& target) {
    if (style == "llama_style") return llama_style_eagle3_head(target);
    if (style == "mla_style") return mla_style_eagle3_head(target);
    if (!style.empty()) reader.problem(key, "\"" + style + "\" is neither llama_style nor mla_style");
    return default_eagle3_head(target);
}

Eagle3Head head_from_json(const JsonReader& reader, const Architecture& target) {
    if (reader.value().is_string()) {
        return head_of_style(reader, {}, reader.value().get<std::string>(), target);
    }
    if (!reader.expect_object()) return default_eagle3_head(target);
    Eagle3Head head = head_of_style(reader, "style", reader.string_or("style", {}), target);
    const auto number = [&](const char* key, int fallback, int limit) {
        return static_cast<int>(reader.integer_or(key, fallback, 1, limit));
    };
    head.name = reader.string_or("name", head.name);
    head.layers = number("layers", head.layers, 1024);
    head.aux_layers = number("aux_layers", head.aux_layers, 1024);
    head.intermediate = number("intermediate", head.intermediate, 1 << 24);
    head.draft_vocabulary = reader.integer_or("draft_vocabulary", head.draft_vocabulary, 1, std::int64_t{1} << 31);
    head.own_embedding = reader.boolean_or("own_embedding", head.own_embedding);
    if (auto* gqa = std::get_if<GqaShape>(&head.mixer)) {
        gqa->heads = number("heads", gqa->heads, 1 << 16);
        gqa->kv_heads = number("kv_heads", gqa->kv_heads, 1 << 16);
        gqa->head_dim = number("head_dim", gqa->head_dim, 1 << 16);
    } else if (auto* mla = std::get_if<MlaShape>(&head.mixer)) {
        mla->heads = number("heads", mla->heads, 1 << 16);
    }
    const std::string format{reader.string_or("format", "bf16")};
    if (const auto known = number_format_from_name(format); known && bits_per_element(*known) >= 8) {
        head.format = WeightFormat::plain(*known);
    } else {
        reader.problem("format", "\"" + format + "\" is none of bf16, fp16, fp32, fp8_e4m3, int8");
    }
    head.source = reader.string_or("source", head.source);
    return head;
}

Json head_to_json(const Eagle3Head& head) {
    Json json = Json::object();
    const auto* gqa = std::get_if<GqaShape>(&head.mixer);
    const auto* mla = std::get_if<MlaShape>(&head.mixer);
    json["style"] = mla != nullptr ? "mla_style" : "llama_style";
    json["name"] = head.name;
    json["layers"] = head.layers;
    json["aux_layers"] = head.aux_layers;
    json["intermediate"] = head.intermediate;
    json["draft_vocabulary"] = head.draft_vocabulary;
    if (gqa != nullptr) {
        json["heads"] = gqa->heads;
        json["kv_heads"] = gqa->kv_heads;
        json["head_dim"] = gqa->head_dim;
    } else if (mla != nullptr) {
        json["heads"] = mla->heads;
    }
    json["own_embedding"] = head.own_embedding;
    json["format"] = to_name(head.format.format);
    if (!head.source.empty()) json["source"] = head.source;
    return json;
}

}  // namespace

Speculation speculation_from_json(const JsonReader& reader, const Architecture& target) {
    Speculation out;
    const auto read_method = [&](const std::string& name, std::string_view key) {
        if (const auto method = speculation_method_from_name(name)) {
            out.method = *method;
        } else {
            reader.problem(key, "\"" + name + "\" is none of none, eagle3, mtp, ngram, draft_model");
        }
    };
    if (reader.value().is_string()) {
        read_method(reader.value().get<std::string>(), {});
        if (out.method != SpeculationMethod::none) {
            reader.problem({}, "a method alone says nothing about acceptance; give an object");
        }
        return out;
    }
    if (!reader.expect_object()) return out;
    read_method(reader.string_or("method", "none"), "method");
    if (out.method == SpeculationMethod::none) return out;

    constexpr int kDefaultSteps = 3;  // SGLang's automatic choice for MoE models is (3, 1, 4)
    out.steps = static_cast<int>(reader.integer_or("steps", kDefaultSteps, 1, kMaxDraftTokens - 1));
    out.top_k = static_cast<int>(reader.integer_or("top_k", 1, 1, 1024));
    out.draft_tokens = static_cast<int>(reader.integer_or("draft_tokens", 0, 0, kMaxDraftTokens));
    out.sibling_decay = reader.number_or("sibling_decay", 1.0, 0, 1);
    out.draft_tensor = static_cast<int>(reader.integer_or("draft_tensor", 0, 0, kMaxParallelDegree));
    out.pad_misses = reader.boolean_or("pad_misses", true);
    out.draft_model = reader.string_or("draft_model", {});
    if (out.method == SpeculationMethod::draft_model && out.draft_model.empty()) {
        reader.problem("draft_model", "required with method draft_model");
    }
    if (out.method == SpeculationMethod::eagle3) {
        out.head = reader.has("head") ? head_from_json(reader.at("head"), target) : default_eagle3_head(target);
    }
    out.acceptance = acceptance_from_json(reader.at("acceptance"), std::max(1, out.depth()));
    return out;
}

Json speculation_to_json(const Speculation& speculation) {
    Json json = Json::object();
    json["method"] = to_name(speculation.method);
    if (speculation.method == SpeculationMethod::none) return json;
    json["steps"] = speculation.steps;
    json["top_k"] = speculation.top_k;
    json["draft_tokens"] = speculation.draft_tokens;
    json["sibling_decay"] = speculation.sibling_decay;
    json["acceptance"] = acceptance_to_json(speculation.acceptance);
    if (speculation.head) json["head"] = head_to_json(*speculation.head);
    if (!speculation.draft_model.empty()) json["draft_model"] = speculation.draft_model;
    json["draft_tensor"] = speculation.draft_tensor;
    json["pad_misses"] = speculation.pad_misses;
    return json;
}

}  // namespace draftboard::model
