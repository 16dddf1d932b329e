// SPDX-License-Identifier: Apache-2.0
#include "model/import/hf_config.h"

#include <filesystem>

#include <fmt/format.h>

#include "model/import/hf_families.h"
#include "model/import/module_formats.h"
#include "model/import/quantization_config.h"

namespace draftboard::model {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kConfigName = "config.json";

// Patterns times layers. The longest published lists have 195 wildcards for 60 layers; a hostile
// one could keep a reader busy for minutes.
constexpr std::size_t kMaxPatternWork = 100'000;

/// Where the text model's fields are: text_config where the config wraps one, else the root.
struct TextModel {
    const Json* fields = nullptr;
    std::string pointer;
    std::string model_type;  ///< outermost, as the file names itself
    FamilyFunction family = nullptr;
};

Expected<TextModel> find_text_model(const Json& config, const std::string& source) {
    std::vector<Problem> problems;
    const JsonReader root(config, problems);
    if (!root.expect_object()) return tl::unexpected(to_error(problems, source));
    TextModel text{&config, "", root.string("model_type"), nullptr};
    if (!problems.empty()) {
        Error error = to_error(problems, source);
        error.hint = "a Hugging Face config.json names its family in model_type";
        return tl::unexpected(std::move(error));
    }
    text.family = find_family(text.model_type);
    if (text.family == nullptr) {
        return fail(ErrorCode::unsupported, "this model family is not supported",
                    source + ": /model_type", "supported: " + supported_model_types());
    }
    if (root.has("text_config")) {
        const JsonReader inner = root.at("text_config");
        if (!inner.expect_object()) return tl::unexpected(to_error(problems, source));
        text.fields = &inner.value();
        text.pointer = inner.pointer();
        const std::string inner_type = inner.string_or("model_type", text.model_type);
        if (!problems.empty()) return tl::unexpected(to_error(problems, source));
        text.family = find_family(inner_type);
        if (text.family == nullptr) {
            return fail(
                ErrorCode::unsupported, "the family of the inner text model is not supported",
                source + ": /text_config/model_type", "supported: " + supported_model_types());
        }
    }
    return text;
}

/// The checkpoint's dtype, from the text model or the wrapper.
NumberFormat read_dtype(const JsonReader& text, const JsonReader& root,
                        std::vector<std::string>& notes) {
    for (const JsonReader* reader : {&text, &root}) {
        for (const std::string_view key : {"dtype", "torch_dtype"}) {
            if (!reader->has(key)) continue;
            const std::string name = reader->string_or(key, "");
            const auto format = number_format_from_name(name);
            if (format == NumberFormat::bf16 || format == NumberFormat::fp16 ||
                format == NumberFormat::fp32)
                return *format;
            reader->problem(key, "expected bfloat16, float16 or float32");
            return NumberFormat::bf16;
        }
    }
    notes.emplace_back("the config names no dtype; bfloat16 assumed");
    return NumberFormat::bf16;
}

std::string display_name(const Json& config, const std::string& source) {
    if (const auto it = config.find("_name"); it != config.end() && it->is_string())
        return it->get<std::string>();
    const fs::path path(source);
    std::string name = path.filename().string();
    if (name == kConfigName && path.has_parent_path())
        return path.parent_path().filename().string();
    for (const std::string_view end : {"_config.json", ".json"}) {
        if (name.size() > end.size() &&
            name.compare(name.size() - end.size(), end.size(), end) == 0) {
            return name.substr(0, name.size() - end.size());
        }
    }
    return name;
}

}  // namespace

Expected<Architecture> architecture_from_config(const Json& config,
                                                const std::optional<Json>& hf_quant_config,
                                                const std::string& source) {
    const auto found = find_text_model(config, source);
    if (!found) return tl::unexpected(found.error());
    std::vector<Problem> problems;
    const JsonReader root(config, problems);
    const JsonReader text(*found->fields, problems, found->pointer);

    Architecture architecture;
    architecture.name = display_name(config, source);
    architecture.model_type = found->model_type;
    architecture.source = source;
    architecture.hidden = static_cast<int>(text.integer("hidden_size", 1, kMaxFeatures));
    architecture.vocabulary = text.integer("vocab_size", 1, kMaxVocabulary);
    architecture.max_context = text.integer("max_position_embeddings", 1, kMaxContext);
    architecture.tied_embeddings =
        text.boolean_or("tie_word_embeddings", root.boolean_or("tie_word_embeddings", false));
    ModuleNaming naming;
    found->family(FamilyReading{text, architecture, naming});
    const NumberFormat plain = read_dtype(text, root, architecture.notes);
    if (root.has("vision_config"))
        architecture.notes.emplace_back("the vision tower is left out: text model only");
    if (root.has("_source"))
        architecture.notes.push_back("figures: " + root.string_or("_source", ""));
    if (!problems.empty()) return tl::unexpected(to_error(problems, source));
    if (const auto contradictions = architecture.validate(); !contradictions.empty()) {
        return tl::unexpected(to_error(contradictions, source));
    }

    // Multimodal configs hold it beside text_config or inside it.
    const Json* quantization = nullptr;
    std::string pointer;
    for (const JsonReader* reader : {&root, &text}) {
        if (quantization == nullptr && reader->has("quantization_config")) {
            const JsonReader inner = reader->at("quantization_config");
            quantization = &inner.value();
            pointer = inner.pointer();
        }
    }
    const auto scheme = read_quantization(
        quantization, pointer, hf_quant_config ? &*hf_quant_config : nullptr, plain, source);
    if (!scheme) return tl::unexpected(scheme.error());
    if (scheme->lookup_cost() * architecture.layers.size() > kMaxPatternWork) {
        return fail(ErrorCode::too_large,
                    "the quantization lists more patterns than can be tried for this many layers",
                    source, "name modules in full, or use fewer wildcards");
    }
    resolve_formats(architecture, naming, *scheme);
    if (const auto contradictions = architecture.validate(); !contradictions.empty()) {
        return tl::unexpected(to_error(contradictions, source));
    }
    return architecture;
}

Expected<Architecture> read_hf_config(const std::string& path) {
    std::error_code ec;
    const std::string file =
        fs::is_directory(path, ec) ? (fs::path(path) / kConfigName).string() : path;
    const auto config = load_json(file);
    if (!config) return tl::unexpected(config.error());
    std::optional<Json> hf_quant_config;
    const std::string name = fs::path(file).filename().string();
    if (name.size() >= kConfigName.size() &&
        name.compare(name.size() - kConfigName.size(), kConfigName.size(), kConfigName) == 0) {
        const fs::path beside =
            fs::path(file).parent_path() /
            (name.substr(0, name.size() - kConfigName.size()) + "hf_quant_config.json");
        if (fs::is_regular_file(beside, ec)) {
            auto loaded = load_json(beside.string());
            if (!loaded) return tl::unexpected(loaded.error());
            hf_quant_config = std::move(*loaded);
        }
    }
    return architecture_from_config(*config, hf_quant_config, file);
}

}  // namespace draftboard::model
