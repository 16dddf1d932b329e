// SPDX-License-Identifier: Apache-2.0
#include "gui/core/variant.h"

#include <algorithm>

#include "model/scenario_document.h"

namespace draftboard::gui {

using model::Json;

std::string Edit::to_text() const {
    // A text that would be read as something else (a number, a list) stays in its quotes.
    if (value.is_string()) {
        const auto& text = value.get_ref<const std::string&>();
        const bool plain = !text.empty() && text.find_first_of(",\"") == std::string::npos && !model::parse_json(text, "value");
        if (plain) return path + "=" + text;
    }
    return path + "=" + value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

model::Edits Variant::edit_texts() const {
    model::Edits texts;
    for (const Edit& edit : edits) texts.push_back(edit.to_text());
    return texts;
}

const Edit* Variant::find(const std::string& path) const {
    const auto at = std::find_if(edits.begin(), edits.end(), [&](const Edit& edit) { return edit.path == path; });
    return at == edits.end() ? nullptr : &*at;
}

void Variant::set(const std::string& path, Json value) {
    const auto at = std::find_if(edits.begin(), edits.end(), [&](const Edit& edit) { return edit.path == path; });
    if (at != edits.end()) {
        at->value = std::move(value);
    } else {
        edits.push_back({path, std::move(value)});
    }
}

void Variant::reset(const std::string& path) {
    std::erase_if(edits, [&](const Edit& edit) { return edit.path == path || edit.path.starts_with(path + "."); });
}

model::Expected<VariantDocument> variant_document(const Variant& variant, const std::string& data_directory) {
    VariantDocument out;
    auto base = model::load_scenario_document(variant.base, data_directory, {}, out.directory);
    if (!base) return tl::unexpected(base.error());
    out.base = std::move(*base);
    out.document = out.base;
    for (const Edit& edit : variant.edits) {
        if (auto applied = model::apply_edit(out.document, edit.to_text()); !applied) return tl::unexpected(applied.error());
    }
    return out;
}

Json value_at(const Json& document, const std::string& path) {
    const Json* at = &document;
    std::size_t start = 0;
    const bool flat = path.starts_with("constants.") || path.starts_with("constant_reasons.");
    while (start <= path.size()) {
        auto dot = path.find('.', start);
        if (flat && start > 0) dot = std::string::npos;
        const std::string key = path.substr(start, dot == std::string::npos ? dot : dot - start);
        if (!at->is_object()) return {};
        const auto child = at->find(key);
        if (child == at->end()) return {};
        at = &*child;
        if (dot == std::string::npos) return *at;
        start = dot + 1;
    }
    return {};
}

std::string shell_quoted(const std::string& word) {
    const auto safe = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               std::string_view("-_./=:+,%@").find(c) != std::string_view::npos;
    };
    if (!word.empty() && std::all_of(word.begin(), word.end(), safe)) return word;
    std::string out = "'";
    for (const char c : word) {
        if (c == '\'')
            out += "'\\''";
        else
            out += c;
    }
    return out + "'";
}

std::string command_line(const Variant& variant) {
    std::string text = "draftboard predict " + shell_quoted(variant.base);
    for (const Edit& edit : variant.edits) text += " --set " + shell_quoted(edit.to_text());
    return text;
}

}  // namespace draftboard::gui
