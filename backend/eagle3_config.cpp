// SPDX-License-Identifier: Apache-2.0
#include "backend/eagle3_config.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "model/import/hf_fields.h"
#include "model/json_reader.h"

namespace draftboard::backend {

using model::ErrorCode;
using model::Expected;
using model::Json;
using model::JsonReader;
using model::Problem;

namespace {

constexpr std::string_view kAuxKey = "eagle_aux_hidden_state_layer_ids";

bool names_eagle3(const Json& config) {
    if (!config.is_object() || !config.contains("architectures")) return false;
    const Json& list = config["architectures"];
    if (!list.is_array()) return false;
    return std::any_of(list.begin(), list.end(), [](const Json& item) {
        return item.is_string() && item.get<std::string>().find("Eagle3") != std::string::npos;
    });
}

void read_ids(const JsonReader& reader, int to_input, int layers, std::vector<int>& ids) {
    for (const double id : reader.numbers_or(kAuxKey, {}, 0, model::kMaxLayers)) {
        const int input = static_cast<int>(id) + to_input;
        if (input != id + to_input || input >= layers) {
            reader.problem(kAuxKey, fmt::format("layer {} is none whose hidden state a target of {} layers can give", id, layers));
            return;
        }
        ids.push_back(input);
    }
}

std::vector<int> read_aux_layers(const JsonReader& root, const model::Architecture& target) {
    const int layers = static_cast<int>(target.layers.size());
    std::vector<int> ids;
    if (root.has("eagle_config")) {
        const JsonReader eagle = root.at("eagle_config");
        if (!eagle.expect_object()) return {};
        read_ids(eagle, 1, layers, ids);
    }
    if (ids.empty()) read_ids(root, 0, layers, ids);
    if (ids.empty()) ids = {2, layers / 2, layers - 3};
    std::sort(ids.begin(), ids.end());
    if (ids.front() < 0 || std::adjacent_find(ids.begin(), ids.end()) != ids.end()) {
        root.problem("eagle_config", fmt::format("a target of {} layers needs different auxiliary layers named in {}",
                                                 layers, kAuxKey));
        return {};
    }
    return ids;
}

/// Variants of the head that compute something else.
void check_variant(const JsonReader& reader, std::vector<Problem>& unsupported) {
    for (const std::string_view key : {"norm_before_residual", "norm_before_fc", "fc_norm"}) {
        if (reader.has(key) && reader.value()[std::string(key)] != false) {
            unsupported.push_back({fmt::format("{}/{}", reader.pointer(), key), "this variant of the head is not supported"});
        }
    }
    if (!reader.boolean_or("use_aux_hidden_state", true)) {
        unsupported.push_back({reader.pointer() + "/use_aux_hidden_state",
                               "a head that reads the last hidden state alone is not supported"});
    }
}

}  // namespace

bool is_eagle3_config(std::string_view config) {
    const auto document = model::parse_json(config, "config.json");
    return document && names_eagle3(*document);
}

Expected<Eagle3Description> read_eagle3_config(std::string_view config, const std::string& name,
                                               const model::Architecture& target) {
    const auto document = model::parse_json(config, name);
    if (!document) return tl::unexpected(document.error());
    if (!names_eagle3(*document)) {
        return model::fail(ErrorCode::invalid_input, "this is no EAGLE-3 head: architectures does not name one",
                           name + ": /architectures", "expected one like LlamaForCausalLMEagle3");
    }
    std::vector<Problem> problems;
    std::vector<Problem> unsupported;
    const JsonReader root(*document, problems);

    Eagle3Description out;
    model::Eagle3Head& head = out.head;
    head.name = std::filesystem::path(name).parent_path().filename().string();
    head.source = name;
    head.hidden = model::read_size(root, "hidden_size");
    head.layers = static_cast<int>(root.integer_or("num_hidden_layers", 1, 1, 1024));
    head.intermediate = model::read_size(root, "intermediate_size");
    const auto vocabulary = root.integer("vocab_size", 1, model::kMaxVocabulary);
    head.draft_vocabulary = root.integer_or("draft_vocab_size", vocabulary, 1, model::kMaxVocabulary);
    if (root.has("kv_lora_rank")) {
        head.mixer = model::read_mla(root);
    } else {
        model::GqaShape gqa = model::read_gqa(root, head.hidden);
        gqa.qkv_bias = gqa.output_bias = root.boolean_or("attention_bias", false);
        head.mixer = gqa;
    }
    if (!problems.empty()) return tl::unexpected(model::to_error(problems, name));

    if (head.layers != 1) {
        unsupported.push_back({"/num_hidden_layers", fmt::format("heads of {} layers are not supported", head.layers)});
    }
    if (vocabulary != target.vocabulary) {
        root.problem("vocab_size", fmt::format("{} is not the target's vocabulary of {}", vocabulary, target.vocabulary));
    }
    if (head.draft_vocabulary > target.vocabulary) {
        root.problem("draft_vocab_size", fmt::format("{} is more than the target's vocabulary of {}", head.draft_vocabulary,
                                                     target.vocabulary));
    }
    if (const auto hidden = root.integer_or("target_hidden_size", target.hidden, 1, model::kMaxFeatures);
        hidden != target.hidden) {
        root.problem("target_hidden_size", fmt::format("{} is not the target's hidden size of {}", hidden, target.hidden));
    }
    check_variant(root, unsupported);
    if (root.has("eagle_config") && root.at("eagle_config").expect_object()) {
        check_variant(root.at("eagle_config"), unsupported);
    }
    out.aux_layers = read_aux_layers(root, target);
    head.aux_layers = static_cast<int>(out.aux_layers.size());
    if (!problems.empty()) return tl::unexpected(model::to_error(problems, name));
    if (!unsupported.empty()) {
        model::Error error = model::to_error(unsupported, name);
        error.code = ErrorCode::unsupported;
        return tl::unexpected(std::move(error));
    }

    model::Architecture shape;  // what read_numerics() looks at
    shape.model_type = "llama";
    shape.max_context = root.integer_or("max_position_embeddings", target.max_context, 1, model::kMaxContext);
    shape.layers.push_back(model::Layer{head.mixer, model::DenseFeedForward{head.intermediate}, {}});
    auto numerics = read_numerics(config, name, shape);
    if (!numerics) return tl::unexpected(std::move(numerics.error()));
    out.numerics = std::move(*numerics);
    return out;
}

}  // namespace draftboard::backend
